"""`DeviceTimes`: what operators start on a GPU, and how long each kernel took there.

PyTorch's profiler times kernels on the device. Every operator runs inside a mark with a number of
its own, so a kernel is of the operator in whose mark the call stands that launched it: by its
thread and the profiler's own clock. Marks cost the host time, which is not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.base import Int64s
from foretrace.capture.profiler import require_no_other_profiler
from foretrace.trace import NO_ID, Category, Trace, load_traces

MARK = "foretrace operator "
NO_MARK = -1
_ON_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
Started = tuple[str, int, int]  # name, category, ns


class DeviceTimes:
    """Marks operators of one process while the profiler is on."""

    def __init__(self, path: Path) -> None:
        self._path = path  # of the profiler's file
        self._profile: Any = None
        self._num_marks = 0
        self._entries: dict[int, int] = {}  # mark -> entry of a journal
        self._is_aside: set[int] = set()  # marks of what is no work of the script

    def begin(self) -> None:
        """Time what is started from now on.

        Raises:
            RuntimeError: if another profiler is on.
        """
        import torch  # here, where it is loaded

        require_no_other_profiler()
        torch.cuda.synchronize()
        activities = torch.profiler.ProfilerActivity
        self._profile = torch.profiler.profile(activities=[activities.CPU, activities.CUDA])
        self._profile.start()

    @contextmanager
    def marked(self, *, aside: bool = False) -> Iterator[None]:
        """What is started within is of one mark; `aside`: it is no work of the script."""
        if self._profile is None:
            yield
            return
        import torch  # here, where it is loaded

        self._num_marks += 1
        if aside:
            self._is_aside.add(self._num_marks)
        with torch.profiler.record_function(f"{MARK}{self._num_marks}"):
            yield

    def is_of(self, entry: int | None) -> None:
        """The last mark is of a journal's entry; `None`: it is no work of the script."""
        if entry is None:
            self._is_aside.add(self._num_marks)
        else:
            self._entries[self._num_marks] = entry

    def end(self) -> tuple[dict[int, list[Started]], list[Started]]:
        """Entry -> what it started, in order; and what was started beside all entries."""
        if self._profile is None:
            return {}, []
        import torch  # here, where it is loaded

        torch.cuda.synchronize()
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))
        self._profile = None
        (trace,) = load_traces(self._path)
        of_entry: dict[int, list[Started]] = {}
        beside: list[Started] = []
        for mark, started in started_by_mark(trace).items():
            if mark in self._entries:
                of_entry[self._entries[mark]] = started
            elif mark not in self._is_aside:
                beside += started
        return of_entry, beside


def started_by_mark(trace: Trace) -> dict[int, list[Started]]:
    """Mark -> the kernels, copies and fills that were launched inside it, in order of their start.

    Those that no mark holds are of `NO_MARK`.
    """
    device = np.flatnonzero(np.isin(trace.category, _ON_DEVICE))
    mark = _mark_of_launch(trace, _launches(trace, trace.correlation[device]))
    found: dict[int, list[Started]] = {}
    for row, number in zip(device.tolist(), mark.tolist(), strict=True):
        one = (
            trace.strings[trace.name[row]], int(trace.category[row]), int(trace.duration_ns[row])
        )  # fmt: skip
        found.setdefault(number, []).append(one)
    return found


def _launches(trace: Trace, correlation: Int64s) -> Int64s:
    """Row of the call of each correlation; NO_ID where the file has none."""
    calls = np.flatnonzero((trace.category == Category.RUNTIME) & (trace.correlation != NO_ID))
    if not len(calls):
        return np.full(len(correlation), NO_ID, np.int64)
    calls = calls[np.argsort(trace.correlation[calls], kind="stable")]
    known = trace.correlation[calls]
    at = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
    return np.where((known[at] == correlation) & (correlation != NO_ID), calls[at], NO_ID)


def _mark_of_launch(trace: Trace, launch: Int64s) -> Int64s:
    """Number of the mark around each launch, on its thread; marks of a thread do not nest."""
    number_of = {
        string: int(text.removeprefix(MARK))
        for string, text in enumerate(trace.strings)
        if text.startswith(MARK)
    }
    is_mark = trace.category == Category.ANNOTATION
    is_mark &= np.isin(trace.name, np.array(list(number_of), np.int64))
    marks = np.flatnonzero(is_mark)
    found = np.full(len(launch), NO_MARK, np.int64)
    for lane in np.unique(trace.lane[marks]).tolist():
        own = marks[trace.lane[marks] == lane]
        mine = np.flatnonzero((launch >= 0) & (trace.lane[launch] == lane))
        at_ns = trace.start_ns[launch[mine]]
        before = np.searchsorted(trace.start_ns[own], at_ns, side="right") - 1
        ends_ns = trace.start_ns[own] + trace.duration_ns[own]
        is_inside = (before >= 0) & (at_ns <= ends_ns[before])
        held = own[before[is_inside]]
        found[mine[is_inside]] = [number_of[one] for one in trace.name[held].tolist()]
    return found
