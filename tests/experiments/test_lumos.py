"""Lumos' figure 7: the figure itself, and what two constants from its first bar predict."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.validate import ScalingsReport, read_scalings, scalings_report
from tests.validate.runs.sample import EXPERIMENTS

FIGURE = read_scalings(EXPERIMENTS / "lumos.toml")


@pytest.fixture(scope="module")
def report() -> ScalingsReport:
    """The figure, predicted."""
    return scalings_report(FIGURE)


def test_bars_are_assigned_as_the_papers_mean_error_says() -> None:
    last = [row.rival.total / row.measured.total - 1 for row in FIGURE.scalings[-3:]]

    assert np.mean(np.abs(last)) == pytest.approx(FIGURE.rival_mean_error, abs=0.001)


def test_the_first_bar_teaches_its_computation_and_its_total(report: ScalingsReport) -> None:
    measured = FIGURE.scalings[0].measured

    assert report.teacher.predicted.total == pytest.approx(measured.total, rel=2e-3)
    assert report.teacher.predicted.compute == pytest.approx(measured.compute, rel=2e-3)
    assert 0.5 < report.kernels < 2
    assert 0.5 < report.network < 4


def test_other_data_parallel_degrees_and_four_stages_are_near(report: ScalingsReport) -> None:
    errors = {row.scaling.name: abs(row.error) for row in report.rows}
    near = ("2x2x16", "2x2x32", "2x4x4", "2x4x8")

    assert max(errors[name] for name in near) < 0.06
    assert np.mean([errors[name] for name in near]) < FIGURE.rival_mean_error


def test_the_mean_error_is_what_the_docs_say(report: ScalingsReport) -> None:
    assert len(report.rows) == 8
    assert report.mean_error == pytest.approx(0.169, abs=0.003)
    assert report.swapped_mean_error == pytest.approx(0.171, abs=0.003)
    assert report.rival_mean_error == pytest.approx(0.041, abs=0.001)


def test_slow_transfers_between_stages_would_explain_what_is_missing() -> None:
    slow = scalings_report(FIGURE, sends=20.0)

    assert slow.swapped_mean_error == pytest.approx(0.072, abs=0.003)


def test_a_report_is_a_table_of_bars_and_json(report: ScalingsReport) -> None:
    frame = report.to_polars()

    assert frame.height == 27
    assert frame["total"].sum() > 0
    assert {"mean_error", "lumos_mean_error", "teacher", "rows", "kernels"} <= set(report.as_json())
