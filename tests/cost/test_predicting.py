"""Durations by the name of a model: what a call of a library adds to its kernels."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.cost.gemm import BLOCKWISE_CONSTANTS, CONSTANTS, GemmShapes
from foretrace.cost.predicting import constants_of, model_ns
from foretrace.machine import load_chip

H100 = load_chip("h100-sxm")
KERNEL = {one.name: one.start for one in CONSTANTS}
CALL = {**KERNEL, "call_ns": 90_000.0, "turned_ns": 60_000.0}


def took_ns(m: int, values: dict[str, float]) -> float:
    shapes = GemmShapes.of(np.array([(1, m, 4096, 4096)], np.int64), "fp8")
    return float(model_ns("gemm", shapes, H100, values=values)[0])


def test_kernels_of_a_call_run_beside_the_host_that_makes_it() -> None:
    assert took_ns(4, CALL) == pytest.approx(90_000, rel=0.01)
    assert took_ns(65_536, CALL) == pytest.approx(took_ns(65_536, KERNEL), rel=0.01)


def test_scales_are_turned_where_four_does_not_divide_the_rows() -> None:
    assert took_ns(5, CALL) == pytest.approx(150_000, rel=0.01)


def test_a_kind_that_is_called_has_constants_of_the_call_besides() -> None:
    names = [one.name for one in constants_of("gemm", "blockwise call deepgemm")]

    assert names == [*(one.name for one in BLOCKWISE_CONSTANTS), "call_ns", "turned_ns"]
