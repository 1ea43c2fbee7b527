"""Which rows of a trace cut a host thread into items."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int64s, Integers, UInt8s, used_positions
from foretrace.graph._compiled import working_operators
from foretrace.graph.nodes import NodeKind
from foretrace.trace import Category, RuntimeRole, Trace, runtime_role

KIND_OF_ROLE = np.full(256, NodeKind.CALL, np.uint8)
KIND_OF_ROLE[RuntimeRole.LAUNCH] = NodeKind.LAUNCH
KIND_OF_ROLE[RuntimeRole.BLOCKING_COPY] = NodeKind.LAUNCH  # its waiting half becomes a SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_STREAM] = NodeKind.SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_DEVICE] = NodeKind.SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_EVENT] = NodeKind.SYNC

_IS_LAUNCHING, _IS_SYNC, _IS_CUT = np.zeros((3, 256), np.bool_)  # by RuntimeRole
_IS_LAUNCHING[[RuntimeRole.LAUNCH, RuntimeRole.BLOCKING_COPY]] = True
_IS_SYNC[[RuntimeRole.SYNC_STREAM, RuntimeRole.SYNC_DEVICE, RuntimeRole.SYNC_EVENT]] = True
_IS_CUT[[RuntimeRole.EVENT_RECORD, RuntimeRole.STREAM_WAIT]] = True
_IS_CUT |= _IS_LAUNCHING | _IS_SYNC
ISSUE_PREFIX = "c10d::"  # operators that hand a collective to a process group
WRAPPER_PREFIXES = ("autograd::", "torch::autograd::")
WORKER_PREFIX = "gloo:"  # spans of a collective on the CPU


def call_rows(trace: Trace, op_correlations: Int64s) -> tuple[Int64s, UInt8s]:
    """Runtime calls that launch, wait, record or make a stream wait, and their roles.

    A launch that owns no device operation in the trace is a call like any other. Threads that
    neither launch nor wait (a watchdog that polls events) carry nothing that others wait for
    and are left out.
    """
    rows = np.flatnonzero(trace.category == Category.RUNTIME)
    role = roles_of_names(trace, rows)
    is_cut = _IS_CUT[role]
    rows, role = rows[is_cut], role[is_cut]
    is_launch = _IS_LAUNCHING[role]
    is_owner = is_launch & np.isin(trace.correlation[rows], op_correlations)
    is_busy_lane = np.zeros(len(trace.lanes), np.bool_)
    is_busy_lane[trace.lane[rows[is_owner | _IS_SYNC[role]]]] = True
    role[is_launch & ~is_owner] = RuntimeRole.OTHER
    is_kept = is_busy_lane[trace.lane[rows]]
    return rows[is_kept], role[is_kept]


def roles_of_names(trace: Trace, rows: Int64s) -> UInt8s:
    """What runtime calls do by their names, uint8[rows], RuntimeRole."""
    role = np.zeros(len(trace.strings), np.uint8)
    used = used_positions(trace.name[rows], len(trace.strings))
    role[used] = runtime_role(trace.strings[index] for index in used.tolist())
    return role[trace.name[rows]]


def worker_rows(trace: Trace) -> Int64s:
    """Spans of CPU collectives: `gloo:` annotations, on worker threads or on the caller's own."""
    is_worker = strings_with_prefix(trace, WORKER_PREFIX)[trace.name]
    return np.flatnonzero(is_worker & (trace.category == Category.ANNOTATION))


def operator_rows(trace: Trace) -> Int64s:
    """Operators that do a thread's work, and those that issue a collective.

    Work is what an operator does itself, so the outermost whose time is mostly its own stands
    for it and all it calls (`aten::mm` and the little that it looks up). Wrappers (autograd's
    evaluation of a node, a Python function's) are no work: what they hold besides operators is
    Python, or a wait. Operators on the collectives' worker threads are part of the collectives.
    """
    rows = np.flatnonzero(trace.category == Category.OPERATOR)
    order = np.lexsort((-trace.duration_ns[rows], trace.start_ns[rows], trace.lane[rows]))
    rows = rows[order]
    if not len(rows):
        return rows
    is_issue = strings_with_prefix(trace, ISSUE_PREFIX)[trace.name[rows]]
    is_chosen = np.zeros(len(rows), np.bool_)
    working_operators(
        trace.lane[rows],
        trace.start_ns[rows],
        trace.start_ns[rows] + trace.duration_ns[rows],
        _dispatched(trace)[trace.name[rows]] & ~is_issue,
        is_chosen,
    )
    is_item = (is_chosen | is_issue) & ~_is_on_worker(trace, trace.lane[rows])
    return np.sort(rows[is_item])


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
