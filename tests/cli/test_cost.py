from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from foretrace.cost import (
    FittedKernels,
    GemmShapes,
    gemm_ns,
    read_constants,
    shipped_constants,
    write_constants,
)
from foretrace.machine import load_chip
from tests.cli.conftest import Run
from tests.conftest import KeepsSchema


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Products on an L4, 30% slower than the shipped constants say."""
    draw = np.random.default_rng(1)
    sizes = np.exp(draw.uniform(np.log(64), np.log(8192), (120, 3))).astype(np.int64)
    shapes = GemmShapes.of(np.insert(sizes, 0, 1, axis=1), "fp16")
    chip = load_chip("l4")
    values = FittedKernels(chip).constants[0].fits[0].values
    folder = tmp_path / "measured"
    folder.mkdir()
    pl.DataFrame(
        {
            "gpu": ["NVIDIA L4"] * 120,
            **dict(zip("mnk", sizes.T, strict=True)),
            "dtype": ["fp16"] * 120,
            "time_ns": gemm_ns(shapes, chip, values) * 1.3,
        }
    ).write_parquet(folder / "gemm-mine.parquet")
    return folder


def test_own_constants_and_products_change_an_estimate_and_are_said(
    run: Run, table: Path, tmp_path: Path
) -> None:
    own, empty = tmp_path / "own", tmp_path / "empty"
    own.mkdir()
    empty.mkdir()
    (shipped,) = (one for one in shipped_constants() if one.chip == "l4")
    (fit,) = shipped.fits
    slower = replace(fit, width="16bit", values={**fit.values, "launch_ns": 1e7})
    write_constants(replace(shipped, fits=(slower,)), own / "kernels-l4.toml")
    work = ("--model", "llama3-8b", "--tp", "2", "--pp", "3", "--global-batch", "3")
    asked = ("estimate", *work, "--machine", "six-l4", "--gpus", "6", "--json")

    usual, fitted = run(*asked), run(*asked, "--costs", own)
    measured = run(*asked, "--costs", table)
    refused = run(*asked, "--costs", empty)

    assert (usual.code, fitted.code, measured.code, refused.code) == (0, 0, 0, 2), fitted.err
    assert json.loads(fitted.out)["step_ns"] > 1.1 * json.loads(usual.out)["step_ns"]
    assert json.loads(measured.out)["step_ns"] == json.loads(usual.out)["step_ns"]  # other shapes
    assert "kernels-*.toml" in refused.err


def test_errors_left_out_are_printed_in_80_columns(run: Run) -> None:
    outcome = run("validate", "cost")

    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= 80
    for text in ("gemm bf16", "backward fp16", "h200_sxm", "roof", "line"):
        assert text in outcome.out


def test_shipped_constants_are_tested_on_a_folder(run: Run, table: Path) -> None:
    outcome = run("validate", "cost", "--data", table, "--json")

    rows = json.loads(outcome.out)["rows"]
    assert outcome.code == 0
    assert {row["gpu"] for row in rows} == {"NVIDIA L4"}
    assert sum(row["n"] for row in rows) == 120
    assert all(row["fitted_on"].startswith("transferred") for row in rows)


def test_a_folder_without_tables_is_one_sentence(run: Run, tmp_path: Path) -> None:
    outcome = run("validate", "cost", "--data", tmp_path)

    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert "holds no gemm-*.parquet" in outcome.err


def test_calibrating_on_a_table_writes_constants_that_explain_it(
    run: Run, table: Path, tmp_path: Path, keeps_schema: KeepsSchema
) -> None:
    out = tmp_path / "mine"

    plot = tmp_path / "plot.svg"

    outcome = run("calibrate", "--table", table, "--out", out, "--plot", plot, "--json")

    keeps_schema("calibrate", json.loads(outcome.out))
    rows = json.loads(outcome.out)["rows"]
    found = read_constants(out / "kernels-l4.toml")
    assert outcome.code == 0
    assert [fit.width for fit in found.fits] == ["16bit"]
    places = re.findall(r'<circle cx="([^"]+)"', plot.read_text(encoding="utf-8"))
    assert len(places) == 120
    assert all(0 <= float(place) <= 200 for place in places)
    own = [row for row in rows if row["fitted_on"].startswith("same chip")]
    assert own
    assert all(row["median_abs_error"] < 0.1 for row in own)


def test_calibrating_on_nothing_is_one_sentence(run: Run) -> None:
    outcome = run("calibrate")

    assert outcome.code == 1
    assert outcome.err == (
        "error: there is nothing to learn from: name recordings, or a table with --table\n"
    )


def test_a_recording_without_shapes_teaches_nothing(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome = run("calibrate", traces, "--out", tmp_path / "mine")

    assert outcome.code == 1
    assert "record with shapes" in outcome.err
    assert not (tmp_path / "mine").exists()
