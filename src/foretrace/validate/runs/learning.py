"""`lessons`: what each source of runs teaches of products, by class of software, chip and format.

`models_left_out` says how far that carries within a source: from all models but one to that one.

As far as a run's predicted step is products of one format on its critical path, it grows with their
factor, to first order. The factor of one source, class, architecture and format is the one that
makes the sum of its runs' absolute errors least: a run's own factor counts by the share of its step
that is products, and an odd one moves no other. Products in 16 bits are taught by runs that
multiply in these alone, others by runs in their format. Fewer runs than `_LEAST_RUNS` tell less
than one step is off by for reasons of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import known_format
from foretrace.software import PRODUCTS_BY_FORMAT, Learned, kernel_factors
from foretrace.validate.runs.results import ModelsLeftOut, RunPrediction
from foretrace.validate.runs.table import PublishedRun

_USUAL = "16bit"
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
            f"num_runs = {one.num_runs}\n"
            + (f'format = "{one.format}"\n' if one.format != _USUAL else "")
            + f"products = {one.products:.2f}\n"
        )


def lessons(runs: Sequence[PublishedRun], rows: Sequence[RunPrediction]) -> tuple[Lesson, ...]:
    """What every source teaches of every class and architecture; dense runs alone.

    Args:
        runs: as `read_runs` gives them.
        rows: their predictions, in that order.
    """
    return tuple(
        Lesson(family, Learned(architecture, source, len(group), _factor(group), dtype))
        for (family, architecture, source, dtype), group in _told_groups(runs, rows)
    )


def models_left_out(
    runs: Sequence[PublishedRun], rows: Sequence[RunPrediction]
) -> tuple[ModelsLeftOut, ...]:
    """How far runs of each source are off with the factor that its other models teach.

    Groups of at least two models, each taught by as many runs as a lesson takes; times grow with
    products' factor to first order, as lessons have it.

    Args:
        runs: as `read_runs` gives them.
        rows: their predictions, in that order.
    """
    found = (
        _left_out(f"{source}, {family}, {architecture}, {dtype}", group)
        for (family, architecture, source, dtype), group in _told_groups(runs, rows)
    )
    return tuple(one for one in found if one is not None)


def _left_out(name: str, group: Sequence[_Told]) -> ModelsLeftOut | None:
    errors: dict[str, list[float]] = {}
    for model in sorted({one.model for one in group}):
        others = [one for one in group if one.model != model]
        if len(others) >= _LEAST_RUNS:
            factor = _factor(others)
            told = (one for one in group if one.model == model)
            errors[model] = [one.rest + factor * one.products - 1 for one in told]
    if not errors:
        return None
    by_model = {model: float(np.mean(np.abs(each))) for model, each in errors.items()}
    worst = max(by_model, key=lambda model: by_model[model])
    every = np.concatenate(list(errors.values()))
    return ModelsLeftOut(
        name=name,
        num_models=len(errors),
        num_runs=len(every),
        mean_abs_error=float(np.abs(every).mean()),
        mean_error=float(every.mean()),
        worst_model=worst,
        worst_model_error=by_model[worst],
    )


_Group = tuple[tuple[str, str, str, str], list["_Told"]]


def _told_groups(runs: Sequence[PublishedRun], rows: Sequence[RunPrediction]) -> tuple[_Group, ...]:
    """Runs that tell of products, by class of software, architecture, source and format."""
    groups: dict[tuple[str, str, str, str], list[_Told]] = {}
    for run, one in zip(runs, rows, strict=True):
        if one.predicted_s is None or not one.measured_s or one.has_experts:
            continue
        if one.num_gpus == 1:  # a chip alone has no factor
            continue
        dtype = _format(one.precision)
        if one.products_s.get(dtype, 0.0) >= _LEAST_SHARE * one.predicted_s:
            key = (one.software_class, one.architecture, one.source, dtype)
            groups.setdefault(key, []).append(_told(run, one, dtype))
    return tuple((key, each) for key, each in sorted(groups.items()) if len(each) >= _LEAST_RUNS)


@dataclass(frozen=True)
class _Told:
    """One run, as shares of its measured step."""

    model: str
    rest: float
    products: float  # without the factor that they were predicted with


def _format(precision: str) -> str:
    """How the units are called that work on a run's products."""
    found = known_format(precision)
    return found.rated_as if found.is_narrow else _USUAL


def _told(run: PublishedRun, one: RunPrediction, dtype: str) -> _Told:
    factors = kernel_factors(run.described_software, one.architecture, without=(one.source,))
    measured_s = one.measured_s or 1.0
    return _Told(
        one.model,
        ((one.predicted_s or 0.0) - one.products_s[dtype]) / measured_s,
        one.products_s[dtype] / factors[PRODUCTS_BY_FORMAT[dtype][0]] / measured_s,
    )


def _factor(runs: Sequence[_Told]) -> float:
    """By bisection: errors grow with the factor."""
    low, high = _LEAST, _MOST
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if _is_too_slow(runs, middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _is_too_slow(runs: Sequence[_Told], factor: float) -> bool:
    """Whether more of the runs, each by its products' share, are predicted too slow with it."""
    slow = 0.0
    for one in runs:
        share = one.products / (one.rest + one.products)
        slow += share * np.sign(one.rest + factor * one.products - 1)
    return slow > 0
