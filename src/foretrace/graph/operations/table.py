"""What of the traces becomes nodes: host items and device operations of all ranks, as columns.

In: one `Trace` per rank. Out: an `Operations` table whose rows the rules in `graph/rules` join
with edges. Timestamps here are raw, each rank on its own clock; rules only use differences
within a rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.answer import count_text
from foretrace.base import Bools, GraphError, Int32s, Int64s, UInt8s, begins_run, used_positions
from foretrace.graph.graph import Lane
from foretrace.graph.nodes import NO_STEP, NodeKind
from foretrace.graph.operations.host import (
    KIND_OF_ROLE,
    begins_of_sends,
    call_rows,
    collection_rows,
    issue_events,
    operator_rows,
    with_split_copies,
    worker_rows,
)
from foretrace.graph.operations.names import OWN_NAMES, NamePool
from foretrace.graph.operations.steps import WHOLE_TRACE, StepMarks, marked_steps, step_table
from foretrace.trace import Category, LaneKind, RuntimeRole, Trace, is_communication

NOT_LAUNCHED = -1
# From a call's return to its operation, where nothing recorded ran in between: at most 22 us, or
# at least 3.9 ms, in 98 public recordings.
HELD_NS = 500_000
HELD_AT_MOST_NS = 2_000_000_000  # longer, and the clocks of host and device differ
HELD_FACTOR = 10  # and so many times what others need: a device's clock may be ahead
Columns = dict[str, NDArray[Any]]

_KIND_OF_CATEGORY = np.full(len(Category), NodeKind.KERNEL, np.uint8)
_KIND_OF_CATEGORY[Category.MEMCPY] = NodeKind.MEMCPY
_KIND_OF_CATEGORY[Category.MEMSET] = NodeKind.MEMSET


@dataclass(frozen=True)
class HostItems:
    """Calls, operators and marks that cut a host thread; sorted by lane, then start."""

    rank: Int32s  # int32[items], position among the traces
    lane: Int32s  # int32[items], position in `Operations.lanes`
    start_ns: Int64s  # int64[items], raw clock
    end_ns: Int64s  # int64[items]; items of one lane do not overlap
    recorded_ns: Int64s  # int64[items], duration as in the trace, before overlap was removed
    kind: UInt8s  # uint8[items], NodeKind
    role: UInt8s  # uint8[items], RuntimeRole; of marks and operators OTHER
    name: Int32s  # int32[items], position in `Operations.names`
    signature: Int32s  # int32[items], position in `Operations.names`, -1: none
    correlation: Int64s  # int64[items]
    event: Int32s  # int32[items], row in the rank's trace; -1 for marks
    step: Int32s  # int32[items], position in `Operations.step_names`; NO_STEP

    def __len__(self) -> int:
        """Number of items."""
        return len(self.rank)


@dataclass(frozen=True)
class DeviceOps:
    """Kernels, copies and fills; sorted by lane, then start."""

    rank: Int32s  # int32[ops], position among the traces
    lane: Int32s  # int32[ops]
    start_ns: Int64s  # int64[ops], raw clock
    end_ns: Int64s  # int64[ops]
    kind: UInt8s  # uint8[ops], NodeKind: KERNEL, MEMCPY or MEMSET
    name: Int32s  # int32[ops]
    signature: Int32s  # int32[ops]
    correlation: Int64s  # int64[ops]
    event: Int32s  # int32[ops], row in the rank's trace
    launch: Int32s  # int32[ops], item that launched it; NOT_LAUNCHED
    is_communication: Bools  # bool[ops]
    step: Int32s  # int32[ops]

    def __len__(self) -> int:
        """Number of operations."""
        return len(self.rank)


@dataclass(frozen=True)
class Operations:
    """All that becomes nodes, before any dependency is known."""

    traces: tuple[Trace, ...]
    ranks: tuple[int, ...]  # rank number of each trace
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    step_names: tuple[str, ...]
    marks: tuple[StepMarks, ...]  # of each trace
    items: HostItems
    ops: DeviceOps
    first_ns: Int64s  # int64[ranks], raw start of the rank's earliest item or operation

    def items_of_rank(self, position: int) -> slice:
        """The items of one trace, which follow each other."""
        return slice(*self._first_item[position : position + 2])

    def op_rows(self, position: int) -> Int64s:
        """Numbers of the operations of one trace, rising."""
        return np.arange(*self._first_op[position : position + 2])

    @cached_property
    def is_stream(self) -> Bools:
        """Which lanes are device streams, bool[lanes]."""
        return np.array([lane.is_device for lane in self.lanes], np.bool_)

    @cached_property
    def _first_item(self) -> list[int]:
        return first_of_ranks(self.items.rank, len(self.ranks))

    @cached_property
    def _first_op(self) -> list[int]:
        return first_of_ranks(self.ops.rank, len(self.ranks))

    @cached_property
    def op_of_launch(self) -> Int32s:
        """First operation of each launch, int32[items]; NOT_LAUNCHED for other items."""
        found = np.full(len(self.items), NOT_LAUNCHED, np.int32)
        launched = np.flatnonzero(self.ops.launch >= 0)[::-1]
        found[self.ops.launch[launched]] = launched
        return found

    @cached_property
    def held_from_before(self) -> Int64s:
        """Operations that waited for what was launched before the recording, int64[held].

        The first of their stream: their call had returned long before they began, longer than
        any launch needs here, and nothing that was recorded ran on the rank in between.
        """
        ops, items = self.ops, self.items
        is_launched = (ops.launch >= 0) & self.is_stream[ops.lane] & ~ops.is_communication
        is_first = begins_run(ops.lane)
        called_ns = items.start_ns[np.maximum(ops.launch, 0)] if len(items) else ops.start_ns
        into_empty = (
            is_launched & ~is_first & (np.append(0, ops.end_ns[:-1])[: len(ops)] < called_ns)
        )
        found = []
        for op in np.flatnonzero(is_first & is_launched).tolist():
            trace, event = self.traces[int(ops.rank[op])], int(items.event[ops.launch[op]])
            returned_ns = int(trace.start_ns[event] + trace.duration_ns[event])
            waited_ns = int(ops.start_ns[op]) - returned_ns
            if not HELD_NS <= waited_ns <= HELD_AT_MOST_NS:
                continue
            own = self.op_rows(int(ops.rank[op]))
            other = own[into_empty[own]]
            needs_ns = (ops.start_ns[other] - items.end_ns[ops.launch[other]]).tolist()
            ran = (ops.end_ns[own] > returned_ns) & (ops.start_ns[own] < ops.start_ns[op])
            if waited_ns > HELD_FACTOR * min(needs_ns, default=0) and not ran.any():
                found.append(op)
        return np.array(found, np.int64)

    @cached_property
    def launch_before(self) -> Int64s:
        """The launch before each item on the same thread, int64[items]; -1: none."""
        is_launch = self.op_of_launch >= 0
        latest = np.maximum.accumulate(np.where(is_launch, np.arange(len(is_launch)), -1))
        before = np.append(np.int64(-1), latest[:-1])
        is_same = (before >= 0) & (self.items.lane[np.maximum(before, 0)] == self.items.lane)
        return np.where(is_same, before, -1)


def host_moments(operations: Operations) -> Int64s:
    """A moment inside each host item by which it is placed, raw, int64[items].

    The middle of a call: whole-microsecond ends touch their neighbours'. The start of operators,
    which may call others later.
    """
    items = operations.items
    is_operator = (items.kind == NodeKind.OPERATOR) | (items.correlation < 0)
    middle_ns: Int64s = (items.start_ns + items.end_ns) // 2
    return np.where(is_operator, items.start_ns, middle_ns)


def first_of_ranks(rank: Int32s, num_ranks: int) -> list[int]:
    """Where each rank's rows begin, and where the last one's end, in a rising column of ranks."""
    first: list[int] = np.searchsorted(rank, np.arange(num_ranks + 1, dtype=np.int32)).tolist()
    return first


@dataclass(frozen=True)
class _RankColumns:
    """One rank's columns, lanes and names already common to all ranks."""

    items: Columns
    ops: Columns
    marks: StepMarks


def operations_of(traces: Sequence[Trace]) -> Operations:
    """The host items and device operations of all ranks.

    Raises:
        GraphError: if no trace holds anything that could be replayed.
    """
    names = NamePool()
    lanes: list[Lane] = []
    ranks = tuple(
        index if trace.meta.rank is None else trace.meta.rank for index, trace in enumerate(traces)
    )
    parts = [
        _rank_columns(trace, position, rank, lanes, names)
        for position, (trace, rank) in enumerate(zip(traces, ranks, strict=True))
    ]
    for part, trace in zip(parts, traces, strict=True):
        if not (part.items["event"] >= 0).any() and not len(part.ops["rank"]):
            raise GraphError(
                f"nothing to replay in {str(trace.meta.path)!r}: of {_read_text(trace)} none is a "
                "device operation, a call that launches one or an operator. "
                "Leave the file out, or record again with foretrace.record(...)."
            )
    step_names, step_of_mark = step_table([part.marks for part in parts])
    items = _host_items(parts, step_of_mark)
    return Operations(
        traces=tuple(traces),
        ranks=ranks,
        lanes=tuple(lanes),
        names=names.names(),
        step_names=step_names,
        marks=tuple(part.marks for part in parts),
        items=items,
        ops=_device_ops(parts, items, names.names(), step_of_mark),
        first_ns=np.array([_first_ns(part) for part in parts], np.int64),
    )


def _read_text(trace: Trace) -> str:
    """What a file holds, in words: its events that are read, and those that are not, by reason."""
    left = sorted(trace.meta.dropped.items(), key=lambda one: (-one[1], one[0]))[:3]
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left)
    not_read = f" (not read, {reasons})" if left else ""
    return f"{count_text(trace.num_accounted, 'record')}{not_read}"


def _rank_columns(
    trace: Trace, position: int, rank: int, lanes: list[Lane], names: NamePool
) -> _RankColumns:
    first_lane = len(lanes)
    lanes.extend(_lanes(trace, rank))
    op_rows = np.flatnonzero(
        (trace.category == Category.KERNEL)
        | (trace.category == Category.MEMCPY)
        | (trace.category == Category.MEMSET)
    )
    if len(op_rows):
        rows, role = call_rows(trace, trace.correlation[op_rows])
        kind = KIND_OF_ROLE[role]
        issue = np.full(len(op_rows), -1, np.int64)
    else:
        rows, op_rows = operator_rows(trace), worker_rows(trace)
        issue = issue_events(trace, rows, op_rows)
        is_issue = np.isin(rows, issue)
        role = np.where(is_issue, RuntimeRole.LAUNCH, RuntimeRole.OTHER).astype(np.uint8)
        kind = np.where(is_issue, NodeKind.LAUNCH, NodeKind.OPERATOR).astype(np.uint8)
    collections = collection_rows(trace, rows)
    if len(collections):
        rows = np.append(rows, collections)
        kind = np.append(kind, np.full(len(collections), NodeKind.CALL, np.uint8))
        role = np.append(role, np.full(len(collections), RuntimeRole.OTHER, np.uint8))
    items = _columns(trace, rows, position, first_lane, names)
    items["kind"], items["role"] = kind, role
    ops = _columns(trace, op_rows, position, first_lane, names)
    ops["kind"] = _KIND_OF_CATEGORY[trace.category[op_rows]]
    ops["issue"] = issue
    ops["start_ns"] = begins_of_sends(trace, ops["start_ns"], issue)
    items = with_split_copies(items, ops, names.names(), OWN_NAMES.index("copy wait"))
    marks = marked_steps(trace, items["lane"], items["start_ns"], items["end_ns"], first_lane)
    if marks.lane < 0:
        lanes.append(Lane(rank, is_device=False, process=-1, device=-1, number=-1))
        marks = marks.on_lane(len(lanes) - 1)
    return _RankColumns(_with_marks(items, marks, position, names), ops, marks)


def _lanes(trace: Trace, rank: int) -> list[Lane]:
    lanes = trace.lanes
    return [
        Lane(rank, kind == LaneKind.DEVICE, process, device, number)
        for kind, process, device, number in zip(
            lanes.kind.tolist(),
            lanes.process.tolist(),
            lanes.device.tolist(),
            lanes.number.tolist(),
            strict=True,
        )
    ]


def _is_communication(name: Int32s, names: Sequence[str]) -> Bools:
    is_comm = np.zeros(len(names), np.bool_)
    for index in used_positions(name, len(names)).tolist():
        is_comm[index] = is_communication(names[index])
    return is_comm[name]


def _columns(
    trace: Trace, rows: Int64s, position: int, first_lane: int, names: NamePool
) -> Columns:
    start_ns = trace.start_ns[rows]
    duration_ns = trace.duration_ns[rows]
    return {
        "rank": np.full(len(rows), position, np.int32),
        "lane": (trace.lane[rows] + np.int32(first_lane)).astype(np.int32),
        "start_ns": start_ns,
        "end_ns": start_ns + duration_ns,
        "recorded_ns": duration_ns,
        "name": names.of_column(trace.strings, trace.name[rows]),
        "signature": names.of_column(trace.strings, trace.signature[rows]),
        "correlation": trace.correlation[rows],
        "event": rows.astype(np.int32),
    }


def _with_marks(items: Columns, marks: StepMarks, position: int, names: NamePool) -> Columns:
    """The rank's items and its step marks, sorted by start within each lane."""
    num_steps = len(marks.number)
    none = np.full(2 * num_steps, -1, np.int64)
    at_ns = np.stack([marks.begin_ns, marks.end_ns], axis=1).reshape(-1)
    name = [names.of("step begin"), names.of("step end")] * num_steps
    mark_columns: Columns = {
        "rank": np.full(2 * num_steps, position, np.int32),
        "lane": np.full(2 * num_steps, marks.lane, np.int32),
        "start_ns": at_ns,
        "end_ns": at_ns,
        "recorded_ns": np.zeros(2 * num_steps, np.int64),
        "name": np.array(name, np.int32),
        "signature": none.astype(np.int32),
        "correlation": none,
        "event": none.astype(np.int32),
        "kind": np.array([NodeKind.STEP_BEGIN, NodeKind.STEP_END] * num_steps, np.uint8),
        "role": np.full(2 * num_steps, RuntimeRole.OTHER, np.uint8),
    }
    joined = {key: np.concatenate([items[key], mark_columns[key]]) for key in items}
    # At one moment: the end of a step, the begin of the next, then calls, longer first.
    mark_order = {NodeKind.STEP_END: 0, NodeKind.STEP_BEGIN: 1}
    before = np.full(256, 2, np.int8)
    for kind, place in mark_order.items():
        before[kind] = place
    order = np.lexsort(
        (
            joined["event"],
            joined["correlation"],
            -joined["end_ns"],
            before[joined["kind"]],
            joined["start_ns"],
            joined["lane"],
        )
    )
    return {key: column[order] for key, column in joined.items()}


def _host_items(
    parts: Sequence[_RankColumns], step_of_mark: Sequence[Mapping[int, int]]
) -> HostItems:
    joined = _joined([part.items for part in parts])
    start_ns, end_ns, lane = joined["start_ns"], joined["end_ns"], joined["lane"]
    # A call that begins inside the one before it ends that one: the thread's time is cut once.
    next_start = np.append(start_ns[1:], 0)
    is_same_lane = np.append(lane[1:] == lane[:-1], False)
    end_ns = np.where(is_same_lane, np.minimum(end_ns, next_start), end_ns)
    step = np.full(len(start_ns), NO_STEP, np.int32)
    first_item = first_of_ranks(joined["rank"], len(parts))
    for position, (part, positions) in enumerate(zip(parts, step_of_mark, strict=True)):
        low, high = first_item[position : position + 2]
        index = part.marks.index_at(start_ns[low:high])
        is_end = joined["kind"][low:high] == NodeKind.STEP_END
        index[is_end] = part.marks.index_of_end(start_ns[low:high][is_end])
        table = np.array([positions[number] for number in part.marks.number.tolist()] + [NO_STEP])
        step[low:high] = table[index]
    joined["end_ns"] = end_ns
    return HostItems(**joined, step=step)


def _device_ops(
    parts: Sequence[_RankColumns],
    items: HostItems,
    names: Sequence[str],
    step_of_mark: Sequence[Mapping[int, int]],
) -> DeviceOps:
    joined = _joined([part.ops for part in parts])
    del joined["recorded_ns"]
    order = np.lexsort(
        (
            joined["event"],
            joined["correlation"],
            joined["end_ns"],
            joined["start_ns"],
            joined["lane"],
        )
    )
    joined = {key: column[order] for key, column in joined.items()}
    issue = joined.pop("issue")
    launch = _launch_of(items, joined["rank"], joined["correlation"], joined["start_ns"])
    launch = np.where(issue >= 0, _items_of_events(items, joined["rank"], issue), launch)
    launch = launch.astype(np.int32)
    _cut_issues(items, joined, launch, issue >= 0)
    # Where nobody marked steps, what has no launch is part of the one step as well.
    step = np.array([one.get(WHOLE_TRACE, NO_STEP) for one in step_of_mark], np.int32)[
        joined["rank"]
    ]
    is_launched = launch >= 0
    step[is_launched] = items.step[launch[is_launched]]
    return DeviceOps(
        **joined,
        launch=launch,
        step=step,
        is_communication=_is_communication(joined["name"], names),
    )


def _launch_of(items: HostItems, rank: Int32s, correlation: Int64s, start_ns: Int64s) -> Int32s:
    """The item that launched each operation, int32[ops].

    Same rank and correlation id; where an id was used again, the last call that began before
    the operation did, else the first.
    """
    launches = np.flatnonzero((items.kind == NodeKind.LAUNCH) & (items.correlation >= 0))
    if not len(launches) or not len(rank):
        return np.full(len(rank), NOT_LAUNCHED, np.int32)
    ids, dense = np.unique(
        np.concatenate([items.correlation[launches], correlation]), return_inverse=True
    )
    key = dense + len(ids) * np.concatenate([items.rank[launches], rank]).astype(np.int64)
    launch_key, op_key = key[: len(launches)], key[len(launches) :]
    order = np.lexsort((items.start_ns[launches], launch_key))
    launches, launch_key = launches[order], launch_key[order]
    low = np.searchsorted(launch_key, op_key, side="left")
    high = np.searchsorted(launch_key, op_key, side="right")
    found = low.copy()
    for op in np.flatnonzero(high - low > 1).tolist():
        begins = items.start_ns[launches[low[op] : high[op]]]
        before = int(np.searchsorted(begins, start_ns[op], side="right")) - 1
        found[op] = low[op] + max(before, 0)
    return np.where(
        (high > low) & (correlation >= 0),
        launches[np.minimum(found, len(launches) - 1)],
        NOT_LAUNCHED,
    ).astype(np.int32)


def _cut_issues(items: HostItems, ops: Columns, launch: Int32s, is_issued: Bools) -> None:
    """End the calls that issue CPU collectives where a free worker takes them over.

    The call itself goes on beside the collective, longer if the worker takes its processor; the
    rest of it becomes a segment. A send begins with its call. Writes `items.end_ns`.
    """
    if not is_issued.any():
        return
    call = launch[is_issued]
    taken_ns = ops["start_ns"][is_issued] - items.start_ns[call]
    after = taken_ns[taken_ns > 0]
    typical_ns = int(np.median(after)) if len(after) else 0
    items.end_ns[call] = np.minimum(
        items.end_ns[call], items.start_ns[call] + np.clip(taken_ns, 0, typical_ns)
    )


def _items_of_events(items: HostItems, rank: Int32s, event: Int64s) -> Int64s:
    """The item made of each rank's event; the event must be one."""
    size = int(items.event.max(initial=0)) + 2
    key = items.rank.astype(np.int64) * size + items.event + 1
    order = np.argsort(key, kind="stable")
    wanted = rank.astype(np.int64) * size + event + 1
    return order[np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)]


def _joined(columns: Sequence[Columns]) -> Columns:
    return {key: np.concatenate([part[key] for part in columns]) for key in columns[0]}


def _first_ns(part: _RankColumns) -> int:
    starts = [column["start_ns"].min() for column in (part.items, part.ops) if len(column["rank"])]
    return int(min(starts))
