"""Runs that were predicted before they were compared: how near the first predictions were."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.validate import read_description, read_runs
from foretrace.validate.runs.predict import predict_runs
from tests.experiments.first_predictions import first_errors
from tests.validate.runs.sample import EXPERIMENTS

_TABLE = EXPERIMENTS / "unseen-runs.csv"


def _kind(row: dict[str, str]) -> str:
    if row["experts"]:
        return "experts"
    return "AMD" if row["gpu"].startswith("MI") else "dense"


def test_first_predictions_are_off_as_the_page_says() -> None:
    by_source = first_errors(_TABLE, _kind)

    assert by_source["dense"] == pytest.approx((0.095, 0.82), abs=0.005)
    assert by_source["AMD"] == pytest.approx((0.476, 0.0), abs=0.005)
    assert by_source["experts"] == pytest.approx((0.233, 0.56), abs=0.005)


def test_software_of_no_known_name_is_near_with_what_other_such_software_taught() -> None:
    runs = read_runs(_TABLE, read_description(EXPERIMENTS / "unseen-runs.toml"))
    chosen = [run for run in runs if run.family == "flagperf-paddle"]

    errors = [one.error for one in predict_runs(chosen) if one.error is not None]

    assert len(errors) == 16
    assert np.mean(np.abs(errors)) < 0.05
    assert abs(np.mean(errors)) < 0.03


def test_torchtitan_on_amd_is_as_far_off_as_the_page_says() -> None:
    runs = read_runs(_TABLE, read_description(EXPERIMENTS / "unseen-runs.toml"))
    chosen = [run for run in runs if run.family == "torchao-mi300x"]

    errors = [one.error for one in predict_runs(chosen) if one.error is not None]

    assert len(errors) == 3
    assert np.mean(errors) == pytest.approx(-0.19, abs=0.02)
