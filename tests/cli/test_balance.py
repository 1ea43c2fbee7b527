"""`foretrace balance` answers from a dataset's index, in text and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run

SMALL = ("--window", "4096", "--steps", "16", "--tp", "4", "--pp", "2")


def test_packers_are_told_side_by_side(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "lengths.npy"
    np.save(path, np.random.default_rng(0).integers(1, 4096, 20_000))

    found = run("balance", "--documents", str(path), *SMALL, "--json")

    assert found.code == 0, found.err
    answer = json.loads(found.out)
    keys = {"name", "imbalance", "overhead_ms", "delay_iterations"}
    assert all(keys <= set(packer) for packer in answer["packers"])
    assert answer["packers"][0]["name"] == "as it comes"


def test_a_page_is_written(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "packing.html"

    found = run("balance", "--documents", "lognormal:6,1", *SMALL, "--report", str(page))

    assert found.code == 0, found.err
    assert "2 outlier" in found.out
    assert "outlier queues" in page.read_text()
    assert "tokens of the window; times as fast" in page.read_text()


def test_what_is_no_dataset_is_one_sentence(run: Run) -> None:
    found = run("balance", "--documents", "nowhere.idx", "--window", "4096")

    assert found.code == 1
    assert found.err.startswith("error: cannot read nowhere.idx")


def test_an_estimate_carries_the_load_of_experts(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(",".join(["30", *["10"] * 7]))
    plan = ("--dp", "4", "--ep", "4", "--global-batch", "8", "--sequence", "2048", "--json")
    line = ("estimate", "--model", "mixtral-8x7b", "--machine", "dgx-h100", *plan)

    found = run(*line, "--expert-load", str(path), "--expert-replicas", "4")

    assert found.code == 0, found.err
    answer, even = json.loads(found.out), json.loads(run(*line).out)
    copied, order, balanced = answer["expert_load"]
    assert order["imbalance"] == pytest.approx(1.6)  # 40 of 100 on one of 4 ranks
    assert balanced["imbalance"] == pytest.approx(1.6)
    assert copied["imbalance"] == pytest.approx(1.0)
    assert answer["step_ns"] == even["step_ns"] < order["mean_ns"]
    assert copied["placement"] == "balanced, 4 replicas"


def test_an_estimate_tells_steps_of_documents_too(run: Run) -> None:
    plan = ("--tp", "4", "--global-batch", "8", "--sequence", "4096", "--gpus", "8")
    line = ("estimate", "--model", "llama3-8b", "--machine", "dgx-h100", *plan, "--json")

    found = run(*line, "--documents", "lognormal:6,1.5")

    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert answer["documents"]["even_ns"] == answer["step_ns"]
    assert answer["documents"]["mean_ns"] < answer["step_ns"]  # less attention than of one each
    assert "documents" not in json.loads(run(*line).out)
