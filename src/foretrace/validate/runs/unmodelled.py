"""What no cost model knows, as part of a run's interval: measured on other sources of runs.

Launches that are held up, a network that others use too, software that does more than its
description: what is left of the difference between measured and predicted time. How wide it is
comes from the runs of all sources but the one in question (`left_out`), so a source finds the
interval that it would have been given before it was known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.validate.runs.left_out import unmodelled_spread
from foretrace.validate.runs.results import RunPrediction

_INSIDE = 0.8  # of measured times, that an interval is to hold


def widened(row: RunPrediction) -> RunPrediction:
    """The row with what is unmodelled added to its interval."""
    if row.predicted_s is None or row.low_s is None or row.high_s is None:
        return row
    spread = unmodelled_spread(row.source)
    below = math.hypot(math.log(row.predicted_s / row.low_s), spread)
    above = math.hypot(math.log(row.high_s / row.predicted_s), spread)
    return replace(
        row,
        low_s=row.predicted_s * math.exp(-below),
        high_s=row.predicted_s * math.exp(above),
    )


def fitted_spread(rows: Sequence[RunPrediction]) -> float:
    """Width each way, on a logarithmic scale, that makes intervals hold 80% of measured times.

    Args:
        rows: predictions as the cost models alone give them; every source counts alike, however
            many runs it has.
    """
    needed = [(one.source, each) for one in rows if (each := _needed(one)) is not None]
    counts = Counter(source for source, _ in needed)
    width = np.array([each for _, each in needed])
    weight = np.array([1 / counts[source] for source, _ in needed])
    order = np.argsort(width)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(width[order][np.searchsorted(reached, _INSIDE)])


def _needed(row: RunPrediction) -> float | None:
    """How wide what is unmodelled would have to be for the measured time to lie inside."""
    if not (row.predicted_s and row.measured_s and row.low_s and row.high_s):
        return None
    off = math.log(row.measured_s / row.predicted_s)
    end = math.log((row.high_s if off > 0 else row.low_s) / row.predicted_s)
    return math.sqrt(max(0.0, off * off - end * end))
