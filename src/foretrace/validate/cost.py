"""How far predicted durations are off: on what was left out of the fits, or on any tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import Float64s
from foretrace.cost import (
    Chosen,
    Constants,
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

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class CostErrors:
    """One row per family, GPU, number format and region; errors are shares of measured times."""

    rows: tuple[LeftOut, ...]
    inside: Mapping[tuple[str, str, str], float]  # of rows, by family, GPU and format

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {"rows": [self._row(one) for one in self.rows]}

    def to_frame(self) -> pl.DataFrame:
        """All rows."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        return pl.DataFrame([self._row(one) for one in self.rows], infer_schema_length=None)

    def _row(self, row: LeftOut) -> dict[str, object]:
        inside = self.inside.get((row.family, row.gpu, row.dtype))
        return {**row.as_json(), "inside_interval": inside}


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


def cost_errors(folder: Path, constants: Sequence[Constants] | None = None) -> CostErrors:
    """The errors of constants, as they are, on a folder of tables; unknown GPUs are left out.

    Args:
        folder: with files `gemm-*.parquet`, `attention-*.parquet` and `collectives*.parquet`.
        constants: of kernels; the shipped ones, if left out.

    Raises:
        ModelError: if the folder holds no such tables, or they cannot be read.
        MachineError: if a chip's description lacks what a model needs.
    """
    known = shipped_constants() if constants is None else constants
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
