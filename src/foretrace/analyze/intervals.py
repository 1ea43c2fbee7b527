"""`Intervals`: a set of moments, kept as disjoint spans; unions, intersections, lengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretrace.analyze._compiled import _add_to_bins, _intersection, _union
from foretrace.base import Float64s, Int64s


@dataclass(frozen=True)
class Intervals:
    """Disjoint, rising spans in ns that do not touch; each holds its start, not its end."""

    start_ns: Int64s  # int64[spans]
    end_ns: Int64s  # int64[spans], after the start and before the next span's

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.start_ns)

    @classmethod
    def union_of(cls, start_ns: Int64s, end_ns: Int64s) -> Intervals:
        """All moments that at least one of these spans covers; spans in any order."""
        if len(start_ns) != len(end_ns):
            raise ValueError(
                f"spans need one end per start, got {len(start_ns)} starts and {len(end_ns)} ends"
            )
        if len(start_ns) > 1 and not bool(np.all(start_ns[1:] >= start_ns[:-1])):
            order = np.argsort(start_ns, kind="stable")
            start_ns, end_ns = start_ns[order], end_ns[order]
        out_start_ns, out_end_ns = np.empty_like(start_ns), np.empty_like(end_ns)
        count = _union(start_ns, end_ns, out_start_ns, out_end_ns)
        return cls(start_ns=out_start_ns[:count], end_ns=out_end_ns[:count])

    def union(self, other: Intervals) -> Intervals:
        """Moments of either."""
        return Intervals.union_of(
            np.concatenate((self.start_ns, other.start_ns)),
            np.concatenate((self.end_ns, other.end_ns)),
        )

    def intersect(self, other: Intervals) -> Intervals:
        """Moments of both."""
        out_start_ns = np.empty(len(self) + len(other), dtype=np.int64)
        out_end_ns = np.empty_like(out_start_ns)
        count = _intersection(
            self.start_ns, self.end_ns, other.start_ns, other.end_ns, out_start_ns, out_end_ns
        )
        return Intervals(start_ns=out_start_ns[:count], end_ns=out_end_ns[:count])

    def total_ns(self) -> int:
        """Length of all spans together."""
        return int((self.end_ns - self.start_ns).sum())

    def within_ns(self, begin_ns: Int64s, end_ns: Int64s) -> Int64s:
        """Length of what lies in each window; int64[windows], 0 where a window is empty."""
        within_ns: Int64s = np.maximum(self._before_ns(end_ns) - self._before_ns(begin_ns), 0)
        return within_ns

    def by_bin_ns(self, bin_ns: int, num_bins: int) -> Float64s:
        """Length of what lies in each bin; bin k covers k * bin_ns to (k + 1) * bin_ns."""
        if bin_ns < 1:
            raise ValueError(f"bin_ns must be at least 1, got {bin_ns}")
        inside = self.intersect(_one_span(0, bin_ns * num_bins))
        covered_ns = np.zeros(num_bins, dtype=np.float64)
        _add_to_bins(inside.start_ns, inside.end_ns, bin_ns, covered_ns)
        return covered_ns

    @cached_property
    def _whole_ns(self) -> Int64s:
        """Length of all spans before each one, and of all; int64[spans + 1]."""
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(self.end_ns - self.start_ns)))

    def _before_ns(self, moment_ns: Int64s) -> Int64s:
        """Length of what lies before each moment; int64[moments]."""
        index = np.searchsorted(self.start_ns, moment_ns, side="right")
        past_end_ns = np.zeros(len(index), dtype=np.int64)
        started = index > 0
        span = index[started] - 1
        past_end_ns[started] = np.maximum(self.end_ns[span] - moment_ns[started], 0)
        before_ns: Int64s = self._whole_ns[index] - past_end_ns
        return before_ns


def _one_span(begin_ns: int, end_ns: int) -> Intervals:
    """All moments from `begin_ns` to before `end_ns`."""
    return Intervals.union_of(
        np.array([begin_ns], dtype=np.int64), np.array([end_ns], dtype=np.int64)
    )
