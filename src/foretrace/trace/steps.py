"""Some steps of a trace: their host events, and the device operations these launched."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
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
    TraceMeta,
)
from foretrace.trace.marks import (
    STEP_MARK,
    EngineBatch,
    batch_of_mark,
    is_of_draft,
    is_verifying,
    mark_name,
    number_of_mark,
    plain_mark,
)

OUTSIDE_STEPS = "outside the chosen steps"
_MAX_SHOWN = 5
_Side = TypeVar("_Side", CollectiveColumns, SyncColumns)
_Table = TypeVar("_Table", CollectiveColumns, SyncColumns, MemoryColumns, FlowColumns)
_MARKS = (Category.ANNOTATION, Category.OPERATOR)
_LAST_NUMBER, _OWN_NUMBER = re.compile(r"(\d{1,18})$"), re.compile(r"#(\d{1,18})$")
_MOST_OF_STEPS = 0.5  # of the time of the profiler's marks, that a serving engine's last for
_LEAST_PLAIN = 2
_LONGEST = 40  # letters of a name that are shown


@dataclass(frozen=True)
class StepMark:
    """A step as it is marked on the host."""

    name: str  # "ProfilerStep#3", "step[DECODE bs=64]#3"
    number: int  # 3
    lane: int  # position in `Trace.lanes`
    start_ns: int
    duration_ns: int
    words: str  # what the file calls it, which another step may be called too
    batch: EngineBatch | None = None  # what a serving engine's step works on


def step_marks(trace: Trace) -> tuple[StepMark, ...]:
    """The step marks on host threads, in order of their start.

    Those that were stated (`with_step_mark`); else a serving engine's, where they last for most of
    what the profiler marks; else the profiler's; else what programs call an iteration. All but the
    profiler's last until the next begins, and of marks inside one another the outer counts.
    Profilers of 2021 (torch 1.8) give the marks the category of operators.

    Raises:
        TraceError: if no mark is called as was stated.
    """
    if trace.meta.step_mark:
        return _stated_marks(trace)
    batches = batches_of_marks(trace)
    served = _marks_until_next(trace, _host_rows(trace, list(batches)), batches)
    numbers = {
        string: number
        for string, text in enumerate(trace.strings)
        if text.startswith(STEP_MARK) and (number := number_of_mark(text)) is not None
    }
    profiled = tuple(
        _mark(trace, row, trace.strings[trace.name[row]], numbers[int(trace.name[row])])
        for row in _host_rows(trace, list(numbers)).tolist()
    )
    if served and _length_ns(served) >= _MOST_OF_STEPS * _length_ns(profiled):
        return served
    return profiled or _plain_marks(trace)


def batches_of_marks(trace: Trace) -> dict[int, EngineBatch]:
    """What the marks of a serving engine's steps say, by their position in `Trace.strings`.

    Those of a draft model are left out.
    """
    found = {
        string: batch
        for string, text in enumerate(trace.strings)
        if (batch := batch_of_mark(text)) is not None
    }
    texts = {string: trace.strings[string] for string in found}
    is_verified = any(map(is_verifying, texts.values()))
    return {
        string: batch
        for string, batch in found.items()
        if not is_of_draft(texts[string], is_verified=is_verified)
    }


def with_step_mark(trace: Trace, words: str) -> Trace:
    """The same trace, whose steps are what is marked with names that begin with these words."""
    return replace(trace, meta=replace(trace.meta, step_mark=words))


def _stated_marks(trace: Trace) -> tuple[StepMark, ...]:
    words = trace.meta.step_mark
    strings = [at for at, text in enumerate(trace.strings) if text.startswith(words)]
    rows = _host_rows(trace, strings, (*_MARKS, Category.PYTHON))
    if not len(rows):
        is_mark = trace.category == Category.ANNOTATION
        names, counts = np.unique(trace.name[is_mark], return_counts=True)
        often = [trace.strings[at] for at in names[np.argsort(-counts, kind="stable")].tolist()]
        have = ", ".join(repr(text[:_LONGEST]) for text in often[:_MAX_SHOWN]) or "none"
        raise TraceError(
            f"no step mark of {trace.meta.path} begins with {words!r}: its annotations are {have}"
            f"{', ...' if len(often) > _MAX_SHOWN else ''}; state how one of them begins, or none"
        )
    return _marks_until_next(trace, rows, batches_of_marks(trace))


def _plain_marks(trace: Trace) -> tuple[StepMark, ...]:
    """What is called an iteration, of the words that mark most; one alone says nothing."""
    strings_by_words: dict[str, list[int]] = {}
    for string, text in enumerate(trace.strings):
        if (found := plain_mark(text)) is not None:
            strings_by_words.setdefault(found[0], []).append(string)
    found_marks = [
        _marks_until_next(trace, _host_rows(trace, strings), {})
        for strings in strings_by_words.values()
    ]
    most = max(found_marks, key=len, default=())
    return most if len(most) >= _LEAST_PLAIN else ()


def _host_rows(
    trace: Trace, strings: list[int], categories: tuple[Category, ...] = _MARKS
) -> Int64s:
    """Rows of host threads that have one of these names, by start; int64[rows]."""
    is_known = np.isin(trace.category, categories) & np.isin(
        trace.name, np.array(strings, np.int64)
    )
    return np.flatnonzero(is_known)


def _marks_until_next(
    trace: Trace, rows: Int64s, batches: Mapping[int, EngineBatch]
) -> tuple[StepMark, ...]:
    """Marks of the thread that has most of them, each up to the next; inner ones are left out."""
    if not len(rows):
        return ()
    rows = outermost_rows(trace, rows[trace.lane[rows] == np.bincount(trace.lane[rows]).argmax()])
    texts = [trace.strings[at] for at in trace.name[rows].tolist()]
    number_of = _OWN_NUMBER if batches else _LAST_NUMBER  # marks of batches end with counts
    told = [number_of.search(text) for text in texts]
    numbers = [int(found[1]) for found in told if found is not None]
    if len(numbers) < len(rows) or any(after <= one for one, after in pairwise(numbers)):
        numbers = list(range(len(rows)))
        names = [mark_name(text, number) for text, number in zip(texts, numbers, strict=True)]
    else:
        names = texts
    begins = trace.start_ns[rows]
    ends = np.append(begins[1:], begins[-1:] + trace.duration_ns[rows[-1:]])
    return tuple(
        replace(
            _mark(trace, row, name, number),
            duration_ns=end - int(trace.start_ns[row]),
            batch=batches.get(int(trace.name[row])),
        )
        for row, name, number, end in zip(rows.tolist(), names, numbers, ends.tolist(), strict=True)
    )


def outermost_rows(trace: Trace, rows: Int64s) -> Int64s:
    """Of some rows, those that lie inside none of the others, by start; int64[rows]."""
    rows = rows[np.lexsort((-trace.duration_ns[rows], trace.start_ns[rows]))]
    ends = trace.start_ns[rows] + trace.duration_ns[rows]
    is_outer = np.ones(len(rows), np.bool_)
    is_outer[1:] = ends[1:] > np.maximum.accumulate(ends)[:-1]
    return rows[is_outer]


def _mark(trace: Trace, row: int, name: str, number: int) -> StepMark:
    return StepMark(
        name=name,
        number=number,
        lane=int(trace.lane[row]),
        start_ns=int(trace.start_ns[row]),
        duration_ns=int(trace.duration_ns[row]),
        words=trace.strings[trace.name[row]],
    )


def _length_ns(marks: Sequence[StepMark]) -> int:
    """From the begin of the first to the end of the last."""
    if not marks:
        return 0
    return max(mark.start_ns + mark.duration_ns for mark in marks) - marks[0].start_ns


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
    kept = KeptRows(
        is_kept,
        _is_inside(memory.at_ns, starts, ends),
        _is_inside(flows.from_ns, starts, ends) & _is_inside(flows.to_ns, starts, ends),
    )
    dropped = {**trace.meta.dropped}
    if kept.num_left:
        dropped[OUTSIDE_STEPS] = dropped.get(OUTSIDE_STEPS, 0) + kept.num_left
    note = f"only {', '.join(mark.name for mark in marks)} of {len(step_marks(trace))} steps kept"
    meta = replace(trace.meta, dropped=dropped, notes=(*trace.meta.notes, note))
    return with_rows(trace, kept, meta)


@dataclass(frozen=True)
class KeptRows:
    """What of a trace is kept."""

    events: Bools  # bool[events]
    memory: Bools  # bool[rows of memory]
    flows: Bools  # bool[arrows]

    @property
    def num_left(self) -> int:
        """Records of the file that are not kept; an arrow is two."""
        events, memory, flows = (
            int(np.count_nonzero(~rows)) for rows in (self.events, self.memory, self.flows)
        )
        return events + memory + 2 * flows


def with_rows(trace: Trace, kept: KeptRows, meta: TraceMeta) -> Trace:
    """A part of a trace, which `meta` describes; its lanes are all there still."""
    rows = np.flatnonzero(kept.events)
    tables = ("meta", "strings", "lanes", "collectives", "syncs", "memory", "flows")
    return replace(
        trace,
        meta=meta,
        collectives=_side_rows(trace.collectives, kept.events),
        syncs=_side_rows(trace.syncs, kept.events),
        memory=_table_rows(trace.memory, kept.memory),
        flows=_table_rows(trace.flows, kept.flows),
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
