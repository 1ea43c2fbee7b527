"""How far predicted durations are off: on what was left out of the fits, or on any tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from foretrace.answer import Answer, Column, Sentences, Table, Told, Unit, count_text, rows_json
from foretrace.base import Float64s
from foretrace.cost import (
    Chosen,
    Constants,
    Errors,
    LeftOut,
    Measured,
    Predictions,
    chosen_fit,
    collective_errors,
    fitted_model,
    linear_ns,
    model_ns,
    read_tables,
    roofline_ns,
    shipped_collectives,
    shipped_constants,
    spread_ends,
)

_MAKERS = ("NVIDIA ", "Tesla ", "AMD ")  # left out of names: they cost width
_SHOWN = (
    ("mean_abs_error", "mean"),
    ("median_abs_error", "median"),
    ("roofline_mean_abs_error", "roof"),
    ("linear_mean_abs_error", "line"),
)
_HOW_TO_READ = (
    "errors are shares of the measured time: mean and median of their sizes",
    "roof: mean error of the data sheet's peaks alone",
    "line: mean error of a line through FLOPs and bytes, fitted to the same rows",
)


@dataclass(frozen=True, repr=False)
class CostErrors(Answer):
    """One row per family, GPU, number format and region; errors are shares of measured times."""

    rows: tuple[LeftOut, ...]
    inside: Mapping[tuple[str, str, str], float]  # of rows, by family, GPU and format

    @property
    def headline(self) -> str:
        """How many rows, and how far they are off."""
        total = sum(one.errors.n for one in self.rows)
        if not total:
            return "nothing was predicted"
        error = sum(one.errors.n * one.errors.mean_abs_error for one in self.rows) / total
        return f"{100 * error:.1f} % mean error of {count_text(total, 'prediction')}"

    @property
    def is_empty(self) -> bool:
        """Whether nothing was predicted."""
        return not self.rows

    def parts(self) -> tuple[Told, ...]:
        """A table for each basis of predictions, and how to read them."""
        by_basis: dict[str, list[LeftOut]] = {}
        for one in self.rows:
            by_basis.setdefault(one.fitted_on.partition(":")[0], []).append(one)
        tables = (_basis_table(basis, rows) for basis, rows in by_basis.items())
        return *tables, Sentences.of("how to read it", _HOW_TO_READ)

    def tables(self) -> tuple[Table, ...]:
        """All rows."""
        rows = Table.of(
            "rows",
            self.rows,
            *map(Column, ("family", "gpu", "dtype", "fitted_on")),
            *(Column(one.name, value=f"errors.{one.name}") for one in fields(Errors)),
            Column(
                "inside_interval",
                unit=Unit.SHARE,
                value=lambda one: self.inside.get((one.family, one.gpu, one.dtype)),
            ),
        )
        return (rows,)

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return rows_json(*self.tables())


def _basis_table(basis: str, rows: Sequence[LeftOut]) -> Table:
    return Table.of(
        basis,
        rows,
        Column("kernels", value=lambda one: f"{one.family} {one.dtype}"),
        Column("gpu", "GPU", value=lambda one: _without_maker(one.gpu)),
        Column("region", unit=Unit.WORD, value=_region_text),
        Column("n", "rows", Unit.COUNT, "errors.n"),
        *(Column(key, title, Unit.SHARE, f"errors.{key}") for key, title in _SHOWN),
        title=f"predicted from: {basis}",
    )


def _without_maker(gpu: str) -> str:
    for maker in _MAKERS:
        gpu = gpu.removeprefix(maker)
    return gpu


def _region_text(row: LeftOut) -> str:
    return row.errors.region.replace("below_", "<").replace("from_", ">=")


@dataclass(frozen=True)
class _Answer:
    """Predictions for one table."""

    measured: Measured
    fitted_on: str
    predicted_ns: Float64s
    linear_ns: Float64s
    is_inside: Float64s  # 1 where the measured time lies in the 80% interval


def left_out_errors(constants: Sequence[Constants] | None = None) -> CostErrors:
    """The errors that came with the constants: each row was left out of the fit it tests."""
    shipped = (*shipped_constants(), *shipped_collectives())
    known = shipped if constants is None else constants
    return CostErrors(tuple(row for one in known for row in one.left_out), {})


def cost_errors(folder: Path) -> CostErrors:
    """The errors of the shipped constants on a folder of tables; unknown GPUs are left out.

    Args:
        folder: with files `gemm-*.parquet`, `attention-*.parquet` and `collectives*.parquet`.

    Raises:
        ModelError: if the folder holds no such tables, or they cannot be read.
        MachineError: if a chip's description lacks what a model needs.
    """
    known = shipped_constants()
    by_label: dict[tuple[str, str, str], list[_Answer]] = {}
    for one in read_tables(folder, known_only=True):
        answer = _answer(one, known)
        if answer is not None:
            by_label.setdefault((one.family, one.gpu, one.dtype), []).append(answer)
    rows: list[LeftOut] = []
    inside: dict[tuple[str, str, str], float] = {}
    for label, answers in sorted(by_label.items()):
        bases = ", ".join(sorted({one.fitted_on for one in answers}))
        rows += [LeftOut(*label, bases, errors) for errors in _predictions(answers).errors()]
        inside[label] = float(np.concatenate([one.is_inside for one in answers]).mean())
    return CostErrors((*rows, *collective_errors(folder)), inside)


@dataclass(frozen=True)
class CostPoints:
    """Predicted beside measured times of one family on one GPU in one number format."""

    label: str
    measured_ns: Float64s  # float64[rows]
    predicted_ns: Float64s  # float64[rows]


def cost_points(
    measured: Sequence[Measured], constants: Sequence[Constants]
) -> tuple[CostPoints, ...]:
    """What constants say of measurements, by label; rows that they say nothing of are left out.

    Raises:
        MachineError: if a chip's description lacks what a model needs.
    """
    by_label: dict[str, list[_Answer]] = {}
    for one in measured:
        answer = _answer(one, constants)
        if answer is not None:
            by_label.setdefault(f"{one.family} {one.dtype}, {one.gpu}", []).append(answer)
    return tuple(
        CostPoints(
            label,
            np.concatenate([one.measured.measured_ns for one in answers]),
            np.concatenate([one.predicted_ns for one in answers]),
        )
        for label, answers in sorted(by_label.items())
    )


def _answer(measured: Measured, constants: Sequence[Constants]) -> _Answer | None:
    key = (fitted_model(measured.model), measured.kind, measured.dtype)
    chosen = chosen_fit(key, measured.chip, constants)
    if chosen is None:
        return None
    predicted_ns = model_ns(
        measured.model, measured.shapes, measured.seen, values=chosen.fit.values
    )
    return _Answer(
        measured,
        _basis(chosen),
        predicted_ns,
        linear_ns(measured.work, chosen.fit.line),
        _is_inside(predicted_ns, measured.measured_ns, chosen),
    )


def _basis(chosen: Chosen) -> str:
    return f"{chosen.source.name.lower()}: {chosen.fit.source}"


def _is_inside(predicted_ns: Float64s, measured_ns: Float64s, chosen: Chosen) -> Float64s:
    low, high = spread_ends(predicted_ns, chosen.spread_by_region)
    inside = (predicted_ns * low <= measured_ns) & (measured_ns <= predicted_ns * high)
    return inside.astype(np.float64)


def _predictions(answers: Sequence[_Answer]) -> Predictions:
    tables = [one.measured for one in answers]
    return Predictions(
        predicted_ns=np.concatenate([one.predicted_ns for one in answers]),
        measured_ns=np.concatenate([one.measured_ns for one in tables]),
        roofline_ns=np.concatenate([roofline_ns(one.work, one.chip) for one in tables]),
        linear_ns=np.concatenate([one.linear_ns for one in answers]),
    )
