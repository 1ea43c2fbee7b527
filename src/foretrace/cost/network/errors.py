"""How far predicted collectives are off, by size of message; and the spread that follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Float64s, Int64s
from foretrace.cost.constants import LeftOut
from foretrace.cost.errors import SPREAD, Errors
from foretrace.cost.network.tables import MeasuredCollectives

# Below 64 KiB latency decides and no bandwidth shows; from 16 MiB on hardly anything else.
SHORT_BYTES, LONG_BYTES = 1 << 16, 1 << 24
BELOW, FROM, LONG = "below_64KiB", "from_64KiB", "from_16MiB"


@dataclass(frozen=True)
class RowsAndAnswers:
    """Measured rows, and what a model and a straight line say of them."""

    rows: MeasuredCollectives
    predicted_ns: Float64s  # float64[rows]
    linear_ns: Float64s  # float64[rows]
    fitted_on: str
    bound_ns: Float64s | None = None  # float64[rows]; None: by the links inside a host

    @property
    def labels(self) -> tuple[str, str, str, str]:
        """Family, system, number format, and what was fitted."""
        rows = self.rows
        family = f"{rows.collective.in_tables} {rows.variant}".strip()
        return (family, rows.system, rows.dtype, self.fitted_on)


def in_regions(num_bytes: Int64s) -> dict[str, Bools]:
    """Rows of each region; the last lies in the second, bool[rows] each."""
    return {
        BELOW: num_bytes < SHORT_BYTES,
        FROM: num_bytes >= SHORT_BYTES,
        LONG: num_bytes >= LONG_BYTES,
    }


def error_rows(answers: Sequence[RowsAndAnswers], *, by_label: bool = True) -> tuple[LeftOut, ...]:
    """One row per label and region that has measurements.

    Args:
        answers: what was predicted.
        by_label: if not, all count as one, under the first one's labels.
    """
    by: dict[tuple[str, str, str, str], list[RowsAndAnswers]] = {}
    for one in answers:
        by.setdefault(one.labels if by_label else answers[0].labels, []).append(one)
    return tuple(
        LeftOut(*labels, errors=errors)
        for labels, ones in sorted(by.items())
        for errors in _errors(ones)
    )


def _errors(ones: Sequence[RowsAndAnswers]) -> Iterator[Errors]:
    measured = np.concatenate([one.rows.measured_ns for one in ones])
    predicted = np.concatenate([one.predicted_ns for one in ones]) / measured
    linear = np.concatenate([one.linear_ns for one in ones]) / measured
    bound = np.concatenate([_bound_ns(one) for one in ones]) / measured
    num_bytes = np.concatenate([one.rows.num_bytes for one in ones])
    for region, rows in in_regions(num_bytes).items():
        if not rows.any():
            continue
        error = predicted[rows] - 1
        low, high = np.quantile(1 / predicted[rows], SPREAD).tolist()
        yield Errors(
            region=region,
            n=int(rows.sum()),
            mean_abs_error=float(np.abs(error).mean()),
            median_abs_error=float(np.median(np.abs(error))),
            p90_abs_error=float(np.quantile(np.abs(error), 0.9)),
            mean_error=float(error.mean()),
            roofline_mean_abs_error=float(np.abs(bound[rows] - 1).mean()),
            linear_mean_abs_error=float(np.abs(linear[rows] - 1).mean()),
            low=low,
            high=high,
        )


def _bound_ns(one: RowsAndAnswers) -> Float64s:
    """Bus traffic over the data sheet's links, the counterpart of a roofline."""
    if one.bound_ns is not None:
        return one.bound_ns
    rows = one.rows
    share = rows.collective.bus_share(rows.num_ranks.astype(np.float64))
    links = rows.chip.link_bytes_per_ns or rows.chip.memory_bytes_per_ns
    bound_ns: Float64s = rows.num_bytes * share / links
    return bound_ns
