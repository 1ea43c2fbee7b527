"""How each rank's file ends: what was at work, and whether the file was cut off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.recording import Ending
from foretrace.trace import Category, LaneKind, Trace

_HOST = (Category.OPERATOR, Category.ANNOTATION, Category.RUNTIME, Category.PYTHON)
_FRAMES = ("ProfilerStep", "PyTorch Profiler")  # around everything, they say nothing
_PROFILER = ("torch/profiler/", "torch/autograd/profiler")  # from here on it is the profiler's end
MAX_OPEN = 12  # names kept, the innermost
# Spans that an exception or the profiler's stop closes end one after the other: within 0.14 ms in
# a recording of torch 2.13 whose rank gave up.
CLOSED_TOGETHER_NS = 1_000_000


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
