from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.validate import RunsReport, RunStatus, calibrated, run_points
from foretrace.validate.runs.calibration import factors_of, fitted_spread, scaled, widened
from foretrace.validate.runs.results import group_error
from tests.validate.runs.sample import predicted


def test_one_constant_removes_what_all_runs_have_in_common() -> None:
    rows = [predicted(f"run-{at}", 1.25 * at, float(at)) for at in range(1, 11)]

    found = calibrated(rows)

    assert len(found) == 8  # two of ten teach
    assert [one.error for one in found] == pytest.approx([0.0] * 8)
    assert found[0].roofline_error == pytest.approx(0.0)


def test_at_most_a_fifth_teaches() -> None:
    for count in range(5, 23):
        rows = [predicted(f"run-{at:02}", 1.0, 1.0) for at in range(count)]

        assert count - len(calibrated(rows)) <= count / 5


def test_kinds_of_few_runs_join_their_like() -> None:
    old = [predicted(f"old-{at}", 2.0, 1.0, software="old") for at in range(3)]
    new = [predicted(f"new-{at}", 2.0, 1.0, software="new") for at in range(3)]

    found = calibrated([*old, *new])

    assert len(found) == 5
    assert all(one.error == pytest.approx(0.0) for one in found)


def test_too_few_runs_are_not_calibrated() -> None:
    assert calibrated([predicted(f"run-{at}", 2.0, 1.0) for at in range(4)]) == ()


def test_intervals_scale_with_the_prediction() -> None:
    row = predicted("run", 2.0, 1.0)

    found = scaled(row, factors_of([row]))

    assert found.predicted_s == pytest.approx(2.0)
    assert (found.low_s, found.high_s) == pytest.approx((2 / 1.1, 2.2))


def test_the_fitted_spread_holds_four_of_five() -> None:
    rows = [predicted(f"run-{at}", 1.0 + 0.05 * at, 1.0) for at in range(10)]

    spread = fitted_spread(rows)

    wide = [replace(one, low_s=0.0001, high_s=1.0001) for one in rows]
    assert 0.0 < spread < 0.4
    assert fitted_spread(wide) > spread


def test_what_is_unmodelled_widens_both_ways() -> None:
    row = predicted("run", 1.0, 1.0)

    found = widened(row, 0.1)

    assert found.low_s is not None
    assert found.high_s is not None
    assert found.low_s < 1 / 1.1
    assert found.high_s > 1.1
    assert widened(predicted("run", 1.0, None), 0.1).low_s is None


def test_groups_count_what_was_refused() -> None:
    rows = (predicted("a", 1.0, 1.1), predicted("b", 1.0, 0.8), predicted("c", 1.0, None))

    error = group_error("all", rows)

    assert (error.num_runs, error.num_predicted, error.num_refused) == (3, 2, 1)
    assert error.mean_abs_error == pytest.approx(0.15)
    assert error.mean_error == pytest.approx(-0.05)
    assert error.worst_error == pytest.approx(-0.2)
    assert error.inside == pytest.approx(0.5)


def test_a_report_tells_groups_points_and_shares() -> None:
    rows = tuple(predicted(f"run-{at}", 2.0, 1.0, source="site") for at in range(5))
    refused = predicted("none", 1.0, None, source="site")

    report = RunsReport((*rows, refused), calibrated(rows))

    assert [one.name for one in report.groups] == ["site", "all"]
    assert report.calibrated_groups[0].mean_abs_error == pytest.approx(0.0)
    assert report.share_answered == pytest.approx(5 / 6)
    assert len(run_points(report)[0].measured_ns) == 5
    assert report.to_polars().height == 6
    assert report.as_json()["rows"][5]["status"] == RunStatus.REFUSED.value


def test_a_report_tells_sources_under_a_name_that_means_nothing() -> None:
    rows = tuple(predicted(name, 2.0, 1.0, source=name) for name in ("one", "other"))
    unknown = tuple(replace(one, predicted_s=1.5) for one in rows[:1])

    text = str(RunsReport(rows, by_nothing=unknown))

    _, _, told = text.partition("by source, pooled, under a name of software that means nothing")
    assert "25.0 %" in told.splitlines()[2]
    assert told.splitlines()[2].startswith("one ")
