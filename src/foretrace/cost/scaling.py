"""Durations of operators that were measured at another size: measured times the models' ratio.

What a model does not know of an operator (its library, its neighbours in the cache) was in the
measurement; what changes with the size is in the model.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Float64s, Int64s
from foretrace.cost.model import Costs, Source


def scaled(measured_ns: Int64s, before: Costs, after: Costs) -> Costs:
    """Costs of operators whose shapes changed, from what they took before.

    Where the model answers alike before and after, the measurement stands. The interval is that
    of the model for the new shape, taken around the scaled duration. Where the model knows
    either shape not, so does the answer.

    Args:
        measured_ns: int64[rows], with the old shapes.
        before: costs of the old shapes.
        after: costs of the new ones.
    """
    is_known = (before.source != Source.UNKNOWN) & (after.source != Source.UNKNOWN)
    is_known &= (before.duration_ns > 0) & (after.duration_ns > 0)
    is_same = is_known & (before.duration_ns == after.duration_ns)
    ratio = np.where(is_known, after.duration_ns / np.maximum(before.duration_ns, 1), 0.0)
    duration_ns: Float64s = (measured_ns * ratio).astype(np.float64)
    source = np.where(is_same, Source.MEASURED, Source.SCALED)
    return Costs(
        duration_ns=np.rint(duration_ns).astype(np.int64),
        low_ns=_end(duration_ns, after.low_ns, after, is_same),
        high_ns=_end(duration_ns, after.high_ns, after, is_same),
        source=np.where(is_known, source, Source.UNKNOWN).astype(np.uint8),
        family=after.family,
        families=after.families,
    )


def _end(duration_ns: Float64s, end_ns: Int64s, after: Costs, is_same: Bools) -> Int64s:
    share = np.where(is_same, 1.0, end_ns / np.maximum(after.duration_ns, 1))
    rounded: Int64s = np.rint(duration_ns * share).astype(np.int64)
    return rounded
