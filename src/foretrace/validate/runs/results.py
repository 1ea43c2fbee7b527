"""What predictions of published runs come to: one row a run, and errors by group of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import NS_PER_S
from foretrace.validate.cost import CostPoints

if TYPE_CHECKING:
    import polars as pl


class RunStatus(StrEnum):
    """How much of a run's configuration was known."""

    PREDICTED = "predicted"  # all that decides its time
    ASSUMED = "assumed"  # what was not printed is a spread over what is legal
    REFUSED = "refused"  # it cannot be laid out; `why` says what is missing


@dataclass(frozen=True, kw_only=True)
class RunPrediction:
    """One run, measured beside predicted; times in seconds, as tables of runs print them."""

    id: str
    source: str  # family of sources
    software: str
    gpu: str
    precision: str
    num_gpus: int
    has_experts: bool
    measured_s: float | None
    predicted_s: float | None  # `None`: refused
    low_s: float | None  # 10th percentile
    high_s: float | None  # 90th
    roofline_s: float | None  # by the data sheet, with the plan's own pipeline bubble
    status: RunStatus
    why: str
    measured_memory_gib: float | None = None
    predicted_memory_gib: float | None = None
    architecture: str = ""  # of the GPU
    products_s: float = 0.0  # of the critical path: products of 16-bit numbers

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less 1."""
        return _error(self.predicted_s, self.measured_s)

    @property
    def roofline_error(self) -> float | None:
        """The same of the roofline."""
        return _error(self.roofline_s, self.measured_s)

    @property
    def memory_error(self) -> float | None:
        """The same of memory."""
        return _error(self.predicted_memory_gib, self.measured_memory_gib)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured time lies in the 80% interval."""
        if self.measured_s is None or self.low_s is None or self.high_s is None:
            return None
        return self.low_s <= self.measured_s <= self.high_s

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**known, "status": self.status.value, "error": self.error}


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or not measured:
        return None
    return predicted / measured - 1


@dataclass(frozen=True, kw_only=True)
class GroupError:
    """Errors over some runs, as shares of the measured times."""

    name: str
    num_runs: int
    num_predicted: int  # status predicted, with a measured time
    num_assumed: int
    num_refused: int
    mean_abs_error: float | None  # of predicted and assumed
    mean_error: float | None
    worst_error: float | None
    inside: float | None  # share of measured times in their 80% interval
    roofline_mean_abs_error: float | None
    memory_mean_abs_error: float | None

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class RunsReport:
    """Predictions of a table of runs."""

    rows: tuple[RunPrediction, ...]
    calibrated: tuple[RunPrediction, ...] = ()  # with one constant per group, others' rows

    @property
    def groups(self) -> tuple[GroupError, ...]:
        """Errors by source, and of all."""
        return (*by_group(self.rows, lambda one: one.source), group_error("all", self.rows))

    @property
    def share_answered(self) -> float:
        """Share of rows that are predicted or assumed."""
        answered = sum(one.status is not RunStatus.REFUSED for one in self.rows)
        return answered / max(1, len(self.rows))

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            "rows": [one.as_json() for one in self.rows],
            "groups": [one.as_json() for one in self.groups],
            "calibrated": [one.as_json() for one in self.calibrated],
            "share_answered": self.share_answered,
        }

    def to_frame(self) -> pl.DataFrame:
        """All rows."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        return pl.DataFrame([one.as_json() for one in self.rows], infer_schema_length=None)


def by_group(
    rows: Iterable[RunPrediction], key: Callable[[RunPrediction], str]
) -> tuple[GroupError, ...]:
    """Errors of rows with the same key, sorted by it."""
    groups: dict[str, list[RunPrediction]] = {}
    for one in rows:
        groups.setdefault(key(one), []).append(one)
    return tuple(group_error(name, ones) for name, ones in sorted(groups.items()))


def group_error(name: str, rows: Sequence[RunPrediction]) -> GroupError:
    """Errors over some runs."""
    counts: Mapping[RunStatus, int] = {
        status: sum(one.status is status for one in rows) for status in RunStatus
    }
    errors = _known(one.error for one in rows)
    inside = [one.is_inside for one in rows if one.is_inside is not None]
    return GroupError(
        name=name,
        num_runs=len(rows),
        num_predicted=counts[RunStatus.PREDICTED],
        num_assumed=counts[RunStatus.ASSUMED],
        num_refused=counts[RunStatus.REFUSED],
        mean_abs_error=_mean_abs(errors),
        mean_error=float(np.mean(errors)) if errors else None,
        worst_error=max(errors, key=abs) if errors else None,
        inside=float(np.mean(inside)) if inside else None,
        roofline_mean_abs_error=_mean_abs(_known(one.roofline_error for one in rows)),
        memory_mean_abs_error=_mean_abs(_known(one.memory_error for one in rows)),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [one for one in values if one is not None]


def _mean_abs(errors: Sequence[float]) -> float | None:
    return float(np.mean(np.abs(errors))) if errors else None


def calibrated_groups(report: RunsReport) -> tuple[GroupError, ...]:
    """Errors of rows predicted with a constant of their kind, by source, and of all."""
    rows = report.calibrated
    return (*by_group(rows, lambda one: one.source), group_error("all", rows))


def run_points(report: RunsReport) -> tuple[CostPoints, ...]:
    """Predicted beside measured times by source, for a plot."""
    by_source: dict[str, list[RunPrediction]] = {}
    for one in report.rows:
        if one.predicted_s is not None and one.measured_s is not None:
            by_source.setdefault(one.source, []).append(one)
    return tuple(
        CostPoints(
            source,
            np.array([(one.measured_s or 0) * NS_PER_S for one in rows]),
            np.array([(one.predicted_s or 0) * NS_PER_S for one in rows]),
        )
        for source, rows in sorted(by_source.items())
    )
