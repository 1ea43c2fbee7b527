from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance as of_scipy

from foretrace.base import WorkloadError
from foretrace.numerics import (
    OPERATOR_PAIRS,
    Deviations,
    deviate,
    pair_of,
    rounding_bias,
    wasserstein_distance,
)

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

numbers = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def attention() -> Deviations:
    return deviate("attention", formats=("bf16",), lengths=(1024,), tiles=(16, 64, 1024))


def ratios(found: Deviations, statistics: str) -> list[float]:
    return [one.ratio for one in found.rows if one.statistics == statistics]


def test_attention_deviates_more_in_more_tiles(attention: Deviations) -> None:
    in_bf16 = ratios(attention, "bf16")
    trend = next(one for one in attention.trends if one.statistics == "bf16")

    assert in_bf16 == sorted(in_bf16, reverse=True)
    assert in_bf16[0] > 2
    assert in_bf16[-1] == pytest.approx(1, abs=0.1)  # one tile
    assert trend.over == "tiles"
    assert trend.slope > 0.2


def test_attention_with_sums_in_fp32_is_nearer_than_the_baseline(attention: Deviations) -> None:
    assert all(one < 1 for one in ratios(attention, "fp32"))


def test_tiles_with_sums_in_fp32_are_as_far_off_as_kernels() -> None:
    # Means of the same inputs by kernels of PyTorch 2.11 on an H200 (bench/numerics_device.py):
    # flash, cuDNN, efficient.
    measured = {512: (1.22e-4, 1.24e-4, 1.23e-4), 2048: (6.24e-5, 6.41e-5, 6.38e-5)}

    found = deviate("attention", formats=("bf16",), statistics=("fp32",), tiles=(128,),
                    lengths=tuple(measured))  # fmt: skip

    for row in found.rows:
        own = measured[row.length]
        assert 0.97 * min(own) < row.other.mean < 1.03 * max(own)


@pytest.mark.parametrize("name", OPERATOR_PAIRS)
def test_forms_are_one_in_fp64(name: str) -> None:
    found = deviate(
        name, formats=("fp64",), statistics=("same",), lengths=(96,), tiles=(32,), num_seeds=1
    )

    [row] = found.rows
    assert row.baseline.largest == 0
    assert row.other.largest < 1e-13


def test_two_functions_of_ones_own_are_a_pair() -> None:
    def inputs(length: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.rand(length, generator=generator),)

    def halves(values: torch.Tensor) -> torch.Tensor:
        return values.view(2, -1).sum(-1).sum()

    own = pair_of(torch.sum, halves, inputs)

    found = deviate(own, formats=("bf16",), statistics=("same",), lengths=(512,), tiles=(1,))

    assert found.rows[0].baseline.largest > 0
    with pytest.raises(WorkloadError, match="PyTorch has no type for tf32"):
        deviate(own, formats=("tf32",), lengths=(8,), tiles=(1,))


def test_unknown_pairs_and_sizes_are_named() -> None:
    with pytest.raises(WorkloadError, match="no pair of operators is called 'sort': expected one"):
        deviate("sort")
    with pytest.raises(WorkloadError, match=r"lengths \[0\]"):
        deviate("softmax", lengths=(0,))


@settings(max_examples=40)
@given(left=numbers, right=numbers)
def test_the_distance_of_sets_is_scipys(left: list[float], right: list[float]) -> None:
    found = wasserstein_distance(torch.tensor(left), torch.tensor(right))

    assert found == pytest.approx(of_scipy(left, right), rel=1e-9, abs=1e-6)


def test_a_shift_is_as_far_as_it_is() -> None:
    values = torch.randn(1000, dtype=torch.float64)

    assert wasserstein_distance(values, values + 0.25) == pytest.approx(0.25)
    assert wasserstein_distance(values + 0.25, values) == pytest.approx(0.25)


def test_repeated_maxima_bias_rounding_and_a_steadied_maximum_does_not() -> None:
    plain, steadied, kernels = rounding_bias("bf16", num_samples=64).rows

    assert plain.is_biased
    assert plain.mean < -0.1  # toward the sign of the values
    assert plain.gradient_mean > 0.1
    assert not steadied.is_biased
    assert abs(steadied.mean) < abs(plain.mean) / 10
    assert np.isfinite(steadied.standard_error)
    # Kernels of an H200 round the other way, by 0.12 to 0.14 units (bench/numerics_device.py).
    assert kernels.is_biased
    assert 0.11 < kernels.mean < 0.15
