"""A part of a graph as SVG: boxes in columns, curves between them; no script, no font, no file.

One column per thread or stream, time downwards. A node stands below all it waits for and below its
lane's last one, so that no edge points up and no two nodes meet. Order inside a column is the
graph's, which needs no search for few crossings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np

from foretrace.base import Int64s, visible
from foretrace.exchange.drawing.labels import (
    colour_of,
    duration_text,
    edge_colour,
    edge_text,
    full_text,
    short_text,
)
from foretrace.exchange.drawing.subgraph import Subgraph
from foretrace.graph import NO_LANE, EdgeKind

_WIDTH, _HEIGHT = 210, 34  # of a box, in pixels
_COLUMN, _ROW = 260, 52  # from box to box
_LEFT, _TOP = 20, 64
_LETTERS = 28  # that a box of that width holds in 12 pixels
_LEGEND = 150  # width of one entry
_STYLE = (
    "text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1a1a1a}"
    ".small{font-size:10px;fill:#555}.head{font-weight:600}"
    "rect{stroke:#0003;rx:4}.centre{stroke:#000;stroke-width:2}"
    "path{fill:none;stroke-width:1.3}"
)


def svg_text(part: Subgraph) -> str:
    """The drawing as an SVG document."""
    where = places(part)
    kinds = sorted(set(part.edge_kind.tolist()))
    width = _LEFT * 2 + max(len(where.titles) * _COLUMN, len(kinds) * _LEGEND)
    height = _TOP + (int(where.row.max(initial=0)) + 1) * _ROW + _LEFT
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="part of an execution graph">'
        ),
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" style="fill:#fff;stroke:none"/>',
        *_legend(kinds),
        *_heads(where),
        *_edges(part, where),
        *_boxes(part, where),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _legend(kinds: list[int]) -> Iterator[str]:
    for at, kind in enumerate(kinds):
        x = _LEFT + at * _LEGEND
        colour = edge_colour(EdgeKind(kind))
        yield f'<path d="M{x} 16h24" style="stroke:{colour};stroke-width:2"/>'
        yield f'<text class="small" x="{x + 30}" y="20">{edge_text(EdgeKind(kind))}</text>'


def _heads(where: NodePlaces) -> Iterator[str]:
    for column, title in enumerate(where.titles):
        x = _LEFT + column * _COLUMN
        yield f'<text class="head" x="{x}" y="{_TOP - 14}">{escape(visible(title))}</text>'


def _boxes(part: Subgraph, where: NodePlaces) -> Iterator[str]:
    graph = part.graph
    for at, node in enumerate(part.node.tolist()):
        x, y = _corner(where, at)
        css = ' class="centre"' if at == part.centre else ""
        yield f"<g><title>{escape(visible(full_text(graph, node)))}</title>"
        yield (
            f'<rect{css} x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'fill="{colour_of(graph, node)}"/>'
        )
        label = escape(visible(short_text(graph, node, _LETTERS)))
        yield f'<text x="{x + 8}" y="{y + 14}">{label}</text>'
        told = escape(f"{node}  {duration_text(int(graph.measured_ns[node]))}")
        yield f'<text class="small" x="{x + 8}" y="{y + 27}">{told}</text></g>'


def _edges(part: Subgraph, where: NodePlaces) -> Iterator[str]:
    edges = zip(part.source.tolist(), part.target.tolist(), part.edge_kind.tolist(), strict=True)
    for source, target, kind in edges:
        colour = edge_colour(EdgeKind(kind))
        yield f'<path d="{_curve(where, source, target)}" style="stroke:{colour}"/>'


def _curve(where: NodePlaces, source: int, target: int) -> str:
    """From box to box: straight to the one below, else out at the side and in at the side."""
    (x, y), (to_x, to_y) = _corner(where, source), _corner(where, target)
    rows = int(where.row[target] - where.row[source])
    if x == to_x and rows == 1:
        return f"M{x + _WIDTH // 2} {y + _HEIGHT}V{to_y}"
    middle, to_middle = y + _HEIGHT // 2, to_y + _HEIGHT // 2
    if x == to_x:
        bow = x - 14 - min(rows, 6)
        return f"M{x} {middle}C{bow} {middle} {bow} {to_middle} {to_x} {to_middle}"
    if x < to_x:
        begin, end, bend = x + _WIDTH, to_x, (x + _WIDTH + to_x) // 2
    else:
        begin, end, bend = x, to_x + _WIDTH, (x + to_x + _WIDTH) // 2
    return f"M{begin} {middle}C{bend} {middle} {bend} {to_middle} {end} {to_middle}"


def _corner(where: NodePlaces, at: int) -> tuple[int, int]:
    return _LEFT + int(where.column[at]) * _COLUMN, _TOP + int(where.row[at]) * _ROW


@dataclass(frozen=True)
class NodePlaces:
    """A column and a row of each node."""

    column: Int64s  # int64[nodes]
    row: Int64s  # int64[nodes]
    titles: tuple[str, ...]  # of the columns


def places(part: Subgraph) -> NodePlaces:
    """Where to draw each node."""
    graph = part.graph
    lane = graph.lane[part.node]
    lanes = sorted(
        {int(one) for one in lane.tolist() if one != NO_LANE},
        key=lambda one: (graph.lanes[one].rank, graph.lanes[one].is_device, one),
    )
    column_of = {one: at for at, one in enumerate(lanes)}
    titles = [graph.lanes[one].label for one in lanes]
    if (lane == NO_LANE).any():  # meetings of collectives belong to no lane
        column_of[NO_LANE] = len(titles)
        titles.append("all ranks")
    column = np.array([column_of[int(one)] for one in lane], np.int64)
    return NodePlaces(column, _rows(part, column, len(titles)), tuple(titles))


def _rows(part: Subgraph, column: Int64s, num_columns: int) -> Int64s:
    order = np.argsort(part.target, kind="stable")
    first = np.searchsorted(part.target[order], np.arange(len(part.node) + 1))
    row = np.zeros(len(part.node), np.int64)
    free = np.zeros(num_columns, np.int64)  # first row that is free, by column
    for node in range(len(part.node)):
        sources = part.source[order[first[node] : first[node + 1]]]
        above = int(row[sources].max()) + 1 if len(sources) else 0
        row[node] = max(above, int(free[column[node]]))
        free[column[node]] = row[node] + 1
    return row
