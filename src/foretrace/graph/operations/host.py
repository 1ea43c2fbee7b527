"""Which rows of a trace cut a host thread into items; copies that hold the host are cut in two.

gloo's spans carry no id of the `c10d::` call that issued them. A group's collectives form one
queue, so spans of a kind and size start in the order of their calls (checked on every collective
of four gloo recordings of torch 2.13: no exception).

`cudaMemcpy` and `hipMemcpyWithStream` return when the copy is done; so does an asynchronous copy
from the device into pageable memory. Such a call is cut in two, so that its recorded time is not
replayed as work. A copy from pageable memory keeps the host busy too, staging, but runs beside
it: there the call is cut where the launch was over, and the rest stays as host work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.base import (
    Bools,
    CollectiveKind,
    Int64s,
    Integers,
    UInt8s,
    lower_medians,
    numbered_rows,
    used_positions,
)
from foretrace.graph._compiled import called_operators, outermost
from foretrace.graph.nodes import NodeKind
from foretrace.trace import Category, RuntimeRole, Trace, runtime_role_at

KIND_OF_ROLE = np.full(256, NodeKind.CALL, np.uint8)
KIND_OF_ROLE[RuntimeRole.LAUNCH] = NodeKind.LAUNCH
KIND_OF_ROLE[RuntimeRole.BLOCKING_COPY] = NodeKind.LAUNCH  # its waiting half becomes a SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_STREAM] = NodeKind.SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_DEVICE] = NodeKind.SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_EVENT] = NodeKind.SYNC

_IS_LAUNCHING, _IS_SYNC, _IS_CUT = np.zeros((3, 256), np.bool_)  # by RuntimeRole
_IS_LAUNCHING[[RuntimeRole.LAUNCH, RuntimeRole.BLOCKING_COPY]] = True
_IS_SYNC[[RuntimeRole.SYNC_STREAM, RuntimeRole.SYNC_DEVICE, RuntimeRole.SYNC_EVENT]] = True
_IS_CUT[[RuntimeRole.EVENT_RECORD, RuntimeRole.STREAM_WAIT, RuntimeRole.ALLOCATION]] = True
_IS_CUT |= _IS_LAUNCHING | _IS_SYNC
ISSUE_PREFIX = "c10d::"  # operators that hand a collective to a process group
WRAPPER_PREFIXES = ("autograd::", "torch::autograd::")
GARBAGE_COLLECTION = "Python GC"  # begin of the mark of one, in `capture`
_MOST_CALLED = 0.5  # of its time lies in operators that an operator calls, and it works itself
WORKER_PREFIX = "gloo:"  # spans of a collective on the CPU

_SEND = "c10d::send"
START_SLACK_NS = 1_000  # a span may seem to start this much before its call
_SHAPE = re.compile(r"\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]")
# Kinds whose call and span show the same tensor, so that sizes must agree.
_SAME_SIZE = frozenset(
    (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.SEND,
        CollectiveKind.RECV,
        CollectiveKind.BROADCAST,
    )
)

EARLY_NS = 20_000  # an operation that began this long before its call returned: not its end's doing
DEFAULT_LAUNCH_NS = 6_000  # median launch call of the public A100 and V100 traces: 5 to 12 us

Columns = dict[str, NDArray[Any]]


def call_rows(trace: Trace, op_correlations: Int64s) -> tuple[Int64s, UInt8s]:
    """Runtime calls that launch, wait, allocate, record or make a stream wait, and their roles.

    A launch that owns no device operation in the trace is a call like any other. Threads that
    neither launch nor wait (a watchdog that polls events) carry nothing that others wait for
    and are left out.
    """
    rows = np.flatnonzero(trace.category == Category.RUNTIME)
    role = runtime_role_at(trace.strings, trace.name[rows])
    is_cut = _IS_CUT[role]
    rows, role = rows[is_cut], role[is_cut]
    is_launch = _IS_LAUNCHING[role]
    is_owner = is_launch & np.isin(trace.correlation[rows], op_correlations)
    is_busy_lane = np.zeros(len(trace.lanes), np.bool_)
    is_busy_lane[trace.lane[rows[is_owner | _IS_SYNC[role]]]] = True
    role[is_launch & ~is_owner] = RuntimeRole.OTHER
    is_kept = is_busy_lane[trace.lane[rows]] & ~_is_allocation_outside(trace, rows, role)
    return rows[is_kept], role[is_kept]


def _is_allocation_outside(trace: Trace, rows: Int64s, role: UInt8s) -> Bools:
    """Allocations before a thread's first other call, or after its last: they hold nothing up."""
    is_allocation: Bools = role == RuntimeRole.ALLOCATION
    if not is_allocation.any():
        return is_allocation
    first_ns = np.full(len(trace.lanes), np.iinfo(np.int64).max)
    last_ns = np.full(len(trace.lanes), np.iinfo(np.int64).min)
    lane, start_ns = trace.lane[rows], trace.start_ns[rows]
    np.minimum.at(first_ns, lane[~is_allocation], start_ns[~is_allocation])
    np.maximum.at(last_ns, lane[~is_allocation], start_ns[~is_allocation])
    found: Bools = is_allocation & ((start_ns < first_ns[lane]) | (start_ns > last_ns[lane]))
    return found


def worker_rows(trace: Trace) -> Int64s:
    """Spans of CPU collectives: `gloo:` annotations, on worker threads or on the caller's own."""
    is_worker = strings_with_prefix(trace, WORKER_PREFIX)[trace.name]
    return np.flatnonzero(is_worker & (trace.category == Category.ANNOTATION))


def collection_rows(trace: Trace, item_rows: Int64s) -> Int64s:
    """Python's garbage collections, as `record` marks them, on threads of items, between items."""
    is_mark = strings_with_prefix(trace, GARBAGE_COLLECTION)[trace.name]
    rows = np.flatnonzero(is_mark & (trace.category == Category.ANNOTATION))
    is_between = np.zeros(len(rows), np.bool_)
    for lane in np.unique(trace.lane[rows]).tolist():
        mine = rows[trace.lane[rows] == lane]
        items = item_rows[trace.lane[item_rows] == lane]
        items = items[np.argsort(trace.start_ns[items], kind="stable")]
        if not len(items):
            continue
        start_ns = trace.start_ns[items]
        end_ns = np.maximum.accumulate(start_ns + trace.duration_ns[items])
        after = np.searchsorted(start_ns, trace.start_ns[mine], side="right")
        is_over = (after == 0) | (end_ns[after - 1] <= trace.start_ns[mine])
        until_ns = np.append(start_ns, np.iinfo(np.int64).max)[after]
        is_free = is_over & (until_ns >= trace.start_ns[mine] + trace.duration_ns[mine])
        is_between[np.isin(rows, mine[is_free])] = True
    return rows[is_between]


def operator_rows(trace: Trace) -> Int64s:
    """Operators that do a thread's work, and those that issue a collective.

    Work is what an operator does itself, so the outermost whose time is mostly its own stands
    for it and all it calls (`aten::mm` and the little that it looks up). The usual call of the
    same shapes decides for all: one in which a small part was held up is still that work.
    Wrappers (autograd's evaluation of a node, a Python function's) are no work: what they hold
    besides operators is Python, or a wait. Operators on the collectives' worker threads are part
    of the collectives.
    """
    rows = np.flatnonzero(trace.category == Category.OPERATOR)
    order = np.lexsort((-trace.duration_ns[rows], trace.start_ns[rows], trace.lane[rows]))
    rows = rows[order]
    if not len(rows):
        return rows
    is_issue = strings_with_prefix(trace, ISSUE_PREFIX)[trace.name[rows]]
    parent, is_chosen = np.empty(len(rows), np.int32), np.empty(len(rows), np.bool_)
    called_ns = np.empty(len(rows), np.int64)
    end_ns = trace.start_ns[rows] + trace.duration_ns[rows]
    called_operators(trace.lane[rows], trace.start_ns[rows], end_ns, parent, called_ns)
    may_work = _dispatched(trace)[trace.name[rows]] & ~is_issue
    outermost(
        parent, (called_ns < 0) | (may_work & _is_own_work(trace, rows, called_ns)), is_chosen
    )
    is_item = (is_chosen | is_issue) & ~_is_on_worker(trace, trace.lane[rows])
    return np.sort(rows[is_item])


def _is_own_work(trace: Trace, rows: Int64s, called_ns: Int64s) -> Bools:
    """Whether the usual call of the same name and shapes spends half of its time itself."""
    kind = numbered_rows([trace.name[rows], trace.signature[rows]])
    took_ns = np.maximum(trace.duration_ns[rows], 1)
    called = np.maximum(called_ns, 0) / took_ns
    is_own: Bools = lower_medians(kind, called) <= _MOST_CALLED
    return is_own


def _dispatched(trace: Trace) -> Bools:
    """Strings that name an operator of a namespace (`aten::mm`), not a wrapper, bool[strings]."""
    return np.array(
        [
            "::" in text and not text.startswith(WRAPPER_PREFIXES) and " " not in text
            for text in trace.strings
        ],
        np.bool_,
    )


def strings_with_prefix(trace: Trace, prefix: str) -> Bools:
    """Which of the trace's strings begin with `prefix`, bool[strings]."""
    return np.array([text.startswith(prefix) for text in trace.strings], np.bool_)


def _is_on_worker(trace: Trace, lane: Integers) -> Bools:
    """Lanes that hold collectives' spans and issue none themselves."""
    is_worker_lane = np.zeros(len(trace.lanes), np.bool_)
    is_worker_lane[trace.lane[worker_rows(trace)]] = True
    is_issue = strings_with_prefix(trace, ISSUE_PREFIX)[trace.name]
    is_issue &= trace.category == Category.OPERATOR
    is_worker_lane[trace.lane[is_issue]] = False
    return is_worker_lane[lane]


def issue_events(trace: Trace, item_rows: Int64s, span_rows: Int64s) -> Int64s:
    """Row of the call that issued each span, int64[spans]; -1 where none fits."""
    calls = [
        int(row)
        for row in item_rows[np.argsort(trace.start_ns[item_rows], kind="stable")].tolist()
        if trace.strings[trace.name[row]].startswith(ISSUE_PREFIX)
    ]
    described = {row: (_kind(trace, row), _elements(trace, row)) for row in calls}
    issue = np.full(len(span_rows), -1, np.int64)
    pending: list[int] = []
    next_call = 0
    for index in np.argsort(trace.start_ns[span_rows], kind="stable").tolist():
        row = int(span_rows[index])
        while (
            next_call < len(calls)
            and trace.start_ns[calls[next_call]] <= trace.start_ns[row] + START_SLACK_NS
        ):
            pending.append(calls[next_call])
            next_call += 1
        kind, elements = _kind(trace, row), _elements(trace, row)
        for call in pending:
            if _fits(described[call], kind, elements):
                issue[index] = call
                pending.remove(call)
                break
    return issue


def begins_of_sends(trace: Trace, start_ns: Int64s, issue: Int64s) -> Int64s:
    """When operations began, those that send where their calls did; int64[operations].

    gloo writes to the wire inside the call and opens the span after it (torch 2.13). Where
    processes share cores the other end may have everything before the call returns: in 48 of 384
    transfers of six recordings, by up to 10 ms; in none before the call began.
    """
    is_send = np.array([text == _SEND for text in trace.strings] + [False], np.bool_)
    name_of_issue = np.append(trace.name, np.int32(-1))[issue]
    return np.where(is_send[name_of_issue], np.append(trace.start_ns, 0)[issue], start_ns)


def _fits(call: tuple[str, int | None], kind: str, elements: int | None) -> bool:
    call_kind, call_elements = call
    # reduce_scatter_tensor runs as an all-reduce of the whole input.
    scatters = CollectiveKind.REDUCE_SCATTER in call_kind
    is_same = kind in call_kind or (kind == CollectiveKind.ALL_REDUCE and scatters)
    if not is_same or kind not in _SAME_SIZE or scatters:
        return is_same
    return call_elements is None or elements is None or call_elements == elements


def _kind(trace: Trace, row: int) -> str:
    text: str = trace.strings[trace.name[row]]
    return text.removeprefix(ISSUE_PREFIX).removeprefix(WORKER_PREFIX).replace("_", "")


def _elements(trace: Trace, row: int) -> int | None:
    """Elements of the first tensor that the event's shapes show."""
    if trace.signature[row] < 0:
        return None
    shape = _SHAPE.search(trace.strings[trace.signature[row]])
    return int(np.prod([int(size) for size in shape.group(1).split(",")])) if shape else None


def with_split_copies(
    items: Columns, ops: Columns, names: Sequence[str], wait_name: int
) -> Columns:
    """One rank's items, with every copy that held the host as a launch and a wait.

    Args:
        items: columns of host items, one row per call.
        ops: columns of the same rank's device operations.
        names: texts that the `name` columns point to.
        wait_name: name of the waiting half.
    """
    op = _own_operations(items, ops)
    is_owner = op >= 0
    if not is_owner.any():
        return items
    op_start_ns, op_end_ns = ops["start_ns"][op], ops["end_ns"][op]
    is_held = is_owner & _is_into_pageable(ops, names)[op] & (op_end_ns <= items["end_ns"])
    is_held |= (
        is_owner & (items["role"] == RuntimeRole.BLOCKING_COPY) & (op_end_ns <= items["end_ns"])
    )
    is_early = is_owner & (op_start_ns < items["end_ns"] - EARLY_NS)
    cut = np.flatnonzero(is_held | is_early)
    if not len(cut):
        return items
    duration_ns = items["end_ns"] - items["start_ns"]
    free = duration_ns[is_owner & ~is_held & ~is_early]
    launch_ns = max(int(np.median(free)), 1) if len(free) else DEFAULT_LAUNCH_NS
    first = {key: column.copy() for key, column in items.items()}
    until_ns = np.maximum(op_start_ns[cut] - items["start_ns"][cut], 1)
    first["end_ns"][cut] = items["start_ns"][cut] + np.minimum(launch_ns, until_ns)
    first["recorded_ns"][cut] = first["end_ns"][cut] - first["start_ns"][cut]
    first["role"][cut] = RuntimeRole.LAUNCH
    held = np.flatnonzero(is_held)
    wait = {key: column[held].copy() for key, column in items.items()}
    wait["start_ns"] = first["end_ns"][held]
    wait["recorded_ns"] = wait["end_ns"] - wait["start_ns"]
    wait["kind"][:] = NodeKind.SYNC
    wait["role"][:] = RuntimeRole.BLOCKING_COPY
    wait["name"][:] = wait_name
    return {key: np.concatenate([first[key], wait[key]]) for key in items}


def _own_operations(items: Columns, ops: Columns) -> Int64s:
    """First operation of every launch, int64[items]; -1 for other items.

    Where a correlation id was used again, the first that began after the call did. On the CPU
    there are none.
    """
    if not (ops["correlation"] >= 0).any():
        return np.full(len(items["kind"]), -1, np.int64)
    order = np.lexsort((ops["start_ns"], ops["correlation"]))
    ids = ops["correlation"][order]
    found = np.minimum(np.searchsorted(ids, items["correlation"]), len(ids) - 1)
    is_owner = (items["kind"] == NodeKind.LAUNCH) & (ids[found] == items["correlation"])
    high = np.searchsorted(ids, items["correlation"], side="right")
    for item in np.flatnonzero(is_owner & (high - found > 1)).tolist():
        begins = ops["start_ns"][order[found[item] : high[item]]]
        later = int(np.searchsorted(begins, items["start_ns"][item]))
        found[item] += min(later, len(begins) - 1)
    return np.where(is_owner, order[found], -1)


def _is_into_pageable(ops: Columns, names: Sequence[str]) -> Bools:
    """Operations that are copies into pageable memory, bool[ops]."""
    is_pageable = np.zeros(len(names), np.bool_)
    for index in used_positions(ops["name"], len(names)).tolist():
        is_pageable[index] = "Device -> Pageable" in names[index]
    is_into: Bools = is_pageable[ops["name"]] & (ops["kind"] == NodeKind.MEMCPY)
    return is_into
