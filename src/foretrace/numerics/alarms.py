"""`Watchman`: says when one of many series leaves what it used to be.

The same rule judges a running optimizer and a file of one: a value is out of place where it lies
beyond the median of its own past by so many of its past's deviations, and by a factor, several
observations in a row. Deviations are 1.4826 times the median absolute one, which of normal values
is their standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s

_NORMAL = 1.4826  # standard deviations of a normal distribution in one median absolute deviation
_WINDOW = 128  # observations that are remembered
_PATIENCE = 24  # observations before anything is judged
_IN_A_ROW = 3
FEWEST_OBSERVATIONS = _PATIENCE + _IN_A_ROW  # that can raise an alarm
_ALL_BUT = 1 - 1e-9  # a correlation that is not 1
_LIMITS_EVERY = 4  # observations between two looks at the past, which moves slowly


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """When a statistic is out of place."""

    statistic: str
    deviations: float  # of its past, from the median of its past
    factor: float  # times the median, at least
    says: str  # what it means
    least: float = -math.inf  # that a limit is
    is_correlation: bool = False  # judged as its inverse hyperbolic tangent, which spreads evenly
    floor: float | None = None  # instead of these: alarming below it, where the past lay above


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A statistic of a layer has left what it used to be."""

    step: int
    layer: str
    statistic: str
    value: float
    limit: float
    says: str


class Watchman:
    """Keeps the past of every layer's statistics, and judges the next."""

    def __init__(self, rules: Sequence[AlarmRule]) -> None:
        self.rules = tuple(rules)
        self._past: list[Float64s] = []  # [layers, rules] each
        self._runs: Float64s | None = None
        self._known: Float64s | None = None
        self._num_observed = 0

    def observe(self, step: int, layers: Sequence[str], values: Float64s) -> list[Alarm]:
        """Alarms that one observation raises; an alarm is raised once until it has passed.

        Args:
            step: of the observation.
            layers: names of the rows.
            values: float64[layers, rules]; NaN where there is none.
        """
        bent = np.array([rule.is_correlation for rule in self.rules])
        values = np.where(bent, _spread_out(values), values)
        if self._runs is None or self._runs.shape != values.shape:
            self._past, self._runs, self._known = [], np.zeros(values.shape), None
        found: list[Alarm] = []
        is_out = np.zeros(values.shape, bool)
        if len(self._past) >= _PATIENCE:
            if self._known is None or self._num_observed % _LIMITS_EVERY == 0:
                self._known = self._limits()
            limits = self._known
            has_floor = np.array([rule.floor is not None for rule in self.rules])
            is_out = np.where(has_floor, values < limits, (values > limits) | np.isinf(values))
            for layer, rule in np.argwhere(is_out & (self._runs == _IN_A_ROW - 1)).tolist():
                found.append(
                    Alarm(
                        step=step,
                        layer=layers[layer],
                        statistic=self.rules[rule].statistic,
                        value=_told(self.rules[rule], values[layer, rule]),
                        limit=_told(self.rules[rule], limits[layer, rule]),
                        says=self.rules[rule].says,
                    )
                )
        self._num_observed += 1
        self._runs = np.where(is_out, self._runs + 1, 0)
        # What is out of place, or no number, does not become the past.
        last = self._past[-1] if self._past else np.zeros(values.shape)
        kept = np.where(is_out | ~np.isfinite(values), last, values)
        self._past = [*self._past[1 - _WINDOW :], kept]
        return found

    def _limits(self) -> Float64s:
        past = np.stack(self._past)
        median = np.median(past, 0)
        spread = _NORMAL * np.median(np.abs(past - median), 0)
        away = np.array([rule.deviations for rule in self.rules]) * spread
        factor = np.array([rule.factor for rule in self.rules])
        least = np.array(
            [_spread_out(one.least) if one.is_correlation else one.least for one in self.rules]
        )
        found: Float64s = np.maximum(np.maximum(median + away, median * factor), least)
        for at, rule in enumerate(self.rules):
            if rule.floor is not None:
                found[:, at] = np.where(median[:, at] > rule.floor, rule.floor, -np.inf)
        return found


def _spread_out(correlation: Float64s | float) -> Float64s:
    """Fisher's: of any correlation, estimates are then as far from it."""
    found: Float64s = np.arctanh(np.clip(correlation, -_ALL_BUT, _ALL_BUT))
    return found


def _told(rule: AlarmRule, value: float) -> float:
    return float(np.tanh(value) if rule.is_correlation else value)


def expected_ratio(beta: float, step: int) -> float:
    """Standard deviation of Adam's update ratio where gradients have no memory.

    Bias correction included; after many steps it is sqrt((1 - b) / (1 + b)).

    Source:
        Molybog et al., "A Theory on Adam Instability in Large-Scale Machine Learning",
        arXiv:2304.09871, for the limit.
    """
    left = beta**step
    if left >= 1:
        return 1.0
    return math.sqrt((1 - beta) / (1 + beta) * (1 + left) / (1 - left))
