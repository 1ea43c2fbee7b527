"""Device events as the trace's `cuda_sync` records tell them: who waits for which operation.

A record on a stream stands for the stream's last operation before it *and* for whatever the
stream had been told to wait for since: a stream that waits for another and then records, with
nothing launched between, passes the wait on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.operations import Operations
from foretrace.graph.operations.launch_order import NO_OP, LaunchOrder
from foretrace.trace import Category, Trace

STREAM_WAIT = "Stream Wait Event"
EVENT_SYNC = "Event Sync"
STREAM_SYNC = "Stream Sync"
CONTEXT_SYNC = "Context Sync"
# Waits that a stream passes on one by one. Beyond, only each lane's last: a stream that launches
# nothing never forgets, and a walk through all it was told at every record takes minutes.
MOST_TOLD = 64
KINDS = frozenset({STREAM_WAIT, EVENT_SYNC, STREAM_SYNC, CONTEXT_SYNC})


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
