from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import MachineError
from foretrace.cost import GemmShapes, gemm_ns
from foretrace.cost.gemm import BLOCKWISE_CONSTANTS, CONSTANTS, without_quantising
from foretrace.machine import load_chip

CHIP = load_chip("a100-sxm-80gb")
STARTS = {one.name: one.start for one in CONSTANTS}
SIZES = st.integers(1, 16_384)


def duration_ns(batch: int, m: int, n: int, k: int, dtype: str = "bf16") -> float:
    shapes = GemmShapes.of(np.array([[batch, m, n, k]]), dtype)
    return float(gemm_ns(shapes, CHIP, STARTS)[0])


@given(st.integers(1, 64), SIZES, SIZES, SIZES, st.sampled_from(["bf16", "tf32", "fp32"]))
def test_no_product_beats_the_data_sheet(batch: int, m: int, n: int, k: int, dtype: str) -> None:
    shapes = GemmShapes.of(np.array([[batch, m, n, k]]), dtype)
    peak = CHIP.peak_flops_per_ns(dtype)
    assert peak is not None

    found_ns = gemm_ns(shapes, CHIP, STARTS)[0]

    assert found_ns >= shapes.num_flops[0] / peak
    assert found_ns >= shapes.num_bytes[0] / CHIP.memory_bytes_per_ns


@given(SIZES, SIZES, SIZES)
def test_a_longer_inner_dimension_never_takes_less(m: int, n: int, k: int) -> None:
    assert duration_ns(1, m, n, 2 * k) >= duration_ns(1, m, n, k)


def test_one_tile_more_than_the_processors_hold_costs_another_wave() -> None:
    whole = {**STARTS, "fluidity": 1e-9}
    tiles = GemmShapes.of(np.array([[1, 128 * 108, 256, 8192], [1, 128 * 109, 256, 8192]]), "bf16")

    one_wave_ns, two_waves_ns = gemm_ns(tiles, CHIP, whole)

    assert two_waves_ns > 1.2 * one_wave_ns


def test_a_reduction_too_long_for_few_tiles_is_split() -> None:
    # One tile of the result: without a split 1 of 108 processors would work.
    alone_ns = 2.0 * 64 * 64 * 65_536 * 108 / 312e3

    assert duration_ns(1, 64, 64, 65_536) < alone_ns / 4


def test_a_chip_that_gives_no_processors_is_refused_with_the_way_out() -> None:
    shapes = GemmShapes.of(np.array([[1, 8, 8, 8]]), "bf16")

    with pytest.raises(MachineError, match=r"num_processors.*add them to its file"):
        gemm_ns(shapes, replace(CHIP, num_processors=None), STARTS)


def test_rows_do_not_depend_on_their_neighbours() -> None:
    sizes = np.array([[1, 4096, 4096, 4096], [32, 2048, 64, 2048], [1, 1, 8192, 1024]])

    together = gemm_ns(GemmShapes.of(sizes, "bf16"), CHIP, STARTS)
    alone = [gemm_ns(GemmShapes.of(sizes[at : at + 1], "bf16"), CHIP, STARTS)[0] for at in range(3)]

    assert together.tolist() == alone


def test_four_bit_operands_are_half_as_many_bytes_as_eight_bit_ones() -> None:
    sizes = np.array([[1, 4096, 4096, 4096]], np.int64)

    moved = [GemmShapes.of(sizes, dtype).num_bytes[0] for dtype in ("fp8", "fp4")]

    results = 2 * 4096 * 4096
    assert (moved[0] - results) / (moved[1] - results) == 2


def test_products_scaled_by_blocks_go_through_their_inner_dimension_step_by_step() -> None:
    values = {one.name: one.start for one in BLOCKWISE_CONSTANTS} | {"step_ns": 400.0}
    chip = load_chip("b200-sxm")
    sizes = np.array([[1, rows, 512, 65_536] for rows in (8, 128, 256)])

    few, more, most = gemm_ns(GemmShapes.of(sizes, "nvfp4"), chip, without_quantising(values))

    steps_ns = 65_536 * 0.5 / 128 * 400.0
    assert more == pytest.approx(few, rel=1e-6)
    assert most == pytest.approx(few, rel=0.01)
    assert few == pytest.approx(steps_ns, rel=0.1)


def test_scales_that_leave_a_tile_open_cost_more_for_each_row() -> None:
    values = {one.name: one.start for one in BLOCKWISE_CONSTANTS}
    values |= {"scales_left": 1.0, "quantise_rate": 1e-9}
    chip = load_chip("b200-sxm")
    shapes = GemmShapes.of(np.array([[1, 4096, 256, 32], [1, 4096, 256, 64]]), "nvfp4")

    with_rows = gemm_ns(shapes, chip, values) - gemm_ns(shapes, chip, without_quantising(values))

    assert with_rows[0] == pytest.approx(2 * with_rows[1], rel=1e-6)
    assert with_rows[1] == pytest.approx(4096 * values["row_ns"], rel=1e-6)
