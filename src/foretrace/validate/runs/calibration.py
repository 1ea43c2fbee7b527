"""One constant for each kind of run: fitted on few of its rows, tested on the others.

A run's time is predicted from what is known of kernels and networks elsewhere. What a site, a
release of software or a GPU's power limit add is one factor for all its runs alike: the mean
ratio, on a logarithmic scale, of measured to predicted time over the rows that teach.

What no cost model knows (launches that are held up, a network that others use too, software that
does more than its description) is part of a run's interval. How wide it is comes from the runs of
all sources but the one in question, so a source finds the interval that it would have been given
before it was known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.estimate import OF_KNOWLEDGE, UNMODELLED
from foretrace.software import Knowledge
from foretrace.validate.runs.results import RunPrediction

MOST_SHARE = 0.2  # of a kind's rows that its constant is fitted on
_INSIDE = 0.8  # of measured times, that an interval is to hold

_Key = tuple[str, ...]
# Kinds of runs, the narrowest first; a kind with too few rows joins the next.
_KINDS: tuple[Callable[[RunPrediction], _Key], ...] = (
    lambda one: (one.source, one.software, one.gpu, one.precision, str(one.has_experts)),
    lambda one: (one.source, one.gpu, one.precision, str(one.has_experts)),
    lambda one: (one.source, one.precision, str(one.has_experts)),
    lambda one: (one.source, str(one.has_experts)),
)


@dataclass(frozen=True)
class Factors:
    """Measured over predicted time on rows that teach."""

    model: float
    roofline: float


def calibrated(rows: Sequence[RunPrediction]) -> tuple[RunPrediction, ...]:
    """Rows that taught nothing, predicted with the constant of their kind.

    Kinds are source, software, GPU, number format and whether there are experts; one of fewer
    than five rows is joined with its like on other software, then on other GPUs.
    """
    usable = [one for one in rows if one.predicted_s and one.measured_s and one.roofline_s]
    tested: list[RunPrediction] = []
    for kind in _grouped(usable):
        teaches = _teachers(kind)
        if not teaches:
            continue
        factors = factors_of([kind[at] for at in teaches])
        tested += [scaled(one, factors) for at, one in enumerate(kind) if at not in teaches]
    return tuple(tested)


def factors_of(rows: Iterable[RunPrediction]) -> Factors:
    """The constants of rows that teach, of the model and of the roofline."""
    pairs = [
        (np.log(one.measured_s / one.predicted_s), np.log(one.measured_s / one.roofline_s))
        for one in rows
        if one.measured_s and one.predicted_s and one.roofline_s
    ]
    model, roofline = np.exp(np.mean(pairs, axis=0))
    return Factors(float(model), float(roofline))


def scaled(row: RunPrediction, factors: Factors) -> RunPrediction:
    """The row with its prediction times the constant of the model, and so the roofline's."""

    def times(value: float | None, factor: float) -> float | None:
        return None if value is None else value * factor

    return replace(
        row,
        predicted_s=times(row.predicted_s, factors.model),
        low_s=times(row.low_s, factors.model),
        high_s=times(row.high_s, factors.model),
        roofline_s=times(row.roofline_s, factors.roofline),
    )


def _grouped(rows: Sequence[RunPrediction]) -> list[list[RunPrediction]]:
    least = round(1 / MOST_SHARE)
    found: dict[_Key, list[RunPrediction]] = {}
    left = list(rows)
    for level, kind in enumerate(_KINDS):
        counts = Counter(map(kind, left))
        is_last = level == len(_KINDS) - 1
        rest = []
        for one in left:
            if counts[kind(one)] >= least or is_last:
                found.setdefault((str(level), *kind(one)), []).append(one)
            else:
                rest.append(one)
        left = rest
    return [sorted(ones, key=lambda one: one.id) for _, ones in sorted(found.items())]


def _teachers(rows: Sequence[RunPrediction]) -> frozenset[int]:
    """Positions of at most a fifth of the rows, spread evenly."""
    count = int(len(rows) * MOST_SHARE)
    return frozenset(int((at + 0.5) * len(rows) / count) for at in range(count))


def all_widened(rows: Sequence[RunPrediction]) -> tuple[RunPrediction, ...]:
    """Every row with what is unmodelled, as wide as the runs of its kind of all others need.

    Kinds are told by what is known: experts or not, how complete, on which chips. A run is told by
    all sources but its own, one with experts by all releases but its own, as few sources have run
    any; of a kind that no others ran, by all runs with experts or by all without.
    """
    spreads = {
        (kind, origin): _spread_of_others(rows, kind=kind, origin=origin)
        for kind, origin in {(one.kind, one.origin) for one in rows}
    }
    return tuple(
        widened(one, math.hypot(spreads[one.kind, one.origin], _further(one))) for one in rows
    )


def _spread_of_others(rows: Sequence[RunPrediction], *, kind: str, origin: str) -> float:
    others = [one for one in rows if one.origin != origin and one.predicted_s is not None]
    alike = [one for one in others if one.kind == kind]
    if not alike:
        has_experts = any(one.has_experts for one in rows if one.kind == kind)
        alike = [one for one in others if one.has_experts == has_experts]
    return fitted_spread(alike) if alike else UNMODELLED


def _further(row: RunPrediction) -> float:
    """More, where less than the release of its software is known."""
    return OF_KNOWLEDGE[Knowledge(row.knowledge)] if row.knowledge else 0.0


def widened(row: RunPrediction, spread: float) -> RunPrediction:
    """The row with what is unmodelled, so wide on a logarithmic scale, added to its interval."""
    if row.predicted_s is None or row.low_s is None or row.high_s is None:
        return row
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
    needed = [(one.origin, each) for one in rows if (each := _needed(one)) is not None]
    if not needed:
        return UNMODELLED
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
