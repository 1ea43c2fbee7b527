"""Integer products are exact, saturation is told, and what a narrower format saves is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.cost import FittedKernels, Operation, rule_named
from foretrace.cost.substitutes.narrow_products import (
    Quantised,
    integer_product,
    product_in_16_bit,
    requantised,
    saturation_share,
    split_outliers,
)
from foretrace.machine import load_chip

H100 = FittedKernels(load_chip("h100-sxm"))
LAYER = Operation("gemm", "library", "bf16", (1, 8_192, 14_336, 4_096))


def test_zero_points_are_exact_on_ten_thousand_products() -> None:
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        m, n, k = rng.integers(1, 7, 3)
        first = Quantised(rng.integers(0, 256, (m, k)), 0.1, int(rng.integers(0, 256)))
        second = Quantised(rng.integers(-128, 128, (k, n)), 0.2, int(rng.integers(-128, 128)))
        sums = integer_product(first, second)
        # Whole numbers this small are exact in floating point too.
        exact = (first.numbers - first.zero) @ (second.numbers - second.zero).astype(float)
        assert np.array_equal(sums, exact)
        factor, zero = float(rng.uniform(1e-4, 0.1)), int(rng.integers(0, 256))
        narrow = requantised(sums, factor, zero, low=0, high=255)
        assert np.array_equal(
            narrow, np.minimum(np.maximum(np.rint(exact * factor) + zero, 0), 255)
        )


def test_pairs_saturate_at_16_bit_as_one_by_one() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.integers(128, 256, (9, 7)), rng.integers(-128, 128, (7, 5))
    expected = np.zeros((9, 5), np.int64)
    for row in range(9):
        for column in range(5):
            for at in range(0, 7, 2):
                pair = sum(
                    int(first[row, k] * second[k, column]) for k in range(at, min(at + 2, 7))
                )
                expected[row, column] += max(-32_768, min(32_767, pair))
    found = product_in_16_bit(first, second)
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, first @ second)
    # FBGEMM's example: 255 x 127 twice is 64,770.
    full = np.array([[255, 255]]), np.array([[127], [127]])
    assert product_in_16_bit(*full).item() == 32_767


def test_without_outliers_nothing_saturates_and_their_product_is_made_wide() -> None:
    rng = np.random.default_rng(2)
    first = rng.integers(0, 256, (16, 32))
    second = np.clip(np.rint(rng.normal(0, 25, (32, 8))), -128, 127).astype(np.int64)
    small, large, share = split_outliers(second)
    assert np.array_equal(product_in_16_bit(first, small) + first @ large, first @ second)
    assert 0 < share < 0.05


def test_the_share_of_pairs_that_saturate_is_that_of_samples() -> None:
    rng = np.random.default_rng(3)
    activations, weights = np.zeros(256), np.zeros(256)
    activations[100:256], weights[20:240] = 1.0, 1.0
    sampled = [
        rng.integers(100, 256, 200_000) * (rng.integers(20, 240, 200_000) - 128) for _ in range(2)
    ]
    pairs = sampled[0] + sampled[1]
    expected = float(((pairs > 32_767) | (pairs < -32_768)).mean())
    assert saturation_share(activations, weights) == pytest.approx(expected, abs=2e-3)
    weights[:64], weights[193:] = 0, 0
    assert saturation_share(activations, weights) == pytest.approx(0, abs=1e-12)


def test_zero_is_a_number_of_every_range() -> None:
    values = np.linspace(-3.0, 11.0, 57).reshape(3, 19)
    found = Quantised.of(values, low=-128, high=127)
    assert np.abs(found.values - values).max() <= found.scale / 2 + 1e-12
    assert found.values[0, 0] == pytest.approx(-3, abs=found.scale / 2)
    assert Quantised.of(np.zeros((2, 2)), low=0, high=255).values.tolist() == [[0, 0], [0, 0]]


def test_narrow_products_gain_at_most_what_their_peak_and_their_bytes_allow() -> None:
    for name in ("int8", "fp8", "mxfp8", "int8:unfused"):
        (offer,) = rule_named(name).offers([LAYER], H100)
        assert offer is not None
        assert 0.5 <= offer.factor < 1
        assert offer.workspace_bytes >= 8_192 * 4_096 + 14_336 * 4_096
    fused, unfused = (rule_named(one).offers([LAYER], H100)[0] for one in ("int8", "int8:unfused"))
    assert fused is not None
    assert unfused is not None
    assert unfused.factor > fused.factor
    assert [one.name for one in unfused.added][-1] == "results made wide"


def test_a_chip_without_the_format_is_offered_nothing() -> None:
    old = FittedKernels(load_chip("v100-sxm2-16gb"))
    assert rule_named("fp8").offers([LAYER], old) == (None,)
    assert rule_named("int8").offers([Operation("movement", "stream", "bf16", (9, 0))], H100) == (
        None,
    )
