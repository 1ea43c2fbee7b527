"""A part of a graph as DOT or SVG: laid out, labelled and written, as the file's name says.

One column per thread or stream, time downwards. A node stands below all it waits for and below its
lane's last one, so that no edge points up and no two nodes meet. Order inside a column is the
graph's, which needs no search for few crossings.

Graphviz's language has one cluster per thread or stream; SVG is laid out here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from foretrace.base import NS_PER_UNIT, GraphError, Int64s, visible, write_whole
from foretrace.exchange.drawing.subgraph import Choice, Subgraph, subgraph
from foretrace.graph import (
    DEVICE_KINDS,
    NO_COLLECTIVE,
    NO_LANE,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    block_words,
)

_COMMUNICATION = (NodeKind.ARRIVE, NodeKind.HUB, NodeKind.FINISH, NodeKind.GHOST)
# Paul Tol's light scheme, readable with any colour vision: https://personal.sron.nl/~pault/
_HOST_FILL, _DEVICE_FILL, _COMMUNICATION_FILL, _PLAIN_FILL = (
    "#77AADD", "#BBCC33", "#EE8866", "#DDDDDD",
)  # fmt: skip
_EDGE_COLOURS = {
    EdgeKind.LAUNCH: "#0077BB",
    EdgeKind.ISSUE: "#0077BB",
    EdgeKind.WAKE: "#CC3311",
    EdgeKind.QUEUE: "#CC3311",
    EdgeKind.STREAM: "#117733",
    EdgeKind.PROGRAMMATIC: "#117733",
    EdgeKind.GRAPH: "#117733",
    EdgeKind.INTER_STREAM: "#009988",
    EdgeKind.INTER_STREAM_INFERRED: "#009988",
    EdgeKind.ARRIVAL: "#EE7733",
    EdgeKind.TRANSFER: "#EE7733",
    EdgeKind.GHOST: "#EE7733",
    EdgeKind.THREAD: "#AA3377",
}
_OTHER_EDGE = "#777777"

_WIDTH, _HEIGHT = 210, 34  # of a box, in pixels
_COLUMN, _ROW = 260, 52  # from box to box
_LEFT, _TOP = 20, 64
_SVG_LETTERS = 28  # that a box of that width holds in 12 pixels
_LEGEND = 150  # width of one entry
_STYLE = (
    "text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1a1a1a}"
    ".small{font-size:10px;fill:#555}.head{font-weight:600}"
    "rect{stroke:#0003;rx:4}.centre{stroke:#000;stroke-width:2}"
    "path{fill:none;stroke-width:1.3}"
)

_LETTERS = 40


def short_text(graph: ExecutionGraph, node: int, letters: int) -> str:
    """A node's name without return type, arguments, and what else has no room."""
    name: str = graph.names[graph.name[node]]
    if graph.collective[node] != NO_COLLECTIVE:
        one = graph.collectives[graph.collective[node]]
        name = f"{NodeKind(int(graph.kind[node])).name.lower()} {one.name} {one.position}"
    name = name.removeprefix("void ").removeprefix("at::native::")
    name = name.replace("(anonymous namespace)::", "")
    if len(name) > letters:
        name = name.partition("<")[0].partition("(")[0] or name
    if len(name) > letters:
        begin = letters // 3
        name = f"{name[:begin]}...{name[begin + 3 - letters :]}"
    return name


def full_text(graph: ExecutionGraph, node: int) -> str:
    """All that is known of a node, a line each."""
    operator = int(graph.operator[node])
    lines = [
        graph.names[graph.name[node]],
        (
            f"node {node}, {NodeKind(int(graph.kind[node])).name.lower().replace('_', ' ')}, "
            f"{int(graph.measured_ns[node]):,} ns"
        ),
        graph.names[operator] if operator >= 0 else "",
        block_words(int(graph.part[node]), int(graph.phase[node]), int(graph.layer[node])),
        graph.step_names[graph.step[node]] if graph.step[node] >= 0 else "",
    ]
    return "\n".join(filter(None, lines))


def duration_text(duration_ns: int) -> str:
    """A duration with three digits: `12.3 us`."""
    for unit, unit_ns in NS_PER_UNIT.items():
        if duration_ns >= unit_ns > 1:
            return f"{duration_ns / unit_ns:.3g} {unit}"
    return f"{duration_ns} ns"


def colour_of(graph: ExecutionGraph, node: int) -> str:
    """A box's colour: host, device, communication, or a mark."""
    kind = NodeKind(int(graph.kind[node]))
    if kind in _COMMUNICATION:
        return _COMMUNICATION_FILL
    if kind in DEVICE_KINDS:
        return _DEVICE_FILL
    marks = (NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.HOST_SEGMENT)
    return _PLAIN_FILL if kind in marks else _HOST_FILL


def edge_colour(kind: EdgeKind) -> str:
    """A line's colour."""
    return _EDGE_COLOURS.get(kind, _OTHER_EDGE)


def edge_text(kind: EdgeKind) -> str:
    """What a line means, in words."""
    return kind.name.lower().replace("_", " ")


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
        label = escape(visible(short_text(graph, node, _SVG_LETTERS)))
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


@dataclass(frozen=True)
class Drawing:
    """What was drawn."""

    path: Path
    num_nodes: int
    num_edges: int


def write_drawing(path: Path, graph: ExecutionGraph, choice: Choice) -> Drawing:
    """Draw the chosen part of a graph.

    Args:
        path: ends in `.svg`, or in `.dot` or `.gv` for Graphviz.
        graph: of any origin.
        choice: which part.

    Raises:
        GraphError: if nothing fits, more than can be read, or the ending says no format.
    """
    writers = {".svg": svg_text, ".dot": dot_text, ".gv": dot_text}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise GraphError(
            f"cannot draw to {path}: the ending {path.suffix!r} names no format, expected one of "
            f"{', '.join(writers)}"
        )
    part = subgraph(graph, choice)
    write_whole(path, writer(part))
    return Drawing(path, len(part.node), len(part.source))


def dot_text(part: Subgraph) -> str:
    """The drawing as a DOT file; `dot -Tsvg` and others lay it out."""
    graph = part.graph
    by_lane: dict[int, list[int]] = defaultdict(list)
    for node in part.node.tolist():
        by_lane[int(graph.lane[node])].append(node)
    lines = [
        "digraph foretrace {",
        "  rankdir=TB;",
        '  node [shape=box, style="filled,rounded", fontname="sans-serif", fontsize=10];',
        "  edge [fontname=sans-serif, fontsize=8];",
    ]
    for lane, nodes in sorted(by_lane.items()):
        title = "all ranks" if lane == NO_LANE else graph.lanes[lane].label
        lines += [f"  subgraph cluster_{lane + 1} {{", f"    label={_quoted(title)};"]
        lines += [f"    {_node(part, node)}" for node in nodes]
        lines.append("  }")
    edges = zip(part.source.tolist(), part.target.tolist(), part.edge_kind.tolist(), strict=True)
    lines += [
        f"  n{part.node[source]} -> n{part.node[target]} "
        f"[color={_quoted(edge_colour(EdgeKind(kind)))}, "
        f"edgetooltip={_quoted(edge_text(EdgeKind(kind)))}];"
        for source, target, kind in edges
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _node(part: Subgraph, node: int) -> str:
    graph = part.graph
    told = f"{node}  {duration_text(int(graph.measured_ns[node]))}"
    label = f"{short_text(graph, node, _LETTERS)}\n{told}"
    is_centre = part.centre >= 0 and part.node[part.centre] == node
    width = ", penwidth=2" if is_centre else ""
    return (
        f"n{node} [label={_quoted(label)}, fillcolor={_quoted(colour_of(graph, node))}, "
        f"tooltip={_quoted(full_text(graph, node))}{width}];"
    )


def _quoted(text: str) -> str:
    inside = visible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{inside}"'
