"""A part of a graph in Graphviz's language: one cluster per thread or stream."""

from __future__ import annotations

from collections import defaultdict

from foretrace.exchange.drawing.subgraph import Subgraph
from foretrace.exchange.drawing.words import (
    colour_of,
    duration_text,
    edge_colour,
    edge_text,
    full_text,
    short_text,
)
from foretrace.graph import NO_LANE, EdgeKind

_LETTERS = 40


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
    inside = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{inside}"'
