"""`Errors`: how far predictions are off, by region; and the spread that follows for others.

Errors are told by the measured time, as the measurements' reader would sort them; the spread is
told by the predicted time, which is all that a prediction has to look itself up by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.answer import Plain
from foretrace.base import Bools, Float64s

LONG_NS = 20_000  # from here on a kernel's work decides, below it its launch and its waves
REGIONS = ("below_20us", "from_20us")
SPREAD = (0.1, 0.9)  # quantiles of an 80% interval


@dataclass(frozen=True)
class Errors(Plain):
    """Predictions of one region against measurements; errors are shares of the measured time."""

    region: str
    n: int
    mean_abs_error: float
    median_abs_error: float
    p90_abs_error: float
    mean_error: float  # above 0: predicted too long
    roofline_mean_abs_error: float
    linear_mean_abs_error: float
    low: float  # measured over predicted, 10th percentile of rows predicted in the region
    high: float  # the same, 90th percentile


@dataclass(frozen=True)
class Predictions:
    """Predicted and measured times, and what the baselines say."""

    predicted_ns: Float64s  # float64[rows]
    measured_ns: Float64s  # float64[rows]
    roofline_ns: Float64s  # float64[rows]
    linear_ns: Float64s  # float64[rows]

    def errors(self) -> tuple[Errors, ...]:
        """One row per region that has rows."""
        return tuple(self._by_region())

    def _by_region(self) -> Iterator[Errors]:
        error = self.predicted_ns / self.measured_ns - 1
        for region, is_measured, is_predicted in zip(
            REGIONS, in_regions(self.measured_ns), in_regions(self.predicted_ns), strict=True
        ):
            if not is_measured.any():
                continue
            here = np.abs(error[is_measured])
            ratio = self.measured_ns / self.predicted_ns
            ratio = ratio[is_predicted if is_predicted.any() else is_measured]
            low, high = np.quantile(ratio, SPREAD).tolist()
            yield Errors(
                region=region,
                n=int(is_measured.sum()),
                mean_abs_error=float(here.mean()),
                median_abs_error=float(np.median(here)),
                p90_abs_error=float(np.quantile(here, 0.9)),
                mean_error=float(error[is_measured].mean()),
                roofline_mean_abs_error=self._mean(self.roofline_ns, is_measured),
                linear_mean_abs_error=self._mean(self.linear_ns, is_measured),
                low=low,
                high=high,
            )

    def _mean(self, baseline_ns: Float64s, rows: Bools) -> float:
        return float(np.abs(baseline_ns[rows] / self.measured_ns[rows] - 1).mean())


def in_regions(duration_ns: Float64s) -> tuple[Bools, ...]:
    """For each of REGIONS the rows in it, bool[rows]."""
    is_long = duration_ns >= LONG_NS
    return (~is_long, is_long)
