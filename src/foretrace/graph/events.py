"""Device events as the trace's `cuda_sync` records tell them: who waits for which operation.

A record on a stream stands for the stream's last operation before it *and* for whatever the
stream had been told to wait for since: a stream that waits for another and then records, with
nothing launched between, passes the wait on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.launch_order import NO_OP, LaunchOrder
from foretrace.graph.operations import Operations
from foretrace.trace import Category, Trace

STREAM_WAIT = "Stream Wait Event"
EVENT_SYNC = "Event Sync"
STREAM_SYNC = "Stream Sync"


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
            lane = tracker.lane(action.stream)
            awaited = tracker.recorded.get(action.record, ())
            if lane is None or not awaited:
                continue
            tracker.told_to_wait(lane, action.at_ns, awaited)
            first = order.first_after(lane, action.at_ns)
            if first != NO_OP:
                source.extend(awaited)
                target.extend([first] * len(awaited))
        elif action.kind == EVENT_SYNC:
            waited[action.correlation] = tracker.recorded.get(action.record, ())
        elif action.kind == STREAM_SYNC:
            lane = tracker.lane(action.stream)
            waited[action.correlation] = () if lane is None else tracker.before(lane, action.at_ns)
        else:
            waited[action.correlation] = tuple(
                op
                for lane in order.streams_of_rank[position]
                for op in tracker.before(lane, action.at_ns)
            )
    sources, targets = np.array(source, np.int64), np.array(target, np.int64)
    lanes = operations.ops.lane
    is_between = lanes[sources] != lanes[targets]
    return ExactWaits(sources[is_between], targets[is_between], waited)


class _Tracker:
    """What each stream was told to wait for, and what each record stands for."""

    def __init__(self, order: LaunchOrder, position: int) -> None:
        self._order = order
        self._position = position
        self._told: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        self.recorded: dict[int, tuple[int, ...]] = {}

    def lane(self, stream: int) -> int | None:
        return self._order.lane_of_stream.get((self._position, stream))

    def record(self, action: _Action) -> None:
        lane = self.lane(action.stream)
        if lane is not None:
            self.recorded[action.correlation] = self.before(lane, action.at_ns)

    def told_to_wait(self, lane: int, at_ns: int, awaited: tuple[int, ...]) -> None:
        self._told.setdefault(lane, []).append((at_ns, awaited))

    def before(self, lane: int, at_ns: int) -> tuple[int, ...]:
        """The stream's last operation, and what it was told to wait for after that."""
        last = self._order.last_before(lane, at_ns)
        since_ns = self._order.launched_ns[last] if last != NO_OP else None
        passed_on = [
            op
            for told_ns, awaited in self._told.get(lane, ())
            if since_ns is None or told_ns > since_ns
            for op in awaited
        ]
        if since_ns is not None:  # older waits are behind an operation of the stream
            self._told[lane] = [entry for entry in self._told.get(lane, ()) if entry[0] > since_ns]
        return tuple(sorted({*passed_on, *([last] if last != NO_OP else [])}))


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
