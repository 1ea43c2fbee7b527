"""A part of a graph as SVG: boxes in columns, curves between them; no script, no font, no file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from foretrace.exchange.drawing.layout import Places, places
from foretrace.exchange.drawing.subgraph import Subgraph
from foretrace.exchange.drawing.words import (
    colour_of,
    duration_text,
    edge_colour,
    edge_text,
    full_text,
    short_text,
)
from foretrace.graph import EdgeKind

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


def _heads(where: Places) -> Iterator[str]:
    for column, title in enumerate(where.titles):
        x = _LEFT + column * _COLUMN
        yield f'<text class="head" x="{x}" y="{_TOP - 14}">{escape(title)}</text>'


def _boxes(part: Subgraph, where: Places) -> Iterator[str]:
    graph = part.graph
    for at, node in enumerate(part.node.tolist()):
        x, y = _corner(where, at)
        css = ' class="centre"' if at == part.centre else ""
        yield f"<g><title>{escape(full_text(graph, node))}</title>"
        yield (
            f'<rect{css} x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'fill="{colour_of(graph, node)}"/>'
        )
        yield f'<text x="{x + 8}" y="{y + 14}">{escape(short_text(graph, node, _LETTERS))}</text>'
        told = escape(f"{node}  {duration_text(int(graph.measured_ns[node]))}")
        yield f'<text class="small" x="{x + 8}" y="{y + 27}">{told}</text></g>'


def _edges(part: Subgraph, where: Places) -> Iterator[str]:
    edges = zip(part.source.tolist(), part.target.tolist(), part.edge_kind.tolist(), strict=True)
    for source, target, kind in edges:
        colour = edge_colour(EdgeKind(kind))
        yield f'<path d="{_curve(where, source, target)}" style="stroke:{colour}"/>'


def _curve(where: Places, source: int, target: int) -> str:
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


def _corner(where: Places, at: int) -> tuple[int, int]:
    return _LEFT + int(where.column[at]) * _COLUMN, _TOP + int(where.row[at]) * _ROW
