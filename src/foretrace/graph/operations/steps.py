"""Where steps begin and end, as the host marks them, and how each rank's file ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.nodes import WHOLE
from foretrace.graph.recording import Ending
from foretrace.trace import BatchKind, Category, LaneKind, Trace, batch_of_mark, step_marks

WHOLE_TRACE = -1  # the number of the only step of a trace without marks

_HOST = (Category.OPERATOR, Category.ANNOTATION, Category.RUNTIME, Category.PYTHON)
_FRAMES = ("ProfilerStep", "PyTorch Profiler")  # around everything, they say nothing
_PROFILER = ("torch/profiler/", "torch/autograd/profiler")  # from here on it is the profiler's end
MAX_OPEN = 12  # names kept, the innermost
# Spans that an exception or the profiler's stop closes end one after the other: within 0.14 ms in
# a recording of torch 2.13 whose rank gave up.
CLOSED_TOGETHER_NS = 1_000_000


@dataclass(frozen=True)
class StepMarks:
    """One rank's steps, rising in time and without overlap."""

    number: Int64s  # int64[steps], as in `ProfilerStep#7`; WHOLE_TRACE
    names: tuple[str, ...]  # of each; WHOLE
    begin_ns: Int64s  # int64[steps], raw clock
    end_ns: Int64s  # int64[steps]
    lane: int  # host thread that carries the marks; -1 where the trace has no host thread
    is_from_trace: bool  # False: the trace has no marks, the whole of it is one step

    def on_lane(self, lane: int) -> StepMarks:
        """The same marks on another lane."""
        return replace(self, lane=lane)

    def index_at(self, at_ns: Int64s) -> Int64s:
        """Step that holds each moment, int64; `len(self.number)` outside all steps."""
        index = np.searchsorted(self.begin_ns, at_ns, side="right") - 1
        is_inside = (index >= 0) & (at_ns < self.end_ns[np.maximum(index, 0)])
        if not self.is_from_trace:
            is_inside = np.ones(len(at_ns), np.bool_)
            index = np.zeros(len(at_ns), np.int64)
        return np.where(is_inside, index, len(self.number))

    def index_of_end(self, at_ns: Int64s) -> Int64s:
        """Step whose end mark stands at each moment, int64."""
        return np.minimum(np.searchsorted(self.end_ns, at_ns), len(self.number) - 1)


def marked_steps(
    trace: Trace, lane: Int64s, start_ns: Int64s, end_ns: Int64s, first_lane: int
) -> StepMarks:
    """The steps of one trace, or the whole trace as one step if it has no marks.

    Args:
        trace: one rank's trace.
        lane: lane of each host item, counted over all ranks.
        start_ns: start of each host item.
        end_ns: end of each host item.
        first_lane: lane number of the trace's lane 0.
    """
    marks = step_marks(trace)
    if not marks:
        return _whole_trace(trace, lane, start_ns, end_ns)
    thread, _ = Counter(mark.lane for mark in marks).most_common(1)[0]
    marks = tuple(mark for mark in marks if mark.lane == thread)
    begin_ns = np.array([mark.start_ns for mark in marks], np.int64)
    stop_ns = begin_ns + np.array([mark.duration_ns for mark in marks], np.int64)
    # Marks of one thread follow each other; a rounded end may pass the next begin.
    stop_ns[:-1] = np.minimum(stop_ns[:-1], begin_ns[1:])
    numbers = np.array([mark.number for mark in marks], np.int64)
    names = tuple(mark.name for mark in marks)
    return StepMarks(numbers, names, begin_ns, stop_ns, thread + first_lane, is_from_trace=True)


def _whole_trace(trace: Trace, lane: Int64s, start_ns: Int64s, end_ns: Int64s) -> StepMarks:
    number = np.array([WHOLE_TRACE])
    if not len(start_ns):
        begin = np.array([trace.start_ns.min()]) if trace.num_events else np.zeros(1, np.int64)
        return StepMarks(number, (WHOLE,), begin, begin, -1, is_from_trace=False)
    main = lane[np.argmin(start_ns)]
    last = end_ns[lane == main].max()
    begin, end = np.array([start_ns.min()]), np.array([last])
    return StepMarks(number, (WHOLE,), begin, end, int(main), is_from_trace=False)


def step_table(marks: Sequence[StepMarks]) -> tuple[tuple[str, ...], list[dict[int, int]]]:
    """Names of all steps, rising, and for each rank the position of each of its step numbers.

    A step is called what the first rank calls it that works on a batch in it, or marks it.
    """
    name_by_number: dict[int, str] = {}
    for rank in marks:
        for number, name in zip(rank.number.tolist(), rank.names, strict=True):
            known = name_by_number.setdefault(number, name)
            if _is_idle(known) and not _is_idle(name):
                name_by_number[number] = name
    numbers = sorted(name_by_number)
    position = {number: index for index, number in enumerate(numbers)}
    names = tuple(name_by_number[number] for number in numbers)
    return names, [{number: position[number] for number in rank.number.tolist()} for rank in marks]


def _is_idle(name: str) -> bool:
    batch = batch_of_mark(name)
    return batch is not None and batch.kind is BatchKind.IDLE


def endings(traces: Sequence[Trace], ranks: Sequence[int], last_ns: Int64s) -> tuple[Ending, ...]:
    """The end of every trace.

    Args:
        traces: one per rank.
        ranks: their numbers.
        last_ns: end of each one's last event, on the timeline's clock; int64[ranks].
    """
    return tuple(
        _ending(trace, rank, at_ns)
        for trace, rank, at_ns in zip(traces, ranks, last_ns.tolist(), strict=True)
    )


def last_moments(traces: Sequence[Trace]) -> Int64s:
    """End of each trace's last event, raw clock; int64[traces]."""
    return np.array(
        [int((trace.start_ns + trace.duration_ns).max(initial=0)) for trace in traces], np.int64
    )


def _ending(trace: Trace, rank: int, at_ns: int) -> Ending:
    is_host = trace.lanes.kind[trace.lane] == LaneKind.HOST
    rows = np.flatnonzero(np.isin(trace.category, _HOST) & is_host)
    is_operator = trace.category[rows] == Category.OPERATOR
    operators = rows[is_operator]
    operator = ""
    if len(operators):
        operator = trace.strings[trace.name[operators[np.argmax(trace.start_ns[operators])]]]
    return Ending(rank, at_ns, operator, _open_names(trace, rows), trace.meta.is_truncated)


def _open_names(trace: Trace, rows: Int64s) -> tuple[str, ...]:
    """What stood around the begin of the last host event and ended with the last of all."""
    if not len(rows):
        return ()
    begin_ns = trace.start_ns[rows]
    end_ns = begin_ns + trace.duration_ns[rows]
    last_begin_ns, last_end_ns = int(begin_ns.max()), int(end_ns.max())
    is_open = (begin_ns <= last_begin_ns) & (end_ns >= last_begin_ns)
    is_open &= end_ns >= last_end_ns - CLOSED_TOGETHER_NS
    around = rows[is_open]
    around = around[np.lexsort((-trace.duration_ns[around], trace.start_ns[around]))]
    names = [trace.strings[trace.name[row]] for row in around.tolist()]
    stops = [index for index, name in enumerate(names) if name.startswith(_PROFILER)]
    names = names[: min(stops, default=len(names))]
    return tuple(name for name in names if not name.startswith(_FRAMES))[-MAX_OPEN:]
