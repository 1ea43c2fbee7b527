"""Arrows between slices: which dependencies to draw."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import numpy as np

from foretrace.base import Int64s
from foretrace.exchange.rows import Drawn, collective_pairs
from foretrace.exchange.tracks import Flows
from foretrace.graph import NO_NODE, EdgeKind, ExecutionGraph, Timeline


class Flow(StrEnum):
    """A class of dependencies that can be drawn."""

    LAUNCH = "launch"  # a launch call to what it starts
    INTER_STREAM = "inter-stream"  # a stream to one that waits for it
    COLLECTIVE = "collective"  # the last rank to arrive to every other
    SYNCHRONISATION = "synchronisation"  # the device to the call that waited for it
    THREAD = "thread"  # a host thread to one that waits for it
    PATH = "critical path"  # along the critical path, wherever it changes lanes


# All together would double the file; these are what a reader follows most.
DEFAULT_FLOWS = frozenset({Flow.LAUNCH, Flow.INTER_STREAM, Flow.PATH})

_EDGES = {
    Flow.LAUNCH: (EdgeKind.LAUNCH, EdgeKind.ISSUE),
    Flow.INTER_STREAM: (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED),
    Flow.SYNCHRONISATION: (EdgeKind.WAKE, EdgeKind.QUEUE),
    Flow.THREAD: (EdgeKind.THREAD,),
}


def flows_of(timeline: Timeline, drawn: Drawn, chosen: Collection[Flow]) -> tuple[Flows, ...]:
    """The chosen dependencies whose both ends are drawn, as arrows between rows."""
    flows = []
    for flow, kinds in _EDGES.items():
        if flow in chosen:
            source, target = timeline.graph.edges_of(*kinds)
            flows.append(between(flow, drawn, (source, target)))
    if Flow.COLLECTIVE in chosen:
        flows.append(between(Flow.COLLECTIVE, drawn, _last_to_others(timeline)))
    return tuple(each for each in flows if len(each.source))


def path_flows(graph: ExecutionGraph, drawn: Drawn, node: Int64s) -> Flows:
    """Arrows along these nodes in order, wherever the next stands on another lane."""
    drawn_nodes = node[(node != NO_NODE)]
    drawn_nodes = drawn_nodes[drawn.row_of_node[drawn_nodes] >= 0]
    lane = graph.lane[drawn_nodes]
    changes = np.flatnonzero(lane[1:] != lane[:-1])
    return between(Flow.PATH, drawn, (drawn_nodes[changes], drawn_nodes[changes + 1]))


def between(flow: Flow, drawn: Drawn, nodes: tuple[Int64s, Int64s]) -> Flows:
    """Arrows between the rows of these nodes; those with an end that is not drawn are left out.

    So are those that would lead back in time, which a measured timeline can have: readers of
    the file cannot join them. A collective that began before is met where its transfer begins.
    Of slices that begin together, those without length are read first.
    """
    source, target = (drawn.row_of_node[each] for each in nodes)
    start_ns = np.concatenate([rows.start_ns for rows in drawn.rows])
    has_length = np.concatenate([rows.end_ns for rows in drawn.rows]) > start_ns
    transfer = drawn.transfer_of_node[nodes[1]]
    is_met_inside = (transfer >= 0) & (start_ns[target] < start_ns[source])
    target = np.where(is_met_inside, transfer, target)
    shown = (source >= 0) & (target >= 0) & (source != target)
    is_read_after = has_length[target] | ~has_length[source]
    shown &= (start_ns[source] < start_ns[target]) | (
        (start_ns[source] == start_ns[target]) & is_read_after
    )
    return Flows(str(flow), source[shown], target[shown])


def _last_to_others(timeline: Timeline) -> tuple[Int64s, Int64s]:
    """Of every collective: the last arrival, and each other rank's finish."""
    graph = timeline.graph
    arrive, finish = collective_pairs(graph)
    at_ns = timeline.start_ns[arrive]
    order = np.lexsort((arrive, at_ns, graph.collective[arrive]))
    collective = graph.collective[arrive[order]]
    is_last = np.diff(collective, append=NO_NODE) != 0
    last_of = np.full(len(graph.collectives), NO_NODE, np.int64)
    last_of[collective[is_last]] = arrive[order][is_last]
    return last_of[graph.collective[finish]], finish
