"""The static engine: one pass over the nodes gives a timeline; one back over it, slack and path.

Node order is topological, so each node's predecessors have ended when it is reached: it starts
when the last of them, each plus its edge's lag, is over, and never before 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int64s, SimulationError
from foretrace.graph import NO_LANE, NO_NODE, ExecutionGraph, NodeKind, Timeline
from foretrace.simulate._compiled import (
    LIMIT_NS,
    NO_LIMIT_NS,
    Status,
    _end_times,
    _slack,
    _walk_back,
)

NO_EDGE = -1


def simulate(graph: ExecutionGraph, duration_ns: Int64s | None = None) -> Timeline:
    """Start and end of every node, in ns from the graph's zero.

    Args:
        graph: who waits for whom; node order must be topological.
        duration_ns: int64[nodes], how long each node takes; the measured durations if left out.

    Raises:
        SimulationError: if the durations do not fit the graph or one is negative, if the graph's
            columns do not fit each other, or if a node stands before one that it waits for.
    """
    durations = graph.measured_ns if duration_ns is None else duration_ns
    check_type(durations)
    check_columns(graph, durations.shape)
    end_ns = np.empty(graph.num_nodes, dtype=np.int64)
    status, node = _end_times(
        *graph.edges_in_one_piece,
        np.ascontiguousarray(durations),
        end_ns,
    )
    if status != Status.OK:
        raise SimulationError(sentence(graph, durations, Status(status), node))
    return Timeline(graph=graph, start_ns=end_ns - durations, end_ns=end_ns, is_measured=False)


def check_type(durations: Int64s) -> None:
    """Refuse durations that the compiled loop would misread."""
    if durations.dtype != np.int64:
        raise SimulationError(
            f"durations must be int64 nanoseconds, got {durations.dtype}: "
            "round them and convert with .astype(np.int64)"
        )


def check_columns(graph: ExecutionGraph, durations_shape: tuple[int, ...]) -> None:
    """Refuse arrays that a compiled loop would read past the end of."""
    if durations_shape != (graph.num_nodes,):
        raise SimulationError(
            f"durations must hold one number per node: expected shape ({graph.num_nodes},), got "
            f"{durations_shape}. Start from graph.measured_ns of the graph that is simulated."
        )
    first = graph.first_edge
    has_ends = len(first) == graph.num_nodes + 1 and first[0] == 0
    if not has_ends or first[-1] != graph.num_edges:
        raise SimulationError(
            f"first_edge must go from 0 to the number of edges ({graph.num_edges}) in "
            f"{graph.num_nodes + 1} entries, got {len(first)} entries "
            f"{first[:2].tolist()}..{first[-2:].tolist()}: "
            "check the graph with foretrace.graph.verify"
        )
    if len(graph.lag_ns) != graph.num_edges:
        raise SimulationError(
            f"lag_ns must hold one number per edge: expected {graph.num_edges}, "
            f"got {len(graph.lag_ns)}"
        )


def sentence(graph: ExecutionGraph, durations: Int64s | Float64s, status: Status, node: int) -> str:
    """What stopped the loop, and at which node."""
    where = _described(graph, node)
    if status == Status.NEGATIVE_DURATION:
        count = int((durations < 0).sum())
        return (
            f"negative duration: {where} takes {durations[node]} ns, expected 0 or more "
            f"({count} of {graph.num_nodes} nodes are negative). Clip the durations at 0."
        )
    if status == Status.ORDER:
        edges = slice(int(graph.first_edge[node]), int(graph.first_edge[node + 1]))
        return (
            f"node order is not topological: {where} waits for nodes "
            f"{graph.predecessor[edges][:5].tolist()}, expected all of them in 0..{node - 1}. "
            "Build graphs with foretrace.graph, which sorts them."
        )
    if status == Status.EDGES:
        return (
            f"first_edge must rise: {where} has its edges in "
            f"{graph.first_edge[node : node + 2].tolist()}, expected a rising pair within "
            f"0..{graph.num_edges}. Check the graph with foretrace.graph.verify."
        )
    return (
        f"time overflow: {where} would end after {LIMIT_NS} ns (104 days), its own duration is "
        f"{durations[node]} ns. Durations are in ns; state smaller sizes, or faster hardware."
    )


def _described(graph: ExecutionGraph, node: int) -> str:
    """A node's number, name, kind and place, for a message."""
    lane = int(graph.lane[node])
    place = "no lane" if lane == NO_LANE else graph.lanes[lane].label
    kind = NodeKind(int(graph.kind[node])).name
    return f"node {node} ({graph.names[int(graph.name[node])]!r}, {kind}, {place})"


@dataclass(frozen=True)
class WayBack:
    """The nodes on the longest way to a node's end, first to last."""

    node: Int64s  # int64[steps of the way]
    edge: Int64s  # int64[steps of the way], over which each was reached; NO_EDGE of the first


def way_back(timeline: Timeline, end_node: int, *, begin_ns: int = -1) -> WayBack:
    """What led to a node's end, back to the first node that starts at or before `begin_ns`.

    Each node is reached from the predecessor that it waited for last, lag included. Of equally
    late predecessors the first edge counts, so there is one way. In a simulated timeline a node
    that waited for nobody (it starts at 0) ends the way; in a measured one only a node without
    predecessors does.

    Raises:
        ValueError: if there is no such node.
    """
    graph = timeline.graph
    if not 0 <= end_node < graph.num_nodes:
        raise ValueError(f"end_node must be a node, 0 to {graph.num_nodes - 1}, got {end_node}")
    node, edge = np.empty((2, graph.num_nodes), np.int64)
    count = _walk_back(
        graph.first_edge,
        graph.predecessor,
        graph.lag_ns,
        timeline.start_ns,
        timeline.end_ns,
        timeline.is_measured,
        end_node,
        begin_ns,
        node,
        edge,
    )
    return WayBack(node[:count][::-1].copy(), edge[:count][::-1].copy())


def slack_before(timeline: Timeline, due_node: Int64s, due_ns: int) -> Int64s:
    """How much later each node may end before one of `due_node` ends after `due_ns`; int64[nodes].

    One pass from the last node back. NO_LIMIT_NS of nodes that none of the due ones waits for.
    Time between the last predecessor's end and a node's start is part of the slack where it was
    simulated (the graph's zero), and kept where it was measured (what no edge explains).

    Args:
        timeline: measured or simulated.
        due_node: int64[due], nodes that must not end later.
        due_ns: when; no due node ends after it.
    """
    graph = timeline.graph
    slack_ns = np.full(graph.num_nodes, NO_LIMIT_NS, np.int64)
    due = due_node[due_node != NO_NODE]
    slack_ns[due] = due_ns - timeline.end_ns[due]
    _slack(
        graph.first_edge,
        graph.predecessor,
        graph.lag_ns,
        timeline.start_ns,
        timeline.end_ns,
        timeline.is_measured,
        slack_ns,
    )
    return slack_ns
