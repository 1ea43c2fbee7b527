"""A part of a graph is chosen, laid out and written, as the file's name says.

Graphviz's language has one cluster per thread or stream; SVG is laid out here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from foretrace.base import GraphError, visible, write_whole
from foretrace.exchange.drawing.labels import (
    colour_of,
    duration_text,
    edge_colour,
    edge_text,
    full_text,
    short_text,
)
from foretrace.exchange.drawing.subgraph import Choice, Subgraph, subgraph
from foretrace.exchange.drawing.svg import svg_text
from foretrace.graph import NO_LANE, EdgeKind, ExecutionGraph

_LETTERS = 40


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
