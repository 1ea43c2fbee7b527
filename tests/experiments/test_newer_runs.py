"""Newer runs that taught nothing: how near predictions come, and what the first ones were."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from foretrace.validate import read_description, read_runs
from foretrace.validate.runs.predict import predict_runs
from tests.validate.runs.sample import EXPERIMENTS

_TABLE = EXPERIMENTS / "newer-runs.csv"


def test_experts_under_fsdp_are_near_once_their_software_is_described() -> None:
    runs = read_runs(_TABLE, read_description(EXPERIMENTS / "newer-runs.toml"))
    chosen = [run for run in runs if run.has_experts and "automodel" in run.family]

    errors = [abs(one.error) for one in predict_runs(chosen) if one.error is not None]

    assert len(errors) == 11
    assert np.mean(errors) < 0.11
    assert max(errors) < 0.2


def test_first_predictions_are_off_as_the_page_says() -> None:
    errors: dict[str, list[float]] = {}
    with _TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["first_predicted_s"]:
                continue
            tokens = int(row["global_batch"]) * int(row["seq_len"]) / int(row["num_gpus"])
            measured_s = float(row["step_time_s"] or 0) or tokens / float(
                row["tokens_per_s_per_gpu"]
            )
            source = row["group"].split("|")[0] + ("|experts" if row["experts"] else "")
            errors.setdefault(source, []).append(float(row["first_predicted_s"]) / measured_s - 1)

    found = {name: float(np.mean(np.abs(each))) for name, each in errors.items()}
    assert found == pytest.approx(
        {
            "kempnerforge": 0.126,
            "fms-fsdp": 0.086,
            "internevo": 0.157,
            "automodel": 0.111,
            "automodel|experts": 0.413,
            "gpu-recipes": 0.646,
        },
        abs=0.001,
    )
