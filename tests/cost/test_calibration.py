from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from foretrace.base import ModelError
from foretrace.cost import (
    ELSEWHERE,
    Access,
    Measured,
    Movements,
    calibrated,
    joined,
    read_tables,
)
from foretrace.cost.baselines import RowWork
from foretrace.cost.calibration import NEAREST
from foretrace.cost.errors import Predictions
from foretrace.cost.gemm import GemmShapes
from foretrace.cost.memory_bound import CONSTANTS, movement_ns
from foretrace.cost.predicting import constants_of, model_ns
from foretrace.machine import load_chip

TRUTH = {one.name: one.start for one in CONSTANTS} | {"stream_rate": 0.7, "launch_ns": 4000}


def movements(chip: str, noise: float, count: int = 80) -> Measured:
    draw = np.random.default_rng(3)
    num_bytes = np.exp(draw.uniform(np.log(1e4), np.log(1e9), count))
    shapes = Movements(num_bytes, np.full(count, Access.STREAM, np.int8))
    described = load_chip(chip)
    times = movement_ns(shapes, described, TRUTH) * np.exp(draw.normal(0, noise, count))
    return Measured(
        model="movement",
        kind="",
        family="movement",
        gpu=chip,
        chip=described,
        shapes=shapes,
        work=RowWork(np.zeros(count), num_bytes, "fp32"),
        measured_ns=times,
        group=np.arange(count),
        source="made up",
        dtype="any",
    )


def test_constants_and_noise_of_made_up_measurements_are_found() -> None:
    own, everywhere = calibrated([movements("h100-sxm", 0.05)], "2026-01-31")

    (fit,) = own.fits
    assert fit.values["stream_rate"] == pytest.approx(0.7, rel=0.05)
    assert fit.values["launch_ns"] == pytest.approx(4000, rel=0.05)
    spread = fit.spread_by_region["from_20us"]
    assert spread.low == pytest.approx(np.exp(-1.28 * 0.05), abs=0.03)
    assert spread.high == pytest.approx(np.exp(1.28 * 0.05), abs=0.03)
    assert everywhere.chip == ELSEWHERE


def test_another_architecture_is_left_out_whole() -> None:
    tables = [movements(chip, 0.02, 300) for chip in ("h100-sxm", "a100-sxm-80gb")]

    *_, everywhere = calibrated(tables, "2026-01-31")

    rows = {(row.gpu, row.fitted_on): row.errors for row in everywhere.left_out}
    assert {gpu for gpu, _ in rows} == {"h100-sxm", "a100-sxm-80gb"}
    assert ("h100-sxm", "other architectures: Ampere") in rows
    assert all(errors.mean_abs_error < 0.05 for errors in rows.values())


def test_a_chip_left_out_is_predicted_as_one_that_was_never_measured() -> None:
    slower = movements("a100-sxm-80gb", 0.02, 300)
    slower = replace(slower, measured_ns=1.5 * slower.measured_ns)
    tables = [movements(chip, 0.02, 300) for chip in ("h100-sxm", "h200-sxm")]

    *_, everywhere = calibrated([*tables, slower], "2026-01-31")

    nearest = [row for row in everywhere.left_out if row.fitted_on == NEAREST]
    long = {row.gpu: row.errors for row in nearest if row.errors.region == "from_20us"}
    assert long["h100-sxm"].mean_abs_error < 0.05  # by the H200, of its own architecture
    assert long["h200-sxm"].mean_abs_error < 0.05
    assert long["a100-sxm-80gb"].mean_error == pytest.approx(-1 / 3, abs=0.05)


def test_joining_keeps_the_first_s_and_adds_the_second_s() -> None:
    first = calibrated([movements("h100-sxm", 0.01)], "2026-01-31")
    second = calibrated([movements("h100-sxm", 0.2), movements("t4", 0.2)], "2026-02-28")

    found = {one.chip: one for one in joined(first, second)}

    assert found["h100-sxm"].fits == first[0].fits
    assert "t4" in found
    assert found["t4"].made == "2026-02-28"


def test_errors_are_told_by_the_measured_time_and_the_spread_by_the_predicted() -> None:
    predicted = np.array([10e3, 30e3, 30e3])
    measured = np.array([10e3, 15e3, 60e3])

    short, long = Predictions(predicted, measured, predicted, measured).errors()

    assert (short.n, long.n) == (2, 1)
    assert short.mean_abs_error == pytest.approx(0.5)
    assert short.low == short.high == 1
    assert long.low == pytest.approx(0.65)
    assert long.high == pytest.approx(1.85)
    assert short.linear_mean_abs_error == 0


def write(folder: Path, **columns: object) -> None:
    row = {"gpu": "NVIDIA L4", "m": 8, "n": 8, "k": 8, "dtype": "fp16", "time_ns": 9.0} | columns
    pl.DataFrame([row]).write_parquet(folder / "gemm-mine.parquet")


def test_the_least_columns_make_a_table(tmp_path: Path) -> None:
    write(tmp_path)

    (found,) = read_tables(tmp_path)

    assert (found.chip.name, found.dtype, found.measured_ns.tolist()) == ("l4", "fp16", [9.0])


def test_the_longest_beginning_of_a_name_says_what_a_table_holds(tmp_path: Path) -> None:
    write(tmp_path)
    decode = tmp_path / "attention-decode-mine.parquet"
    pl.DataFrame({"gpu": ["NVIDIA L4"], "kv_len": [8], "time_ns": [9.0]}).write_parquet(decode)

    with pytest.raises(ModelError, match="lacks the columns kv_dtype, batch, heads"):
        read_tables(tmp_path)


def test_products_of_operands_that_are_quantised_test_those_that_quantise(tmp_path: Path) -> None:
    row = {"gpu": "NVIDIA H200", "m": 4096, "n": 4096, "k": 4096, "dtype": "fp8", "time_ns": 1e5}
    rows = [{**row, "scaled": "row"}, {**row, "scaled": "tensor"}]
    pl.DataFrame(rows).write_parquet(tmp_path / "scaled-gemm-mine.parquet")

    found = read_tables(tmp_path)

    assert [one.family.rpartition(" ")[2] for one in found] == ["row", "tensor"]
    assert [one.kind for one in found] == ["library", "library"]
    assert [one for one in calibrated(found, "2026-01-31") if one.fits] == []
    assert isinstance(found[0].shapes, GemmShapes)
    values = {one.name: one.start for one in constants_of("gemm", "library")}
    alone, with_it = (
        model_ns(model, found[0].shapes, found[0].chip, values=values)[0]
        for model in (found[0].model, "gemm")
    )
    assert with_it - alone == pytest.approx(3 * 4096 * 4096 / (4800 * values["memory_rate"]))


def test_a_table_that_cannot_be_read_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no gemm-\*\.parquet"):
        read_tables(tmp_path)
    write(tmp_path, gpu="Abacus 9000")
    with pytest.raises(ModelError, match=r"Abacus 9000.*machine list"):
        read_tables(tmp_path)
    assert read_tables(tmp_path, known_only=True) == ()
    pl.DataFrame({"gpu": ["NVIDIA L4"], "m": [1]}).write_parquet(tmp_path / "gemm-mine.parquet")
    with pytest.raises(ModelError, match="lacks the columns dtype, n, k, time_ns"):
        read_tables(tmp_path)


def test_too_few_rows_make_no_constants() -> None:
    few = movements("h100-sxm", 0.01, 20)

    (everywhere,) = calibrated([replace(few, group=few.group % 5)], "2026-01-31")

    assert everywhere.fits == ()


def test_few_rows_stay_near_what_is_known() -> None:
    few = movements("h100-sxm", 0.05, 24)  # streams only: they say nothing of other accesses
    known = calibrated([movements("a100-sxm-80gb", 0.01, 300)], "2026-01-31")
    told = replace(known[0].fits[0], values={**TRUTH, "gather_rate": 0.111})
    near = (replace(known[0], fits=(told,)),)

    alone, *_ = calibrated([few], "2026-01-31")
    guided, *_ = calibrated([few], "2026-01-31", near=near)

    assert guided.fits[0].values["gather_rate"] == pytest.approx(0.111, rel=1e-3)
    assert alone.fits[0].values["gather_rate"] == pytest.approx(0.3, rel=1e-3)
    assert guided.fits[0].values["stream_rate"] == pytest.approx(0.7, rel=0.1)
