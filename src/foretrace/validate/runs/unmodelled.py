"""What no cost model knows, as part of a run's interval: measured on other sources of runs.

Launches that are held up, a network that others use too, software that does more than its
description: what is left of the difference between measured and predicted time. How wide it is
comes from the runs of all sources but the one in question, so a new source finds the interval
that it would have been given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.base import Float64s
from foretrace.validate.runs.results import RunPrediction

_INSIDE = 0.8  # of measured times, that an interval is to hold
_LEAST_RUNS = 10
# Between measured and predicted times of runs of this version's development tables, all sources
# together: what a source of its own, or a single run, is given.
SHIPPED_SPREAD = 0.15


def widened(rows: Sequence[RunPrediction]) -> tuple[RunPrediction, ...]:
    """The rows with what is unmodelled added to their intervals."""
    spreads = {source: spread_elsewhere(source, rows) for source in {one.source for one in rows}}
    return tuple(_widened(one, spreads[one.source]) for one in rows)


def spread_elsewhere(source: str, rows: Sequence[RunPrediction]) -> float:
    """Width each way, on a logarithmic scale, that holds 80% of the runs of other sources.

    Every source counts alike, however many runs it has.
    """
    others = [
        one
        for one in rows
        if one.source != source and one.predicted_s and one.measured_s and one.low_s and one.high_s
    ]
    if len(others) < _LEAST_RUNS:
        return SHIPPED_SPREAD
    needed = np.array([_needed(one) for one in others])
    sources = [one.source for one in others]
    weight = np.array([1 / sources.count(one) for one in sources])
    return float(_quantile(needed, weight, _INSIDE))


def _needed(row: RunPrediction) -> float:
    """How wide what is unmodelled would have to be for the measured time to lie inside."""
    assert row.predicted_s and row.measured_s and row.low_s and row.high_s
    off = math.log(row.measured_s / row.predicted_s)
    end = math.log((row.high_s if off > 0 else row.low_s) / row.predicted_s)
    return math.sqrt(max(0.0, off * off - end * end))


def _quantile(values: Float64s, weight: Float64s, share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][np.searchsorted(reached, share)])


def _widened(row: RunPrediction, spread: float) -> RunPrediction:
    if row.predicted_s is None or row.low_s is None or row.high_s is None:
        return row
    below = math.hypot(math.log(row.predicted_s / row.low_s), spread)
    above = math.hypot(math.log(row.high_s / row.predicted_s), spread)
    return replace(
        row,
        low_s=row.predicted_s * math.exp(-below),
        high_s=row.predicted_s * math.exp(above),
    )
