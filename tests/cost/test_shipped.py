"""The shipped constants on public measurements and traces: the targets, and the intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretrace.api import load
from foretrace.cost import FittedKernels, LeftOut, Source, shipped_constants
from foretrace.cost.calibration import NEAREST
from foretrace.machine import load_chip
from foretrace.validate import (
    CostErrors,
    call_times,
    cost_errors,
    left_out_errors,
)

OTHER_SHAPES = "same chip, other shapes"


def left_out(family: str, gpu: str, dtype: str, region: str, basis: str = OTHER_SHAPES) -> LeftOut:
    rows = (
        row
        for row in left_out_errors().rows
        if (row.family, row.gpu, row.dtype, row.errors.region) == (family, gpu, dtype, region)
        and row.fitted_on.startswith(basis)
    )
    # Kinds that fewer architectures were measured with are rows of their own.
    return max(rows, key=lambda row: row.errors.n)


@pytest.mark.parametrize(
    ("gpu", "most"), [("a100", 0.07), ("h100", 0.05), ("h200", 0.065), ("b200", 0.065)]
)
def test_products_left_out_by_their_weights_meet_their_target(gpu: str, most: float) -> None:
    long = left_out("gemm", f"{gpu}_sxm", "bf16", "from_20us").errors
    short = left_out("gemm", f"{gpu}_sxm", "bf16", "below_20us").errors

    assert long.mean_abs_error <= most
    assert short.median_abs_error <= 0.15
    assert long.mean_abs_error < long.linear_mean_abs_error < long.roofline_mean_abs_error


@pytest.mark.parametrize(
    ("family", "gpu", "most"),
    [("gemm", "h100_sxm", 0.15), ("gemm", "a100_sxm", 0.12)]
    + [("gemm", "b200_sxm", 0.12), ("attention", "a100_sxm", 0.19)]
    + [("attention", gpu, 0.12) for gpu in ("h100_sxm", "h200_sxm", "b200_sxm")]
    + [("attention latent", gpu, 0.14) for gpu in ("h100_sxm", "h200_sxm", "b200_sxm")]
    + [("experts grouped", "b200_sxm", 0.20)],
)
def test_a_chip_that_was_left_out_is_predicted_from_another_architecture(
    family: str, gpu: str, most: float
) -> None:
    row = left_out(family, gpu, "bf16", "from_20us", "other architectures")

    assert row.errors.mean_abs_error <= most


@pytest.mark.parametrize(
    ("family", "gpu", "most"),
    [("decode attention flash", "h200_sxm", 0.115), ("decode attention wide", "h200_sxm", 0.11)]
    + [("decode attention latent", gpu, 0.075) for gpu in ("h100_sxm", "h200_sxm")]
    + [("decode attention operator", gpu, 0.135) for gpu in ("h100_sxm", "h200_sxm")],
)
def test_a_chip_that_was_left_out_is_predicted_from_its_nearest(
    family: str, gpu: str, most: float
) -> None:
    row = left_out(family, gpu, "bf16", "from_20us", NEAREST)

    assert row.errors.mean_abs_error <= most


@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [("a100_sxm", "bf16"), ("a100_sxm", "fp16"), ("h100_sxm", "bf16"), ("h200_sxm", "bf16")],
)
def test_attention_left_out_by_its_heads_meets_its_target(gpu: str, dtype: str) -> None:
    errors = left_out("attention", gpu, dtype, "from_20us").errors

    assert errors.mean_abs_error <= 0.08


@pytest.mark.parametrize(
    ("family", "gpu", "dtype", "most"),
    [
        ("decode attention operator", "a100_sxm", "bf16", 0.09),
        ("decode attention operator", "h100_sxm", "bf16", 0.105),
        ("decode attention operator", "b200_sxm", "bf16", 0.075),
        ("decode attention flash", "h100_sxm", "bf16", 0.115),
        ("decode attention latent", "h100_sxm", "bf16", 0.05),
        ("decode attention latent", "b200_sxm", "fp8", 0.085),
        ("attention latent", "h100_sxm", "bf16", 0.09),
        ("attention encoder even", "b200_sxm", "bf16", 0.07),
        ("attention encoder even", "h100_sxm", "bf16", 0.15),
        ("experts grouped", "a100_sxm", "bf16", 0.10),
        ("experts grouped", "h100_sxm", "bf16", 0.12),
        ("experts grouped blockwise", "h100_sxm", "fp8", 0.055),
        ("expert exchange dispatch", "h100_sxm", "fp8", 0.085),
        ("expert exchange combine", "b200_sxm", "bf16", 0.08),
    ],
)
def test_kernels_that_serve_are_as_far_off_as_the_pages_say(
    family: str, gpu: str, dtype: str, most: float
) -> None:
    errors = left_out(family, gpu, dtype, "from_20us").errors

    assert errors.mean_abs_error <= most
    assert errors.mean_abs_error < errors.linear_mean_abs_error < errors.roofline_mean_abs_error


@pytest.fixture(scope="module")
def on_tables(data_dir: Path) -> CostErrors:
    return cost_errors(data_dir / "measured")


def test_rows_of_a_folder_are_one_per_family_gpu_format_and_region(on_tables: CostErrors) -> None:
    kernels = [row for row in on_tables.rows if row.family.startswith(("gemm", "attention"))]
    keys = [(row.family, row.gpu, row.dtype, row.errors.region) for row in kernels]

    assert len(keys) == len(set(keys))
    assert {"gemm", "attention", "attention backward", "gemm backward"} <= {one[0] for one in keys}
    frame = on_tables.to_polars()
    names = ("family", "gpu", "dtype", "region", "n")
    assert {*names, "mean_abs_error", "median_abs_error", "p90_abs_error"} <= set(frame.columns)
    assert frame.to_dicts() == on_tables.as_json()["rows"]


def test_intervals_hold_what_they_promise(on_tables: CostErrors) -> None:
    fitted = {
        (row.family, row.gpu, row.dtype): on_tables.inside[row.family, row.gpu, row.dtype]
        for row in on_tables.rows
        if row.gpu in {"a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"} and row.errors.n >= 200
    }

    assert len(fitted) > 10
    for label, inside in fitted.items():
        assert 0.7 <= inside <= 0.9, label


def family_times(path: Path, chip: str) -> dict[str, tuple[int, ...]]:
    """By class: measured and predicted ns of what is known, and ns of what is not."""
    times = call_times(load(path, cache=False).measured)
    costs = FittedKernels(load_chip(chip)).kernel_costs(times.requests())
    is_known = costs.source != Source.UNKNOWN
    predicted_ns = costs.duration_ns * times.num_calls
    kinds = np.array(times.kinds)
    columns = ((times.total_ns, is_known), (predicted_ns, is_known), (times.total_ns, ~is_known))
    return {
        kind: tuple(int(ns[(kinds == kind) & chosen].sum()) for ns, chosen in columns)
        for kind in sorted(set(times.kinds))
    }


def test_kernels_of_megatron_are_predicted_from_their_shapes(data_dir: Path) -> None:
    found = family_times(data_dir / "traces" / "megatron-tp8", "a100-sxm-80gb")

    measured, predicted, unknown = (sum(column) for column in zip(*found.values(), strict=True))
    assert abs(predicted / measured - 1) <= 0.10
    assert unknown / (measured + unknown) < 0.1  # one fused kernel that names no operator
    assert abs(found["gemm"][1] / found["gemm"][0] - 1) < 0.03


def test_kernels_of_inference_on_an_h100_are_predicted_from_their_shapes(data_dir: Path) -> None:
    found = [
        family_times(path, "h100-sxm")
        for path in sorted((data_dir / "traces" / "h100-inference").glob("*.json.gz"))
    ]

    rows = [row for rows in found for row in rows.values()]
    assert len(found) == 3
    assert abs(sum(row[1] for row in rows) / sum(row[0] for row in rows) - 1) <= 0.10


def test_predictions_do_not_stand_on_rows_of_the_test() -> None:
    rows = sum(fit.num_rows for one in shipped_constants() for fit in one.fits)
    numbers = sum(len(fit.values) for one in shipped_constants() for fit in one.fits)

    assert rows / numbers > 50
    assert all(
        np.isfinite(list(fit.values.values())).all()
        for one in shipped_constants()
        for fit in one.fits
    )
