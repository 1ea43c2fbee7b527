"""`DurationModel`: how a duration varies, fitted to repeats or stated; `Variation`: presets.

In: durations of one operation, or a coefficient of variation. Out: quantiles, and the table that
the sampler looks draws up in. A family is chosen by the largest distance between its distribution
and the observed one (Kolmogorov-Smirnov), as PRISM does (arXiv:2510.15596, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np

from foretrace.answer import Plain
from foretrace.base import Float32s, Float64s, RiskError
from foretrace.simulate import NUM_POINTS, quantile_table

# An empirical distribution ends where its samples do, so that it says nothing of what is rarer
# than one in so many; below this many, a family is fitted.
_LEAST_EMPIRICAL = 100
_LEAST_FITTED = 8  # with fewer, a family cannot be told from another: normal
_MOST_POINTS = 2000  # of a sample that are looked at: the distance is then known to 0.02

_TAIL = 0.1  # share of samples that a tail is fitted to


class Family(StrEnum):
    """Shapes of distributions."""

    FIXED = "fixed"
    NORMAL = "normal"
    LOGNORMAL = "lognormal"
    GAMMA = "gamma"
    EXPONENTIAL = "exponential"
    EMPIRICAL = "empirical"


FITTED = (Family.NORMAL, Family.LOGNORMAL, Family.GAMMA)


@dataclass(frozen=True)
class DurationModel(Plain):
    """A distribution of factors with mean 1."""

    json_names: ClassVar = {"points": ""}

    family: Family
    variation: float = 0.0  # standard deviation over mean
    points: tuple[float, ...] = ()  # of an empirical one: factors, rising
    distance: float | None = None  # from the samples it was fitted to; `None`: stated
    num_samples: int = 0

    def quantile(self, probability: Float64s) -> Float64s:
        """The factor that so large a share of draws stays below; 0 where that is negative."""
        from scipy import stats  # on demand: it takes longer to import than all else here

        if self.family is Family.FIXED or not self.variation:
            return np.ones(np.shape(probability))
        if self.family is Family.EMPIRICAL:
            at = (np.arange(len(self.points)) + 0.5) / len(self.points)
            return np.interp(probability, at, self.points)
        ways: Mapping[Family, Callable[[], Float64s]] = {
            Family.NORMAL: lambda: stats.norm.ppf(probability, 1.0, self.variation),
            Family.LOGNORMAL: lambda: stats.lognorm.ppf(
                probability, self._sigma, scale=math.exp(-(self._sigma**2) / 2)
            ),
            Family.GAMMA: lambda: stats.gamma.ppf(
                probability, self.variation**-2, scale=self.variation**2
            ),
            Family.EXPONENTIAL: lambda: -np.log1p(-probability),
        }
        return np.maximum(ways[self.family](), 0.0)

    @property
    def _sigma(self) -> float:
        return math.sqrt(math.log1p(self.variation**2))

    def table(self) -> Float32s:
        """Factors for the sampler; float32[points], their mean 1."""
        if self.family is Family.FIXED or not self.variation:
            return np.ones(NUM_POINTS, np.float32)
        return quantile_table(self.quantile, 1.0)

    def maximum(self, count: float, probability: Float64s) -> Float64s:
        """Quantiles of the largest of so many independent draws: F^-1(p^(1/n)).

        An empirical distribution beyond its last samples goes on as its upper tail does.

        Raises:
            ValueError: if there is less than one draw.
        """
        if count < 1:
            raise ValueError(f"count must be 1 or more, got {count}")
        # 1 - p**(1/n) without losing digits where it is tiny.
        above = -np.expm1(np.log(probability) / count)
        if self.family is Family.EMPIRICAL:
            return _with_tail(np.array(self.points), above)
        return self._survival_quantile(above)

    def _survival_quantile(self, above: Float64s) -> Float64s:
        from scipy import stats  # on demand: it takes longer to import than all else here

        if self.family is Family.FIXED or not self.variation:
            return np.ones(np.shape(above))
        ways: Mapping[Family, Callable[[], Float64s]] = {
            Family.NORMAL: lambda: stats.norm.isf(above, 1.0, self.variation),
            Family.LOGNORMAL: lambda: stats.lognorm.isf(
                above, self._sigma, scale=math.exp(-(self._sigma**2) / 2)
            ),
            Family.GAMMA: lambda: stats.gamma.isf(
                above, self.variation**-2, scale=self.variation**2
            ),
            Family.EXPONENTIAL: lambda: -np.log(above),
        }
        return np.maximum(ways[self.family](), 0.0)


FIXED_MODEL = DurationModel(Family.FIXED)


def stated_model(family: Family | str, variation: float) -> DurationModel:
    """A model that somebody states: a family, and its standard deviation over its mean.

    Raises:
        RiskError: if the family needs samples, or the variation is negative or no number.
    """
    chosen = Family(family)
    if chosen is Family.EMPIRICAL:
        raise RiskError("an empirical distribution is made of samples: use fitted_model")
    if not (math.isfinite(variation) and variation >= 0):
        raise RiskError(f"variation is {variation}: expected 0 or more, as in 0.02 for 2%")
    if chosen is Family.EXPONENTIAL:
        return DurationModel(chosen, 1.0)
    return DurationModel(chosen if variation else Family.FIXED, variation)


def fitted_model(durations: Float64s, families: Sequence[Family] | None = None) -> DurationModel:
    """The family nearest to some durations; the durations themselves where none is near.

    Args:
        durations: float64[repeats], in any unit.
        families: to choose from; normal, lognormal, gamma, and empirical from 100 repeats on if
            left out.

    Raises:
        RiskError: if a duration is negative or no number, or there is none.
    """
    values = np.sort(np.asarray(durations, np.float64))
    if not len(values) or not np.isfinite(values).all() or values[0] < 0:
        raise RiskError(
            f"durations to fit must be one or more numbers of 0 or more, got {len(values)} with "
            f"{values[:3].tolist()} at the low end"
        )
    mean = float(values.mean())
    if mean == 0 or values[0] == values[-1]:
        return DurationModel(Family.FIXED, num_samples=len(values))
    factors = values / mean
    # Unbiased for the variance: with few repeats the plain one is too small.
    variation = float(factors.std(ddof=1))
    few = len(values) < _LEAST_FITTED
    choices = (Family.NORMAL,) if few else FITTED
    wanted = tuple(families) if families is not None else choices
    thinned = _thinned(factors)
    found = [
        DurationModel(
            family,
            variation,
            distance=_distance(thinned, DurationModel(family, variation)),
            num_samples=len(values),
        )
        for family in wanted
        if family is not Family.EMPIRICAL
    ]
    is_open = families is None and len(values) >= _LEAST_EMPIRICAL
    nearest = min(found, key=lambda one: one.distance or 0.0, default=None)
    # What is off by more than the noise of so many samples (99%: 1.63 / sqrt(n)) keeps its shape.
    noise = 1.63 / math.sqrt(len(thinned))
    is_far = nearest is not None and (nearest.distance or 0.0) > noise
    if nearest is None or (is_open and is_far):
        return DurationModel(Family.EMPIRICAL, variation, tuple(thinned.tolist()), 0.0, len(values))
    return nearest


def _thinned(factors: Float64s) -> Float64s:
    """Evenly many of the sorted factors, their mean 1 again."""
    if len(factors) <= _MOST_POINTS:
        return factors
    at = (np.arange(_MOST_POINTS) + 0.5) / _MOST_POINTS * len(factors) - 0.5
    chosen = np.interp(at, np.arange(len(factors)), factors)
    found: Float64s = chosen / chosen.mean()
    return found


def _distance(factors: Float64s, model: DurationModel) -> float:
    """Largest distance between the distribution of sorted factors and a model's."""
    count = len(factors)
    at = model.quantile((np.arange(count) + 0.5) / count)
    # Where the model has its quantiles, the share of factors below them should be the same.
    share = (
        np.searchsorted(factors, at, side="left") + np.searchsorted(factors, at, side="right")
    ) / (2 * count)
    return float(np.abs(share - (np.arange(count) + 0.5) / count).max())


def distance_between(one: Float64s, other: Float64s) -> float:
    """Largest distance between two samples' distributions (Kolmogorov-Smirnov), 0 to 1."""
    first, second = np.sort(one), np.sort(other)
    at = np.concatenate([first, second])
    shares = [np.searchsorted(each, at, side="right") / len(each) for each in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def _with_tail(points: Float64s, above: Float64s) -> Float64s:
    """Quantiles by the share above them: interpolated, and by the tail's mean excess beyond.

    The upper tenth's excess over its threshold is taken as exponential, which is the limit for
    distributions whose tails fall faster than any power (Pickands 1975): it has one parameter,
    and maxima of it grow with the logarithm of the count.
    """
    count = len(points)
    threshold = float(np.quantile(points, 1.0 - _TAIL))
    excess = points[points > threshold] - threshold
    scale = float(excess.mean()) if len(excess) else 0.0
    at = (np.arange(count) + 0.5) / count
    inside = np.interp(1.0 - above, at, points)
    last = 0.5 / count
    beyond = points[-1] + scale * np.log(np.maximum(last / np.maximum(above, 1e-300), 1.0))
    found: Float64s = np.where(above < last, beyond, inside)
    return found


@dataclass(frozen=True, kw_only=True)
class Variation(Plain):
    """What varies, each with mean 1.

    A GPU's factor is drawn once and holds for all its kernels in all steps; a kernel's is drawn
    anew each time; a collective's once for all its ranks; a step's once for everything in it.
    """

    gpu: DurationModel = FIXED_MODEL
    kernel: DurationModel = FIXED_MODEL
    collective: DurationModel = FIXED_MODEL
    step: DurationModel = FIXED_MODEL
    name: str = "stated"
    source: str = "stated by the user"


NO_VARIATION = Variation(name="none", source="nothing varies")

_PRISM = (
    "PRISM, arXiv:2510.15596: variation of products over more than 20,000 GPUs {spatial} and on "
    "one GPU {temporal}, taken as standard deviation over mean of normal factors; collectives "
    "vary as kernels do, since the paper gives no figure for them alone"
)


def _prism(name: str, spatial: float, temporal: float) -> Variation:
    kernel = stated_model(Family.NORMAL, temporal)
    return Variation(
        gpu=stated_model(Family.NORMAL, spatial),
        kernel=kernel,
        collective=kernel,
        name=name,
        source=_PRISM.format(spatial=f"{spatial:.2%}", temporal=f"{temporal:.2%}"),
    )


# The ends of the ranges that the paper gives, and their geometric means.
_PRESETS = {
    one.name: one
    for one in (
        NO_VARIATION,
        _prism("prism-low", 0.0164, 0.0098),
        _prism("prism-middle", (0.0164 * 0.1404) ** 0.5, (0.0098 * 0.0646) ** 0.5),
        _prism("prism-high", 0.1404, 0.0646),
    )
}
VARIATIONS = tuple(_PRESETS)
DEFAULT_VARIATION = "prism-low"


def variation_named(name: str) -> Variation:
    """A preset.

    Raises:
        RiskError: if there is none of that name.
    """
    try:
        return _PRESETS[name]
    except KeyError:
        raise RiskError(
            f"no variation is called {name!r}: known are {', '.join(VARIATIONS)}"
        ) from None


def changed_variation(base: Variation, statements: tuple[str, ...]) -> Variation:
    """A variation with some of it stated anew, as in `gpu=normal:0.02` or `step=0.01`.

    Raises:
        RiskError: if a statement is not of that form.
    """
    found = base
    for text in statements:
        what, separator, value = text.partition("=")
        family, colon, number = value.rpartition(":")
        try:
            model = stated_model(family if colon else Family.NORMAL, float(number))
        except ValueError:
            model = None
        if not separator or model is None or what not in {"gpu", "kernel", "collective", "step"}:
            raise RiskError(
                f"variation {text!r} is not understood: expected gpu, kernel, collective or step, "
                "then = and a share or a family with its share, as in gpu=0.02 or "
                "collective=lognormal:0.1"
            )
        found = _with(found, what, model)
    return replace(found, name=f"{base.name}, changed") if statements else found


def _with(base: Variation, what: str, model: DurationModel) -> Variation:
    if what == "gpu":
        return replace(base, gpu=model)
    if what == "kernel":
        return replace(base, kernel=model)
    return replace(base, collective=model) if what == "collective" else replace(base, step=model)
