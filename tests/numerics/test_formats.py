from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.numerics import (
    FLOAT_FORMATS,
    TENSOR_CORES,
    Accumulator,
    FloatFormat,
    Rounding,
    block_format,
    block_rounded,
    emulated_product,
    float_format,
    format_agreement,
    rounded,
)
from foretrace.numerics.blocks import BLOCK_FORMATS
from foretrace.numerics.formats import emulated, pattern_values

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

NUMBERS = [one for one in FLOAT_FORMATS if not one.is_scale and one.num_bits <= 16]
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module")
def agreement() -> dict[tuple[str, str, str], tuple[int, str]]:
    rows = format_agreement(num_values=30_000).rows
    return {(one.format, one.what, one.sides): (one.num_different, one.kind) for one in rows}


def test_every_pattern_means_what_it_means_to_libraries(
    agreement: dict[tuple[str, str, str], tuple[int, str]],
) -> None:
    found = {key: number for key, (number, _) in agreement.items() if key[1] == "patterns"}

    assert {key[0] for key in found} >= {"bf16", "fp16", "fp8_e4m3", "fp8_e5m2fnuz", "e8m0"}
    assert not any(found.values())


def test_fp32_rounds_as_in_libraries_but_where_they_choose_another_stand_in(
    agreement: dict[tuple[str, str, str], tuple[int, str]],
) -> None:
    found = {
        key: kind
        for key, (number, kind) in agreement.items()
        if key[1] in {"fp32", "ties"} and number
    }

    assert ("fp16", "ties", "torch, emulated") in agreement
    assert ("bf16", "fp32", "torch, emulated") in agreement
    assert set(found.values()) <= {
        "beyond the largest",
        "not a number",
        "below zero",
        "a subnormal of fp32",
    }
    assert {key[0] for key in found} <= {"fp8_e4m3", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1", "e8m0"}


def test_libraries_round_fp64_twice(
    agreement: dict[tuple[str, str, str], tuple[int, str]],
) -> None:
    assert agreement["fp16", "fp64", "torch, emulated"][1] == "beside a tie"
    assert agreement["fp16", "fp64", "ml_dtypes, emulated"][0] == 0


VALUES = {one.name: pattern_values(one) for one in NUMBERS}


@settings(max_examples=50)
@given(value=finite, of=st.sampled_from(NUMBERS))
def test_the_nearest_is_a_neighbour_and_no_other_is_nearer(value: float, of: FloatFormat) -> None:
    numbers = VALUES[of.name]
    numbers = numbers[numbers.isfinite()]
    wide = torch.tensor([value], dtype=torch.float64)

    found = emulated(wide, of)

    if abs(value) <= of.largest:
        assert float((found - wide).abs()) == float((numbers - wide).abs().min())
        cut = emulated(wide, of, rounding=Rounding.TOWARD_ZERO)
        assert float(cut.abs()) <= abs(value)
        assert bool((numbers == cut).any())


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8_e4m3", "e3m4"])
def test_stochastic_rounding_has_the_right_mean(name: str) -> None:
    of = float_format(name)
    value, number = 1.0 + 0.3 * 2.0**-of.mantissa_bits, 40_000
    generator = torch.Generator().manual_seed(1)

    found = rounded(
        torch.full((number,), value, dtype=torch.float64),
        of,
        rounding=Rounding.STOCHASTIC,
        generator=generator,
    )

    step = 2.0**-of.mantissa_bits
    assert set(found.tolist()) == {1.0, 1.0 + step}
    assert abs(float(found.mean()) - value) < 4 * step * math.sqrt(0.21 / number)


def test_any_number_of_bits_is_a_format() -> None:
    values = torch.randn(1000)

    assert torch.equal(rounded(values, float_format("e8m7")), values.bfloat16().float())
    with pytest.raises(WorkloadError, match=r"'fp9' is unknown: expected one of .* or eXmY"):
        float_format("fp9")


def test_sums_in_bf16_lose_what_fp32_keeps() -> None:
    torch.manual_seed(0)
    left = torch.rand(4, 2048).bfloat16().float()
    right = torch.rand(2048, 4).bfloat16().float()
    exact = left.double() @ right.double()

    def error(accumulator: Accumulator) -> float:
        found = emulated_product(left, right, accumulator)
        return float(((found - exact) / exact).abs().max())

    bf16 = float_format("bf16")
    single, half = error(Accumulator()), error(Accumulator(keeps=bf16))
    in_blocks = error(Accumulator(keeps=bf16, block=64))

    assert single < 1e-5
    assert half > 0.1  # a sum of 256 and above takes in no more numbers below a half
    assert single < in_blocks < half


def in_fixed_point(
    left: list[Fraction], right: list[Fraction], kind: Accumulator, of: FloatFormat
) -> Fraction:
    """Products and the sum so far as multiples of one power of two, what is lower cut off."""

    def exponent(value: Fraction, least: int = -126) -> int:
        return max(math.frexp(abs(value))[1] - 1 if value else least, least)

    total = Fraction(0)
    for begin in range(0, len(left), kind.block):
        some = range(begin, min(begin + kind.block, len(left)))
        least = of.smallest_exponent
        highest = max(exponent(left[at], least) + exponent(right[at], least) for at in some)
        unit = Fraction(2) ** (max(highest, exponent(total)) - (kind.aligned_bits or 0))
        terms = [*(left[at] * right[at] for at in some), total]
        total = unit * sum(math.trunc(one / unit) for one in terms)
        last = Fraction(2) ** (exponent(total) - kind.keeps.mantissa_bits)
        total = last * math.trunc(total / last)
    return total


@pytest.mark.parametrize(("name", "takes"), [("hopper-16bit", "bf16"), ("hopper-fp8", "fp8_e4m3")])
def test_tensor_cores_add_in_fixed_point(name: str, takes: str) -> None:
    torch.manual_seed(0)
    kind, of = TENSOR_CORES[name], float_format(takes)
    left, right = rounded(torch.randn(3, 80), of), rounded(torch.randn(80, 3), of)

    found = emulated_product(left, right, kind, takes=of)

    for row in range(3):
        for column in range(3):
            across = [Fraction(one) for one in left[row].tolist()]
            down = [Fraction(one) for one in right[:, column].tolist()]
            expected = in_fixed_point(across, down, kind, of)
            assert Fraction(found[row, column].item()) == expected


def test_sums_of_eight_bit_products_keep_fewer_bits_than_fp32() -> None:
    torch.manual_seed(0)
    of = float_format("fp8_e4m3")
    left, right = rounded(torch.rand(16, 4096), of), rounded(torch.rand(4096, 16), of)
    exact = left.double() @ right.double()

    found = emulated_product(left, right, TENSOR_CORES["hopper-fp8"], takes=of)

    error = (found.double() - exact) / exact
    assert bool((error < 0).all())  # cut off, and of one sign
    assert 2**-10 < float(error.abs().mean()) < 2**-3


def test_a_device_that_is_not_there_is_refused_in_a_sentence() -> None:
    with pytest.raises(WorkloadError, match=r"PyTorch has no device 'cubus' here"):
        format_agreement(num_values=1, device="cubus")


@pytest.mark.parametrize("name", [one.name for one in BLOCK_FORMATS])
def test_blocks_keep_their_largest_number_and_nothing_of_nothing(name: str) -> None:
    of = block_format(name)
    torch.manual_seed(0)
    values = torch.randn(8, 64) * torch.exp2(torch.randint(-20, 20, (8, 1)).float())
    values[0] = 0

    found = block_rounded(values, of)

    assert bool((found[0] == 0).all())
    shares = (found - values).abs().view(-1, of.num_elements).amax(-1)
    largest = values.abs().view(-1, of.num_elements).amax(-1)
    if of.scale.is_scale:  # NVFP4's scales share one range, in which small blocks may vanish
        # A power of two lets a block's largest value exceed the elements' largest: by 1/4 at most.
        assert bool((shares <= 0.25 * largest).all())
    with pytest.raises(WorkloadError, match="do not divide into blocks"):
        block_rounded(torch.ones(3), of)
