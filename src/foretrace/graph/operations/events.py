"""Device events as `cuda_sync` records tell them, and what a stream had been given by then.

A record on a stream stands for the stream's last operation before it *and* for whatever the
stream had been told to wait for since: a stream that waits for another and then records, with
nothing launched between, passes the wait on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.operations import Operations
from foretrace.trace import Category, Trace

NO_OP = -1

STREAM_WAIT = "Stream Wait Event"
EVENT_SYNC = "Event Sync"
STREAM_SYNC = "Stream Sync"
CONTEXT_SYNC = "Context Sync"
# Waits that a stream passes on one by one. Beyond, only each lane's last: a stream that launches
# nothing never forgets, and a walk through all it was told at every record takes minutes.
MOST_TOLD = 64
KINDS = frozenset({STREAM_WAIT, EVENT_SYNC, STREAM_SYNC, CONTEXT_SYNC})


@dataclass(frozen=True)
class LaunchOrder:
    """Operations of every device stream in the order they were enqueued."""

    first_op: Int64s  # int64[lanes + 1], operations of lane i are first_op[i] .. first_op[i + 1]
    launched_ns: Int64s  # int64[ops], raw start of the launch; rising within a lane
    streams_of_rank: tuple[tuple[int, ...], ...]  # lanes with operations, per trace
    lane_of_stream: dict[tuple[int, int], int]  # (trace, stream number) -> lane

    def last_before(self, lane: int, at_ns: int) -> int:
        """The last operation of `lane` whose launch began before `at_ns`; NO_OP if none."""
        low, high = int(self.first_op[lane]), int(self.first_op[lane + 1])
        found = low + int(np.searchsorted(self.launched_ns[low:high], at_ns, side="left"))
        return found - 1 if found > low else NO_OP

    def first_after(self, lane: int, at_ns: int) -> int:
        """The first operation of `lane` whose launch began at `at_ns` or later; NO_OP if none."""
        low, high = int(self.first_op[lane]), int(self.first_op[lane + 1])
        found = low + int(np.searchsorted(self.launched_ns[low:high], at_ns, side="left"))
        return found if found < high else NO_OP

    def lasts_before(self, lane: int, at_ns: Int64s) -> Int64s:
        """`last_before` for many moments."""
        low, high = int(self.first_op[lane]), int(self.first_op[lane + 1])
        found = low + np.searchsorted(self.launched_ns[low:high], at_ns, side="left")
        return np.where(found > low, found - 1, NO_OP)


def launch_order(operations: Operations) -> LaunchOrder:
    """The enqueue order of every stream.

    Operations of a stream run in the order they were enqueued, so their own order is the launch
    order; a launch recorded later than that of a following operation (another thread's call,
    rounded timestamps) is read as no later. Operations without a recorded launch that precede
    all others of their stream were launched before the recording began.
    """
    ops = operations.ops
    first_op = np.searchsorted(ops.lane, np.arange(len(operations.lanes) + 1))
    launch = np.maximum(ops.launch, 0)
    launched_ns = np.where(ops.launch >= 0, operations.items.start_ns[launch], ops.start_ns)
    streams: list[list[int]] = [[] for _ in operations.ranks]
    lane_of_stream: dict[tuple[int, int], int] = {}
    for lane in np.unique(ops.lane).tolist():
        low, high = int(first_op[lane]), int(first_op[lane + 1])
        is_launched = ops.launch[low:high] >= 0
        num_early = int(np.argmax(is_launched)) if is_launched.any() else high - low
        launched_ns[low : low + num_early] = operations.first_ns[ops.rank[low]] - 1
        # From the end: no launch is later than the one after it.
        launched_ns[low:high] = np.minimum.accumulate(launched_ns[low:high][::-1])[::-1]
        if operations.lanes[lane].is_device:
            position = int(ops.rank[low])
            streams[position].append(lane)
            lane_of_stream[position, operations.lanes[lane].number] = lane
    return LaunchOrder(
        first_op=first_op.astype(np.int64),
        launched_ns=launched_ns,
        streams_of_rank=tuple(tuple(own) for own in streams),
        lane_of_stream=lane_of_stream,
    )


@dataclass(frozen=True)
class ExactWaits:
    """What one rank's `cuda_sync` records say."""

    source: Int64s  # int64[waits], operation that a stream waits for
    target: Int64s  # int64[waits], next operation on the waiting stream
    waited_by_call: dict[int, tuple[int, ...]]  # correlation of a host call -> operations


@dataclass(frozen=True)
class _Action:
    """One call that records or waits, in host order."""

    at_ns: int
    correlation: int
    kind: str  # "" for a record
    stream: int
    wait_on_stream: int
    record: int  # correlation of the record waited for


def states_waits(trace: Trace) -> bool:
    """Whether the trace has `cuda_sync` records, not only other vendors' event calls."""
    kinds = np.unique(trace.syncs.kind)
    return any(trace.strings[kind] in KINDS for kind in kinds[kinds >= 0].tolist())


def exact_waits(operations: Operations, order: LaunchOrder, position: int) -> ExactWaits:
    """All waits of one rank that its trace states, streams' and host calls'."""
    tracker = _Tracker(order, position)
    source: list[int] = []
    target: list[int] = []
    waited: dict[int, tuple[int, ...]] = {}
    for action in _actions(operations.traces[position]):
        if not action.kind:
            tracker.record(action)
        elif action.kind == STREAM_WAIT:
            awaited = tracker.recorded.get(action.record, ())
            tracker.told_to_wait(action.stream, action.at_ns, awaited)
            lane = tracker.lane(action.stream)
            if lane is None or not awaited:
                continue
            first = order.first_after(lane, action.at_ns)
            if first != NO_OP:
                source.extend(awaited)
                target.extend([first] * len(awaited))
        elif action.kind == EVENT_SYNC:
            waited[action.correlation] = tracker.recorded.get(action.record, ())
        elif action.kind == STREAM_SYNC:
            waited[action.correlation] = tracker.before(action.stream, action.at_ns)
        else:
            waited[action.correlation] = tuple(
                op
                for lane in order.streams_of_rank[position]
                for op in tracker.before(operations.lanes[lane].number, action.at_ns)
            )
    sources, targets = np.array(source, np.int64), np.array(target, np.int64)
    lanes = operations.ops.lane
    is_between = lanes[sources] != lanes[targets]
    return ExactWaits(sources[is_between], targets[is_between], waited)


class _Tracker:
    """What each stream was told to wait for, and what each record stands for.

    Streams go by their numbers: one without operations (a library's internal stream) passes its
    waits on all the same.
    """

    def __init__(self, order: LaunchOrder, position: int) -> None:
        self._order = order
        self._position = position
        self._told: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        self.recorded: dict[int, tuple[int, ...]] = {}

    def lane(self, stream: int) -> int | None:
        return self._order.lane_of_stream.get((self._position, stream))

    def record(self, action: _Action) -> None:
        self.recorded[action.correlation] = self.before(action.stream, action.at_ns)

    def told_to_wait(self, stream: int, at_ns: int, awaited: tuple[int, ...]) -> None:
        self._told.setdefault(stream, []).append((at_ns, awaited))

    def before(self, stream: int, at_ns: int) -> tuple[int, ...]:
        """The stream's last operation, and what it was told to wait for after that."""
        lane = self.lane(stream)
        last = NO_OP if lane is None else self._order.last_before(lane, at_ns)
        told = self._told.get(stream, [])
        if last != NO_OP:  # older waits are behind an operation of the stream
            since_ns = self._order.launched_ns[last]
            told = [entry for entry in told if entry[0] > since_ns]
        if told and (last == NO_OP or len(told) > MOST_TOLD):
            told = [(told[-1][0], self._latest(told))]
        self._told[stream] = told
        passed_on = {op for _, awaited in told for op in awaited}
        return tuple(sorted(passed_on | ({last} if last != NO_OP else set())))

    def _latest(self, told: list[tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
        """Of each lane only the last operation, which the lane's others are done before."""
        latest: dict[int, int] = {}
        for _, awaited in told:
            for op in awaited:
                lane = int(np.searchsorted(self._order.first_op, op, side="right"))
                latest[lane] = max(op, latest.get(lane, op))
        return tuple(sorted(latest.values()))


def _actions(trace: Trace) -> list[_Action]:
    """Records, stream waits and synchronisations in the order of their calls."""
    syncs = trace.syncs
    rows = np.flatnonzero(trace.category == Category.RUNTIME)
    call_ns = dict(
        zip(
            trace.correlation[rows][::-1].tolist(), trace.start_ns[rows][::-1].tolist(), strict=True
        )
    )
    actions: list[_Action] = []
    recorded: dict[int, int] = {}
    for event, kind, stream, wait_on_stream, record in zip(
        syncs.event.tolist(),
        syncs.kind.tolist(),
        syncs.stream.tolist(),
        syncs.wait_on_stream.tolist(),
        syncs.record_correlation.tolist(),
        strict=True,
    ):
        correlation = int(trace.correlation[event])
        at_ns = call_ns.get(correlation, int(trace.start_ns[event]))
        text = trace.strings[kind] if kind >= 0 else ""
        actions.append(_Action(at_ns, correlation, text, stream, wait_on_stream, record))
        if record in call_ns and wait_on_stream >= 0:
            recorded[record] = wait_on_stream
    actions.extend(
        _Action(call_ns[record], record, "", stream, -1, -1) for record, stream in recorded.items()
    )
    return sorted(actions, key=lambda action: (action.at_ns, action.correlation))
