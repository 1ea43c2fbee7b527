"""Operators in two forms that are one in exact arithmetic: whole, and in pieces.

Every step is rounded to the format of the case, so that a form keeps what a kernel would keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from foretrace.base import WorkloadError
from foretrace.numerics.formats import FP32, FP64, FloatFormat, rounded
from foretrace.numerics.libraries import Tensor, torch
from foretrace.numerics.products import Accumulator, emulated_product

Inputs: TypeAlias = "tuple[Tensor, ...]"
_HEAD = 64  # channels of one attention head
_ROWS = 64  # of what is normalised or multiplied
_REPEATED = 1e-3  # scores this near to a row's largest are as large
_EPSILON = 1e-5  # of a normalisation

# Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv:1509.09308.
_SIGNAL = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_TAPS = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_BACK = ((1, 1, 1, 0), (0, 1, -1, -1))


@dataclass(frozen=True, kw_only=True)
class Case:
    """What an operator is run on, and with which numbers."""

    format: FloatFormat  # of inputs and everything between two steps
    statistics: FloatFormat  # of running sums and maxima, and of what is summed up
    length: int
    tile: int
    seed: int = 0
    # Above 0: where a row's largest score is repeated, this many times that score is taken off.
    steadied: float = 0.0

    def held(self, values: Tensor) -> Tensor:
        """Values as they are kept between two steps."""
        return rounded(values, self.format)

    def summed(self, values: Tensor) -> Tensor:
        """Values as running sums keep them."""
        return rounded(values, self.statistics)

    @property
    def golden(self) -> Case:
        """The same in fp64."""
        return replace(self, format=FP64, statistics=FP64)


Operator: TypeAlias = Callable[[Inputs, Case], "Tensor"]


@dataclass(frozen=True, kw_only=True)
class OperatorPair:
    """The same operator twice."""

    name: str
    baseline: Operator
    other: Operator
    inputs: Callable[[Case], Inputs]  # of fp32, the same for the same seed


def attention(given: Inputs, case: Case) -> Tensor:
    """Scores, softmax and sum one after the other."""
    queries, keys, values = given
    scores = case.held(queries @ keys.mT / math.sqrt(queries.shape[-1]))
    weights = case.held(torch.softmax(scores, -1))
    return case.held(weights @ values)


def tiled_attention(given: Inputs, case: Case) -> Tensor:
    """A tile of keys at a time; the sum is divided anew after each, and rounded as it is kept.

    Scores are kept as the statistics are: with those in fp32 it is what kernels do, which round
    weights before their product with values, and the result once.

    Source:
        FlashAttention, arXiv:2205.14135, algorithm 1; the steadied maximum is arXiv:2510.04212's.
    """
    queries, keys, values = given
    shape = (*queries.shape[:-1], 1)
    largest = torch.full(shape, -torch.inf, dtype=queries.dtype)
    total = torch.zeros(shape, dtype=queries.dtype)
    out = torch.zeros_like(queries)
    for begin in range(0, keys.shape[-2], case.tile):
        here = slice(begin, begin + case.tile)
        scores = case.summed(queries @ keys[..., here, :].mT / math.sqrt(queries.shape[-1]))
        top = torch.maximum(largest, case.summed(_tops(scores, case)))
        weights = case.held((scores - top).exp())
        kept = (largest - top).exp() * total
        new = case.summed(kept + weights.sum(-1, keepdim=True))
        out = case.summed((kept * out + weights @ values[..., here, :]) / new)
        largest, total = top, new
    return case.held(out)


def tile_weights(queries: Tensor, keys: Tensor, case: Case) -> Tensor:
    """What the first tile's values are multiplied with."""
    scores = case.summed(queries @ keys.mT / math.sqrt(queries.shape[-1]))
    return case.held((scores - case.summed(_tops(scores, case))).exp())


def _tops(scores: Tensor, case: Case) -> Tensor:
    """What is taken off every row's scores before they are exponents."""
    top = scores.amax(-1, keepdim=True)
    if not case.steadied:
        return top
    is_repeated = (scores >= top - _REPEATED).sum(-1, keepdim=True) > 1
    steady = torch.where(top > 0, case.steadied * top, torch.zeros_like(top))
    return torch.where(is_repeated, steady, top)


def _attention_inputs(case: Case) -> Inputs:
    generator = torch.Generator().manual_seed(case.seed)
    shapes = ((_ROWS, _HEAD), (case.length, _HEAD), (case.length, _HEAD))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def softmax(given: Inputs, case: Case) -> Tensor:
    """The maximum, then the sum, then the quotient."""
    (scores,) = given
    weights = case.held((scores - scores.amax(-1, keepdim=True)).exp())
    return case.held(weights / case.summed(weights.sum(-1, keepdim=True)))


def online_softmax(given: Inputs, case: Case) -> Tensor:
    """Maximum and sum in one pass over tiles (Milakov and Gimelshein, arXiv:1805.02867)."""
    (scores,) = given
    largest = torch.full((*scores.shape[:-1], 1), -torch.inf, dtype=scores.dtype)
    total = torch.zeros_like(largest)
    for begin in range(0, scores.shape[-1], case.tile):
        some = scores[..., begin : begin + case.tile]
        top = torch.maximum(largest, some.amax(-1, keepdim=True))
        weights = case.held((some - top).exp())
        kept = (largest - top).exp() * total
        total = case.summed(kept + weights.sum(-1, keepdim=True))
        largest = top
    return case.held(case.held((scores - largest).exp()) / total)


def normalised(given: Inputs, case: Case) -> Tensor:
    """Mean, then the variance about it."""
    (values,) = given
    centred = case.held(values - case.summed(values.mean(-1, keepdim=True)))
    variance = case.summed((centred * centred).mean(-1, keepdim=True))
    return case.held(centred / (variance + _EPSILON).sqrt())


def normalised_in_one_pass(given: Inputs, case: Case) -> Tensor:
    """Sums of values and of their squares, tile by tile."""
    (values,) = given
    total = torch.zeros((*values.shape[:-1], 1), dtype=values.dtype)
    squares = torch.zeros_like(total)
    for some in torch.split(values, case.tile, -1):
        total = case.summed(total + some.sum(-1, keepdim=True))
        squares = case.summed(squares + (some * some).sum(-1, keepdim=True))
    mean = case.summed(total / values.shape[-1])
    variance = case.summed(squares / values.shape[-1] - mean * mean).clamp(min=0)
    return case.held((values - mean) / (variance + _EPSILON).sqrt())


def _row_inputs(case: Case) -> Inputs:
    generator = torch.Generator().manual_seed(case.seed)
    return (torch.randn((_ROWS, case.length), generator=generator),)


def product(given: Inputs, case: Case) -> Tensor:
    """Rows times columns, summed in fp32 or more."""
    left, right = given
    return case.held(left @ right)


def tiled_product(given: Inputs, case: Case) -> Tensor:
    """The same, a running sum of tiles kept as the statistics are."""
    left, right = given
    accumulator = Accumulator(keeps=case.statistics, block=case.tile)
    return case.held(emulated_product(left, right, accumulator))


def _product_inputs(case: Case) -> Inputs:
    generator = torch.Generator().manual_seed(case.seed)
    shapes = ((_ROWS, case.length), (case.length, _ROWS))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def convolution(given: Inputs, case: Case) -> Tensor:
    """Three taps along the length, over tiles of channels, summed directly."""
    signal, taps = given
    windows = signal.unfold(-1, 3, 1)  # [channels, places, 3]
    return case.held(torch.einsum("cpt,ct->p", windows, taps))


def winograd(given: Inputs, case: Case) -> Tensor:
    """The same by Winograd's F(2, 3): four products for two places."""
    signal, taps = given
    kind = signal.dtype
    windows = signal.unfold(-1, 4, 2)  # [channels, pairs, 4]
    there = case.held(windows @ torch.tensor(_SIGNAL, dtype=kind).mT)
    weights = case.held(taps @ torch.tensor(_TAPS, dtype=kind).mT)
    total = torch.zeros(windows.shape[1:], dtype=kind)
    for begin in range(0, signal.shape[0], case.tile):
        here = slice(begin, begin + case.tile)
        partial = torch.einsum("cpt,ct->pt", there[here], weights[here])
        total = case.summed(total + partial)
    return case.held((total @ torch.tensor(_BACK, dtype=kind).mT).flatten())


def _signal_inputs(case: Case) -> Inputs:
    generator = torch.Generator().manual_seed(case.seed)
    shapes = ((case.length, 2 * _ROWS + 2), (case.length, 3))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


OPERATOR_PAIRS = {
    one.name: one
    for one in (
        OperatorPair(name="attention", baseline=attention, other=tiled_attention,
                     inputs=_attention_inputs),
        OperatorPair(name="softmax", baseline=softmax, other=online_softmax, inputs=_row_inputs),
        OperatorPair(name="normalisation", baseline=normalised, other=normalised_in_one_pass,
                     inputs=_row_inputs),
        OperatorPair(name="product", baseline=product, other=tiled_product,
                     inputs=_product_inputs),
        OperatorPair(name="convolution", baseline=convolution, other=winograd,
                     inputs=_signal_inputs),
    )
}  # fmt: skip


def pair_of(
    baseline: Callable[..., Tensor],
    other: Callable[..., Tensor],
    inputs: Callable[[int, torch.Generator], Inputs],
) -> OperatorPair:
    """Any two functions of tensors as a pair.

    They compute in the type of their inputs, which is PyTorch's own for the format.

    Args:
        baseline: what the other is held against; in fp64 it is what is right.
        other: the same in another form.
        inputs: tensors of a length, of random numbers that a generator gives.
    """

    def typed(function: Callable[..., Tensor]) -> Operator:
        def run(given: Inputs, case: Case) -> Tensor:
            if not case.format.torch:
                raise WorkloadError(
                    f"PyTorch has no type for {case.format.name}, in which a function of one's own "
                    "would compute: choose fp32, bf16 or fp16"
                )
            kind = getattr(torch, case.format.torch)
            return function(*(one.to(kind) for one in given)).double()

        return run

    def made(case: Case) -> Inputs:
        return inputs(case.length, torch.Generator().manual_seed(case.seed))

    return OperatorPair(
        name=getattr(other, "__name__", "function"),
        baseline=typed(baseline),
        other=typed(other),
        inputs=made,
    )


def taken(given: Inputs, case: Case) -> Inputs:
    """Inputs as the case holds them, in the type that it computes in."""
    if case.format is FP64:
        return tuple(one.double() for one in given)
    narrow = FP32 if case.format is FP32 else case.format
    return tuple(rounded(one.float(), narrow) for one in given)
