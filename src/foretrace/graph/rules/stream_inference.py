"""Which operation a stream wait is for, where the trace does not say.

Candidates of an operation launched after a wait are, for each other stream, the stream's last
operation launched before the wait. They are judged in classes: the same two streams, the same
names, the same number and place of the waits, over all ranks and steps.

1. A class holds if no member started before its candidate had ended, and some started just when
   it ended with nothing else to wait for. For a collective that waits for the stream it was
   issued on, the first half is enough: that is how process groups work.
2. What started late without such a class takes the operation at whose end it started.
3. A wait that never held anything up shows no evidence. It takes the collective that was
   launched last and not waited for yet, if the class so made is never contradicted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, begins_run, numbered_rows
from foretrace.graph.operations import NOT_LAUNCHED, Operations
from foretrace.graph.operations.events import NO_OP, LaunchOrder
from foretrace.trace import RuntimeRole

MAX_SOURCES = 64  # streams per rank that may be waited for, the busiest first
MAX_CONTRADICTED = 0.02  # of a class: beyond rounding and lost events, a true edge has none
MAX_LAST_WAVE = 0.1  # of an operation's time, and of the time the held one was late
MAX_COUNTED = 15  # waits beyond this many make no other class
_LONG_AGO = np.iinfo(np.int64).min // 2

MAX_PASSES = 8  # classes of waits are ruled out at most so many times
MAX_PENDING = 256  # collectives in flight on one rank; older ones were waited for unseen


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
class Seen:
    """What the trace shows of every operation; raw times."""

    began_ns: Int64s  # int64[ops], its start; of a collective that waited, its wait's end
    ready_ns: Int64s  # int64[ops], when it could start by its launch and its own stream
    is_awaited: Bools  # bool[ops], a collective that somebody may wait for


@dataclass(frozen=True)
class Candidates:
    """Pairs of operations that a wait may join."""

    source: Int64s  # int64[pairs]
    target: Int64s  # int64[pairs]
    count: Int64s  # int64[pairs], waits since the launch before on the target's stream; capped
    num_last: Int64s  # int64[pairs], those since the rank's launch before on any stream; capped

    def kept(self, is_kept: Bools) -> Candidates:
        """Some of the pairs."""
        return Candidates(*(column[is_kept] for column in self._columns()))

    def _columns(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        return self.source, self.target, self.count, self.num_last


def inferred_pairs(
    operations: Operations,
    order: LaunchOrder,
    positions: list[int],
    seen: Seen,
    margins: Margins,
) -> tuple[Int64s, Int64s]:
    """Pairs of operations, source and target, that waits of some ranks are taken to join.

    Args:
        operations: all operations.
        order: what was launched when.
        positions: traces to look at.
        seen: what the trace shows of every operation.
        margins: what counts as late.
    """
    ops = operations.ops
    waits = {position: _waits(operations, order, position) for position in positions}
    by_stream = _last_of_streams(operations, order, waits)
    by_class = by_stream.kept(_supported(operations, by_stream, seen, margins))
    is_possible = (
        seen.began_ns[by_class.target] >= ops.end_ns[by_class.source] - margins.rounding_ns
    )
    by_class = by_class.kept(is_possible)
    may_be_held = (ops.launch != NOT_LAUNCHED) & np.isin(ops.rank, positions)
    gap_ns = seen.began_ns[by_class.target] - ops.end_ns[by_class.source] - margins.hand_over_ns
    may_be_held[by_class.target[gap_ns <= margins.window_ns]] = False
    late = _late_pairs(operations, order, seen, margins, may_be_held=may_be_held)
    source = np.concatenate([by_class.source, late[0]])
    target = np.concatenate([by_class.target, late[1]])
    recent = _recent_collectives(operations, order, waits, seen, margins, known=(source, target))
    return np.concatenate([source, recent.source]), np.concatenate([target, recent.target])


@dataclass(frozen=True)
class _Waits:
    """Operations of one rank that were launched after a stream wait."""

    op: Int64s  # int64[rows]
    count: Int64s  # int64[rows]
    num_last: Int64s  # int64[rows]
    at_ns: Int64s  # int64[rows], raw time of the last wait


def _waits(operations: Operations, order: LaunchOrder, position: int) -> _Waits:
    """Operations of one rank that were launched after a stream wait, by any of its threads."""
    items, ops = operations.items, operations.ops
    of_rank = operations.items_of_rank(position)
    is_wait = items.role[of_rank] == RuntimeRole.STREAM_WAIT
    wait_ns = np.sort(items.start_ns[of_rank][is_wait])
    own = operations.op_rows(position)
    own = own[ops.launch[own] != NOT_LAUNCHED]
    at_ns = order.launched_ns[own]
    is_same = ~begins_run(ops.lane[own])
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


def _last_of_streams(
    operations: Operations, order: LaunchOrder, waits: dict[int, _Waits]
) -> Candidates:
    """For every operation after a wait, the last one of each other stream before the wait."""
    rows: dict[str, list[Int64s]] = defaultdict(lambda: [np.zeros(0, np.int64)])
    for position, own in waits.items():
        for lane in _source_lanes(order, position):
            is_other = operations.ops.lane[own.op] != lane
            source = np.where(is_other, order.lasts_before(lane, own.at_ns), NO_OP)
            chosen = np.flatnonzero(source != NO_OP)
            rows["source"].append(source[chosen])
            rows["target"].append(own.op[chosen])
            rows["count"].append(own.count[chosen])
            rows["num_last"].append(own.num_last[chosen])
    return Candidates(
        *(np.concatenate(rows[key]) for key in ("source", "target", "count", "num_last"))
    )


def _source_lanes(order: LaunchOrder, position: int) -> list[int]:
    lanes = order.streams_of_rank[position]
    size = [int(order.first_op[lane + 1] - order.first_op[lane]) for lane in lanes]
    busiest = sorted(range(len(lanes)), key=lambda index: (-size[index], index))[:MAX_SOURCES]
    return [lanes[index] for index in sorted(busiest)]


def _supported(operations: Operations, pairs: Candidates, seen: Seen, margins: Margins) -> Bools:
    """Pairs of classes that nothing contradicts and something supports, bool[pairs]."""
    ops = operations.ops
    is_late = seen.began_ns[pairs.target] > seen.ready_ns[pairs.target] + margins.late_ns
    gap_ns = seen.began_ns[pairs.target] - ops.end_ns[pairs.source] - margins.hand_over_ns
    is_tight = is_late & (np.abs(gap_ns) <= margins.window_ns)
    is_issue = ops.is_communication[pairs.target] & ~ops.is_communication[pairs.source]
    of_class = _classes(operations, pairs)
    supports = np.bincount(of_class, weights=is_tight | is_issue, minlength=1)
    return _uncontradicted(operations, pairs, seen, margins) & (supports[of_class] > 0)


def _uncontradicted(
    operations: Operations, pairs: Candidates, seen: Seen, margins: Margins
) -> Bools:
    """Pairs of classes in which no target started before its source had ended, bool[pairs]."""
    ops = operations.ops
    is_contradicted = seen.began_ns[pairs.target] < ops.end_ns[pairs.source] - margins.rounding_ns
    of_class = _classes(operations, pairs)
    size = np.bincount(of_class, minlength=1)
    contradicted = np.bincount(of_class, weights=is_contradicted, minlength=1)
    return (contradicted <= MAX_CONTRADICTED * size)[of_class]


def _classes(operations: Operations, pairs: Candidates) -> Int64s:
    """A number for each pair, equal for pairs of one class, int64[pairs]."""
    ops = operations.ops
    number = _stream_numbers(operations)
    return numbered_rows(
        [
            number[ops.lane[pairs.source]],
            number[ops.lane[pairs.target]],
            ops.name[pairs.source],
            ops.name[pairs.target],
            pairs.count,
            pairs.num_last,
        ]
    )


def _stream_numbers(operations: Operations) -> Int64s:
    return np.array([lane.number for lane in operations.lanes], np.int64)


def _recent_collectives(
    operations: Operations,
    order: LaunchOrder,
    waits: dict[int, _Waits],
    seen: Seen,
    margins: Margins,
    *,
    known: tuple[Int64s, Int64s],
) -> Candidates:
    """For every wait without evidence, the collective launched last and not waited for yet.

    Where a class of such pairs is contradicted, its waits are for an older collective: they are
    given again, with that class ruled out, until no class is contradicted.
    """
    walk = _OpenWaits(operations, order, waits, known, seen.is_awaited)
    ruled_out: set[tuple[int, ...]] = set()
    for _ in range(MAX_PASSES):
        pairs = walk.given(ruled_out)
        is_kept = _uncontradicted(operations, pairs, seen, margins)
        wrong = pairs.kept(~is_kept)
        if not len(wrong.source):
            return pairs
        ruled_out.update(
            walk.kind_of(*row)
            for row in zip(
                wrong.source.tolist(),
                wrong.target.tolist(),
                wrong.count.tolist(),
                wrong.num_last.tolist(),
                strict=True,
            )
        )
    return pairs.kept(is_kept)


class _OpenWaits:
    """Waits without evidence and the collectives in flight at each, in launch order."""

    def __init__(
        self,
        operations: Operations,
        order: LaunchOrder,
        waits: dict[int, _Waits],
        known: tuple[Int64s, Int64s],
        is_awaited: Bools,
    ) -> None:
        ops = operations.ops
        self._number = _stream_numbers(operations)[ops.lane].tolist()
        self._name = ops.name.tolist()
        is_explained = np.zeros(len(ops), np.bool_)
        from_collective = ops.is_communication[known[0]]
        is_explained[known[1][from_collective]] = True
        self._sources_of: dict[int, list[int]] = defaultdict(list)
        for source, target in zip(*(ends[from_collective].tolist() for ends in known), strict=True):
            self._sources_of[target].append(source)
        self._is_awaited = is_awaited
        is_event = is_awaited.copy()
        is_event[list(self._sources_of)] = True
        self._after_collective: set[int] = set()
        self._ranks: list[tuple[list[int], dict[int, tuple[int, int]]]] = []
        for position, own in waits.items():
            is_open = ~ops.is_communication[own.op] & (own.num_last > 0) & ~is_explained[own.op]
            rows = zip(
                own.op[is_open].tolist(),
                own.count[is_open].tolist(),
                own.num_last[is_open].tolist(),
                strict=True,
            )
            open_waits = {op: (count, num_last) for op, count, num_last in rows}
            all_ops = operations.op_rows(position)
            all_ops = all_ops[np.argsort(order.launched_ns[all_ops], kind="stable")]
            is_after = np.append(False, ops.is_communication[all_ops][:-1])[: len(all_ops)]
            self._after_collective.update(all_ops[is_after].tolist())
            is_event[own.op[is_open]] = True
            self._ranks.append((all_ops[is_event[all_ops]].tolist(), open_waits))

    def kind_of(self, source: int, target: int, count: int, num_last: int) -> tuple[int, ...]:
        """What pairs of one class have in common."""
        return (
            self._number[source],
            self._number[target],
            self._name[source],
            self._name[target],
            count,
            num_last,
        )

    def given(self, ruled_out: set[tuple[int, ...]]) -> Candidates:
        """Every open wait with the last collective in flight whose class is not ruled out."""
        columns: tuple[list[int], ...] = ([], [], [], [])
        for ops, open_waits in self._ranks:
            pending: list[int] = []
            for op in ops:
                for source in self._sources_of.get(op, ()):
                    if source in pending:
                        pending.remove(source)
                if op in open_waits:
                    found = self._last_possible(pending, op, open_waits[op], ruled_out)
                    if found is not None:
                        pending.remove(found)
                        for column, value in zip(
                            columns, (found, op, *open_waits[op]), strict=True
                        ):
                            column.append(value)
                if self._is_awaited[op]:
                    pending.append(op)
                    del pending[:-MAX_PENDING]
        return Candidates(*(np.array(column, np.int64) for column in columns))

    def _last_possible(
        self,
        pending: list[int],
        op: int,
        wait: tuple[int, int],
        ruled_out: set[tuple[int, ...]],
    ) -> int | None:
        # The wait that a process group makes inside a launch of its own is for nobody else.
        possible = pending[-1:] if op in self._after_collective else pending
        for source in reversed(possible):
            if self.kind_of(source, op, *wait) not in ruled_out:
                return source
        return None


def _late_pairs(
    operations: Operations,
    order: LaunchOrder,
    seen: Seen,
    margins: Margins,
    *,
    may_be_held: Bools,
) -> tuple[Int64s, Int64s]:
    """Late operations that no class explains, with the operation at whose end they started.

    An operation may also have been held because another filled the device: it then starts in
    the other's last wave, a little before its end.
    """
    ops = operations.ops
    is_late = (ops.start_ns > seen.ready_ns + margins.late_ns) & ~ops.is_communication
    is_late &= may_be_held
    late = np.flatnonzero(is_late)
    late_by_ns = ops.start_ns[late] - seen.ready_ns[late]
    # A collective does not fill the device, and how long it ran depends on others.
    wave_ns = np.where(ops.is_communication, 0, (ops.end_ns - ops.start_ns) * MAX_LAST_WAVE)
    best = np.full(len(late), NO_OP, np.int64)
    best_end = np.full(len(late), _LONG_AGO, np.int64)
    first_late = np.searchsorted(ops.rank[late], np.arange(len(operations.ranks) + 1))
    for position in np.unique(ops.rank[late]).tolist():
        mine = np.arange(first_late[position], first_late[position + 1])
        start_ns = ops.start_ns[late[mine]]
        for lane in _source_lanes(order, position):
            low, high = int(order.first_op[lane]), int(order.first_op[lane + 1])
            # The operation that had ended, and the one after it, which may be in its last wave.
            ended = low + np.searchsorted(ops.end_ns[low:high], start_ns, side="right") - 1
            for source in (ended, ended + 1):
                usable = np.clip(source, low, high - 1)
                gap_ns = start_ns - ops.end_ns[usable] - margins.hand_over_ns
                last_wave_ns = np.minimum(wave_ns[usable], late_by_ns[mine] * MAX_LAST_WAVE)
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
