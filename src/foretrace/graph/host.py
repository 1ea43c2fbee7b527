"""Which rows of a trace cut a host thread into items."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int64s, UInt8s
from foretrace.graph.nodes import NodeKind
from foretrace.trace import Category, RuntimeRole, Trace

KIND_OF_ROLE = np.full(256, NodeKind.CALL, np.uint8)
KIND_OF_ROLE[RuntimeRole.LAUNCH] = NodeKind.LAUNCH
KIND_OF_ROLE[RuntimeRole.BLOCKING_COPY] = NodeKind.LAUNCH  # its waiting half becomes a SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_STREAM] = NodeKind.SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_DEVICE] = NodeKind.SYNC
KIND_OF_ROLE[RuntimeRole.SYNC_EVENT] = NodeKind.SYNC

_LAUNCHING = (RuntimeRole.LAUNCH, RuntimeRole.BLOCKING_COPY)
_CUTS = (
    *_LAUNCHING,
    RuntimeRole.SYNC_STREAM,
    RuntimeRole.SYNC_DEVICE,
    RuntimeRole.SYNC_EVENT,
    RuntimeRole.EVENT_RECORD,
    RuntimeRole.STREAM_WAIT,
)
ISSUE_PREFIX = "c10d::"  # operators that hand a collective to a process group
WORKER_PREFIX = "gloo:"  # spans of a collective on the CPU


def call_rows(
    trace: Trace, role_of_string: UInt8s, op_correlations: Int64s
) -> tuple[Int64s, UInt8s]:
    """Runtime calls that launch, wait, record or make a stream wait, and their roles.

    A launch that owns no device operation in the trace is a call like any other. Threads that
    neither launch nor wait (a watchdog that polls events) carry nothing that others wait for
    and are left out.
    """
    role = np.where(trace.category == Category.RUNTIME, role_of_string[trace.name], 0)
    is_launch = np.isin(role, _LAUNCHING) & np.isin(trace.correlation, op_correlations)
    is_sync = np.isin(
        role, (RuntimeRole.SYNC_STREAM, RuntimeRole.SYNC_DEVICE, RuntimeRole.SYNC_EVENT)
    )
    is_busy_lane = np.zeros(len(trace.lanes), np.bool_)
    is_busy_lane[trace.lane[is_launch | is_sync]] = True
    rows = np.flatnonzero(np.isin(role, _CUTS) & is_busy_lane[trace.lane])
    is_ownerless = np.isin(role[rows], _LAUNCHING) & ~is_launch[rows]
    return rows, np.where(is_ownerless, RuntimeRole.OTHER, role[rows]).astype(np.uint8)


def worker_rows(trace: Trace) -> Int64s:
    """Spans of CPU collectives: `gloo:` annotations, on worker threads or on the caller's own."""
    is_worker = strings_with_prefix(trace, WORKER_PREFIX)[trace.name]
    return np.flatnonzero(is_worker & (trace.category == Category.ANNOTATION))


def leaf_operator_rows(trace: Trace) -> Int64s:
    """Operators that call no other operator, on threads other than the collectives' workers."""
    rows = np.flatnonzero(trace.category == Category.OPERATOR)
    order = np.lexsort((-trace.duration_ns[rows], trace.start_ns[rows], trace.lane[rows]))
    rows = rows[order]
    if not len(rows):
        return rows
    end_ns = trace.start_ns[rows] + trace.duration_ns[rows]
    lane = trace.lane[rows]
    is_leaf = np.append((lane[1:] != lane[:-1]) | (trace.start_ns[rows][1:] >= end_ns[:-1]), True)
    return np.sort(rows[is_leaf & ~_is_on_worker(trace, lane)])


def strings_with_prefix(trace: Trace, prefix: str) -> Bools:
    """Which of the trace's strings begin with `prefix`, bool[strings]."""
    return np.array([text.startswith(prefix) for text in trace.strings], np.bool_)


def _is_on_worker(trace: Trace, lane: Int64s) -> Bools:
    """Lanes that hold collectives' spans and issue none themselves."""
    is_worker_lane = np.zeros(len(trace.lanes), np.bool_)
    is_worker_lane[trace.lane[worker_rows(trace)]] = True
    is_issue = strings_with_prefix(trace, ISSUE_PREFIX)[trace.name]
    is_issue &= trace.category == Category.OPERATOR
    is_worker_lane[trace.lane[is_issue]] = False
    return is_worker_lane[lane]
