"""Some steps of a trace: their host events, and the device operations these launched."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from foretrace.base import Bools, Int64s, TraceError
from foretrace.trace.columns import (
    NO_ID,
    Category,
    CollectiveColumns,
    FlowColumns,
    MemoryColumns,
    SyncColumns,
    Trace,
)

OUTSIDE_STEPS = "outside the chosen steps"
_MAX_SHOWN = 5
_Side = TypeVar("_Side", CollectiveColumns, SyncColumns)
_Table = TypeVar("_Table", CollectiveColumns, SyncColumns, MemoryColumns, FlowColumns)
_MARK = re.compile(r"ProfilerStep#(\d{1,18})$")


@dataclass(frozen=True)
class StepMark:
    """A step as the profiler marked it on the host."""

    name: str  # "ProfilerStep#3"
    number: int  # 3
    lane: int  # position in `Trace.lanes`
    start_ns: int
    duration_ns: int


def step_marks(trace: Trace) -> tuple[StepMark, ...]:
    """The step marks on host threads, in order of their start.

    Profilers of 2021 (torch 1.8) give the marks the category of operators.
    """
    number_by_string = {
        string: int(match.group(1))
        for string, text in enumerate(trace.strings)
        if (match := _MARK.match(text))
    }
    is_mark = np.isin(trace.category, (Category.ANNOTATION, Category.OPERATOR)) & np.isin(
        trace.name, np.array(list(number_by_string), np.int64)
    )
    return tuple(
        StepMark(
            name=trace.strings[trace.name[row]],
            number=number_by_string[int(trace.name[row])],
            lane=int(trace.lane[row]),
            start_ns=int(trace.start_ns[row]),
            duration_ns=int(trace.duration_ns[row]),
        )
        for row in np.flatnonzero(is_mark)
    )


def with_steps(trace: Trace, steps: Collection[str | int]) -> Trace:
    """The part of a trace that belongs to these steps.

    Kept are the host events that start inside a chosen step's mark, on any thread, and the
    device operations that these launched, whenever they ran. A device operation whose launch
    the trace does not show is kept if it starts inside. What is left out is counted.

    Args:
        trace: the whole trace.
        steps: names of marks, or their numbers: "ProfilerStep#3", "3" and 3 are one step.

    Raises:
        TraceError: if the trace has no such step.
    """
    if not steps:
        raise ValueError("steps names no step: leave it out to take the whole trace")
    marks = _chosen(trace, steps)
    starts = np.array([mark.start_ns for mark in marks], np.int64)
    ends = starts + np.array([mark.duration_ns for mark in marks], np.int64)
    is_kept = _kept_rows(trace, starts, ends)
    memory, flows = trace.memory, trace.flows
    is_memory_kept = _is_inside(memory.at_ns, starts, ends)
    is_flow_kept = _is_inside(flows.from_ns, starts, ends) & _is_inside(flows.to_ns, starts, ends)
    num_left = (
        int(np.count_nonzero(~is_kept))
        + int(np.count_nonzero(~is_memory_kept))
        + 2 * int(np.count_nonzero(~is_flow_kept))
    )
    dropped = {**trace.meta.dropped}
    if num_left:
        dropped[OUTSIDE_STEPS] = dropped.get(OUTSIDE_STEPS, 0) + num_left
    note = f"only {', '.join(mark.name for mark in marks)} of {len(step_marks(trace))} steps kept"
    rows = np.flatnonzero(is_kept)
    tables = ("meta", "strings", "lanes", "collectives", "syncs", "memory", "flows")
    return replace(
        trace,
        meta=replace(trace.meta, dropped=dropped, notes=(*trace.meta.notes, note)),
        collectives=_side_rows(trace.collectives, is_kept),
        syncs=_side_rows(trace.syncs, is_kept),
        memory=_table_rows(memory, is_memory_kept),
        flows=_table_rows(flows, is_flow_kept),
        **{
            field.name: getattr(trace, field.name)[rows]
            for field in fields(trace)
            if field.name not in tables
        },
    )


def _chosen(trace: Trace, steps: Collection[str | int]) -> tuple[StepMark, ...]:
    marks = step_marks(trace)
    chosen: dict[StepMark, None] = {}
    for step in steps:
        text = str(step)
        found = [mark for mark in marks if text in (mark.name, str(mark.number))]
        if not found:
            names = [mark.name for mark in marks]
            shown = ", ".join(names[:_MAX_SHOWN]) + (", ..." if len(names) > _MAX_SHOWN else "")
            raise TraceError(
                f"no step {step!r} in {trace.meta.path}: found "
                f"{f'{len(names)} step marks ({shown})' if names else 'no step marks'}; "
                "name one of them, or none to take the whole trace"
            )
        chosen.update(dict.fromkeys(found))
    return tuple(sorted(chosen, key=lambda mark: mark.start_ns))


def _kept_rows(trace: Trace, starts: Int64s, ends: Int64s) -> Bools:
    is_inside = _is_inside(trace.start_ns, starts, ends)
    is_device = trace.category >= Category.KERNEL
    is_kept = is_inside & ~is_device
    is_call = trace.category == Category.RUNTIME
    launched = np.unique(trace.correlation[is_kept & is_call])
    known = np.unique(trace.correlation[is_call])
    has_launch = np.isin(trace.correlation, known) & (trace.correlation != NO_ID)
    is_launched = np.isin(trace.correlation, launched) & has_launch
    is_shadow = trace.category == Category.DEVICE_ANNOTATION
    is_operation = is_device & ~is_shadow
    is_kept |= is_operation & np.where(has_launch, is_launched, is_inside)
    # An annotation's shadow goes with the annotation, which has the same external id.
    annotations = trace.external[is_kept & (trace.category == Category.ANNOTATION)]
    is_kept |= is_shadow & np.isin(trace.external, annotations) & (trace.external != NO_ID)
    return is_kept


def _is_inside(at_ns: Int64s, starts: Int64s, ends: Int64s) -> Bools:
    """bool[times], whether a time lies in any of these spans, which may overlap."""
    order = np.argsort(starts, kind="stable")
    last_end = np.maximum.accumulate(ends[order])
    place = np.searchsorted(starts[order], at_ns, side="right") - 1
    is_inside: Bools = (place >= 0) & (at_ns < last_end[place])
    return is_inside


def _side_rows(table: _Side, is_kept: Bools) -> _Side:
    """The rows of kept events, whose new positions they hold."""
    place = np.cumsum(is_kept) - 1
    chosen = _table_rows(table, is_kept[table.event])
    return replace(chosen, event=place[chosen.event].astype(np.int32))


def _table_rows(table: _Table, is_kept: Bools) -> _Table:
    columns = {field.name: getattr(table, field.name)[is_kept] for field in fields(table)}
    return replace(table, **columns)
