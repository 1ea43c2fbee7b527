"""The static engine by its definition, one node at a time."""

from __future__ import annotations

from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph


def start_and_end(graph: ExecutionGraph, duration_ns: Int64s) -> tuple[list[int], list[int]]:
    """Start and end of every node, by node."""
    starts: list[int] = []
    ends: list[int] = []
    for node in range(graph.num_nodes):
        edges = range(int(graph.first_edge[node]), int(graph.first_edge[node + 1]))
        ready = [ends[int(graph.predecessor[edge])] + int(graph.lag_ns[edge]) for edge in edges]
        starts.append(max([0, *ready]))
        ends.append(starts[-1] + int(duration_ns[node]))
    return starts, ends
