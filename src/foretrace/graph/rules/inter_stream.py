"""Rule 6, second half: a stream waits for another through an event.

With `cuda_sync` events the trace says which record a wait refers to (`graph/events.py`). Most traces only show that `cudaStreamWaitEvent` was called, not on which streams. Then the
edge is inferred: for every operation launched after a wait, each other stream's last operation
launched before the wait is a candidate. Candidates of the same make (streams, communication or
not, number and place of the waits) are judged together over all ranks and steps: none may be
contradicted by an operation that started before its candidate had ended, and some must have
started just when it ended, with nothing else to wait for. What no such class explains, and
still started late and just at another stream's end, gets an edge of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph.edges import Edges, Places
from foretrace.graph.events import ExactWaits
from foretrace.graph.launch_order import NO_OP, LaunchOrder
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import NOT_LAUNCHED, Operations
from foretrace.trace import RuntimeRole

MAX_SOURCES = 64  # streams per rank that may be waited for, the busiest first
MAX_CONTRADICTED = 0.02  # of a class: beyond rounding and lost events, a true edge has none
MAX_LAST_WAVE = 0.1  # of an operation's time, and of the time the held one was late
MAX_COUNTED = 15  # waits beyond this many make no other class


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
        # The upper half holds waits for other streams too: only the lower half is jitter.
        spread_ns = 0
        if len(hand_over):
            spread_ns = 2 * int(np.subtract(*np.percentile(hand_over, [50, 10])))
        return Margins(
            launch_ns=int(np.median(launch)) if len(launch) else 0,
            hand_over_ns=int(np.median(hand_over)) if len(hand_over) else 0,
            late_ns=2_000 + spread_ns,
            window_ns=10_000 + 2 * spread_ns,
            rounding_ns=2_000 + spread_ns,
        )


@dataclass(frozen=True)
class InterStream:
    """Edges between streams, and the hand-overs seen on those that held their successor."""

    edges: Edges
    hand_over_ns: Int64s  # samples


def inter_stream(
    operations: Operations,
    order: LaunchOrder,
    exact: Sequence[ExactWaits | None],
    places: Places,
    margins: Margins,
) -> InterStream:
    """Edges between the streams of every rank, exact where the trace states them.

    Args:
        operations: all operations.
        order: what was launched when.
        exact: per trace what its `cuda_sync` events state; None where it has none.
        places: numbering of the edges' ends.
        margins: what counts as late.
    """
    ready_ns = _ready_ns(operations, margins)
    source: list[Int64s] = []
    target: list[Int64s] = []
    kind: list[Int64s] = []
    silent = []
    for position, stated in enumerate(exact):
        if stated is not None:
            source.append(stated.source)
            target.append(stated.target)
            kind.append(np.full(len(stated.source), EdgeKind.INTER_STREAM))
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


@dataclass(frozen=True)
class _Waits:
    """Of operations of one rank: the stream waits between the launch before on the same stream
    and their own."""

    op: Int64s  # int64[rows]
    count: Int64s  # int64[rows], capped
    num_last: Int64s  # int64[rows], those since the thread's last launch on any stream; capped
    at_ns: Int64s  # int64[rows], raw time of the last of them


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
    may_wait = np.ones(len(ops), np.bool_)
    for position in positions:
        waits = _waits(operations, order, position)
        for lane in _source_lanes(order, position):
            is_other = ops.lane[waits.op] != lane
            source = np.where(is_other, order.lasts_before(lane, waits.at_ns), NO_OP)
            chosen = np.flatnonzero(source != NO_OP)
            rows["source"].append(source[chosen])
            rows["target"].append(waits.op[chosen])
            rows["count"].append(waits.count[chosen])
            rows["num_last"].append(waits.num_last[chosen])
    if not rows:
        return [_late_pairs(operations, order, positions, may_wait, ready_ns, margins)]
    source, target, count, num_last = (
        np.concatenate(rows[key]) for key in ("source", "target", "count", "num_last")
    )
    is_accepted = _accepted(operations, source, target, count, num_last, ready_ns, margins)
    # A collective's start on a rank that waits says nothing against an edge into it.
    is_possible = ops.start_ns[target] >= ops.end_ns[source] - margins.rounding_ns
    is_kept = is_accepted & (is_possible | ops.is_communication[target])
    gap_ns = ops.start_ns[target] - ops.end_ns[source] - margins.hand_over_ns
    may_wait[target[is_kept & (gap_ns <= margins.window_ns)]] = False
    late = _late_pairs(operations, order, positions, may_wait, ready_ns, margins)
    return [(source[is_kept], target[is_kept]), late]


def _source_lanes(order: LaunchOrder, position: int) -> list[int]:
    lanes = order.streams_of_rank[position]
    size = [int(order.first_op[lane + 1] - order.first_op[lane]) for lane in lanes]
    busiest = sorted(range(len(lanes)), key=lambda index: (-size[index], index))[:MAX_SOURCES]
    return [lanes[index] for index in sorted(busiest)]


def _waits(operations: Operations, order: LaunchOrder, position: int) -> _Waits:
    """Operations of one rank that were launched after a stream wait, by any of its threads."""
    items, ops = operations.items, operations.ops
    of_rank = items.rank == position
    wait_ns = np.sort(items.start_ns[of_rank & (items.role == RuntimeRole.STREAM_WAIT)])
    own = np.flatnonzero((ops.rank == position) & (ops.launch != NOT_LAUNCHED))
    at_ns = order.launched_ns[own]
    is_same = np.append(False, ops.lane[own][1:] == ops.lane[own][:-1])[: len(own)]
    since_ns = np.where(is_same, np.append(_LONG_AGO, at_ns[:-1])[: len(own)], _LONG_AGO)
    launch_ns = np.sort(at_ns)
    last = np.searchsorted(launch_ns, at_ns, side="left") - 1
    last_ns = np.where(last >= 0, launch_ns[np.maximum(last, 0)], _LONG_AGO)
    num_before = np.searchsorted(wait_ns, at_ns, side="left")
    count = num_before - np.searchsorted(wait_ns, since_ns, side="left")
    num_last = num_before - np.searchsorted(wait_ns, last_ns, side="left")
    chosen = np.flatnonzero(count > 0)
    return _Waits(
        op=own[chosen],
        count=np.minimum(count[chosen], MAX_COUNTED),
        num_last=np.minimum(num_last[chosen], MAX_COUNTED),
        at_ns=wait_ns[num_before[chosen] - 1],
    )


_LONG_AGO = np.iinfo(np.int64).min // 2


def _accepted(
    operations: Operations,
    source: Int64s,
    target: Int64s,
    count: Int64s,
    num_last: Int64s,
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
    coarse = np.stack(
        [
            number[ops.lane[source]],
            number[ops.lane[target]],
            ops.is_communication[source],
            into_communication,
            count,
            num_last,
        ]
    )
    # That a collective waits for the stream it was issued on is how process groups work.
    is_issue = into_communication & ~ops.is_communication[source]
    is_accepted = _supported(coarse, is_contradicted, is_tight | is_issue)
    rest = np.flatnonzero(~is_accepted)
    fine = np.concatenate([coarse, [ops.name[source], ops.name[target]]])[:, rest]
    is_accepted[rest] = _supported(fine, is_contradicted[rest], is_tight[rest])
    return is_accepted


def _supported(features: Int64s, is_contradicted: Bools, is_support: Bools) -> Bools:
    """Which rows belong to a class (equal features) with support and without contradiction."""
    if not features.shape[1]:
        return np.zeros(0, np.bool_)
    _, of_class = np.unique(features, axis=1, return_inverse=True)
    of_class = of_class.reshape(-1)
    size = np.bincount(of_class)
    contradicted = np.bincount(of_class, weights=is_contradicted)
    supported = np.bincount(of_class, weights=is_support)
    return ((contradicted <= MAX_CONTRADICTED * size) & (supported >= 1))[of_class]


def _late_pairs(
    operations: Operations,
    order: LaunchOrder,
    positions: list[int],
    may_wait: Bools,
    ready_ns: Int64s,
    margins: Margins,
) -> tuple[Int64s, Int64s]:
    """Late operations that no class explains, with the operation at whose end they started.

    An operation may also have been held because another filled the device: it then starts in
    the other's last wave, a little before its end.
    """
    ops = operations.ops
    is_late = (ops.start_ns > ready_ns + margins.late_ns) & ~ops.is_communication
    is_late &= may_wait & np.isin(ops.rank, positions) & (ops.launch != NOT_LAUNCHED)
    late = np.flatnonzero(is_late)
    late_by_ns = ops.start_ns[late] - ready_ns[late]
    best = np.full(len(late), NO_OP, np.int64)
    best_end = np.full(len(late), _LONG_AGO, np.int64)
    for position in positions:
        mine = np.flatnonzero(ops.rank[late] == position)
        start_ns = ops.start_ns[late[mine]]
        for lane in _source_lanes(order, position):
            low, high = int(order.first_op[lane]), int(order.first_op[lane + 1])
            # The operation that had ended, and the one after it, which may be in its last wave.
            ended = low + np.searchsorted(ops.end_ns[low:high], start_ns, side="right") - 1
            for source in (ended, ended + 1):
                usable = np.clip(source, low, high - 1)
                gap_ns = start_ns - ops.end_ns[usable] - margins.hand_over_ns
                last_wave_ns = np.minimum(
                    ((ops.end_ns - ops.start_ns)[usable] * MAX_LAST_WAVE).astype(np.int64),
                    (late_by_ns[mine] * MAX_LAST_WAVE).astype(np.int64),
                )
                is_match = (
                    (source == usable)
                    & (gap_ns <= margins.window_ns)
                    & (gap_ns >= -np.maximum(margins.window_ns, last_wave_ns))
                    & (ops.lane[late[mine]] != lane)
                    & (ops.start_ns[usable] < start_ns)
                    & (np.abs(gap_ns) < np.abs(start_ns - best_end[mine] - margins.hand_over_ns))
                )
                best[mine[is_match]] = source[is_match]
                best_end[mine[is_match]] = ops.end_ns[source[is_match]]
    return best[best != NO_OP], late[best != NO_OP]
