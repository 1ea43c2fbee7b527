"""Constants of a cost model, fitted to measurements, and the error on measurements left out.

A model is a function of constants that answers in ns for a set of measured rows. Constants are
fitted as logarithms, within physical bounds, to the logarithm of predicted over measured: so a
factor of two too long weighs as much as one too short, and a constant stays positive. The loss
is robust (soft L1): a library's odd kernel choice does not bend the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int64s

Values = Mapping[str, float]

# Log errors below this count in full, larger ones less and less; 5% is about what the best
# library kernel of a shape differs from the next.
_ROBUST_FROM = 0.05
# A pull of each constant towards its start, weak against thousands of rows: it decides only
# what the rows do not.
PULL = 0.02
_MOST_EVALUATIONS = 100
_SHARPNESS = 4.0  # how closely overlapping limits follow the larger: 1 adds them, more takes it
_INSIDE = 1 + 1e-9  # a start must lie inside its bounds, not on them


@dataclass(frozen=True)
class Constant:
    """One constant of a model: what it means, and between which bounds it is physical."""

    name: str
    unit: str  # "ns", "" for a plain number
    meaning: str
    lower: float
    upper: float
    start: float


@dataclass(frozen=True)
class MeasuredRows:
    """Measured rows of one chip, as the model sees them."""

    predicted_ns: Callable[[Values], Float64s]  # float64[rows] of constants
    measured_ns: Float64s  # float64[rows]
    weight: Float64s  # float64[rows]


def at_once(*parts: Float64s) -> Float64s:
    """Several things at once: the longest, and a little of the others where they are alike."""
    together: Float64s = sum(part**_SHARPNESS for part in parts) ** (1 / _SHARPNESS)
    return together


def in_turn(waves: Float64s, fluidity: float) -> Float64s:
    """Times a processor's own work that so many waves of tiles take.

    Args:
        waves: tiles by processors.
        fluidity: how far the last wave is shared out; 0: as long as a full one.
    """
    shared = fluidity / (1 + fluidity)
    turns: Float64s = np.maximum(1, (1 - shared) * np.ceil(waves) + shared * waves)
    return turns


def fitted(
    constants: Sequence[Constant],
    parts: Sequence[MeasuredRows],
    *,
    pull: float = PULL,
    near: Values | None = None,
) -> dict[str, float]:
    """The constants that explain all parts best.

    Args:
        constants: what to fit, between which bounds.
        parts: measured rows.
        pull: of each constant towards its start: a factor of e off counts as much as one row
            that is off by that share.
        near: values to start from and be pulled to; those of `constants`, if left out.

    Raises:
        ValueError: if there are fewer measured rows than constants.
    """
    num_rows = sum(len(part.measured_ns) for part in parts)
    if num_rows < len(constants):
        raise ValueError(f"{len(constants)} constants cannot be fitted to {num_rows} measurements")
    near = near or {}
    start = np.log(
        [
            np.clip(near.get(one.name, one.start), one.lower * _INSIDE, one.upper / _INSIDE)
            for one in constants
        ]
    )

    def residuals(logs: Float64s) -> Float64s:
        values = _values(constants, logs)
        errors = [
            part.weight * np.log(part.predicted_ns(values) / part.measured_ns) for part in parts
        ]
        return np.concatenate([pull * (logs - start), *errors])

    from scipy.optimize import least_squares  # on demand: predicting needs none of it

    found = least_squares(
        residuals,
        start,
        bounds=(
            np.log([constant.lower for constant in constants]),
            np.log([constant.upper for constant in constants]),
        ),
        loss="soft_l1",
        f_scale=_ROBUST_FROM,
        diff_step=1e-3,  # the choice of a tile makes the model uneven at a finer scale
        max_nfev=_MOST_EVALUATIONS,
    )
    return _values(constants, found.x)


def _values(constants: Sequence[Constant], logs: Float64s) -> dict[str, float]:
    numbers = np.exp(logs).tolist()
    return {constant.name: number for constant, number in zip(constants, numbers, strict=True)}


def folds(group: Int64s, num_folds: int) -> Int64s:
    """Fold of every row, int64[rows]; rows of one group share a fold.

    Args:
        group: int64[rows], a number per group, not negative.
        num_folds: into how many parts the groups are dealt, at random but always alike.
    """
    order = np.random.default_rng(0).permutation(int(group.max(initial=-1)) + 1)
    return order[group] % num_folds
