"""Products of matrices with a stated accumulator: what a unit does that keeps fewer bits."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.numerics.formats import FP32, FloatFormat, Rounding, rounded
from foretrace.numerics.libraries import Tensor, torch


@dataclass(frozen=True, kw_only=True)
class Accumulator:
    """How partial sums are kept."""

    keeps: FloatFormat = FP32
    block: int = 1  # products that are summed exactly before the sum is kept
    rounding: Rounding = Rounding.NEAREST


def emulated_product(
    left: Tensor,
    right: Tensor,
    accumulator: Accumulator = Accumulator(),
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`left @ right`, its sums kept as stated; products of fp32 numbers and below are exact.

    Args:
        left: [..., rows, inner], holding numbers of the format that the unit takes.
        right: [..., inner, columns].
        accumulator: how sums are kept.
        generator: of random numbers, for stochastic rounding.
    """
    wide_left, wide_right = left.double(), right.double()
    total = torch.zeros((), dtype=torch.float64, device=left.device)
    for begin in range(0, left.shape[-1], accumulator.block):
        here = slice(begin, begin + accumulator.block)
        partial = wide_left[..., here] @ wide_right[..., here, :]
        total = rounded(
            total + partial,
            accumulator.keeps,
            rounding=accumulator.rounding,
            generator=generator,
        )
    return total.to(left.dtype)
