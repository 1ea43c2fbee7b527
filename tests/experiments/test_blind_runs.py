"""Runs of sources that nobody here had read: how near the first predictions were."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.validate import read_description, read_runs
from foretrace.validate.runs.predict import predict_runs
from tests.experiments.first_predictions import first_errors
from tests.validate.runs.sample import EXPERIMENTS

_TABLE = EXPERIMENTS / "blind-runs.csv"


def _kind(row: dict[str, str]) -> str:
    chips = "AMD" if row["gpu"].startswith("MI") else row["gpu"][:1]
    if row["experts"]:
        return "experts, AMD" if chips == "AMD" else "experts"
    return "Blackwell" if chips == "B" else chips if chips == "AMD" else "dense"


def test_first_predictions_are_off_as_the_page_says() -> None:
    by_source = first_errors(_TABLE, _kind)

    assert by_source == {
        "dense": pytest.approx((0.150, 0.82), abs=0.005),
        "Blackwell": pytest.approx((0.188, 0.93), abs=0.005),
        "AMD": pytest.approx((0.193, 0.50), abs=0.005),
        "experts": pytest.approx((0.471, 0.35), abs=0.005),
        "experts, AMD": pytest.approx((0.274, 0.50), abs=0.005),
    }


def test_a_name_that_says_compiled_is_read_as_compiled() -> None:
    runs = read_runs(_TABLE, read_description(EXPERIMENTS / "blind-runs.toml"))
    chosen = [run for run in runs if run.family == "olmo-core"]

    errors = [one.error for one in predict_runs(chosen) if one.error is not None]

    assert len(errors) == 8
    assert np.mean(np.abs(errors)) < 0.05
