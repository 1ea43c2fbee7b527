"""Kernels that communicate by how they behave, where their names do not say so.

Of kernels that no table of names knows, those communicate

- that end together on all ranks although they began apart: whoever came first waited;
- that run beside other streams' compute, on a stream with hardly any, and take long at times and
  short at others on the same launch grid: what they wait for is elsewhere;
- that share a stream with communication, known or found so, and with hardly any known compute.

A name that is found once is that kernel's everywhere. A file of names says it better.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from foretrace.answer import count_text
from foretrace.base import Bools, Int64s
from foretrace.graph.graph import Finding
from foretrace.operators import OperatorClass, recognised, with_class
from foretrace.trace import Category, Trace, is_communication

_LEAST_CALLS = 8  # fewer may fall together by chance
_APART_NS = 50_000  # ranks begin so far apart, in the median, where it shows who waited
_TOGETHER = 0.1  # of how far they begin apart, ranks may end apart
_MOST_COMPUTE = 0.05  # of a stream's time, that communication's own packing and casting may take
_BESIDE = 0.5  # of a kernel's time, at least, other streams compute
_MOST_NAMED = 3
_UNEVEN = 1.5  # longest tenth over shortest tenth of one grid's durations


@dataclass(frozen=True)
class _Kernels:
    """Kernels of one rank, by name and start; columns of one length."""

    names: tuple[str, ...]  # every text of the file
    name: Int64s
    lane: Int64s
    grid: Int64s
    start_ns: Int64s
    end_ns: Int64s
    is_known: Bools  # by its name: compute
    is_communication: Bools  # by its name

    @property
    def is_open(self) -> Bools:
        """Nothing is known of the name."""
        return ~self.is_known & ~self.is_communication


def told_by_behaviour(traces: Sequence[Trace]) -> tuple[tuple[Trace, ...], tuple[Finding, ...]]:
    """The traces with what was found in their kernels' names, and what a reader should know."""
    kernels = [_kernels(trace) for trace in traces]
    found = _ending_together(kernels)
    found |= {one.names[name] for one in kernels for name in _beside_compute(one)}
    found |= {one.names[name] for one in kernels for name in _on_their_streams(one, found)}
    if not found:
        return tuple(traces), ()
    told = []
    for trace, one in zip(traces, kernels, strict=True):
        strings = list(trace.strings)
        for index in np.unique(one.name).tolist():
            if strings[index] in found:
                strings[index] = with_class(strings[index], OperatorClass.COLLECTIVE)
        told.append(replace(trace, strings=tuple(strings)))
    named = ", ".join(repr(name[:60]) for name in sorted(found)[:_MOST_NAMED])
    text = (
        f"{count_text(len(found), 'kernel')} that no table knows, as {named}, are taken for "
        "communication by how they behave: they end together on ranks that began apart, or run "
        "beside compute on a stream of their own. A file of names says it better (--names)."
    )
    return tuple(told), (Finding("behaviour", text),)


def _kernels(trace: Trace) -> _Kernels:
    rows = np.flatnonzero(trace.category == Category.KERNEL)
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    name = trace.name[rows].astype(np.int64)
    is_known = np.zeros(len(trace.strings) + 1, np.bool_)
    is_comm = is_known.copy()
    for index in np.unique(name).tolist():
        is_comm[index] = is_communication(trace.strings[index])
        is_known[index] = not is_comm[index] and recognised(trace.strings[index]).is_recognised
    return _Kernels(
        names=trace.strings,
        name=name,
        lane=trace.lane[rows].astype(np.int64),
        grid=trace.signature[rows].astype(np.int64),
        start_ns=trace.start_ns[rows],
        end_ns=trace.start_ns[rows] + trace.duration_ns[rows],
        is_known=is_known[name],
        is_communication=is_comm[name],
    )


def _on_free_streams(one: _Kernels) -> Bools:
    """Unknown kernels all calls of which are on streams that hardly compute what is known."""
    took_ns = one.end_ns - one.start_ns
    total_ns = np.bincount(one.lane, took_ns)
    known_ns = np.bincount(one.lane, np.where(one.is_known, took_ns, 0))
    is_free = one.is_open & (known_ns <= _MOST_COMPUTE * total_ns)[one.lane]
    return is_free & ~np.isin(one.name, one.name[one.is_open & ~is_free])


def _on_their_streams(one: _Kernels, found: AbstractSet[str]) -> list[int]:
    """Unknown kernels on streams of communication, known or found."""
    is_found = np.isin(one.name, [at for at, text in enumerate(one.names) if text in found])
    of_communication = one.lane[one.is_communication | is_found]
    is_beside = _on_free_streams(one) & np.isin(one.lane, of_communication)
    return [int(name) for name in np.unique(one.name[is_beside])]


def _beside_compute(one: _Kernels) -> list[int]:
    free = np.flatnonzero(_on_free_streams(one))
    if not len(free) or not one.is_known.any():
        return []
    busy = np.flatnonzero(one.is_known)
    begins, ends = one.start_ns[busy], np.maximum.accumulate(one.end_ns[busy])
    # Time that some known compute runs up to a moment; overlaps between streams count once.
    begins = np.maximum(begins, np.append(begins[:1], ends[:-1]))
    total = np.append(0, np.cumsum(np.maximum(ends - begins, 0)))

    def computed(at_ns: Int64s) -> Int64s:
        row = np.searchsorted(begins, at_ns, side="right") - 1
        inside = np.clip(at_ns - begins[row], 0, np.maximum(ends - begins, 0)[row])
        return np.where(row >= 0, total[row] + inside, 0)

    beside_ns = computed(one.end_ns[free]) - computed(one.start_ns[free])
    took_ns = one.end_ns[free] - one.start_ns[free]
    found = []
    for name in np.unique(one.name[free]).tolist():
        mine = one.name[free] == name
        if beside_ns[mine].sum() < _BESIDE * took_ns[mine].sum():
            continue
        grid, size = np.unique(one.grid[free][mine], return_counts=True)
        alike = took_ns[mine][one.grid[free][mine] == grid[size.argmax()]]
        low, high = np.percentile(alike, [10, 90])
        if len(alike) >= _LEAST_CALLS and high > _UNEVEN * low:
            found.append(name)
    return found


def _ending_together(kernels: Sequence[_Kernels]) -> set[str]:
    calls: dict[str, list[tuple[Int64s, Int64s]]] = {}
    for one in kernels:
        for name in np.unique(one.name[one.is_open]).tolist():
            mine = one.name == name
            calls.setdefault(one.names[name], []).append((one.start_ns[mine], one.end_ns[mine]))
    found = set()
    for text, ranks in calls.items():
        sizes = {len(start) for start, _ in ranks}
        if len(ranks) == 1 or len(sizes) > 1 or min(sizes) < _LEAST_CALLS:
            continue
        starts, ends = np.array([start for start, _ in ranks]), np.array([end for _, end in ranks])
        clock = np.median(ends - ends[0], axis=1)[:, None]
        apart = float(np.median(np.ptp(starts - clock, axis=0)))
        together = float(np.median(np.ptp(ends - clock, axis=0)))
        if apart >= _APART_NS and together <= _TOGETHER * apart:
            found.add(text)
    return found
