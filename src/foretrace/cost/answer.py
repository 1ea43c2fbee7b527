"""`Costs`: how long operations take, where each number comes from, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from foretrace.base import Int32s, Int64s, UInt8s


class Source(IntEnum):
    """Where a duration comes from, the surest first."""

    MEASURED = 0  # this very operation was recorded
    TABLE = 1  # the user's table of measurements has this shape
    SCALED = 2  # measured at another shape, times the ratio of the model's answers
    FITTED = 3  # a model whose constants were fitted to measurements of this chip
    TRANSFERRED = 4  # the same, fitted to another chip
    ROOFLINE = 5  # the data sheet's peaks alone
    UNKNOWN = 6  # the operation's shapes are not known: nothing is predicted


@dataclass(frozen=True)
class Costs:
    """One row per operation that was asked for."""

    duration_ns: Int64s  # int64[rows]
    low_ns: Int64s  # int64[rows], 10th percentile
    high_ns: Int64s  # int64[rows], 90th percentile
    source: UInt8s  # uint8[rows], Source
    family: Int32s  # int32[rows], position in `families`
    families: tuple[str, ...]  # "gemm bf16", "attention forward bf16", ...

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.duration_ns)
