"""Rule 6, second half: a stream waits for another through an event.

With `cuda_sync` events the trace says which record a wait refers to, and the edge is exact.
Most traces only show that `cudaStreamWaitEvent` was called, not on which streams. Then the
edge is inferred: for every operation launched after a wait, each other stream's last operation
launched before the wait is a candidate. Candidates of the same make (streams, communication or
not, number and place of the waits) are judged together over all ranks and steps: none may be
contradicted by an operation that started before its candidate had ended, and some must have
started just when it ended, with nothing else to wait for. What no such class explains, and
still started late and just at another stream's end, gets an edge of its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph.edges import Edges, Places
from foretrace.graph.launch_order import NO_OP, LaunchOrder
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import NOT_LAUNCHED, Operations
from foretrace.trace import RuntimeRole, Trace

WAIT_KIND = "Stream Wait Event"
MAX_SOURCES = 64  # streams per rank that may be waited for, the busiest first
MAX_CONTRADICTED = 0.02  # of a class: beyond rounding and lost events, a true edge has none
MAX_COUNTED = 3  # waits beyond this many make no other class


@dataclass(frozen=True)
class Margins:
    """What counts as late and as just at the end, from the trace's own jitter."""

    launch_ns: int  # constant of launch edges
    hand_over_ns: int  # constant of stream edges
    late_ns: int  # an operation that starts this much after it could was held
    window_ns: int  # a start this close to an end, plus the hand-over, follows from it
    rounding_ns: int  # a start this much before an end does not contradict it

    @staticmethod
    def from_samples(launch: Int64s, hand_over: Int64s) -> Margins:
        """Margins from the spread of launch latencies and hand-overs."""
        spread_ns = int(np.subtract(*np.percentile(hand_over, [90, 10]))) if len(hand_over) else 0
        return Margins(
            launch_ns=int(np.median(launch)) if len(launch) else 0,
            hand_over_ns=int(np.median(hand_over)) if len(hand_over) else 0,
            late_ns=5_000 + spread_ns,
            window_ns=10_000 + 2 * spread_ns,
            rounding_ns=2_000 + spread_ns,
        )


@dataclass(frozen=True)
class InterStream:
    """Edges between streams, and the hand-overs seen on those that held their successor."""

    edges: Edges
    hand_over_ns: Int64s  # samples


def inter_stream(
    operations: Operations, order: LaunchOrder, places: Places, margins: Margins
) -> InterStream:
    """Edges between the streams of every rank, exact where the trace allows."""
    ready_ns = _ready_ns(operations, margins)
    source: list[Int64s] = []
    target: list[Int64s] = []
    kind: list[Int64s] = []
    silent = []
    for position, trace in enumerate(operations.traces):
        if _has_exact_waits(trace):
            pairs = _exact_pairs(operations, order, position)
            source.append(pairs[0])
            target.append(pairs[1])
            kind.append(np.full(len(pairs[0]), EdgeKind.INTER_STREAM))
        elif len(order.streams_of_rank[position]) > 1:
            silent.append(position)
    for pairs in _inferred_pairs(operations, order, silent, ready_ns, margins):
        source.append(pairs[0])
        target.append(pairs[1])
        kind.append(np.full(len(pairs[0]), EdgeKind.INTER_STREAM_INFERRED))
    ends = [np.concatenate([np.zeros(0, np.int64), *part]) for part in (source, target, kind)]
    is_kept = _is_undominated(operations, ends[0], ends[1])
    from_op, to_op, of_kind = (column[is_kept] for column in ends)
    edges = Edges(places.op(from_op), places.op(to_op), of_kind.astype(np.uint8))
    gap_ns = operations.ops.start_ns[to_op] - operations.ops.end_ns[from_op]
    is_held = operations.ops.start_ns[to_op] > ready_ns[to_op] + margins.late_ns
    is_close = np.abs(gap_ns - margins.hand_over_ns) <= margins.window_ns
    is_compute = ~operations.ops.is_communication[to_op]
    return InterStream(edges, gap_ns[is_held & is_close & is_compute])


def _ready_ns(operations: Operations, margins: Margins) -> Int64s:
    """When each operation could have started by its launch and its own stream, raw clock."""
    ops, items = operations.ops, operations.items
    launch = np.maximum(ops.launch, 0)
    never = np.int64(np.iinfo(np.int64).min // 2)
    launched = np.where(ops.launch >= 0, items.end_ns[launch] + margins.launch_ns, never)
    is_same = np.append(False, ops.lane[1:] == ops.lane[:-1])
    previous = np.append(never, ops.end_ns[:-1]) + margins.hand_over_ns
    return np.maximum(launched, np.where(is_same, previous, never))


def _is_undominated(operations: Operations, source: Int64s, target: Int64s) -> Bools:
    """Edges that say more than an earlier edge between the same two streams already does."""
    ops = operations.ops
    order = np.lexsort((-source, target, ops.lane[source], ops.lane[target]))
    is_kept = np.zeros(len(source), np.bool_)
    last: dict[tuple[int, int], int] = {}
    for edge in order.tolist():
        streams = (int(ops.lane[source[edge]]), int(ops.lane[target[edge]]))
        if source[edge] > last.get(streams, NO_OP):
            last[streams] = int(source[edge])
            is_kept[edge] = True
    return is_kept


def _has_exact_waits(trace: Trace) -> bool:
    kinds = {trace.strings[kind] for kind in np.unique(trace.syncs.kind).tolist() if kind >= 0}
    return WAIT_KIND in kinds


def _exact_pairs(
    operations: Operations, order: LaunchOrder, position: int
) -> tuple[Int64s, Int64s]:
    """Operation pairs from the wait events of one rank.

    The waiter is the next operation on the waiting stream; it waits for the last operation
    launched on the recorded stream before the record.
    """
    trace = operations.traces[position]
    syncs = trace.syncs
    is_wait = np.array([trace.strings[kind] == WAIT_KIND for kind in syncs.kind.tolist()])
    call_ns = _times_by_correlation(trace)
    source, target = [], []
    for row in np.flatnonzero(is_wait).tolist():
        recorded_ns = call_ns.get(int(syncs.record_correlation[row]))
        event = int(syncs.event[row])
        waited_ns = call_ns.get(int(trace.correlation[event]), int(trace.start_ns[event]))
        from_lane = order.lane_of_stream.get((position, int(syncs.wait_on_stream[row])))
        to_lane = order.lane_of_stream.get((position, int(syncs.stream[row])))
        if recorded_ns is None or from_lane is None or to_lane is None or from_lane == to_lane:
            continue
        last = order.last_before(from_lane, recorded_ns)
        first = order.first_after(to_lane, waited_ns)
        if NO_OP not in (last, first):
            source.append(last)
            target.append(first)
    return np.array(source, np.int64), np.array(target, np.int64)


def _times_by_correlation(trace: Trace) -> dict[int, int]:
    """Raw start of the runtime calls that wait events name, by correlation id."""
    wanted = np.concatenate(
        [trace.syncs.record_correlation, trace.correlation[trace.syncs.event]]
    )
    rows = np.flatnonzero(
        np.isin(trace.correlation, wanted[wanted >= 0]) & np.isin(trace.category, _RUNTIME)
    )
    return dict(
        zip(trace.correlation[rows][::-1].tolist(), trace.start_ns[rows][::-1].tolist(), strict=True)
    )


@dataclass(frozen=True)
class _Waits:
    """Of operations of one rank: the stream waits between the launch before on the same stream
    and their own."""

    op: Int64s  # int64[rows]
    count: Int64s  # int64[rows], capped
    at_ns: Int64s  # int64[rows], raw time of the last of them
    is_after_communication: Bools  # bool[rows], the thread's launch before was communication


Class_ = tuple[int, ...]


def _inferred_pairs(
    operations: Operations,
    order: LaunchOrder,
    positions: list[int],
    ready_ns: Int64s,
    margins: Margins,
) -> list[tuple[Int64s, Int64s]]:
    ops = operations.ops
    rows: dict[str, list[Int64s]] = defaultdict(list)
    may_wait = np.zeros(len(ops), np.bool_)
    for position in positions:
        waits = _waits(operations, order, position)
        # A rank whose trace shows no wait calls at all (HIP, sampled traces) may wait anywhere.
        may_wait[waits.op if len(waits.op) else ops.rank == position] = True
        for lane in _source_lanes(order, position):
            is_other = ops.lane[waits.op] != lane
            source = np.where(is_other, order.lasts_before(lane, waits.at_ns), NO_OP)
            chosen = np.flatnonzero(source != NO_OP)
            rows["source"].append(source[chosen])
            rows["target"].append(waits.op[chosen])
            rows["count"].append(waits.count[chosen])
            rows["after"].append(waits.is_after_communication[chosen].astype(np.int64))
    if not rows:
        return [_late_pairs(operations, order, positions, may_wait, ready_ns, margins)]
    source, target, count, after = (
        np.concatenate(rows[key]) for key in ("source", "target", "count", "after")
    )
    is_accepted = _accepted(operations, source, target, count, after, ready_ns, margins)
    # A collective's start on a rank that waits says nothing against an edge into it.
    is_possible = ops.start_ns[target] >= ops.end_ns[source] - margins.rounding_ns
    is_kept = is_accepted & (is_possible | ops.is_communication[target])
    may_wait[target[is_kept]] = False
    late = _late_pairs(operations, order, positions, may_wait, ready_ns, margins)
    return [(source[is_kept], target[is_kept]), late]


def _source_lanes(order: LaunchOrder, position: int) -> list[int]:
    lanes = order.streams_of_rank[position]
    size = [int(order.first_op[lane + 1] - order.first_op[lane]) for lane in lanes]
    busiest = sorted(range(len(lanes)), key=lambda index: (-size[index], index))[:MAX_SOURCES]
    return [lanes[index] for index in sorted(busiest)]


def _waits(operations: Operations, order: LaunchOrder, position: int) -> _Waits:
    """Operations of one rank that were launched after a stream wait."""
    items, ops = operations.items, operations.ops
    is_wait = items.role == RuntimeRole.STREAM_WAIT
    before = np.concatenate([[0], np.cumsum(is_wait)])  # waits among the items before each
    last_wait = np.maximum.accumulate(np.where(is_wait, np.arange(len(items)), -1))
    own = np.flatnonzero((ops.rank == position) & (ops.launch != NOT_LAUNCHED))
    launch = ops.launch[own].astype(np.int64)
    is_same = np.append(False, ops.lane[own][1:] == ops.lane[own][:-1])
    previous = np.where(is_same, np.append(0, launch[:-1]), -1)
    previous_ns = np.where(is_same, items.start_ns[np.maximum(previous, 0)], _LONG_AGO)
    first_of_lane = np.searchsorted(items.lane, items.lane[launch])
    since = np.where(
        is_same & (items.lane[np.maximum(previous, 0)] == items.lane[launch]),
        previous,
        _first_items_after(operations, items.lane[launch], previous_ns, first_of_lane),
    )
    count = before[launch] - before[np.minimum(since, launch)]
    previous_launch = operations.launch_before
    launched = operations.op_of_launch[np.maximum(previous_launch[launch], 0)]
    is_after = (previous_launch[launch] >= first_of_lane) & ops.is_communication[
        np.maximum(launched, 0)
    ]
    chosen = np.flatnonzero(count > 0)
    return _Waits(
        op=own[chosen],
        count=np.minimum(count[chosen], MAX_COUNTED),
        at_ns=items.start_ns[last_wait[launch[chosen]]],
        is_after_communication=is_after[chosen],
    )


_LONG_AGO = np.iinfo(np.int64).min // 2
_RUNTIME = (2,)  # Category.RUNTIME


def _first_items_after(
    operations: Operations, lane: Int64s, at_ns: Int64s, first_of_lane: Int64s
) -> Int64s:
    """First item of each lane that begins after each moment, int64."""
    items = operations.items
    found = np.empty(len(lane), np.int64)
    for number in np.unique(lane).tolist():
        low = int(np.searchsorted(items.lane, number))
        high = int(np.searchsorted(items.lane, number + 1))
        mine = lane == number
        found[mine] = low + np.searchsorted(items.start_ns[low:high], at_ns[mine], side="right")
    return np.maximum(found, first_of_lane)


def _accepted(
    operations: Operations,
    source: Int64s,
    target: Int64s,
    count: Int64s,
    after: Int64s,
    ready_ns: Int64s,
    margins: Margins,
) -> Bools:
    """Which candidates belong to a class that the observed times support, bool[candidates]."""
    ops, lanes = operations.ops, operations.lanes
    number = np.array([lane.number for lane in lanes], np.int64)
    into_communication = ops.is_communication[target]
    is_contradicted = ops.start_ns[target] < ops.end_ns[source] - margins.rounding_ns
    is_late = ops.start_ns[target] > ready_ns[target] + margins.late_ns
    gap_ns = ops.start_ns[target] - ops.end_ns[source] - margins.hand_over_ns
    is_tight = is_late & (np.abs(gap_ns) <= margins.window_ns)
    features = np.stack(
        [
            number[ops.lane[source]],
            number[ops.lane[target]],
            ops.is_communication[source],
            into_communication,
            count,
            after,
        ]
    )
    _, of_class = np.unique(features, axis=1, return_inverse=True)
    of_class = of_class.reshape(-1)
    size = np.bincount(of_class)
    contradicted = np.bincount(of_class, weights=is_contradicted)
    tight = np.bincount(of_class, weights=is_tight)
    is_consistent = contradicted <= np.maximum(MAX_CONTRADICTED * size, 0)
    # That a collective waits for the stream it was issued on is how process groups work.
    is_issue = np.zeros(len(size), np.bool_)
    is_issue[of_class[into_communication & ~ops.is_communication[source]]] = True
    is_accepted = is_consistent & ((tight >= 1) | is_issue)
    return is_accepted[of_class]


def _late_pairs(
    operations: Operations,
    order: LaunchOrder,
    positions: list[int],
    may_wait: Bools,
    ready_ns: Int64s,
    margins: Margins,
) -> tuple[Int64s, Int64s]:
    """Late operations that no class explains, with the operation at whose end they started."""
    ops = operations.ops
    is_late = (ops.start_ns > ready_ns + margins.late_ns) & ~ops.is_communication
    is_late &= may_wait & (ops.launch != NOT_LAUNCHED)
    late = np.flatnonzero(is_late)
    best = np.full(len(late), NO_OP, np.int64)
    best_end = np.full(len(late), _LONG_AGO, np.int64)
    for position in positions:
        mine = np.flatnonzero(ops.rank[late] == position)
        start_ns = ops.start_ns[late[mine]]
        for lane in _source_lanes(order, position):
            low, high = int(order.first_op[lane]), int(order.first_op[lane + 1])
            ended = np.searchsorted(
                ops.end_ns[low:high], start_ns + margins.rounding_ns, side="right"
            )
            source = low + ended - 1
            usable = np.maximum(source, 0)
            gap_ns = start_ns - ops.end_ns[usable] - margins.hand_over_ns
            is_match = (
                (ended > 0)
                & (np.abs(gap_ns) <= margins.window_ns)
                & (ops.lane[late[mine]] != lane)
                & (order.launched_ns[usable] <= order.launched_ns[late[mine]])
                & (ops.end_ns[usable] > best_end[mine])
            )
            best[mine[is_match]] = source[is_match]
            best_end[mine[is_match]] = ops.end_ns[source[is_match]]
    return best[best != NO_OP], late[best != NO_OP]
