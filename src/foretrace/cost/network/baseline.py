"""What a cost of collectives must beat: a start, and bus traffic at one rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foretrace.base import Float64s
from foretrace.cost.fitting import Constant, MeasuredRows, fitted
from foretrace.cost.network.tables import MeasuredCollectives

LINE_CONSTANTS = (
    Constant("start_ns", "ns", "of every collective", 100, 1e6, 1e4),
    Constant("bytes_per_ns", "", "bus traffic at one rate", 0.01, 1e4, 100),
)


def line_ns(one: MeasuredCollectives, values: Mapping[str, float]) -> Float64s:
    """A start plus bus traffic at a fitted rate, float64[rows], in ns."""
    share = one.collective.bus_share(one.num_ranks.astype(np.float64))
    return values["start_ns"] + one.num_bytes * share / values["bytes_per_ns"]


def fitted_line(measured: Sequence[MeasuredCollectives]) -> dict[str, float]:
    """The line through all rows, as robust as the model's own fit."""
    return fitted(LINE_CONSTANTS, [_rows(one) for one in measured])


def _rows(one: MeasuredCollectives) -> MeasuredRows:
    return MeasuredRows(
        lambda values: line_ns(one, values), one.measured_ns, np.ones(len(one.measured_ns))
    )
