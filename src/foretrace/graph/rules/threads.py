"""Rule 2: a host thread waits for another thread of its process, or for a CPU collective.

A gap in a thread is a wait if another thread explains its end. Threads that alternate pass the
turn: the other thread was idle when the gap began, worked during it, and went idle again just
before it ended (forward hands to the backward thread and takes back). On the CPU, a gap that
holds the end of a collective that the thread issued is a wait for it. What remains of the gap
after the explaining end, less the wake-up that all such waits share, stays as work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, Integers, begins_run
from foretrace.graph.assembly import Places
from foretrace.graph.operations import HostItems, Operations

TURN_GAP_NS = 50_000  # idle time that makes a turn; host calls of a busy thread follow faster
RETURN_WITHIN_NS = 500_000  # a CPU collective's end explains a gap that ends this soon after
# Or within this part of the gap: where threads outnumber cores, a waiter gets its core back late
# (seen: 3.1 ms after a wait of 30, two processes on two cores).
RETURN_WITHIN_PART = 4
MIN_WAIT_NS = 5_000  # a shorter wait cannot be told from the work around it

MIN_THREADS = 2  # nobody to pass a turn to
MAX_THREADS = 64  # of one rank; with more, turns are not looked for


@dataclass(frozen=True)
class ThreadWaits:
    """Gaps of host threads that another thread or a collective explains.

    The gap stands before item `item`; it could end only after `source` had ended.
    """

    item: Int64s  # int64[waits], item after the gap
    source: Int64s  # int64[waits], place of what is waited for
    source_end_ns: Int64s  # int64[waits], raw

    def __len__(self) -> int:
        """Number of waits."""
        return len(self.item)


def thread_waits(operations: Operations, places: Places, *, over_ns: Int64s) -> ThreadWaits:
    """All explained gaps; of several explanations of one gap the latest end is kept.

    `over_ns` is when each operation was over, raw, int64[ops]: earlier than its recorded end
    where a transfer's span lasts until its caller waits for it.
    """
    turns = _turns(operations)
    collectives = _collective_waits(operations, places, over_ns)
    item, source, end_ns = (
        np.concatenate([one, other]) for one, other in zip(turns, collectives, strict=True)
    )
    order = np.lexsort((source, -end_ns, item))
    item, source, end_ns = item[order], source[order], end_ns[order]
    is_first = begins_run(item)
    item, source, end_ns = item[is_first], source[is_first], end_ns[is_first]
    return ThreadWaits(item, source, end_ns)


def gap_starts(operations: Operations) -> Int64s:
    """End of the item before each item on its thread, raw; else the rank's first moment."""
    items = operations.items
    start = operations.first_ns[items.rank].copy()
    is_same = items.lane[1:] == items.lane[:-1]
    start[1:][is_same] = items.end_ns[:-1][is_same]
    return start


def _turns(operations: Operations) -> tuple[Int64s, Int64s, Int64s]:
    """Gaps that end when another thread of the rank has just gone idle."""
    items = operations.items
    starts = gap_starts(operations)
    gap_ns = items.start_ns - starts
    is_first = begins_run(items.lane)
    found_item, found_turn = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    bounds = np.append(np.flatnonzero(is_first), len(items))
    lanes_of_rank: dict[int, list[tuple[int, int]]] = {}
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        lanes_of_rank.setdefault(int(items.rank[low]), []).append((low, high))
    for lanes in lanes_of_rank.values():
        if not MIN_THREADS <= len(lanes) <= MAX_THREADS:
            continue
        for low, high in lanes:
            item = low + np.flatnonzero(gap_ns[low:high] > TURN_GAP_NS)
            turn = _turns_of_thread(items, lanes, low, item, starts[item])
            found_item.append(item[turn >= 0])
            found_turn.append(turn[turn >= 0])
    item, turn = np.concatenate(found_item), np.concatenate(found_turn)
    return item, turn, items.end_ns[turn]


def _turns_of_thread(
    items: HostItems,
    lanes: list[tuple[int, int]],
    own_low: int,
    item: Int64s,
    gap_start_ns: Int64s,
) -> Int64s:
    """For gaps before items of one thread, the item of another thread that explains the end.

    Args:
        items: all items.
        lanes: first item of every thread of the rank, and the one after its last.
        own_low: first item of the thread that has the gaps.
        item: item after each gap.
        gap_start_ns: raw start of each gap.

    Returns:
        int64[gaps]; -1 where none does.
    """
    gap_end_ns = items.start_ns[item]
    best = np.full(len(item), -1, np.int64)
    best_end_ns = np.full(len(item), np.iinfo(np.int64).min, np.int64)
    for low, high in lanes:
        if low == own_low or not len(item):
            continue
        starts_ns, ends_ns = items.start_ns[low:high], items.end_ns[low:high]
        after = np.searchsorted(starts_ns, gap_end_ns, side="left")
        first = np.searchsorted(starts_ns, gap_start_ns, side="left")
        last = np.maximum(after - 1, 0)
        is_inside = (first < after) & (ends_ns[last] <= gap_end_ns)
        next_ns = starts_ns[np.minimum(after, high - low - 1)]
        is_idle_after = (after == high - low) | (next_ns - ends_ns[last] > TURN_GAP_NS)
        before_ns = ends_ns[np.maximum(first - 1, 0)]
        begin_ns = starts_ns[np.minimum(first, high - low - 1)]
        is_idle_before = (item == own_low) | (first == 0) | (begin_ns - before_ns > TURN_GAP_NS)
        is_later = (ends_ns[last] > gap_start_ns) & (ends_ns[last] > best_end_ns)
        is_turn = is_inside & is_idle_after & is_idle_before & is_later
        best[is_turn] = low + last[is_turn]
        best_end_ns[is_turn] = ends_ns[last[is_turn]]
    return best


def _collective_waits(
    operations: Operations, places: Places, over_ns: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Gaps of the issuing thread that hold the end of its CPU collective.

    A span on the thread itself ends where it was waited for, however short the wait was.
    """
    items, ops = operations.items, operations.ops
    own = np.flatnonzero((ops.launch >= 0) & ~_is_on_device(operations))
    if not len(own):
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    starts = gap_starts(operations)
    lane = items.lane[ops.launch[own]]
    item = np.empty(len(own), np.int64)
    for number in np.unique(lane).tolist():
        low, high = np.searchsorted(items.lane, [number, number + 1])
        mine = lane == number
        item[mine] = low + np.searchsorted(
            items.start_ns[low:high], ops.end_ns[own[mine]], side="left"
        )
        item[mine & (item >= high)] = -1
    usable = np.maximum(item, 0)
    end_ns = ops.end_ns[own]
    waited_ns, gap_ns = end_ns - starts[usable], items.start_ns[usable] - starts[usable]
    is_at_issue = (item - 1 == ops.launch[own]) & ~_is_issued_async(operations, ops.launch[own])
    is_long = (gap_ns > TURN_GAP_NS) & (2 * waited_ns > gap_ns)
    is_on_thread = lane == ops.lane[own]
    is_wait = (
        (item >= 0)
        & ((waited_ns > MIN_WAIT_NS) | is_on_thread)
        & (gap_ns - waited_ns <= np.maximum(RETURN_WITHIN_NS, gap_ns // RETURN_WITHIN_PART))
        & (is_at_issue | is_long | is_on_thread)
    )
    return item[is_wait], places.op(own[is_wait]), over_ns[own[is_wait]]


def _is_issued_async(operations: Operations, issue: Integers) -> Bools:
    """Whether each `c10d::` call says that it returns before the collective has ended."""
    signature = operations.items.signature[issue]
    is_async = np.array(['"True"' in text for text in operations.names], np.bool_)
    return (signature >= 0) & is_async[np.maximum(signature, 0)]


def _is_on_device(operations: Operations) -> Bools:
    return operations.is_stream[operations.ops.lane]
