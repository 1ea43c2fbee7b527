"""Results of communication that are awaited at once, by whatever comes next now.

Which work waits for a collective is recorded with that work: the first kernel of a stage's first
layer waits for what the stage receives. Where another piece stands there in a new job, it has to
wait in its stead. Buckets of gradients are left out: what waits for them stands anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, Integers, UInt8s
from foretrace.graph import NO_LANE, EdgeKind, Edges, NodeKind, Part
from foretrace.whatif.arrange.sequence import Sequence
from foretrace.whatif.arrange.slots import NO_PLACE, SlotIndex
from foretrace.whatif.arrange.source import DEVICE_IN, Source

_BETWEEN_STREAMS = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED)


@dataclass(frozen=True)
class Awaited:
    """Recorded communication that the next operation of another piece waits for."""

    kind: UInt8s  # uint8[nodes], EdgeKind of the wait; 0 of what is not awaited at once
    following: Int64s  # int64[nodes], of such a finish the operation that its rank issues next


def awaited_at_once(source: Source) -> Awaited:
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
    return Awaited(kind, following)


def _is_send(source: Source) -> Bools:
    """Finishes of what a stage sends to another, bool[nodes]."""
    sends = np.array([*(role.is_transfer and role.is_send for role in source.roles.roles), False])
    found: Bools = sends[source.roles.of_node]
    return found


def onward_edges(source: Source, sequence: Sequence) -> Edges:
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
