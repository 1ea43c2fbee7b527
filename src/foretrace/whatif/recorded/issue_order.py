"""The order in which each rank issues its work: host calls as they began, their work behind them.

Host nodes of all threads of a rank stand in the order of their measured start, no node before one
of its own thread or of another that it waits for. A device operation stands right behind the call
that launched it, what a worker thread does behind the call that issued it, a FINISH behind its
ARRIVE. So the order says nothing about how long anything took on the device.

Every edge within a rank leads forward in it, but for edges between streams that were inferred from
times and are wrong: nothing can wait for an event that is recorded only after it was launched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import NO_NODE, NO_STEP, EdgeKind, ExecutionGraph, NodeKind, Timeline

_HANDED = (EdgeKind.LAUNCH, EdgeKind.ISSUE)


@dataclass(frozen=True)
class IssueOrder:
    """Nodes of all ranks, rank by rank, in issue order; hubs and ghosts are not among them."""

    nodes: Int64s  # int64[those], node of the graph
    # int64[nodes of the graph]: the host node behind which a node stands, itself of a host node;
    # NO_NODE of hubs and ghosts.
    anchor: Int64s


def issue_order(graph: ExecutionGraph, measured: Timeline) -> IssueOrder:
    """The issue order of every rank of a recording.

    Args:
        graph: of the recording.
        measured: its measured timeline.
    """
    target = graph.edge_target
    lead = _leads(graph)
    anchor = _anchors(graph, target, lead)
    key_ns = _keys_ns(graph, measured, target, anchor)
    nodes = np.flatnonzero((graph.kind != NodeKind.HUB) & (graph.kind != NodeKind.GHOST))
    anchor[(graph.kind == NodeKind.HUB) | (graph.kind == NodeKind.GHOST)] = NO_NODE
    own = anchor[nodes]
    place = np.lexsort((nodes, lead[nodes], own != nodes, own, key_ns[own], graph.rank[nodes]))
    return IssueOrder(nodes[place], anchor)


def _leads(graph: ExecutionGraph) -> Int64s:
    """The node itself; of a FINISH its ARRIVE, on the same lane of the same collective."""
    lead = np.arange(graph.num_nodes, dtype=np.int64)
    arrives, finishes = graph.members()
    if len(arrives) == len(finishes):
        lead[finishes] = arrives
    return lead


def _anchors(graph: ExecutionGraph, target: Int64s, lead: Int64s) -> Int64s:
    """The host call that hands each node to a stream or a worker; the node itself of all others.

    Work whose launch is not in the recording stands with the next launched work of its stream.
    """
    anchor = np.arange(graph.num_nodes, dtype=np.int64)
    is_handed = np.isin(graph.edge_kind, _HANDED)
    anchor[target[is_handed]] = graph.predecessor[is_handed]
    # A worker's segment is issued, and its arrival follows it.
    chained = (graph.edge_kind == EdgeKind.HOST_ORDER) & (graph.kind[target] == NodeKind.ARRIVE)
    segment, arrive = graph.predecessor[chained], target[chained]
    is_open = anchor[arrive] == arrive
    anchor[arrive[is_open]] = anchor[segment[is_open]]
    anchor = np.asarray(anchor[lead])
    _adopt_orphans(graph, anchor)
    return anchor


def _adopt_orphans(graph: ExecutionGraph, anchor: Int64s) -> None:
    """Out: `anchor` of a stream's nodes without a launch, from the next on the stream that has one.

    None follows: they stay on their own, as if the host had done them. What was launched before the
    first step, and runs ahead of its work, stands behind the rank's first node, outside all steps.
    """
    by_lane = graph.in_lanes(np.flatnonzero(graph.is_on_stream))
    is_orphan = anchor[by_lane] == by_lane
    if not is_orphan.any():
        return
    following = next_where(~is_orphan)
    has_next = following < len(by_lane)
    has_next[has_next] = (
        graph.lane[by_lane[following[has_next]]] == graph.lane[by_lane[np.flatnonzero(has_next)]]
    )
    adopted = np.flatnonzero(is_orphan & has_next)
    nodes, parents = by_lane[adopted], anchor[by_lane[following[adopted]]]
    ranks, first = np.unique(graph.rank, return_index=True)
    first_of_rank = first[np.searchsorted(ranks, graph.rank[nodes])]
    is_carried = (graph.step[nodes] == NO_STEP) & (graph.step[parents] != NO_STEP)
    is_carried &= graph.step[first_of_rank] == NO_STEP
    anchor[nodes] = np.where(is_carried, first_of_rank, parents)


def next_where(is_wanted: Bools) -> Int64s:
    """For each place the first at or behind it that is wanted; the length where there is none."""
    size = len(is_wanted)
    places = np.where(is_wanted, np.arange(size), size)
    return np.minimum.accumulate(places[::-1])[::-1]


def _keys_ns(graph: ExecutionGraph, measured: Timeline, target: Int64s, anchor: Int64s) -> Int64s:
    """Measured starts, put off until what the host waits for has begun; int64[nodes]."""
    key_ns = measured.start_ns.copy()
    across = graph.edge_kind == EdgeKind.THREAD
    source, waiting = anchor[graph.predecessor[across]], target[across]
    by_lane = graph.in_lanes(np.arange(graph.num_nodes))
    first = np.flatnonzero(np.diff(graph.lane[by_lane], prepend=-2))
    while True:
        _raise_along_lanes(key_ns, by_lane, first)
        late = key_ns[source] > key_ns[waiting]
        if not late.any():
            return key_ns
        np.maximum.at(key_ns, waiting[late], key_ns[source[late]])


def _raise_along_lanes(key_ns: Int64s, by_lane: Int64s, first: Int64s) -> None:
    """Out: `key_ns`, none below that of a node before it on its lane."""
    lengths = np.diff(np.append(first, len(by_lane)))
    # By places among all keys, so that no moment is too far; lanes apart, so that one pass does.
    moments, place = np.unique(key_ns[by_lane], return_inverse=True)
    shift = np.repeat(np.arange(len(first)), lengths) * len(moments)
    key_ns[by_lane] = moments[np.maximum.accumulate(place + shift) - shift]
