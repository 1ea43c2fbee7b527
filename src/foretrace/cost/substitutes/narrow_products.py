"""Products of 8-bit numbers in the place of wider ones, and the integer arithmetic behind them.

What is added: operands are made narrow (read once, written once), and integer results wide again,
either as they are stored or by a kernel of its own. Zero points need no more arithmetic on whole
matrices than sums of rows and columns, which packing forms (Khudia et al., FBGEMM,
arXiv:2101.05615).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.model import Source
from foretrace.cost.signatures import GEMM, Operation
from foretrace.cost.substitutes.rule import LAUNCH_NS, TRAFFIC_RATE, AddedOperator, Offer

_WIDE = ("fp32", "tf32", "bf16", "fp16")
_SUM_BYTES = 4  # integer products are added up in 32 bit
_MOST_16 = 2**15 - 1
_SMALL = 2**6  # weights below it: two of their products with unsigned bytes fit into 16 bit


@dataclass(frozen=True)
class NarrowProduct:
    """The rule: products in a narrower format."""

    dtype: str  # "int8", "fp8", "mxfp8"
    is_fused: bool = True  # results are made wide as they are stored

    @property
    def name(self) -> str:
        """`int8`, or `int8:unfused`."""
        return self.dtype if self.is_fused else f"{self.dtype}:unfused"

    @property
    def sentence(self) -> str:
        """How it is made, and what it does to numbers."""
        manner = "as they are stored" if self.is_fused else "by a kernel of its own"
        return (
            f"{self.name}: operands are rounded to {self.dtype} before each product, results are "
            f"made wide {manner}; what that does to the model is not known here"
        )

    def offers(
        self, operations: Sequence[Operation], kernels: FittedKernels
    ) -> tuple[Offer | None, ...]:
        """Of products in 16 and 32 bit, on chips that multiply in the format."""
        found: list[Offer | None] = [None] * len(operations)
        peak = kernels.chip.peak_flops_per_ns(self.dtype)
        rows = [at for at, one in enumerate(operations) if one.model == GEMM and one.dtype in _WIDE]
        if peak is None or not rows:
            return tuple(found)
        chosen = [operations[at] for at in rows]
        narrow = [replace(one, kind="library", dtype=self._costed) for one in chosen]
        costs = kernels.operation_costs([*chosen, *narrow])
        plain_ns, other_ns = np.split(costs.duration_ns, 2)
        is_known = (costs.source != Source.UNKNOWN).reshape(2, -1).all(axis=0)
        for at, one, plain, other in zip(
            np.array(rows)[is_known].tolist(),
            (one for one, known in zip(chosen, is_known.tolist(), strict=True) if known),
            plain_ns[is_known].tolist(),
            other_ns[is_known].tolist(),
            strict=True,
        ):
            found[at] = self._offer(one, kernels, peak=peak, taken_ns=(plain, other))
        return tuple(found)

    @property
    def _costed(self) -> str:
        return FORMAT_BY_NAME[self.dtype].rated_as

    def _offer(
        self, one: Operation, kernels: FittedKernels, *, peak: float, taken_ns: tuple[float, float]
    ) -> Offer:
        plain_ns, narrow_ns = taken_ns
        added, workspace = self._added(one, kernels.chip.memory_bytes_per_ns)
        wide = FORMAT_BY_NAME[one.dtype].num_bytes
        width = self._width
        plain_peak = kernels.chip.peak_flops_per_ns(one.dtype)
        least = min(plain_peak / peak if plain_peak else 1.0, width / wide)
        return Offer(
            plain_ns=plain_ns,
            duration_ns=narrow_ns + sum(each.duration_ns for each in added),
            least_factor=least,
            added=added,
            workspace_bytes=workspace,
        )

    @property
    def _width(self) -> float:
        found = FORMAT_BY_NAME[self.dtype]
        return found.num_bytes + found.scale_bytes

    def _added(self, one: Operation, bytes_per_ns: float) -> tuple[tuple[AddedOperator, ...], int]:
        batch, m, n, k = one.sizes
        wide, width = FORMAT_BY_NAME[one.dtype].num_bytes, self._width
        first, second, result = batch * m * k, batch * n * k, batch * m * n
        parts = [("packing of the right operand", (wide + width) * second)]
        if not FORMAT_BY_NAME[self._costed].is_narrow:  # of floats it is in the product's model
            parts.append(("packing of the left operand", (wide + width) * first))
        held = width * (first + second)
        if not self.is_fused:
            parts.append(("results made wide", (_SUM_BYTES + wide) * result))
            held += _SUM_BYTES * result
        rate = bytes_per_ns * TRAFFIC_RATE
        added = [AddedOperator(name, round(size), LAUNCH_NS + size / rate) for name, size in parts]
        return tuple(added), round(held)


@dataclass(frozen=True)
class Quantised:
    """A matrix of whole numbers q that stand for scale x (q - zero)."""

    numbers: Int64s  # int64[rows, columns]
    scale: float
    zero: int

    @classmethod
    def of(cls, values: Float64s, *, low: int, high: int) -> Quantised:
        """Values over their own range, zero among them exactly, in whole numbers low to high."""
        least, most = min(0.0, float(values.min())), max(0.0, float(values.max()))
        scale = (most - least) / (high - low) or 1.0
        zero = round(low - least / scale)
        numbers = np.clip(np.rint(values / scale) + zero, low, high).astype(np.int64)
        return cls(numbers, scale, zero)

    @property
    def values(self) -> Float64s:
        """What the numbers stand for."""
        found: Float64s = self.scale * (self.numbers - self.zero).astype(np.float64)
        return found


def integer_product(first: Quantised, second: Quantised) -> Int64s:
    """Sums of (q1 - zero1)(q2 - zero2), from the product of the numbers as they are; exact.

    Sums of rows and columns are all that zero points add.
    """
    raw = first.numbers @ second.numbers
    rows = first.numbers.sum(axis=1, keepdims=True)
    columns = second.numbers.sum(axis=0, keepdims=True)
    depth = first.numbers.shape[1] * first.zero * second.zero
    found: Int64s = raw - second.zero * rows - first.zero * columns + depth
    return found


def requantised(sums: Int64s, factor: float, zero: int, *, low: int, high: int) -> Int64s:
    """Sums as whole numbers of another scale, between low and high."""
    found: Int64s = np.clip(np.rint(sums * factor) + zero, low, high).astype(np.int64)
    return found


def product_in_16_bit(first: Int64s, second: Int64s) -> Int64s:
    """Unsigned bytes times signed ones, two products added with saturation at 16 bit each time.

    That is what `vpmaddubsw` does; pairs are added up in 32 bit.
    """
    depth = first.shape[1] + first.shape[1] % 2
    left = np.pad(first, ((0, 0), (0, depth - first.shape[1])))
    right = np.pad(second, ((0, depth - second.shape[0]), (0, 0)))
    terms = left[:, :, None] * right[None, :, :]
    pairs = terms[:, 0::2] + terms[:, 1::2]
    found: Int64s = np.clip(pairs, -_MOST_16 - 1, _MOST_16).sum(axis=1)
    return found


def split_outliers(second: Int64s) -> tuple[Int64s, Int64s, float]:
    """Weights that no pair saturates with, the others, and the share of these; they add up."""
    is_small: Bools = np.abs(second) < _SMALL
    return np.where(is_small, second, 0), np.where(is_small, 0, second), float((~is_small).mean())


def saturation_share(first: Float64s, second: Float64s) -> float:
    """How often a pair of products leaves 16 bit, from how often each number occurs.

    Args:
        first: float64[256], of activations 0 to 255.
        second: float64[256], of weights -128 to 127.
    """
    products = np.outer(np.arange(256), np.arange(-128, 128)).ravel()
    chances = np.outer(first / first.sum(), second / second.sum()).ravel()
    offset = 256 * 128
    spread = np.bincount(products + offset, chances, 2 * offset)
    size = 4 * offset
    pair = np.fft.irfft(np.fft.rfft(spread, size) ** 2, size)
    sums = np.arange(size) - 2 * offset
    return float(np.clip(pair[(sums > _MOST_16) | (sums < -_MOST_16 - 1)].sum(), 0, 1))
