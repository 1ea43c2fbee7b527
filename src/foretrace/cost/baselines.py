"""What a cost model must beat: the data sheet's roofline, and a line through FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s
from foretrace.cost.fitting import Constant
from foretrace.machine import Chip

LINEAR_CONSTANTS = (
    Constant("start_ns", "ns", "of every kernel", 100, 100_000, 5_000),
    Constant("flops_per_ns", "", "FLOPs per ns, as if there were nothing else", 10, 1e8, 1e5),
    Constant("bytes_per_ns", "", "bytes per ns, likewise", 1, 1e5, 1e3),
)


@dataclass(frozen=True)
class RowWork:
    """Arithmetic and least traffic of each row."""

    flops: Float64s  # float64[rows]
    num_bytes: Float64s  # float64[rows]
    dtype: str


def roofline_ns(work: RowWork, chip: Chip) -> Float64s:
    """The longer of arithmetic at the data sheet's peak and traffic at its bandwidth, in ns."""
    peak = chip.peak_flops_per_ns(work.dtype)
    moving_ns = work.num_bytes / chip.memory_bytes_per_ns
    longest: Float64s = moving_ns if peak is None else np.maximum(moving_ns, work.flops / peak)
    return longest


def linear_ns(work: RowWork, values: Mapping[str, float]) -> Float64s:
    """A start, plus FLOPs and bytes at fitted rates, in ns."""
    arithmetic_ns = work.flops / values["flops_per_ns"]
    return values["start_ns"] + arithmetic_ns + work.num_bytes / values["bytes_per_ns"]
