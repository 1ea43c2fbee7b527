"""`lessons`: what each source of runs teaches of 16-bit products, by class of software and chip.

As far as a run's predicted step is such products on its critical path, it grows with their factor,
to first order. The factor of one source, class and architecture is the one that brings the median
error of its models to nothing, every model counting alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.software import PRODUCTS, Learned, kernel_factors
from foretrace.validate.runs.results import RunPrediction
from foretrace.validate.runs.table import PublishedRun

_LEAST_SHARE = 0.2  # of the predicted step, for a run to tell
_LEAST_RUNS = 4
_LEAST, _MOST = 0.4, 2.5
_PRECISION = 1e-4


@dataclass(frozen=True)
class Lesson:
    """What runs of one source teach of one class."""

    family: str  # of software
    learned: Learned

    def as_toml(self) -> str:
        """An entry of the description of the class."""
        one = self.learned
        return (
            f'[[learned]]\narchitecture = "{one.architecture}"\nruns_of = "{one.runs_of}"\n'
            f"num_runs = {one.num_runs}\nproducts = {one.products:.2f}\n"
        )


def lessons(runs: Sequence[PublishedRun], rows: Sequence[RunPrediction]) -> tuple[Lesson, ...]:
    """What every source teaches of every class and architecture; dense runs alone.

    Args:
        runs: as `read_runs` gives them.
        rows: their predictions, in that order.
    """
    groups: dict[tuple[str, str, str], list[_Told]] = {}
    for run, one in zip(runs, rows, strict=True):
        if one.predicted_s is None or not one.measured_s or one.has_experts:
            continue
        if one.products_s >= _LEAST_SHARE * one.predicted_s:
            key = (one.software_class, one.architecture, one.source)
            groups.setdefault(key, []).append(_told(run, one))
    return tuple(
        Lesson(family, Learned(architecture, source, len(group), _factor(group)))
        for (family, architecture, source), group in sorted(groups.items())
        if len(group) >= _LEAST_RUNS
    )


@dataclass(frozen=True)
class _Told:
    """One run, as shares of its measured step."""

    model: str
    rest: float
    products: float  # without the factor that they were predicted with


def _told(run: PublishedRun, one: RunPrediction) -> _Told:
    factors = kernel_factors(run.described_software, one.architecture, without=(one.source,))
    measured_s = one.measured_s or 1.0
    return _Told(
        one.model,
        ((one.predicted_s or 0.0) - one.products_s) / measured_s,
        one.products_s / factors[PRODUCTS[0]] / measured_s,
    )


def _factor(runs: Sequence[_Told]) -> float:
    """By bisection: errors grow with the factor."""
    low, high = _LEAST, _MOST
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if _median_error(runs, middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _median_error(runs: Sequence[_Told], factor: float) -> float:
    by_model: dict[str, list[float]] = {}
    for one in runs:
        by_model.setdefault(one.model, []).append(np.log(one.rest + factor * one.products))
    return float(np.median([np.median(errors) for errors in by_model.values()]))
