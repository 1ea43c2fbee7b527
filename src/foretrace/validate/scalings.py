"""Scalings of one model, all predicted with two constants that one of them teaches.

There is no trace of the model to begin with; so each scaling is estimated from its configuration,
with one factor on all kernels and one on all communication, such that the first one's computation
and total come out. Beside it stand the predictions of a rival, as its paper printed them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from foretrace.answer import (
    Answer,
    Column,
    Json,
    Plain,
    Sentences,
    Told,
    Unit,
    percent_text,
    signed_percent_text,
)
from foretrace.answer import Table as ToldTable
from foretrace.base import (
    NS_PER_MS,
    DescriptionKey,
    Float64s,
    Share,
    Table,
    WorkloadError,
    read_keys,
)
from foretrace.cost import Slower, step_costs
from foretrace.estimate import estimate, where
from foretrace.validate.runs.configuration import machine_of, model_of
from foretrace.validate.runs.description import (
    description_of,
    read_runs_document,
    stated_tables,
)
from foretrace.validate.runs.plans import plans_of
from foretrace.validate.runs.table import PublishedRun, run_of

_RIVAL_KEYS = (
    DescriptionKey("name", str, is_required=True),
    DescriptionKey("mean_error", Share, is_required=True),
    DescriptionKey("note", str),
)
_FourTimes = tuple[int | float, int | float, int | float, int | float]
_SCALING_KEYS = (
    DescriptionKey("columns", dict[str, object], is_required=True, expected="a table"),
    DescriptionKey("measured", _FourTimes, is_required=True, expected="a list of four times in ms"),
    DescriptionKey("rival", _FourTimes, is_required=True, expected="a list of four times in ms"),
    DescriptionKey("is_label_doubtful", bool),
)


@dataclass(frozen=True)
class StepBar(Plain):
    """A step in four parts, in ms."""

    json_also = ("total",)

    exposed_compute: float
    overlapped: float
    exposed_communication: float
    other: float

    @property
    def compute(self) -> float:
        """Time with computation."""
        return self.exposed_compute + self.overlapped

    @property
    def total(self) -> float:
        """The step."""
        return self.compute + self.exposed_communication + self.other


@dataclass(frozen=True)
class MeasuredScaling:
    """One scaling of the figure."""

    run: PublishedRun
    measured: StepBar
    rival: StepBar  # as the paper predicts it
    is_label_doubtful: bool = False  # it may be swapped with the other one in doubt

    @property
    def name(self) -> str:
        """`2x2x8`: tensor, pipeline and data parallel ranks."""
        return f"{self.run.tp}x{self.run.pp}x{self.run.dp}"


@dataclass(frozen=True, kw_only=True)
class ScalingsFigure:
    """A published figure of scalings; the first teaches."""

    title: str
    rival: str  # whose predictions stand beside
    rival_mean_error: float  # as its text states it
    rival_note: str  # what it knows that is not known here
    scalings: tuple[MeasuredScaling, ...]


@dataclass(frozen=True)
class ScalingRow:
    """One scaling: measured, predicted here, and predicted by the rival."""

    scaling: MeasuredScaling
    predicted: StepBar

    @property
    def error(self) -> float:
        """Of the total, as a share of the measured one."""
        return self.predicted.total / self.scaling.measured.total - 1

    @property
    def rival_error(self) -> float:
        """The same of the rival's prediction."""
        return self.scaling.rival.total / self.scaling.measured.total - 1


@dataclass(frozen=True, repr=False)
class ScalingsReport(Answer):
    """Scalings predicted, of which the first taught the constants."""

    figure: ScalingsFigure
    kernels: float  # factor on what is known of kernels elsewhere
    network: float  # the same of all collectives
    teacher: ScalingRow
    rows: tuple[ScalingRow, ...]  # the others

    @property
    def mean_error(self) -> float:
        """Mean absolute error of the others' totals."""
        return _mean(row.error for row in self.rows)

    @property
    def rival_mean_error(self) -> float:
        """The same of the rival's predictions of these."""
        return _mean(row.rival_error for row in self.rows)

    @property
    def swapped_mean_error(self) -> float:
        """Mean absolute error if the labels in doubt are swapped."""
        doubtful = [row for row in self.rows if row.scaling.is_label_doubtful]
        swapped = (
            row.predicted.total / other.scaling.measured.total - 1
            for row, other in zip(doubtful, reversed(doubtful), strict=True)
        )
        sure = (row.error for row in self.rows if not row.scaling.is_label_doubtful)
        return _mean([*sure, *swapped])

    def as_json(self) -> Json:
        """Everything, times in ms; the rival's under its name."""
        rival = self.figure.rival.lower()
        return {
            "kernels": self.kernels,
            "network": self.network,
            "mean_error": self.mean_error,
            "swapped_mean_error": self.swapped_mean_error,
            f"{rival}_mean_error": self.rival_mean_error,
            f"{rival}_stated_mean_error": self.figure.rival_mean_error,
            "teacher": _row_json(self.teacher, rival),
            "rows": [_row_json(row, rival) for row in self.rows],
        }

    @property
    def headline(self) -> str:
        """What was scaled, and how far the predictions are off."""
        return f"{self.figure.title}: {percent_text(100 * self.mean_error)} mean error"

    def parts(self) -> tuple[Told, ...]:
        """Every scaling beside its predictions, its parts, and the errors of all."""
        return self._totals(), self._bars(), Sentences.of("in short", self._summary())

    def tables(self) -> tuple[ToldTable, ...]:
        """One row per scaling and side, the teacher first; times in ms."""
        rival = self.figure.rival.lower()
        items = [
            (row.scaling.name, side, bar)
            for row in self._all
            for side, bar in (
                ("measured", row.scaling.measured),
                ("predicted", row.predicted),
                (rival, row.scaling.rival),
            )
        ]
        bars = ToldTable.of(
            "bars",
            items,
            Column("name", value=lambda item: item[0]),
            Column("side", value=lambda item: item[1]),
            *(Column(key, unit=Unit.NUMBER, value=_of_bar(key)) for key in (*_PARTS, "total")),
        )
        return bars, self._totals()

    @property
    def _all(self) -> tuple[ScalingRow, ...]:
        return (self.teacher, *self.rows)

    def _totals(self) -> ToldTable:
        rival = self.figure.rival
        return ToldTable.of(
            "totals",
            self._all,
            Column("name", "TPxPPxDP", Unit.WORD, _label),
            Column("measured_ms", "measured ms", Unit.COUNT, "scaling.measured.total"),
            Column("predicted_ms", "predicted ms", Unit.COUNT, "predicted.total"),
            Column("error", unit=Unit.WORD, value=self._error_text),
            Column("rival_ms", f"{rival} ms", Unit.COUNT, "scaling.rival.total"),
            Column("rival_error", f"{rival}' error", Unit.SIGNED_SHARE),
        )

    def _error_text(self, row: ScalingRow) -> str:
        return "taught" if row is self.teacher else signed_percent_text(100 * row.error)

    def _bars(self) -> ToldTable:
        sides = {"run": "scaling.measured", "here": "predicted", self.figure.rival: "scaling.rival"}
        return ToldTable.of(
            "parts",
            self._all,
            Column("name", "ms", Unit.WORD, "scaling.name"),
            *(
                Column(f"{side}_{part}", side, Unit.COUNT, f"{of}.{part}")
                for part in _PARTS
                for side, of in sides.items()
            ),
            title="compute alone, overlapped, communication alone, neither",
        )

    def _summary(self) -> Iterator[str]:
        yield f"mean error of the others: {percent_text(100 * self.mean_error)}"
        swapped = percent_text(100 * self.swapped_mean_error)
        yield f"the same with labels in doubt (?) swapped: {swapped}"
        rival = f"{self.figure.rival}' own: {percent_text(100 * self.rival_mean_error)}"
        yield f"{rival}; {self.figure.rival_note}" if self.figure.rival_note else rival
        taught = f"kernels x {self.kernels:.2f} and communication x {self.network:.2f}"
        yield f"the first row taught {taught}"


_PARTS = tuple(one.name for one in fields(StepBar))


def _label(row: ScalingRow) -> str:
    return f"{row.scaling.name} ?" if row.scaling.is_label_doubtful else row.scaling.name


def _of_bar(key: str) -> Callable[[tuple[str, str, StepBar]], float]:
    return lambda item: float(getattr(item[2], key))


@dataclass(frozen=True)
class _Factors:
    """On what is known of kernels and networks elsewhere."""

    kernels: float
    network: float
    sends: float  # on transfers between stages, besides `network`


def read_scalings(path: Path) -> ScalingsFigure:
    """The figure that a description of runs holds.

    Raises:
        WorkloadError: if the file holds none, or what no figure has.
    """
    document = read_runs_document(path)
    description = description_of(document)
    table, place = stated_tables(document), document.where
    if "rival" not in table or len(table.get("scalings", ())) < 2:  # noqa: PLR2004  one teaches
        raise WorkloadError(
            f"{place} has no [rival], or no two [[scalings]]: give one that teaches, and others"
        )
    rival = read_keys(table["rival"], _RIVAL_KEYS, f"[rival] of {place}", error=WorkloadError)

    def scaling(entry: Table, at: int) -> MeasuredScaling:
        here = f"[[scalings]] {at} of {place}"
        one = read_keys(entry, _SCALING_KEYS, here, error=WorkloadError)
        columns = {"id": at, **table.get("columns", {}), **one["columns"]}
        texts = {name: str(each) for name, each in columns.items()}
        return MeasuredScaling(
            run_of(texts, description, where=here),
            StepBar(*one["measured"]),
            StepBar(*one["rival"]),
            is_label_doubtful=one.get("is_label_doubtful", False),
        )

    return ScalingsFigure(
        title=description.title,
        rival=rival["name"],
        rival_mean_error=rival["mean_error"],
        rival_note=rival.get("note", ""),
        scalings=tuple(scaling(entry, at) for at, entry in enumerate(table["scalings"], start=1)),
    )


def scalings_report(
    figure: ScalingsFigure,
    *,
    sends: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> ScalingsReport:
    """A figure of scalings, predicted with what its first one teaches.

    Args:
        figure: what was measured.
        sends: how many times as long transfers between stages take as other communication of as
            many bytes; 1: nobody knows otherwise.
        progress: called with scalings done, and of how many.
    """
    found = _fitted(figure.scalings[0], sends)
    rows = []
    for done, scaling in enumerate(figure.scalings, start=1):
        rows.append(ScalingRow(scaling, _predicted(scaling, found)))
        if progress is not None:
            progress(done, len(figure.scalings))
    teacher, *others = rows
    return ScalingsReport(figure, found.kernels, found.network, teacher, tuple(others))


def _fitted(teacher: MeasuredScaling, sends: float) -> _Factors:
    """Factors with which the teacher's computation and total are as measured."""
    from scipy.optimize import least_squares  # on demand: it takes longer to import than most

    measured = teacher.measured

    def factors(turned: Float64s) -> _Factors:
        kernels, network = np.exp(turned - 1).tolist()  # beside 1: steps are relative to it
        return _Factors(kernels, network, sends)

    def off(turned: Float64s) -> Float64s:
        bar = _predicted(teacher, factors(turned))
        return np.log([bar.compute / measured.compute, bar.total / measured.total])

    return factors(least_squares(off, np.ones(2), diff_step=0.02).x)


def _predicted(scaling: MeasuredScaling, factors: _Factors) -> StepBar:
    run = scaling.run
    model, machine = model_of(run), machine_of(run)
    by_collective = {"": factors.network, "send": factors.network * factors.sends}
    costs = Slower(step_costs(machine), {"": factors.kernels}, by_collective)
    done = estimate(model, plans_of(run, model).plans[0], machine, costs=costs)
    mean = where(done.timeline, done.laid_out.roles).mean
    return StepBar(
        mean.compute_ns / NS_PER_MS,
        mean.overlapped_ns / NS_PER_MS,
        # A stage that waits for another does so in a receive.
        (mean.transfer_ns + mean.waiting_ns) / NS_PER_MS,
        mean.idle_ns / NS_PER_MS,
    )


def _row_json(row: ScalingRow, rival: str) -> dict[str, object]:
    return {
        "name": row.scaling.name,
        "measured": row.scaling.measured.as_json(),
        "predicted": row.predicted.as_json(),
        rival: row.scaling.rival.as_json(),
        "error": row.error,
        f"{rival}_error": row.rival_error,
        "is_label_doubtful": row.scaling.is_label_doubtful,
    }


def _mean(errors: Iterable[float]) -> float:
    return float(np.mean(np.abs(list(errors))))
