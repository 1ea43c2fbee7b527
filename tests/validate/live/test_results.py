"""What a live test adds up to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.validate import LiveComponent, LiveReport, LiveRow

ROW = LiveRow(
    name="layers-8",
    changes="layers 4 -> 8",
    num_ranks=2,
    measured_ns=200,
    measured_low_ns=190,
    measured_high_ns=230,
    num_runs=5,
    predicted_ns=210,
    low_ns=195,
    high_ns=225,
    naive_ns=160,
    components={"idle": LiveComponent(10, 12)},
)


def report(*rows: LiveRow) -> LiveReport:
    return LiveReport(
        device="CPU",
        num_cores=2,
        base=replace(ROW, name="base", predicted_ns=1),
        rows=rows,
        profiler_ns=5,
        event_ns=1,
    )


def test_errors_are_shares_of_what_was_measured() -> None:
    assert ROW.error == pytest.approx(0.05)
    assert ROW.naive_error == pytest.approx(-0.2)
    assert ROW.is_inside


def test_the_mean_is_of_sizes_and_leaves_out_the_base() -> None:
    found = report(ROW, replace(ROW, predicted_ns=170, low_ns=150, high_ns=180))

    assert found.mean_abs_error == pytest.approx((0.05 + 0.15) / 2)
    assert found.naive_mean_abs_error == pytest.approx(0.2)
    assert found.num_inside == 1


def test_a_refused_row_leaves_no_mean_rather_than_a_better_one() -> None:
    refused = replace(ROW, predicted_ns=None, low_ns=None, high_ns=None, why="no schedule")

    assert report(ROW, refused).mean_abs_error is None
    assert report(ROW, refused).naive_mean_abs_error == pytest.approx(0.2)
    assert refused.error is None
    assert refused.is_inside is None


def test_a_row_that_cannot_run_here_counts_in_no_mean() -> None:
    missing = replace(ROW, measured_ns=None, measured_low_ns=None, measured_high_ns=None)

    assert report(ROW, missing).mean_abs_error == pytest.approx(0.05)


def test_rows_have_the_columns_that_the_list_promises() -> None:
    row = report(ROW).as_json()["rows"][0]

    promised = {"name", "measured_ns", "predicted_ns", "low_ns", "high_ns", "naive_ns"}
    assert promised | {"components"} <= set(row)
    assert row["components"] == {"idle": {"predicted_ns": 10, "measured_ns": 12}}
    frame = report(ROW, replace(ROW, name="none", components={})).to_polars()
    assert frame["idle_measured_ns"].to_list() == [12, None]
