"""The failure of low-precision attention whose rounding has a direction, and its fix.

Where a row's largest score is repeated, its weights are exactly 1 and their products are numbers of
the format. Their sum often lies in the middle of two numbers, and the small rest, all of one sign
where the values are, decides the way: rounding errors no longer cancel. Kernels whose running sums
are fp32 round once, at the end; what decides then is that tensor cores cut sums off.

Source:
    Qiu and Yao, "Why Low-Precision Transformer Training Fails: An Analysis on Flash Attention",
    arXiv:2510.04212; the fix is its steadied maximum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import Answer, Column, Sentences, Shown, Table, Told, Unit, number_text
from foretrace.numerics.formats import FP32, FloatFormat, float_format
from foretrace.numerics.libraries import Tensor, torch
from foretrace.numerics.pairs import Case, Inputs, taken, tile_weights
from foretrace.numerics.products import TENSOR_CORES, emulated_product

_BETA = 2.0  # times a repeated maximum: the source's code
_HEAD = 64
_ROWS = 8  # queries of one sample
_CLEAR = 5.0  # standard errors from 0 that no rounding without direction reaches


@dataclass(frozen=True, kw_only=True)
class RoundingBias:
    """Errors of one form of attention, in units of the format's roundoff."""

    form: str
    mean: float
    standard_error: float
    gradient_mean: float  # of the row sums of gradient times output, which backward passes take off
    num_values: int

    @property
    def is_biased(self) -> bool:
        """Whether errors have a direction."""
        return abs(self.mean) > _CLEAR * self.standard_error


@dataclass(frozen=True, repr=False)
class RoundingBiases(Answer):
    """The same inputs with repeated maxima, as published and as mended."""

    json_names: ClassVar = {"rows": "forms"}

    format: str
    rows: tuple[RoundingBias, ...]

    @property
    def headline(self) -> str:
        """How much bias there is, and how much is left."""
        plain, steadied, _ = self.rows
        return (
            f"rounding errors of weights times values in {self.format} have a mean of "
            f"{number_text(plain.mean)} units where a row's maximum is repeated, "
            f"{number_text(steadied.mean)} with a steadied maximum"
        )

    def parts(self) -> tuple[Told, ...]:
        """Each form."""
        table = Table.of(
            "forms",
            self.rows,
            Column("form"),
            Column("mean", "mean error", Unit.NUMBER),
            Column("standard_error", "+-", Unit.NUMBER),
            Column("gradient_mean", "of gradient sums", Unit.NUMBER),
            Column("is_biased"),
            Column("num_values", shown=Shown.FILES),
        )
        words = (
            "errors are in units of the output's roundoff; those with a direction add up over "
            "steps, which is how training fails (arXiv:2510.04212)"
        )
        return table, Sentences.of("to know", (words,))


def rounding_bias(
    format: str = "bf16",  # noqa: A002  the field's word
    *,
    length: int = 64,
    num_samples: int = 64,
    seed: int = 0,
) -> RoundingBiases:
    """Whether tiled attention rounds one way where maxima repeat, and with the published fix.

    Args:
        format: of everything between two steps.
        length: keys.
        num_samples: queries, keys and values that are drawn anew.
        seed: of the inputs.
    """
    kind = float_format(format)
    rows = (
        _bias(kind, (length, _ROWS), num_samples, seed=seed, steadied=0.0),
        _bias(kind, (length, _ROWS), num_samples, seed=seed, steadied=_BETA),
        _bias_of_kernels(kind, (length, _ROWS), num_samples, seed=seed),
    )
    return RoundingBiases(kind.name, rows)


def _bias(
    kind: FloatFormat, size: tuple[int, int], num_samples: int, *, seed: int, steadied: float
) -> RoundingBias:
    length, num_rows = size
    case = Case(
        format=kind, statistics=kind, length=length, tile=length, seed=seed, steadied=steadied
    )
    queries, keys, values = taken(repeated_maxima(case, num_samples, num_rows), case)
    weights = tile_weights(queries, keys, case)
    exact = weights.double() @ values.double()
    error = case.held(weights @ values).double() - exact
    return _told("steadied maximum" if steadied else "as published", kind, error, exact)


def _bias_of_kernels(
    kind: FloatFormat, size: tuple[int, int], num_samples: int, *, seed: int
) -> RoundingBias:
    """Of the result, where all but weights and result is fp32, added as Hopper's units do."""
    length, num_rows = size
    case = Case(format=kind, statistics=FP32, length=length, tile=length, seed=seed)
    queries, keys, values = taken(repeated_maxima(case, num_samples, num_rows), case)
    scores = queries.double() @ keys.double().mT / math.sqrt(queries.shape[-1])
    exact = torch.softmax(scores, -1) @ values.double()
    weights = (scores.float() - scores.float().amax(-1, keepdim=True)).exp()
    cores = TENSOR_CORES["hopper-16bit"]
    total = emulated_product(case.held(weights), values, cores, takes=kind)
    out = case.held(total / weights.sum(-1, keepdim=True))
    return _told("kernels of tensor cores", kind, out.double() - exact, exact)


def _told(form: str, kind: FloatFormat, error: Tensor, exact: Tensor) -> RoundingBias:
    unit = kind.unit_roundoff * exact.abs()
    relative = (error / unit).mean(1)  # rows of one sample share their values
    # Gradients have the sign of the values where representations are alike, as the source found.
    sums = (exact.sign() * error).sum(-1) / unit.sum(-1)
    return RoundingBias(
        form=form,
        mean=float(relative.mean()),
        standard_error=float(relative.std()) / relative.numel() ** 0.5,
        gradient_mean=float(sums.mean()),
        num_values=error.numel(),
    )


def repeated_maxima(case: Case, num_samples: int, num_rows: int) -> Inputs:
    """Queries alike, two keys that they favour as much, and values of one sign."""
    generator = torch.Generator().manual_seed(case.seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand((num_samples, *shape), generator=generator)

    direction = uniform(1, _HEAD) - 0.5
    direction = direction.sign()
    queries = direction * (1.0 + uniform(num_rows, 1))
    keys = 0.2 * (uniform(case.length, _HEAD) - 0.5) - 0.1 * direction
    keys[:, :2] = direction
    values = -2.0 - uniform(case.length, _HEAD)
    return queries, keys, values
