"""`runs_report`: a table of runs predicted, calibrated, and as points to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from foretrace.validate.cost import CostPoints
from foretrace.validate.runs.calibration import calibrated
from foretrace.validate.runs.predict import predict_runs
from foretrace.validate.runs.results import (
    GroupError,
    RunPrediction,
    RunsReport,
    by_group,
    group_error,
)
from foretrace.validate.runs.table import PublishedRun
from foretrace.validate.runs.unmodelled import widened

_NS_PER_S = 1e9


def runs_report(
    runs: Sequence[PublishedRun],
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> RunsReport:
    """Every run predicted, and again with one constant for each kind of run.

    Args:
        runs: as `read_runs` gives them.
        workers: processes that predict at once.
        progress: called after each run with how many are done, and of how many.
    """
    rows = tuple(widened(one) for one in predict_runs(runs, workers=workers, progress=progress))
    return RunsReport(rows, calibrated(rows))


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
            np.array([(one.measured_s or 0) * _NS_PER_S for one in rows]),
            np.array([(one.predicted_s or 0) * _NS_PER_S for one in rows]),
        )
        for source, rows in sorted(by_source.items())
    )
