"""A timeline as rows: one track per lane, one for the steps, one for the blocks of each rank.

A collective is one slice that holds its wait and its transfer. Work that overlaps work of the
same stream, as programmatic launches do, stands on a track of its own below. Lanes are named by
what they carry; dependencies are arrows between rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.exchange._compiled import sublanes
from foretrace.exchange.blocks import block_rows
from foretrace.exchange.tracks import (
    MISSING,
    Argument,
    Flows,
    Layout,
    SliceRows,
    no_nodes,
    numbered,
)
from foretrace.graph import (
    DEVICE_KINDS,
    HOST_KINDS,
    NO_COLLECTIVE,
    NO_NODE,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Phase,
    Timeline,
)

SLICE_KINDS = (*HOST_KINDS, *DEVICE_KINDS)
# Order inside a process: steps and blocks, tracks and counters that callers add, then lanes.
STEPS_ORDER, ADDED_ORDER, COUNTERS_ORDER, LANES_ORDER = 0, 2, 100_000, 200_000
_SUBLANES = 8  # tracks that a lane may get before its order runs into the next lane's
_COPIES = (NodeKind.MEMCPY, NodeKind.MEMSET)


@dataclass(frozen=True)
class DrawnRows:
    """A timeline's rows, and where in them each node stands."""

    rows: tuple[SliceRows, ...]
    row_of_node: Int64s  # int64[nodes], over all rows joined; -1 not drawn
    transfer_of_node: Int64s  # int64[nodes], row of a collective's transfer alone; -1 none


def drawn(timeline: Timeline, layout: Layout, process_by_rank: dict[int, int]) -> DrawnRows:
    """Steps, blocks and lanes of every recorded rank; its processes exist already."""
    graph = timeline.graph
    first_name = layout.add_texts((*graph.names, *graph.step_names, "wait", "transfer", "host"))
    steps = _step_rows(timeline, layout, (first_name, process_by_rank))
    blocks = block_rows(timeline, layout, process_by_rank)
    lanes, (waits, transfers) = _lane_rows(timeline, layout, (first_name, process_by_rank))
    rows = (steps, blocks, lanes, waits, transfers)
    first_by_position = dict(enumerate(first for first, _ in numbered(rows)))
    row_of_node, transfer_of_node = (np.full(graph.num_nodes, -1, np.int64) for _ in range(2))
    row_of_node[lanes.node] = first_by_position[2] + np.arange(len(lanes))
    transfer_of_node[transfers.node] = first_by_position[4] + np.arange(len(transfers))
    arrive, finish = collective_pairs(graph)
    row_of_node[arrive] = row_of_node[finish]
    return DrawnRows(rows, row_of_node, transfer_of_node)


def collective_pairs(graph: ExecutionGraph) -> tuple[Int64s, Int64s]:
    """Arrive and finish nodes of the same collective and rank, in the order of the finish."""
    arrive, finish = (nodes[graph.lane[nodes] >= 0] for nodes in graph.members())
    by_finish = np.argsort(finish)
    return arrive[by_finish], finish[by_finish]


def _step_rows(timeline: Timeline, layout: Layout, where: tuple[int, dict[int, int]]) -> SliceRows:
    """The host's mark of each step, from begin to end."""
    graph = timeline.graph
    first_name, process_by_rank = where
    begin = graph.nodes_of(NodeKind.STEP_BEGIN)
    end = graph.nodes_of(NodeKind.STEP_END)
    key = graph.step.astype(np.int64) << 32 | graph.rank
    _, from_begin, from_end = np.intersect1d(key[begin], key[end], return_indices=True)
    begin, end = begin[from_begin], end[from_end]
    place_by_rank = {
        rank: layout.place(process_by_rank[rank], "steps", STEPS_ORDER)
        for rank in np.unique(graph.rank[begin]).tolist()
    }
    return SliceRows(
        place=np.array([place_by_rank[rank] for rank in graph.rank[begin].tolist()], np.int64),
        name=first_name + len(graph.names) + graph.step[begin].astype(np.int64),
        start_ns=timeline.start_ns[begin],
        end_ns=timeline.end_ns[end],
        node=no_nodes(len(begin)),
    )


def _lane_rows(
    timeline: Timeline, layout: Layout, where: tuple[int, dict[int, int]]
) -> tuple[SliceRows, tuple[SliceRows, SliceRows]]:
    """Every node with a span; the waits and the transfers of the collectives among them."""
    graph = timeline.graph
    first_name, process_by_rank = where
    arrive, finish = collective_pairs(graph)
    shown = _shown(timeline)
    node = np.concatenate([shown, finish])
    start_ns = np.concatenate([timeline.start_ns[shown], timeline.start_ns[arrive]])
    end_ns = timeline.end_ns[node]
    name = graph.name[node].astype(np.int64)
    num_names = len(graph.names) + len(graph.step_names)
    nameless = np.where(graph.kind[node] == NodeKind.FINISH, num_names + 1, num_names + 2)
    place = _lane_places(timeline, layout, (process_by_rank, node, start_ns))
    lanes = SliceRows(
        place=place,
        name=first_name + np.where(name < 0, nameless, name),
        start_ns=start_ns,
        end_ns=end_ns,
        node=node,
        arguments=_collective_arguments(timeline, layout, (node, start_ns)),
    )
    all_here_ns = np.clip(
        timeline.start_ns[finish], timeline.start_ns[arrive], end_ns[len(shown) :]
    )
    whole = (finish, place[len(shown) :])
    waits = _part_rows(whole, first_name + num_names, (start_ns[len(shown) :], all_here_ns))
    transfers = _part_rows(whole, first_name + num_names + 1, (all_here_ns, end_ns[len(shown) :]))
    return lanes, (waits, transfers)


def _shown(timeline: Timeline) -> Int64s:
    """Nodes with a span, but for collectives."""
    graph = timeline.graph
    is_shown = graph.is_of(*SLICE_KINDS) & (graph.lane >= 0)
    # Host time between two calls that took none would be drawn as a mark without meaning.
    is_shown &= (graph.kind != NodeKind.HOST_SEGMENT) | (timeline.end_ns > timeline.start_ns)
    return np.flatnonzero(is_shown)


def _part_rows(
    whole: tuple[Int64s, Int64s], name: int, spans_ns: tuple[Int64s, Int64s]
) -> SliceRows:
    """A part of each collective that has one, inside the slice of the whole."""
    node, place = whole
    start_ns, end_ns = spans_ns
    there = np.flatnonzero(end_ns > start_ns)
    return SliceRows(
        place=place[there],
        name=np.full(len(there), name, np.int64),
        start_ns=start_ns[there],
        end_ns=end_ns[there],
        node=node[there],
    )


def _lane_places(
    timeline: Timeline, layout: Layout, what: tuple[dict[int, int], Int64s, Int64s]
) -> Int64s:
    """Place of each row; a lane whose spans overlap gets more than one."""
    graph = timeline.graph
    process_by_rank, node, start_ns = what
    lane = graph.lane[node].astype(np.int64)
    end_ns = timeline.end_ns[node]
    order = np.lexsort((end_ns, start_ns, lane))
    sublane = np.empty(len(node), np.int64)
    in_order = np.empty(len(node), np.int64)
    sublanes(lane[order], start_ns[order], end_ns[order], in_order)
    sublane[order] = in_order
    key = lane << 32 | sublane
    used, which = np.unique(key, return_inverse=True)
    names = lane_names(graph)
    position = {each: order for order, each in enumerate(lane_order(timeline).tolist())}
    places = []
    for each in used.tolist():
        index, below = each >> 32, each & 0xFFFFFFFF
        order_in_process = LANES_ORDER + _SUBLANES * position[index] + min(below, _SUBLANES - 1)
        name = names[index] if not below else f"{names[index]}, overlapping {below}"
        process = process_by_rank[graph.lanes[index].rank]
        places.append(layout.place(process, name, order_in_process))
    row_places: Int64s = np.array(places, np.int64)[which.reshape(-1)]
    return row_places


def _collective_arguments(
    timeline: Timeline, layout: Layout, what: tuple[Int64s, Int64s]
) -> tuple[Argument, ...]:
    """What each collective is, how long this rank waited, and how long the transfer took."""
    graph = timeline.graph
    node, start_ns = what
    which = np.where(graph.kind[node] == NodeKind.FINISH, graph.collective[node], -1)
    if not np.any(which >= 0):
        return ()
    ones = graph.collectives
    names = np.array([layout.text(one.name) for one in ones], np.int64)
    groups = np.array([layout.text(one.group) for one in ones], np.int64)
    dtypes = np.array([layout.text(one.dtype) if one.dtype else MISSING for one in ones], np.int64)
    numbers = {
        "ranks": [len(one.ranks) for one in ones],
        "position": [one.position for one in ones],
        "bytes": [one.num_bytes if one.num_bytes >= 0 else MISSING for one in ones],
        "transfer_is_estimated": [int(one.is_transfer_estimated) for one in ones],
    }
    end_ns = timeline.end_ns[node]
    all_here_ns = np.clip(timeline.start_ns[node], start_ns, end_ns)
    absent = which < 0
    return (
        Argument("collective", np.where(absent, MISSING, names[which]), is_text=True),
        Argument("group", np.where(absent, MISSING, groups[which]), is_text=True),
        Argument("dtype", np.where(absent, MISSING, dtypes[which]), is_text=True),
        *(
            Argument(key, np.where(absent, MISSING, np.array(values, np.int64)[which]))
            for key, values in numbers.items()
        ),
        Argument("wait_ns", np.where(absent, MISSING, all_here_ns - start_ns)),
        Argument("transfer_ns", np.where(absent, MISSING, end_ns - all_here_ns)),
    )


def lane_order(timeline: Timeline) -> Int64s:
    """Lanes in use, as they should stand: host threads by first moment, then streams."""
    graph = timeline.graph
    first_ns = np.full(len(graph.lanes), np.iinfo(np.int64).max)
    has_lane = graph.lane >= 0
    np.minimum.at(first_ns, graph.lane[has_lane], timeline.start_ns[has_lane])
    is_device = np.array([lane.is_device for lane in graph.lanes], np.bool_)
    number = np.array([lane.number for lane in graph.lanes], np.int64)
    # Streams keep the order of their numbers, as other viewers show them.
    order = np.lexsort((np.where(is_device, number, first_ns), is_device))
    return order[first_ns[order] < np.iinfo(np.int64).max]


def lane_names(graph: ExecutionGraph) -> tuple[str, ...]:
    """One name per lane: its kind, its number and what it carries.

    "stream 7 compute", "stream 24 allreduce (group 1)", "thread 2590092 main".
    """
    contents = (
        _carries(graph, (NodeKind.KERNEL,)),
        _carries(graph, _COPIES),
        _carries(graph, (NodeKind.FINISH,)),
    )
    is_main = _counts(graph, graph.kind == NodeKind.STEP_BEGIN) > 0
    is_backward = _is_mostly_backward(graph)
    communication = _communication_names(graph)
    names = []
    for index, lane in enumerate(graph.lanes):
        kinds = [int(content[index]) for content in contents]
        if lane.is_device:
            what = ("compute", "copies", communication[index])[int(np.argmax(kinds))]
            what = what if any(kinds) else ""
        elif is_main[index]:
            what = "main"
        elif kinds[2]:
            what = communication[index]
        else:
            what = "backward" if is_backward[index] else ""
        kind = "stream" if lane.is_device else "thread"
        names.append(f"{kind} {lane.number} {what}".rstrip())
    return tuple(names)


def _counts(graph: ExecutionGraph, is_chosen: Bools) -> Int64s:
    """Chosen nodes of each lane; int64[lanes]."""
    lane = graph.lane[is_chosen & (graph.lane >= 0)]
    return np.bincount(lane, minlength=len(graph.lanes)).astype(np.int64)


def _carries(graph: ExecutionGraph, kinds: tuple[NodeKind, ...]) -> Int64s:
    """Work of these kinds on each lane, in ns and at least 1 where there is any; int64[lanes]."""
    chosen = np.flatnonzero(graph.is_of(*kinds) & (graph.lane >= 0))
    weight = np.maximum(graph.measured_ns[chosen], 1)
    return np.bincount(graph.lane[chosen], weight, len(graph.lanes)).astype(np.int64)


def _is_mostly_backward(graph: ExecutionGraph) -> Bools:
    known = _counts(graph, graph.phase != Phase.UNKNOWN)
    backward = _counts(graph, graph.phase == Phase.BACKWARD)
    return (known > 0) & (2 * backward > known)


def _communication_names(graph: ExecutionGraph) -> dict[int, str]:
    """Of each lane with collectives: the commonest one's name, and the group if it has one."""
    chosen = (graph.kind == NodeKind.FINISH) & (graph.lane >= 0)
    chosen &= graph.collective != NO_COLLECTIVE
    name_by_lane = {}
    for lane in np.unique(graph.lane[chosen]).tolist():
        position, count = np.unique(
            graph.collective[chosen & (graph.lane == lane)], return_counts=True
        )
        held: dict[tuple[str, str], int] = {}
        for each, times in zip(position.tolist(), count.tolist(), strict=True):
            one = graph.collectives[each]
            held[one.name, one.group] = held.get((one.name, one.group), 0) + times
        name, group = max(held, key=lambda pair: held[pair])
        # Where a trace names no group, the stream stands for it.
        stands_for_itself = group.startswith("stream ")
        name_by_lane[lane] = name if stands_for_itself else f"{name} (group {group})"
    return {lane: name_by_lane.get(lane, "communication") for lane in range(len(graph.lanes))}


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


def flows_of(timeline: Timeline, drawn: DrawnRows, chosen: Collection[Flow]) -> tuple[Flows, ...]:
    """The chosen dependencies whose both ends are drawn, as arrows between rows."""
    flows = []
    for flow, kinds in _EDGES.items():
        if flow in chosen:
            source, target = timeline.graph.edges_of(*kinds)
            flows.append(between(flow, drawn, (source, target)))
    if Flow.COLLECTIVE in chosen:
        flows.append(between(Flow.COLLECTIVE, drawn, _last_to_others(timeline)))
    return tuple(each for each in flows if len(each.source))


def path_flows(graph: ExecutionGraph, drawn: DrawnRows, node: Int64s) -> Flows:
    """Arrows along these nodes in order, wherever the next stands on another lane."""
    drawn_nodes = node[(node != NO_NODE)]
    drawn_nodes = drawn_nodes[drawn.row_of_node[drawn_nodes] >= 0]
    lane = graph.lane[drawn_nodes]
    changes = np.flatnonzero(lane[1:] != lane[:-1])
    return between(Flow.PATH, drawn, (drawn_nodes[changes], drawn_nodes[changes + 1]))


def between(flow: Flow, drawn: DrawnRows, nodes: tuple[Int64s, Int64s]) -> Flows:
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
