"""Stretches of lost time before they are cut into steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from foretrace.analyze.intervals import Intervals
from foretrace.base import Int32s, Int64s, UInt8s


@dataclass(frozen=True)
class Stretches:
    """Stretches of lost time, wherever steps begin and end; by rank, then begin."""

    rank: Int32s
    kind: UInt8s
    cause: UInt8s
    culprit_rank: Int32s
    collective: Int32s  # that was waited in; NO_COLLECTIVE of idle time
    subject: Int64s  # position in some list of names
    begin_ns: Int64s
    end_ns: Int64s

    def __len__(self) -> int:
        """Number of stretches."""
        return len(self.rank)

    @classmethod
    def joined(cls, parts: Sequence[Stretches]) -> Stretches:
        """All of several, in order of rank, then begin."""
        columns = [
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Stretches)
        ]
        both = Stretches(*columns)
        return both.rows(np.lexsort((both.begin_ns, both.kind, both.rank)))

    def rows(self, chosen: Int64s) -> Stretches:
        """Some rows, in that order."""
        return Stretches(*(getattr(self, field.name)[chosen] for field in fields(Stretches)))


def complement(busy: Intervals, begin_ns: int, end_ns: int) -> Intervals:
    """Moments of a window that are not busy."""
    starts = np.append(begin_ns, busy.end_ns)
    ends = np.append(busy.start_ns, end_ns)
    starts, ends = np.maximum(starts, begin_ns), np.minimum(ends, end_ns)
    return Intervals.union_of(starts[starts < ends], ends[starts < ends])
