"""Names and order of a timeline's lanes: streams and threads by what they carry."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind, Phase, Timeline

_COPIES = (NodeKind.MEMCPY, NodeKind.MEMSET)


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
