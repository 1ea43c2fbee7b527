"""Profiler memory events of all ranks, on the recording's clock, one series per memory."""

from __future__ import annotations

import numpy as np

from foretrace.base import Int32s, Int64s
from foretrace.graph.communication.clocks import Clocks
from foretrace.graph.operations import Operations
from foretrace.graph.operations.scopes import NO_SCOPE, Scopes
from foretrace.graph.recording import MemoryEvents
from foretrace.trace import Trace

# Operators that do nothing but allocate: what called them says more.
_ALLOCATORS = frozenset(
    ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::resize_")
)
_HOST = 0  # device type of the host's memory, c10/core/DeviceType.h


def memory_events(
    operations: Operations, clocks: Clocks, scopes: Scopes, *, zero_ns: int
) -> tuple[MemoryEvents, ...]:
    """Allocations and frees by rank and memory; `zero_ns` is the timeline's zero."""
    return tuple(
        series
        for position in range(len(operations.traces))
        for series in _of_rank(operations, clocks, scopes, position=position, zero_ns=zero_ns)
    )


def _of_rank(
    operations: Operations, clocks: Clocks, scopes: Scopes, *, position: int, zero_ns: int
) -> list[MemoryEvents]:
    trace = operations.traces[position]
    memory = trace.memory
    if not len(memory.at_ns):
        return []
    scope = _scope_of_events(operations, scopes, position, memory.at_ns)
    name = trace.name[np.append(scopes.event, 0)[scope]]
    used, inverse = np.unique(np.where(scope == NO_SCOPE, -1, name), return_inverse=True)
    has_unknown = int(used[0] == NO_SCOPE)
    operator: Int32s = (inverse.reshape(-1) - has_unknown).astype(np.int32)
    operators = tuple(trace.strings[index] for index in used[has_unknown:].tolist())
    found = []
    for kind, device in sorted(
        set(zip(memory.device_type.tolist(), memory.device.tolist(), strict=True))
    ):
        rows = np.flatnonzero((memory.device_type == kind) & (memory.device == device))
        rank_of = np.full(len(rows), position, np.int64)
        found.append(
            MemoryEvents(
                rank=operations.ranks[position],
                is_device=kind != _HOST,
                device=-1 if kind == _HOST else device,
                at_ns=clocks.aligned(rank_of, memory.at_ns[rows]) - zero_ns,
                change_bytes=memory.change_bytes[rows],
                allocated_bytes=memory.allocated_bytes[rows],
                reserved_bytes=memory.reserved_bytes[rows],
                operators=operators,
                operator=operator[rows],
            )
        )
    return found


def _scope_of_events(
    operations: Operations, scopes: Scopes, position: int, at_ns: Int64s
) -> Int32s:
    """The scope that speaks for each event: of all threads of the rank, the one begun last.

    Events do not say their thread. What allocates has just begun; other threads wait in theirs.
    """
    found = np.full(len(at_ns), NO_SCOPE, np.int32)
    begun_ns = np.full(len(at_ns), np.iinfo(np.int64).min)
    start_ns = np.append(scopes.start_ns, np.iinfo(np.int64).min)
    rank = operations.ranks[position]
    for index, lane in enumerate(operations.lanes):
        if lane.rank != rank or lane.is_device or scopes.first[index] == scopes.first[index + 1]:
            continue
        scope = scopes.innermost(np.full(len(at_ns), index, np.int32), at_ns)
        is_later = start_ns[scope] > begun_ns
        found[is_later], begun_ns[is_later] = scope[is_later], start_ns[scope][is_later]
    return _asking(operations.traces[position], scopes, found)


def _asking(trace: Trace, scopes: Scopes, scope: Int32s) -> Int32s:
    """The scope itself, or the nearest around it that does more than allocate."""
    is_allocator = np.array([text in _ALLOCATORS for text in trace.strings], np.bool_)
    parent = np.append(scopes.parent, np.int32(NO_SCOPE))
    event = np.append(scopes.event, np.int32(0))
    while True:
        goes_up = (
            (scope != NO_SCOPE) & is_allocator[trace.name[event[scope]]] & (parent[scope] >= 0)
        )
        if not goes_up.any():
            return scope
        scope = np.where(goes_up, parent[scope], scope)
