"""What a timeline holds at each moment: work, bytes under way, launches not yet begun, memory.

A counter with very many changes is thinned to its highest value in each of `MOST_POINTS` equal
stretches of time, so that peaks stay and a file of millions of launches stays readable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Bools, Float64s, Int64s
from foretrace.exchange.tracks import Counter
from foretrace.graph import (
    EdgeKind,
    MemoryEvents,
    NodeKind,
    Timeline,
)

# About four points per pixel of a 1000-pixel wide view; a counter stays below 100 KB.
MOST_POINTS = 4096
# A point per pixel: a share over a shorter stretch would flicker between 0 and 100.
BUSY_BINS = 1000


def timeline_counters(timeline: Timeline) -> tuple[Counter, ...]:
    """Every recorded rank's busy share, bytes in flight and launch queue, where it has any."""
    graph = timeline.graph
    counters: list[Counter] = []
    for rank in graph.ranks:
        is_rank = graph.rank == rank
        counters.append(_busy(timeline, rank, is_rank))
        counters += [
            counter
            for counter in (_in_flight(timeline, rank, is_rank), _queue(timeline, rank))
            if counter is not None
        ]
    return tuple(counters)


def memory_counters(memory: Sequence[MemoryEvents]) -> tuple[Counter, ...]:
    """Bytes allocated, and held by the allocator, on each memory of each rank."""
    counters = []
    for events in memory:
        where = f"device {events.device}" if events.is_device else "host"
        for what, value in (
            ("allocated", events.allocated_bytes),
            ("reserved", events.reserved_bytes),
        ):
            is_known = value >= 0
            if not np.any(is_known):
                continue
            at_ns, values = _thinned(events.at_ns[is_known], value[is_known].astype(np.float64))
            track = f"memory {what}, {where}"
            counters.append(Counter(track, events.rank, "bytes", at_ns, values))
    return tuple(counters)


def _busy(timeline: Timeline, rank: int, is_rank: Bools) -> Counter:
    """Share of each bin in which the device works; the host, where a rank has no device."""
    graph = timeline.graph
    is_device = is_rank & graph.is_device
    works = is_device if np.any(is_device) else is_rank & (graph.kind == NodeKind.OPERATOR)
    node = np.flatnonzero(works)
    edges_ns = _bin_edges(timeline)
    share = np.diff(_covered_ns(timeline.start_ns[node], timeline.end_ns[node], edges_ns))
    width_ns = np.maximum(np.diff(edges_ns), 1)
    return Counter("busy", rank, "%", edges_ns[:-1], 100.0 * share / width_ns)


def _bin_edges(timeline: Timeline) -> Int64s:
    end_ns = int(timeline.end_ns.max(initial=0))
    # Bins of no length would be the same moment twice.
    count = max(1, min(BUSY_BINS, end_ns))
    return np.linspace(0, end_ns, count + 1).astype(np.int64)


def _covered_ns(start_ns: Int64s, end_ns: Int64s, at_ns: Int64s) -> Int64s:
    """How much of the time before each of these moments is covered by any of these spans."""
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], end_ns[order]
    until_ns = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], end_ns]))
    # Each span counts from where those before it have ended.
    from_ns = np.maximum(start_ns, until_ns[:-1])
    own_ns = np.maximum(end_ns - from_ns, 0)
    before_ns = np.concatenate([[0], np.cumsum(own_ns)])
    row = np.searchsorted(from_ns, at_ns, side="right")
    beyond_ns = np.zeros(len(at_ns), np.int64)
    inside = row > 0
    last = row[inside] - 1
    beyond_ns[inside] = np.maximum(from_ns[last] + own_ns[last] - at_ns[inside], 0)
    return before_ns[row] - beyond_ns


def _in_flight(timeline: Timeline, rank: int, is_rank: Bools) -> Counter | None:
    """Payload of the collectives whose transfer goes on."""
    graph = timeline.graph
    node = np.flatnonzero(is_rank & (graph.kind == NodeKind.FINISH))
    num_bytes = np.array(graph.collectives.each(lambda one: one.num_bytes), np.int64)
    if not len(node):
        return None
    payload = num_bytes[graph.collective[node]]
    node, payload = node[payload > 0], payload[payload > 0]
    if not len(node):
        return None
    at_ns, value = _summed(
        np.concatenate([timeline.start_ns[node], timeline.end_ns[node]]),
        np.concatenate([payload, -payload]),
    )
    return Counter("collectives in flight", rank, "bytes", at_ns, value)


def _queue(timeline: Timeline, rank: int) -> Counter | None:
    """Device operations that are launched and have not begun."""
    graph = timeline.graph
    source, target = graph.edges_of(EdgeKind.LAUNCH)
    chosen = graph.rank[target] == rank
    source, target = source[chosen], target[chosen]
    if not len(source):
        return None
    begin_ns = timeline.start_ns[source]
    # A measured operation can be seen to begin before its call was entered, by the clocks.
    end_ns = np.maximum(timeline.start_ns[target], begin_ns)
    ones = np.ones(len(source), np.int64)
    at_ns, value = _summed(np.concatenate([begin_ns, end_ns]), np.concatenate([ones, -ones]))
    return Counter("launch queue", rank, "launches", at_ns, value)


def _summed(at_ns: Int64s, change: Int64s) -> tuple[Int64s, Float64s]:
    """Running sum after each moment, thinned."""
    moments, which = np.unique(at_ns, return_inverse=True)
    # Exact: float64 counts whole bytes up to 9 PB.
    total: Float64s = np.cumsum(np.bincount(which.reshape(-1), change.astype(np.float64)))
    return _thinned(moments, total)


def _thinned(at_ns: Int64s, value: Float64s) -> tuple[Int64s, Float64s]:
    if len(at_ns) <= MOST_POINTS:
        return at_ns, value
    begin_ns, length_ns = int(at_ns[0]), int(at_ns[-1] - at_ns[0]) + 1
    bin_of = (at_ns - begin_ns) // (-(-length_ns // MOST_POINTS))
    first = np.flatnonzero(np.diff(bin_of, prepend=-1))
    return at_ns[first], np.maximum.reduceat(value, first)
