"""Products, sums of embeddings and attention that notice when they are wrong.

Each carries a sum that has to come out: of integers exactly, of floats within what rounding can do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrace.base import WorkloadError
from foretrace.numerics.formats import FP32, FloatFormat, float_format
from foretrace.numerics.libraries import Tensor, torch

# Prime and below 128, so that a sum fits a column of int8, and no power of two is a multiple of it.
# Source: Li et al., "Efficient Soft-Error Detection for Low-precision Deep Learning Recommendation
# Models", arXiv:2103.00130.
MODULUS = 127
_LARGEST_MODULUS = 127  # whose remainders int8 holds; one more does too, and is no good
_MULTIPLE = 8  # of columns of an int8 product on CUDA devices
# Standard deviations of the modelled rounding error: with 7, one of 4e11 normal errors is beyond.
DEVIATIONS = 7.0
# Products are summed in so many partial sums at once: AVX-512 holds 16 fp32 numbers, and BLAS keeps
# several registers; fewer would widen thresholds.
_PARTIAL_SUMS = 4.0
_SMALLEST = 1e-30
_SCORES = 1 << 24  # of attention that are computed again at once, of 8 bytes each

# Source: arXiv:2103.00130; docs/numerics.md has the rates of others.
TABLE_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class CheckedInt8Weight:
    """int8 weights with a column of remainders of their rows' sums, the last one."""

    values: Tensor  # int8[inner, columns + 1], on devices with columns of zeros between
    modulus: int
    num_columns: int


def checked_int8_weight(weight: Tensor, modulus: int = MODULUS) -> CheckedInt8Weight:
    """Weights of an int8 product, encoded once.

    Args:
        weight: int8[inner, columns].
        modulus: of sums; even ones miss errors.

    Raises:
        WorkloadError: if remainders would not fit int8, or the weights are no int8 matrix.
    """
    if not 2 <= modulus <= _LARGEST_MODULUS + 1:  # noqa: PLR2004  one has no remainders
        raise WorkloadError(f"a modulus of {modulus} cannot be: expected 2 to 127, best 127")
    if weight.dtype is not torch.int8 or weight.dim() != 2:  # noqa: PLR2004  a matrix
        raise WorkloadError(
            f"weights are {weight.dtype} of shape {tuple(weight.shape)}: expected an int8 matrix"
        )
    sums = weight.to(torch.int64).sum(1, keepdim=True).remainder(modulus).to(torch.int8)
    num_columns = weight.shape[1]
    if weight.device.type == "cpu":
        return CheckedInt8Weight(torch.cat([weight, sums], 1), modulus, num_columns)
    nothing = weight.new_zeros(weight.shape[0], -(num_columns + 1) % _MULTIPLE)
    by_columns = torch.cat([weight, nothing, sums], 1).mT.contiguous()  # as units read them
    return CheckedInt8Weight(by_columns.mT, modulus, num_columns)


def int8_sums(given: Tensor, weight: CheckedInt8Weight) -> Tensor:
    """The product with its column of sums, int32[rows, columns + 1], by PyTorch's own kernel.

    On a device columns of zeros stand before the sums, and `_int_mm` wants more than 16 rows.
    """
    found: Tensor = torch._int_mm(given, weight.values)  # noqa: SLF001  there is no other int8 product
    return found


def wrong_int8_rows(sums: Tensor, modulus: int = MODULUS) -> Tensor:
    """Rows of a checked product whose sum does not come out; bool[rows]."""
    total = sums[:, :-1].sum(1, dtype=torch.int64)
    return (total - sums[:, -1]).remainder(modulus) != 0


def checked_int8_product(given: Tensor, weight: CheckedInt8Weight) -> tuple[Tensor, Tensor]:
    """The product, int32[rows, columns], and which rows are wrong."""
    sums = int8_sums(given, weight)
    return sums[:, : weight.num_columns], wrong_int8_rows(sums, weight.modulus)


@dataclass(frozen=True, eq=False)
class CheckedTable:
    """An embedding table of int8 rows with scale and bias, and its rows' sums."""

    rows: Tensor  # int8[rows, width]
    scales: Tensor  # float32[rows]
    biases: Tensor  # float32[rows]
    sums: Tensor  # int32[rows]

    @classmethod
    def of(cls, rows: Tensor, scales: Tensor, biases: Tensor) -> CheckedTable:
        """Sums of the rows as they are now."""
        return cls(rows, scales, biases, rows.to(torch.int32).sum(1))

    def pooled(self, bags: Tensor) -> Tensor:
        """Sums of every bag's rows in fp32; [bags, width]."""
        found = self.rows[bags].float() * self.scales[bags][..., None]
        return (found + self.biases[bags][..., None]).sum(1)


def wrong_bags(
    table: CheckedTable, bags: Tensor, pooled: Tensor, *, tolerance: float = TABLE_TOLERANCE
) -> Tensor:
    """Bags whose sum differs from that of their rows' sums by more than rounding; bool[bags].

    Args:
        table: as it was encoded.
        bags: int64[bags, rows of each].
        pooled: float32[bags, width], what was computed.
        tolerance: of the larger of both sums.
    """
    width = table.rows.shape[1]
    each = table.scales[bags] * table.sums[bags].float() + width * table.biases[bags]
    expected, found = each.sum(1), pooled.sum(1)
    limit = tolerance * torch.maximum(expected.abs(), found.abs())
    return ~((found - expected).abs() <= limit)


@dataclass(frozen=True, eq=False)
class CheckedWeight:
    """Float weights and what a check of their products needs."""

    weight: Tensor  # [inner, columns]
    sums: Tensor  # float64[inner]
    squares: Tensor  # float64[inner]

    @classmethod
    def of(cls, weight: Tensor) -> CheckedWeight:
        """Sums of the weights as they are now."""
        wide = weight.detach().double()
        return cls(weight, wide.sum(1), wide.square().sum(1))


def rounding_threshold(
    given: Tensor,
    weight: CheckedWeight,
    product: Tensor,
    *,
    output: FloatFormat = FP32,
    accumulator: FloatFormat = FP32,
) -> Tensor:
    """What a row's sum may differ by from rounding alone; float64[rows].

    Rounding errors are modelled as independent: a partial sum's variance grows with the products
    that it holds, and with the square of what it comes to. The idea of thresholds from variances
    is V-ABFT's (arXiv:2602.08043); the estimate here is our own.
    """
    wide = given.detach().double()
    inner = given.shape[-1]
    squares = product.detach().double().square().sum(-1)
    spread = wide.square() @ weight.squares
    steps = max(inner / _PARTIAL_SUMS, 1.0)
    summed = accumulator.unit_roundoff**2 / 3 * (steps / 2 * spread + steps / 3 * squares)
    kept = output.unit_roundoff**2 / 3 * squares
    return DEVIATIONS * (summed + kept).sqrt() + _SMALLEST


def wrong_rows(
    given: Tensor,
    weight: CheckedWeight,
    product: Tensor,
    *,
    offset: float | Tensor = 0.0,
    output: FloatFormat = FP32,
    accumulator: FloatFormat = FP32,
) -> Tensor:
    """Rows of a product whose sum cannot be told by rounding; bool[rows].

    Args:
        given: [rows, inner].
        weight: as it was encoded.
        product: [rows, columns], what was computed.
        offset: sum of the bias that was added.
        output: the format that the product was rounded to.
        accumulator: the format of its sums.
    """
    difference = (product.double().sum(-1) - given.double() @ weight.sums - offset).abs()
    limit = rounding_threshold(given, weight, product, output=output, accumulator=accumulator)
    return ~(difference.isfinite() & (difference <= limit))


def checked_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    sums: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention, and which rows are wrong: scores, softmax and output have one sum each.

    Args:
        queries: [..., rows, width].
        keys: [..., places, width].
        values: [..., places, width].
        sums: of keys over places and of values over channels, from before they were stored; taken
            now, if left out, so that faults in the computation alone are seen.

    Returns:
        The output, and bool[..., rows].
    """
    if sums is None:
        sums = attention_sums(keys, values)
    key_sums, value_sums = sums
    scale = 1 / math.sqrt(queries.shape[-1])
    scores = queries @ keys.mT * scale
    wide = queries.double() * scale
    expected = (wide @ key_sums[..., None])[..., 0]
    sizes = (wide.square() @ keys.double().square().sum(-2)[..., None])[..., 0]
    wrong = _is_beyond(scores, expected, sizes, queries.shape[-1])
    weights = torch.softmax(scores, -1)
    places = keys.shape[-2]
    wrong = wrong | ~((weights.double().sum(-1) - 1).abs() <= DEVIATIONS * _roundoff(places))
    out = weights @ values
    expected = (weights.double() @ value_sums[..., None])[..., 0]
    sizes = (weights.double().square() @ values.double().square().sum(-1)[..., None])[..., 0]
    return out, wrong | _is_beyond(out, expected, sizes, places)


def wrong_attention(  # noqa: PLR0917  as PyTorch's
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002  as PyTorch's
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Rows of fused attention whose sum cannot be told by rounding; bool[..., rows].

    One check over queries, keys and values: weights are computed again, and a row of the result
    must sum to them times the sums of values. Arguments are those of PyTorch's
    `scaled_dot_product_attention`; where weights are dropped at random nothing is checked.
    """
    if dropout_p:
        return torch.zeros(out.shape[:-1], dtype=torch.bool, device=out.device)
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (one.repeat_interleave(times, -3) for one in (key, value))
    rows, places = query.shape[-2], key.shape[-2]
    keys = key.double().mT
    squares = value.double().square().sum(-1, keepdim=True)
    sums = value.double().sum(-1, keepdim=True)
    at_once = max(_SCORES // max(math.prod(query.shape[:-2]) * places, 1), 1)
    wrong = []
    for begin in range(0, max(rows, 1), at_once):
        here = slice(begin, begin + at_once)
        asked = query[..., here, :].double()
        scores = asked @ keys * (scale or query.shape[-1] ** -0.5)
        largest = scores.abs().amax(-1)
        if is_causal:
            own = torch.arange(rows, device=out.device)[here, None]
            scores = scores.masked_fill(torch.arange(places, device=out.device) > own, -math.inf)
        if attn_mask is not None:
            is_alike = attn_mask.dim() < 2 or attn_mask.shape[-2] == 1  # noqa: PLR2004  of all rows
            mask = attn_mask if is_alike else attn_mask[..., here, :]
            is_kept = mask.dtype is torch.bool
            scores = scores.masked_fill(~mask, -math.inf) if is_kept else scores + mask
        weights = torch.softmax(scores, -1)
        difference = (out[..., here, :].double().sum(-1) - (weights @ sums)[..., 0]).abs()
        sizes = (weights.square() @ squares)[..., 0]
        moved = 1 + largest * math.sqrt(query.shape[-1])
        limit = _attention_limit(out[..., here, :], sizes, moved, (places, value.shape[-1]))
        is_empty = (scores == -math.inf).all(-1)  # rows that attend to nothing have no sum
        wrong.append(~(difference.isfinite() & (difference <= limit)) & ~is_empty)
    return torch.cat(wrong, -1)


def _attention_limit(out: Tensor, sizes: Tensor, moved: Tensor, numbers: tuple[int, int]) -> Tensor:
    """What a row's sum may differ by from rounding alone; float64[..., rows].

    Sums are kept in fp32; weights and results may be rounded to the format. A score's error, which
    grows with the score, moves its weight by as much.
    """
    places, width = numbers
    steps = max(places / _PARTIAL_SUMS, 1.0)
    squares = out.double().square().sum(-1)
    unit = float_format(str(out.dtype)).unit_roundoff
    summed = FP32.unit_roundoff**2 * steps * (sizes * width * moved.square() + squares)
    kept = unit**2 * (width * sizes + squares)
    return DEVIATIONS * ((summed + kept) / 3).sqrt() + _SMALLEST


def attention_sums(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """What `checked_attention` holds keys and values against."""
    return keys.double().sum(-2), values.double().sum(-1)


def _is_beyond(found: Tensor, expected: Tensor, sizes: Tensor, inner: int) -> Tensor:
    steps = max(inner / _PARTIAL_SUMS, 1.0)
    wide = found.double()
    squares = wide.square().sum(-1)
    variance = FP32.unit_roundoff**2 / 3 * (steps / 2 * sizes + (steps / 3 + 1) * squares)
    limit = DEVIATIONS * variance.sqrt() + _SMALLEST
    difference = (wide.sum(-1) - expected).abs()
    return ~(difference.isfinite() & (difference <= limit))


def _roundoff(number: int) -> float:
    """Of a sum of so many shares of 1."""
    return FP32.unit_roundoff * math.sqrt(number)
