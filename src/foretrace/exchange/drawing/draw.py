"""A part of a graph is chosen, laid out and written, as the file's name says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrace.base import GraphError, written_beside
from foretrace.exchange.drawing.dot import dot_text
from foretrace.exchange.drawing.subgraph import Choice, subgraph
from foretrace.exchange.drawing.svg import svg_text
from foretrace.graph import ExecutionGraph

_WRITERS = {".svg": svg_text, ".dot": dot_text, ".gv": dot_text}


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
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise GraphError(
            f"cannot draw to {path}: the ending {path.suffix!r} names no format, expected one of "
            f"{', '.join(_WRITERS)}"
        )
    part = subgraph(graph, choice)
    with written_beside(path) as beside:
        beside.write_text(writer(part), encoding="utf-8")
    return Drawing(path, len(part.node), len(part.source))
