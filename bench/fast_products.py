"""The one efficiency of fast products, fitted to what was published of a V100.

    python bench/fast_products.py
    foretrace numerics deviate bench/fast_products.py:strassen_1 --length 512 --length 2048 --tile 1

Crossovers and largest gains of Strassen's scheme in fp32 (arXiv:1808.07984): each is off by its
share of what is tolerated, a factor of 2 or 3 points, and the sum of squares is least at the rate
that is fitted. Each level by itself says how far the other is from what one of them teaches. The
second line says how errors grow: sums of operands are rounded to their format, products are added
up in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from foretrace.cost import FastScheme, FittedKernels, Operation
from foretrace.cost.substitutes.fast_products import FastProduct
from foretrace.machine import load_chip
from foretrace.numerics import OperatorPair, pair_of

PUBLISHED = {1: (1_536, 1.11), 2: (7_680, 1.19)}  # by levels: crossover, gain
SIDES, LARGEST = range(512, 9_216, 64), 20_480
SIDE = 256  # rows and columns of products whose errors are measured


def found(kernels: FittedKernels, levels: int, rate: float) -> tuple[int, float]:
    """Crossover and gain under a rate."""
    squares = [Operation("gemm", "library", "fp32", (1, each, each, each)) for each in SIDES]
    largest = Operation("gemm", "library", "fp32", (1, LARGEST, LARGEST, LARGEST))
    rule = FastProduct("strassen", levels, traffic_rate=rate)
    *offers, last = rule.offers([*squares, largest], kernels)
    late = [at for at, one in enumerate(offers) if one is None or not one.pays]
    gain = 0.0 if last is None else 1 / last.factor
    return SIDES[min(late[-1] + 1, len(SIDES) - 1)], gain


def off(kernels: FittedKernels, rate: float, levels: Sequence[int]) -> float:
    """Sum of squares of what is off, in shares of what is tolerated."""
    total = 0.0
    for each in levels:
        (side, gain), (crossover, most) = found(kernels, each, rate), PUBLISHED[each]
        total += math.log2(side / crossover) ** 2 + ((gain - most) / 0.03) ** 2
    return total


def error_pair(name: str, levels: int) -> OperatorPair:
    """A whole product and one by a scheme, sums of operands in their format, the rest in fp32."""
    scheme = FastScheme.of(name, levels)

    def plain(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.float() @ right.float()).to(left.dtype)

    def fast(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        lefts, rights = (blocks(one, levels) for one in (left, right))
        products = [
            summed(lefts, one).float() @ summed(rights, two).float()
            for one, two in zip(scheme.left.tolist(), scheme.right.tolist(), strict=True)
        ]
        return joined([summed(products, each) for each in scheme.result.T.tolist()]).to(left.dtype)

    def inputs(length: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        shapes = ((SIDE, length), (length, SIDE))
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    fast.__name__ = f"{name}_{levels}"
    return pair_of(plain, fast, inputs)


def blocks(whole: torch.Tensor, levels: int) -> list[torch.Tensor]:
    """Blocks in the order of a scheme's tables: quarters, and quarters of these."""
    if not levels:
        return [whole]
    halves = [half for rows in whole.chunk(2, 0) for half in rows.chunk(2, 1)]
    return [one for half in halves for one in blocks(half, levels - 1)]


def joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """The whole again."""
    while len(parts) > 1:
        fours = [parts[at : at + 4] for at in range(0, len(parts), 4)]
        parts = [torch.cat([torch.cat(four[:2], 1), torch.cat(four[2:], 1)]) for four in fours]
    return parts[0]


def summed(parts: Sequence[torch.Tensor], signs: Sequence[int]) -> torch.Tensor:
    """Parts added and subtracted one after the other, in the format they are in."""
    used = [part if sign > 0 else -part for part, sign in zip(parts, signs, strict=True) if sign]
    total = used[0]
    for each in used[1:]:
        total = total + each
    return total


def strassen_1() -> OperatorPair:
    """One level, fused."""
    return error_pair("strassen", 1)


def strassen_2() -> OperatorPair:
    """Two levels, fused."""
    return error_pair("strassen", 2)


def winograd_1() -> OperatorPair:
    """One level of Winograd's form."""
    return error_pair("winograd", 1)


def winograd_2() -> OperatorPair:
    """Two levels of Winograd's form."""
    return error_pair("winograd", 2)


def main() -> None:
    """Print the fitted rate, and what each level alone teaches."""
    kernels = FittedKernels(load_chip("v100-sxm2-16gb"))
    rates = np.arange(0.5, 1.001, 0.01)
    for levels in ((1, 2), (1,), (2,)):
        rate = float(min(rates, key=lambda one: off(kernels, float(one), levels)))
        told = [found(kernels, each, rate) for each in PUBLISHED]
        words = ", ".join(f"from {side:,} on, up to {gain:.3f}" for side, gain in told)
        print(f"fitted to {' and '.join(map(str, levels))} levels: {rate:.2f}: {words}")


if __name__ == "__main__":
    main()
