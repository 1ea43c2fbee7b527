"""Graphs through Chakra files and back, and what a graph says, to compare."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from foretrace.exchange import write_chakra
from foretrace.graph import ExecutionGraph, Recording, Timeline, chakra_recording, verify
from foretrace.trace import read_chakra


def again(folder: Path, graph: ExecutionGraph, timeline: Timeline | None = None) -> Recording:
    """The graph written as Chakra, and read."""
    written = write_chakra(folder / "job", graph, timeline=timeline)
    recording = chakra_recording([read_chakra(path) for path in written.paths])
    verify(recording.graph)
    return recording


def described(timeline: Timeline) -> Counter[tuple[object, ...]]:
    """Every node with all that a graph says of it and its times, whatever its number."""
    graph = timeline.graph
    edges = [
        tuple(sorted(zip(graph.edge_kind[a:b].tolist(), graph.lag_ns[a:b].tolist(), strict=True)))
        for a, b in zip(graph.first_edge[:-1].tolist(), graph.first_edge[1:].tolist(), strict=True)
    ]
    texts = [
        [graph.names[name] if name >= 0 else "" for name in column.tolist()]
        for column in (graph.name, graph.signature, graph.operator, graph.operator_signature)
    ]
    numbers = [
        column.tolist()
        for column in (
            graph.kind, graph.rank, graph.lane, graph.step, graph.part, graph.phase, graph.layer,
            graph.microbatch, graph.measured_ns, graph.inflation, timeline.start_ns,
            timeline.end_ns,
        )
    ]  # fmt: skip
    which = [None if at < 0 else graph.collectives[at] for at in graph.collective.tolist()]
    return Counter(zip(*texts, *numbers, which, edges, strict=True))
