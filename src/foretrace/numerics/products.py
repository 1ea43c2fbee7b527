"""Products of matrices with a stated accumulator: what a unit does that keeps fewer bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretrace.numerics.formats import (
    FP32,
    FloatFormat,
    Rounding,
    exponents,
    float_format,
    power,
    rounded,
)
from foretrace.numerics.libraries import Tensor, torch


@dataclass(frozen=True, kw_only=True)
class Accumulator:
    """How partial sums are kept.

    Attributes:
        keeps: format of a sum.
        block: products that are summed before the sum is kept.
        rounding: of a sum.
        aligned_bits: that products and sum have below the exponent of the largest of them when
            they are added, as in units that add in fixed point; what is lower is cut off. None
            where they are added exactly.
    """

    keeps: FloatFormat = FP32
    block: int = 1
    rounding: Rounding = Rounding.NEAREST
    aligned_bits: int | None = None


# Source: Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores",
# arXiv:2511.10909, of wgmma; docs/numerics.md says how a GPU's products agree with it.
TENSOR_CORES: Mapping[str, Accumulator] = {
    "hopper-16bit": Accumulator(block=16, aligned_bits=25, rounding=Rounding.TOWARD_ZERO),
    "hopper-fp8": Accumulator(
        keeps=float_format("e8m13"), block=32, aligned_bits=13, rounding=Rounding.TOWARD_ZERO
    ),
}


def emulated_product(
    left: Tensor,
    right: Tensor,
    accumulator: Accumulator = Accumulator(),
    *,
    takes: FloatFormat = FP32,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`left @ right`, its sums kept as stated; products of fp32 numbers and below are exact.

    Args:
        left: [..., rows, inner], holding numbers of the format that the unit takes.
        right: [..., inner, columns].
        accumulator: how sums are kept.
        takes: that format; where sums are aligned, its subnormal numbers have its least exponent.
        generator: of random numbers, for stochastic rounding.
    """
    wide_left, wide_right = left.double(), right.double()
    total = torch.zeros((), dtype=torch.float64, device=left.device)
    for begin in range(0, left.shape[-1], accumulator.block):
        here = slice(begin, begin + accumulator.block)
        some = wide_left[..., here], wide_right[..., here, :]
        if accumulator.aligned_bits is None:
            total = total + some[0] @ some[1]
        else:
            total = _aligned_sum(total, *some, accumulator.aligned_bits, takes)
        total = rounded(
            total, accumulator.keeps, rounding=accumulator.rounding, generator=generator
        )
    return total.to(left.dtype)


def _aligned_sum(
    total: Tensor, left: Tensor, right: Tensor, bits: int, takes: FloatFormat
) -> Tensor:
    """A sum and products, each cut off so many bits below the largest exponent."""
    terms = left[..., :, :, None] * right[..., None, :, :]
    of_left, of_right = (exponents(one).clamp(min=takes.smallest_exponent) for one in (left, right))
    highest = (of_left[..., :, :, None] + of_right[..., None, :, :]).amax(-2)
    kept = exponents(total).clamp(min=FP32.smallest_exponent)
    lowest = torch.maximum(highest, kept) - bits
    cut = (terms * power(-lowest)[..., :, None, :]).trunc().sum(-2)
    return (cut + (total * power(-lowest)).trunc()) * power(lowest)
