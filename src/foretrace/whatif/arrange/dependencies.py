"""What waits for what inside each rank of a new job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, Integers, UInt8s, joined_ranges
from foretrace.graph import NO_LANE, EdgeKind, Edges, NodeKind, Part
from foretrace.whatif.arrange.roles import Made
from foretrace.whatif.arrange.sequence import NO_PLACED, NewSequence
from foretrace.whatif.arrange.source import (
    DEVICE_IN,
    NO_PLACE,
    OPERATIONS,
    RecordedNodes,
    SlotIndex,
    is_of_role,
    queue_numbers,
)
from foretrace.whatif.recorded.program import MadeOperator, MadeWait

_WORKERS = 2  # of each gloo group, torch 2.13: the last but one may end last

_BETWEEN_STREAMS = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED)


def edges_in_ranks(source: RecordedNodes, sequence: NewSequence) -> Edges:
    """Edges between places of the sequence, but for host order, collectives and ghosts."""
    carried = _carried(source, sequence)
    return Edges.joined(
        [
            carried,
            onward_edges(source, sequence),
            _stream_order_of_copies(source, sequence),
            _queue(source, sequence, carried),
            _of_all_made(source, sequence),
        ]
    )


def without_guesses_back(edges: Edges) -> Edges:
    """Edges without inferred waits between streams for what is issued later.

    Two host threads issue work at once, and their pieces stand one after the other. A recording
    can show a stream waiting for what stands later; in another order such a wait can close a
    circle. What was inferred from times alone gives way to what is certain.

    Args:
        edges: between places of a sequence, in issue order.
    """
    is_guess = edges.kind == EdgeKind.INTER_STREAM_INFERRED
    is_kept = ~(is_guess & (edges.source > edges.target))
    return Edges(edges.source[is_kept], edges.target[is_kept], edges.kind[is_kept])


def _carried(source: RecordedNodes, sequence: NewSequence) -> Edges:
    """Edges that copies bring along: inside their piece, or to what stands so far back."""
    carried = source.carried
    copied = np.flatnonzero(sequence.source >= 0)
    node = sequence.source[copied]
    first, count = carried.first[node], carried.first[node + 1] - carried.first[node]
    target, edge = np.repeat(copied, count), joined_ranges(first, count)
    kind = carried.kind[edge]
    place = _in_own_piece(source, sequence, target, edge)
    away = np.flatnonzero(place == NO_PLACE)
    place[away] = _found_again(source, sequence, target[away], edge[away])
    is_kept = place != NO_PLACE
    return Edges(place[is_kept], target[is_kept], kind[is_kept])


def _in_own_piece(
    source: RecordedNodes, sequence: NewSequence, target: Int64s, edge: Int64s
) -> Int64s:
    """Places of what came along with each target; NO_PLACE: it did not."""
    carried = source.carried
    before = carried.source[edge]

    def is_there(place: Int64s, at: Int64s | slice) -> Bools:
        is_same: Bools = (sequence.placed[place] == sequence.placed[target[at]]) & (
            sequence.source[place] == before[at]
        )
        return is_same

    # Of two threads that issue at once, what came along can stand behind its target.
    place: Int64s = np.clip(target - carried.distance[edge], 0, len(sequence.source) - 1)
    place[~(carried.is_inside[edge] & is_there(place, slice(None)))] = NO_PLACE
    # What a piece has lost changes distances in it.
    lost = np.flatnonzero((place == NO_PLACE) & carried.is_inside[edge])
    if len(lost):
        num_nodes = source.graph.num_nodes
        copied = np.flatnonzero((sequence.source >= 0) & (sequence.placed != NO_PLACED))
        key = sequence.placed[copied] * num_nodes + sequence.source[copied]
        order = np.argsort(key, kind="stable")
        asked = sequence.placed[target[lost]] * num_nodes + before[lost]
        found = np.searchsorted(key[order], asked)
        near = copied[order[np.minimum(found, len(order) - 1)]]
        is_found = is_there(near, lost)
        place[lost[is_found]] = near[is_found]
    return place


def _found_again(
    source: RecordedNodes, sequence: NewSequence, target: Int64s, edge: Int64s
) -> Int64s:
    """Places of what stands as far back of a target as in the recording; NO_PLACE: nothing."""
    carried, graph, index = source.carried, source.graph, sequence.index
    before, back = carried.source[edge], carried.back[edge]
    rank = sequence.rank[target]
    lane = sequence.lane_of[rank, graph.lane[before]]
    slot = index.on_lane(source.slot_kind[before], lane)
    is_bucket = (graph.kind[before] == NodeKind.FINISH) & (graph.part[before] == Part.BUCKET)
    asked = np.flatnonzero(is_bucket & _waits_for_buckets(sequence)[sequence.placed[target]])
    if len(asked):
        back[asked] += _later_copies(sequence, target[asked], edge[asked], slot[asked])
    found = index.by_lane.nth_last(slot, target, back)
    of_role = is_of_role(carried.kind[edge], graph.kind[before])
    role_slot = rank * index.num_roles + source.roles.of_node[before]
    found[of_role] = index.by_role.nth_last(role_slot[of_role], target[of_role], back[of_role])
    return found


def _waits_for_buckets(sequence: NewSequence) -> Bools:
    """What is placed of the kinds that end a step: it waits for buckets one after the other."""
    parts = [*(placed.part for placed in sequence.all_placed), Part.UNKNOWN]
    return np.isin(parts, (Part.BUCKET, Part.OPTIMIZER))


def _later_copies(sequence: NewSequence, target: Int64s, edge: Int64s, slot: Int64s) -> Int64s:
    """How many copies of a wait for a bucket follow it, with no more buckets between them.

    With more buckets than were recorded, each of them waits for one of its own: the last for the
    last. int64[waits].
    """
    num_issued = sequence.index.by_lane.num_before(np.maximum(slot, 0), target)
    _, group = np.unique(
        np.stack([sequence.rank[target], edge, num_issued]), axis=1, return_inverse=True
    )
    group = group.reshape(-1)
    order = np.lexsort((target, group))
    size = np.bincount(group)
    end = np.cumsum(size)
    found = np.empty(len(target), np.int64)
    found[order] = end[group[order]] - 1 - np.arange(len(target))
    return found


def _stream_order_of_copies(source: RecordedNodes, sequence: NewSequence) -> Edges:
    """What came first on its stream in the recording follows what its copies stand behind."""
    copied = np.flatnonzero(sequence.source >= 0)
    entry = copied[source.is_first[sequence.source[copied]]]
    slot = sequence.index.on_lane(OPERATIONS, sequence.lane[entry])
    before = sequence.index.by_lane.nth_last(slot, entry, np.zeros(len(entry), np.int64))
    is_kept = before != NO_PLACE
    return Edges.of(EdgeKind.STREAM, before[is_kept], entry[is_kept])


def _queue(source: RecordedNodes, sequence: NewSequence, carried: Edges) -> Edges:
    """A launch waits while as many operations of its stream are pending as the queue holds."""
    if not source.queue_depth:
        return Edges.joined([])
    is_launch = carried.kind == EdgeKind.LAUNCH
    made = [each.first for each in sequence.made if not isinstance(each.what, MadeWait)]
    launch = np.append(carried.source[is_launch], np.array(made, np.int64))
    launched = np.append(carried.target[is_launch], np.array(made, np.int64) + 1)
    order = np.lexsort((launched, sequence.lane[launched]))
    launched, launch = launched[order], launch[order]
    number = queue_numbers(sequence.lane[launched], launched)
    held = np.flatnonzero(number >= source.queue_depth)
    # Of a collective the finish, which stands behind its arrival.
    ending = launched[held - source.queue_depth]
    is_arrival = sequence.kind[ending] == NodeKind.ARRIVE
    return Edges.of(EdgeKind.QUEUE, ending + is_arrival, launch[held])


def _of_all_made(source: RecordedNodes, sequence: NewSequence) -> Edges:
    """What made exchanges and waits wait for, and what waits for them."""
    if not sequence.made:
        return Edges.joined([])
    if not source.has_device:
        return Edges.joined([_made_on_host(sequence, made) for made in sequence.made])
    is_entry = np.isin(sequence.kind, DEVICE_IN)
    entries = SlotIndex.of(np.where(is_entry, sequence.lane, -1), sequence.index.num_lanes)
    return Edges.joined([_made_on_device(sequence, made, entries) for made in sequence.made])


def _made_on_device(sequence: NewSequence, made: Made, entries: SlotIndex) -> Edges:
    compute = int(sequence.compute[made.rank])
    what = made.what
    if isinstance(what, MadeWait):
        finish = _last_of_role(sequence, made, made.first, back=what.back)
        following = _next(entries, compute, made.first)
        return _edges([(EdgeKind.INTER_STREAM, finish, following)])
    launch, arrive, finish = made.first, made.first + 1, made.first + 2
    lane = int(sequence.lane[arrive])
    found = [
        (EdgeKind.LAUNCH, launch, arrive),
        (EdgeKind.STREAM, _last(sequence, lane, arrive), arrive),
    ]
    if isinstance(what, MadeOperator):
        return _edges(found)
    if compute in {NO_LANE, lane}:
        return _edges(found)
    if what.waits_for_compute:
        found.append((EdgeKind.INTER_STREAM, _last(sequence, compute, arrive), arrive))
    if what.is_awaited:
        found.append((EdgeKind.INTER_STREAM, finish, _next(entries, compute, finish)))
    return _edges(found)


def _made_on_host(sequence: NewSequence, made: Made) -> Edges:
    what = made.what
    if isinstance(what, MadeWait):
        return _edges(
            [
                (EdgeKind.THREAD, _last_of_role(sequence, made, made.first, back=back), made.first)
                for back in range(what.back, what.back + _WORKERS)
            ]
        )
    if isinstance(what, MadeOperator):
        return Edges.joined([])  # its thread does one thing after the other
    launch, arrive, finish = made.first, made.first + 1, made.first + 2
    found = [
        (EdgeKind.ISSUE, launch, arrive),
        (EdgeKind.STREAM, _last(sequence, int(sequence.lane[arrive]), arrive), arrive),
    ]
    if what.is_awaited:
        found.append((EdgeKind.THREAD, finish, finish + 1))
    return _edges(found)


def _edges(found: list[tuple[EdgeKind, int, int]]) -> Edges:
    """Edges one by one; those from or to NO_PLACE are left out."""
    kept = [each for each in found if NO_PLACE not in each[1:]]
    return Edges(
        np.array([each[1] for each in kept], np.int64),
        np.array([each[2] for each in kept], np.int64),
        np.array([each[0] for each in kept], np.uint8),
    )


def _last(sequence: NewSequence, lane: int, place: int) -> int:
    """The last operation of a lane before a place; NO_PLACE if there is none."""
    slot = sequence.index.on_lane(OPERATIONS, np.array([lane]))
    found = sequence.index.by_lane.nth_last(slot, np.array([place]), np.zeros(1, np.int64))
    return int(found[0])


def _last_of_role(sequence: NewSequence, made: Made, place: int, *, back: int) -> int:
    """The finish of the `back`-th last exchange of the same kind before a place."""
    role = sequence.roles.index(made.role)
    slot = np.array([made.rank * sequence.index.num_roles + role])
    found = sequence.index.by_role.nth_last(slot, np.array([place]), np.array([back]))
    return int(found[0])


def _next(entries: SlotIndex, lane: int, place: int) -> int:
    """The first operation of a lane behind a place; NO_PLACE if there is none."""
    found = entries.nth_last(np.array([lane]), np.array([place]), np.array([-1]))
    return int(found[0])


@dataclass(frozen=True)
class AwaitedExchanges:
    """Recorded communication that the next operation of another piece waits for."""

    kind: UInt8s  # uint8[nodes], EdgeKind of the wait; 0 of what is not awaited at once
    following: Int64s  # int64[nodes], of such a finish the operation that its rank issues next


def awaited_at_once(source: RecordedNodes) -> AwaitedExchanges:
    """What of a recording is awaited by the next operation of the waiting stream."""
    graph, carried = source.graph, source.carried
    target = np.repeat(np.arange(graph.num_nodes), np.diff(carried.first))
    chosen = np.flatnonzero(
        np.isin(carried.kind, _BETWEEN_STREAMS)
        & ~carried.is_inside
        & (carried.back == 0)
        & (graph.kind[carried.source] == NodeKind.FINISH)
        & (graph.part[carried.source] != Part.BUCKET)
        & ~_is_send(source)[carried.source]
    )
    before, behind = carried.source[chosen], target[chosen]
    entries = _entries(graph.kind[source.sequence], graph.lane[source.sequence], len(graph.lanes))
    lane = graph.lane[behind].astype(np.int64)
    between = entries.num_before(lane, source.place[behind]) - entries.num_before(
        lane, source.place[before]
    )
    at_once = before[between == 0]
    kind = np.zeros(graph.num_nodes, np.uint8)
    kind[at_once] = carried.kind[chosen[between == 0]]
    following = np.full(graph.num_nodes, NO_PLACE, np.int64)
    after = _next_issued(graph.kind[source.sequence], graph.rank[source.sequence])
    place = after[source.place[at_once]]
    following[at_once] = np.where(place == NO_PLACE, NO_PLACE, source.sequence[place])
    return AwaitedExchanges(kind, following)


def _is_send(source: RecordedNodes) -> Bools:
    """Finishes of what a stage sends to another, bool[nodes]."""
    sends = np.array([*(role.is_transfer and role.is_send for role in source.roles.roles), False])
    found: Bools = sends[source.roles.of_node]
    return found


def onward_edges(source: RecordedNodes, sequence: NewSequence) -> Edges:
    """Waits of what newly comes behind such communication: the next, and the compute stream."""
    awaited = awaited_at_once(source)
    node = np.maximum(sequence.source, 0)
    finish = np.flatnonzero((sequence.source >= 0) & (awaited.kind[node] > 0))
    node = sequence.source[finish]
    after = _next_issued(sequence.kind, sequence.rank)[finish]
    is_other = (after == NO_PLACE) | (sequence.source[after] != awaited.following[node])
    finish, node, after = finish[is_other], node[is_other], after[is_other]
    entries = _entries(sequence.kind, sequence.lane, sequence.index.num_lanes)
    compute = sequence.compute[sequence.rank[finish]]
    on_compute = entries.nth_last(compute, finish, np.full(len(finish), -1))
    found = []
    for place in (after, np.where(on_compute == after, NO_PLACE, on_compute)):
        is_kept = (place != NO_PLACE) & (sequence.lane[place] != sequence.lane[finish])
        found.append(Edges(finish[is_kept], place[is_kept], awaited.kind[node[is_kept]]))
    return Edges.joined(found)


def _entries(kind: UInt8s, lane: Integers, num_lanes: int) -> SlotIndex:
    """Operations of streams by where they begin."""
    is_entry = np.isin(kind, DEVICE_IN)
    return SlotIndex.of(np.where(is_entry, lane, NO_LANE).astype(np.int64), num_lanes)


def _next_issued(kind: UInt8s, rank: Integers) -> Int64s:
    """Of every place that of the operation its rank issues next; NO_PLACE: none."""
    size = len(kind)
    is_entry: Bools = np.isin(kind, DEVICE_IN)
    place = np.where(is_entry, np.arange(size), size)
    found = np.append(np.minimum.accumulate(place[::-1])[::-1], size)[1:]
    is_own = (found < size) & (rank[np.minimum(found, size - 1)] == rank)
    return np.where(is_own, found, NO_PLACE)
