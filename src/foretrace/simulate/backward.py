"""Backward passes over a timeline: the way that led to a node's end, and everyone's slack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import NO_NODE, Timeline
from foretrace.simulate._compiled import NO_LIMIT_NS, _slack, _walk_back

NO_EDGE = -1


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
