"""Measurements become constants, with the errors on what was left out of each fit.

Three times over: rows of a chip are left out by groups of shapes and predicted from its other
shapes; a chip is left out whole and predicted from its nearest, which is what a chip without
measurements of its own can expect; and chips of one architecture are left out together and
predicted from all other architectures, which is what a chip of a new one can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from foretrace.base import Bools, Float64s
from foretrace.cost.baselines import LINEAR_CONSTANTS, RowWork, linear_ns, roofline_ns
from foretrace.cost.choosing import chosen_fit
from foretrace.cost.constants import ELSEWHERE, Constants, Fit, LeftOut, Spread, width_of
from foretrace.cost.errors import LONG_NS, Errors, Predictions
from foretrace.cost.fitting import PULL, MeasuredRows, fitted, folds
from foretrace.cost.measured import Measured
from foretrace.cost.predicting import (
    CONSTANTS_BY_MODEL,
    constants_of,
    fitted_model,
    model_ns,
    taken,
)

NUM_FOLDS = 5
_LEAST_ROWS_OF_CONSTANT = 3  # fewer rows per constant would be learnt by heart
_SHORT_WEIGHT = 0.5  # below 20 us what a library's dispatch does weighs more than any model
# A table of products that teaches other chips must be larger: a sweep along a line of shapes
# shows no tiles.
_LEAST_ROWS_OF_PRODUCTS = 250
# Constants that only one architecture's peculiarities tell stay near their start.
_PULL_ELSEWHERE = 0.5
# A recording's constants stay near those known, as far as its rows do not say otherwise.
_PULL_TO_KNOWN = 0.5
# A fit to many tables at once takes this many rows of each, so that no table outvotes another.
_MOST_ROWS_OF_TABLE = 600

NEAREST = "nearest other chip"

_Key = tuple[str, str, str]  # model, kind, width


@dataclass(frozen=True)
class _Table:
    """Rows with what two models need: the cost model, and the line to beat."""

    rows: Measured
    predicted_ns: Float64s
    linear_ns: Float64s
    fitted_on: str

    @property
    def labels(self) -> tuple[str, str, str, str]:
        return (self.rows.family, self.rows.gpu, self.rows.dtype, self.fitted_on)


def calibrated(
    measured: Sequence[Measured], made: str, *, near: Sequence[Constants] = ()
) -> tuple[Constants, ...]:
    """Constants of each chip with enough measurements, and those for all others.

    Args:
        measured: tables of rows, as `read_tables` gives them.
        made: date to write into the result.
        near: what few rows do not tell is taken from these, by the nearest chip.
    """
    chips = {one.chip.name: one.chip for one in measured}
    own = [
        _of_chip([one for one in measured if one.chip.name == name], made, near)
        for name in sorted(chips)
    ]
    fitted_chips = tuple(one for one in own if one.fits)
    return (*fitted_chips, _elsewhere(measured, made, fitted_chips))


def _keyed(measured: Iterable[Measured]) -> dict[_Key, list[Measured]]:
    by_key: dict[_Key, list[Measured]] = {}
    for one in measured:
        key = (fitted_model(one.model), one.kind, width_of(one.dtype))
        by_key.setdefault(key, []).append(one)
    return by_key


def _of_chip(measured: Sequence[Measured], made: str, near: Sequence[Constants]) -> Constants:
    chip = measured[0].chip
    fits: list[Fit] = []
    tables: list[_Table] = []
    for key, all_ones in sorted(_keyed(measured).items()):
        ones = [one for one in all_ones if one.model == key[0]]
        if not ones:  # what others taught is tested by them, and nothing taught
            continue
        source = _largest_source(ones)
        chosen = [one for one in ones if one.source == source]
        least = _LEAST_ROWS_OF_CONSTANT * len(CONSTANTS_BY_MODEL[key[0]])
        if sum(len(one.measured_ns) for one in chosen) < least:
            continue
        known = chosen_fit((key[0], key[1], chosen[0].dtype), chip, near)
        values_near = known.fit.values if known is not None else None
        left_out = [_left_out_by_shape(one, chosen, values_near) for one in chosen]
        values = _fitted(key[0], chosen, near=values_near)
        fits.append(_fit(key, source, chosen, values, left_out))
        tables += left_out
    return Constants(
        chip=chip.name,
        architecture=chip.architecture,
        made=made,
        fits=tuple(fits),
        left_out=_error_rows(tables),
    )


def _largest_source(measured: Sequence[Measured]) -> str:
    """One chip's tables come from benchmarks of different habits; a fit follows one of them."""
    sizes: dict[str, int] = {}
    for one in measured:
        sizes[one.source] = sizes.get(one.source, 0) + len(one.measured_ns)
    return max(sizes, key=lambda source: (sizes[source], source))


def _left_out_by_shape(
    target: Measured, chosen: Sequence[Measured], near: Mapping[str, float] | None
) -> _Table:
    """Each fold's rows as constants of the other folds, and of other tables, predict them."""
    fold = folds(target.group, NUM_FOLDS)
    predicted, linear = np.ones(len(fold)), np.ones(len(fold))
    others = [one for one in chosen if one is not target]
    for number in range(NUM_FOLDS):
        is_out = fold == number
        if not is_out.any():
            continue
        kept = [*others, _taken(target, ~is_out)]
        kept = [one for one in kept if len(one.measured_ns)]
        out = _taken(target, is_out)
        values = _fitted(target.model, kept, near=near)
        predicted[is_out] = model_ns(out.model, out.shapes, out.seen, values=values)
        linear[is_out] = linear_ns(out.work, _linear(kept[-1:]))
    return _Table(target, predicted, linear, "same chip, other shapes")


def nearest_errors(measured: Sequence[Measured], own: Sequence[Constants]) -> tuple[LeftOut, ...]:
    """Errors on each table by the constants of its chip's nearest among all others.

    Args:
        measured: tables of rows; those that no other chip has constants for are left out.
        own: of each chip, without those for chips that have none.
    """
    tables: list[_Table] = []
    for one in measured:
        others = [each for each in own if each.chip != one.chip.name]
        found = chosen_fit((fitted_model(one.model), one.kind, one.dtype), one.chip, others)
        if found is None or found.fit.width != width_of(one.dtype):
            continue
        predicted_ns = _predicted_ns(one, found.fit.values)
        tables.append(_Table(one, predicted_ns, linear_ns(one.work, found.fit.line), NEAREST))
    return _error_rows(tables)


def _elsewhere(measured: Sequence[Measured], made: str, own: Sequence[Constants]) -> Constants:
    fits: list[Fit] = []
    tables: list[_Table] = []
    for key, all_ones in sorted(_keyed(measured).items()):
        ones = [one for one in all_ones if one.model == key[0]]
        chosen = [_thinned(one) for one in ones if _teaches(one, ones)]
        architectures = {one.chip.architecture for one in chosen}
        if not chosen:
            continue
        left_out = [
            table
            for architecture in sorted(architectures)
            for table in _left_out_by_architecture(architecture, chosen, all_ones)
        ]
        values = _fitted(key[0], chosen, pull=_PULL_ELSEWHERE)
        fits.append(_fit(key, "all tables", chosen, values, left_out))
        tables += left_out
    errors = (*_error_rows(tables), *nearest_errors(measured, own))
    return Constants(ELSEWHERE, "", made, tuple(fits), errors)


def _teaches(one: Measured, ones: Sequence[Measured]) -> bool:
    """Whether a table has enough rows for chips other than its own."""
    if one.model == "gemm":
        return len(one.measured_ns) >= _LEAST_ROWS_OF_PRODUCTS
    alike = (other for other in ones if (other.gpu, other.source) == (one.gpu, one.source))
    rows = sum(len(other.measured_ns) for other in alike)
    return rows >= _LEAST_ROWS_OF_CONSTANT * len(CONSTANTS_BY_MODEL[one.model])


def _left_out_by_architecture(
    architecture: str, chosen: Sequence[Measured], ones: Sequence[Measured]
) -> list[_Table]:
    kept = [one for one in chosen if one.chip.architecture != architecture]
    if not kept:
        return []
    values = _fitted(kept[0].model, kept, pull=_PULL_ELSEWHERE)
    line = _linear(kept)
    names = ", ".join(sorted({one.chip.architecture for one in kept}))
    others = f"other architectures: {names}"
    return [
        _Table(
            one,
            model_ns(one.model, one.shapes, one.seen, values=values),
            linear_ns(one.work, line),
            others,
        )
        for one in ones
        if one.chip.architecture == architecture
    ]


def _fitted(
    model: str,
    measured: Sequence[Measured],
    *,
    pull: float = PULL,
    near: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Constants for all of these rows; few rows stay near what is known already."""
    if near is not None:
        pull = _PULL_TO_KNOWN
    parts = [
        MeasuredRows(
            partial(_predicted_ns, one),
            one.measured_ns,
            np.where(one.measured_ns >= LONG_NS, 1.0, _SHORT_WEIGHT),
        )
        for one in measured
    ]
    return fitted(constants_of(model, measured[0].kind), parts, pull=pull, near=near)


def _predicted_ns(one: Measured, values: Mapping[str, float]) -> Float64s:
    return model_ns(one.model, one.shapes, one.seen, values=values)


def _linear(measured: Sequence[Measured]) -> dict[str, float]:
    parts = [
        MeasuredRows(
            partial(linear_ns, one.work),
            one.measured_ns,
            np.ones(len(one.measured_ns)),
        )
        for one in measured
    ]
    return fitted(LINEAR_CONSTANTS, parts)


def _fit(
    key: _Key,
    source: str,
    chosen: Sequence[Measured],
    values: Mapping[str, float],
    left_out: Sequence[_Table],
) -> Fit:
    model, kind, width = key
    # One row alone shows no spread: that of the other region counts.
    spread = {
        one.region: Spread(one.low, one.high) for one in _errors(left_out) if one.low < one.high
    }
    return Fit(
        model=model,
        kind=kind,
        width=width,
        source=source,
        num_rows=sum(len(one.measured_ns) for one in chosen),
        values=values,
        line=_linear(chosen),
        spread_by_region=spread,
    )


def _errors(tables: Sequence[_Table]) -> tuple[Errors, ...]:
    if not tables:
        return ()
    return Predictions(
        predicted_ns=np.concatenate([one.predicted_ns for one in tables]),
        measured_ns=np.concatenate([one.rows.measured_ns for one in tables]),
        roofline_ns=np.concatenate([roofline_ns(one.rows.work, one.rows.chip) for one in tables]),
        linear_ns=np.concatenate([one.linear_ns for one in tables]),
    ).errors()


def _error_rows(tables: Sequence[_Table]) -> tuple[LeftOut, ...]:
    """One row per family, GPU, number format and region."""
    by_label: dict[tuple[str, str, str, str], list[_Table]] = {}
    for one in tables:
        by_label.setdefault(one.labels, []).append(one)
    return tuple(
        LeftOut(*labels, errors=errors)
        for labels, ones in sorted(by_label.items())
        for errors in _errors(ones)
    )


def _thinned(measured: Measured) -> Measured:
    """At most so many rows, spread over the table."""
    every = max(1, len(measured.measured_ns) // _MOST_ROWS_OF_TABLE)
    rows = np.zeros(len(measured.measured_ns), np.bool_)
    rows[::every] = True
    return _taken(measured, rows)


def _taken(measured: Measured, rows: Bools) -> Measured:
    work = measured.work
    return Measured(
        model=measured.model,
        kind=measured.kind,
        family=measured.family,
        gpu=measured.gpu,
        chip=measured.chip,
        shapes=taken(measured.shapes, rows),
        work=RowWork(work.flops[rows], work.num_bytes[rows], work.dtype),
        measured_ns=measured.measured_ns[rows],
        group=measured.group[rows],
        source=measured.source,
        dtype=measured.dtype,
        is_older=measured.is_older,
    )
