"""Fast matrix products: seven products of quarters in the place of eight, and more additions.

A scheme (Strassen's, Winograd's) is three tables: which quarters of the operands each product sums
up, and which quarters of the result it is added to. What it saves and what it adds both follow
from them: arithmetic falls to 7/8 at each level, and every quarter that a product touches goes
through memory once more.

- Fused (`strassen`): sums are formed as operands are loaded, and each product is added to the
  quarters of the result that it belongs to, as in Huang, Yu and van de Geijn, "Implementing
  Strassen's Algorithm with CUTLASS on NVIDIA Volta GPUs", arXiv:1808.07984.
- With workspace (`winograd`): sums are formed once, products are kept, a last kernel adds them up.

Time is the share of the whole product's that is left of its arithmetic, at least what its operands
take through memory, and the added traffic after it: what is added is not hidden. That the smaller
products fill a chip as well as the whole one is taken for granted down to one tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Float64s, Int64s
from foretrace.cost.gemm import GemmShapes
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.signatures import GEMM, Operation
from foretrace.cost.substitutes.rule import LAUNCH_NS, TRAFFIC_RATE, AddedOperator, Offer

# Products one after the other, each with the signs of the quarters upper left, upper right, lower
# left and lower right: of the left operand, of the right one, of the result.
_TABLES = {
    "strassen": (
        "+..+ ..++ +... ...+ ++.. -.+. .+.-",
        "+..+ +... .+.- -.+. ...+ ++.. ..++",
        "+..+ ..+- .+.+ +.+. -+.. ...+ +...",
    ),
    "winograd": (
        "+... .+.. ++-- ...+ ..++ -.++ +.-.",
        "+... ..+. ...+ +--+ -+.. +-.+ .-.+",
        "++++ +... .+.. ..-. .+.+ .+++ ..++",
    ),
}
_SIGNS = {"+": 1, "-": -1, ".": 0}

_LEAST_SIDE = 128  # of the smallest products: a tile
_SUM_BYTES = 4  # products are added up in 32 bit
# Largest error in bf16 and fp16 beside that of a plain product, sums of products in fp32, lengths
# of 512 and 2,048: `foretrace numerics deviate bench/fast_products.py:strassen_1`, and so on.
_ERROR_GROWTH = {"strassen": (2.4, 7.2), "winograd": (3.3, 13.0)}
_FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16")  # what sums of operands do not overflow


@dataclass(frozen=True)
class FastScheme:
    """A product of 2**levels x 2**levels blocks by fewer products of blocks."""

    left: Int64s  # int64[products, blocks], of the left operand, row by row
    right: Int64s  # int64[products, blocks]
    result: Int64s  # int64[products, blocks], where each product is added
    levels: int

    @classmethod
    def of(cls, name: str, levels: int) -> FastScheme:
        """Strassen's or Winograd's, within itself so many times."""
        first, second, third = (
            np.array([[_SIGNS[sign] for sign in word] for word in text.split()], np.int64)
            for text in _TABLES[name]
        )
        left, right, result = first, second, third
        for _ in range(levels - 1):
            left, right, result = (
                np.kron(left, first),
                np.kron(right, second),
                np.kron(result, third),
            )
        return cls(left, right, result, levels)

    @property
    def num_products(self) -> int:
        """7 for each level."""
        return len(self.left)

    @cached_property
    def touched(self) -> tuple[float, float, float]:
        """How often a whole left, right operand and result are gone through by all products."""
        left, right, result = (
            float(np.count_nonzero(table)) / table.shape[1]
            for table in (self.left, self.right, self.result)
        )
        return left, right, result

    @cached_property
    def kept(self) -> tuple[float, float, float]:
        """Sums of left and right blocks that are no block themselves, and products, as wholes."""
        sums = [
            float((np.count_nonzero(table, axis=1) > 1).sum()) / table.shape[1]
            for table in (self.left, self.right)
        ]
        return sums[0], sums[1], self.num_products / self.left.shape[1]

    def multiplied(self, first: Float64s, second: Float64s) -> Float64s:
        """The product, as the scheme makes it; sides that do not divide are filled with zeros."""
        side = 2**self.levels
        rows, columns = first.shape[0], second.shape[1]
        lefts, rights = (self._blocks(_filled(one, side)) for one in (first, second))
        products = [
            _summed(lefts, left) @ _summed(rights, right)
            for left, right in zip(self.left, self.right, strict=True)
        ]
        blocks = [_summed(products, column) for column in self.result.T]
        order = np.argsort(self._places().ravel(), kind="stable")
        grid = [[blocks[at] for at in order[row * side : (row + 1) * side]] for row in range(side)]
        found: Float64s = np.block(grid)[:rows, :columns]
        return found

    def _places(self) -> Int64s:
        """int64[blocks], where each column of the tables stands, row by row."""
        side = 2**self.levels
        place = np.zeros((1, 2), np.int64)
        corner = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
        for _ in range(self.levels):
            place = (2 * place[:, None] + corner).reshape(-1, 2)
        found: Int64s = place[:, 0] * side + place[:, 1]
        return found

    def _blocks(self, whole: Float64s) -> list[Float64s]:
        """Blocks in the order of the tables' columns."""
        side = 2**self.levels
        rows = [np.split(each, side, axis=1) for each in np.split(whole, side)]
        return [rows[at // side][at % side] for at in self._places().tolist()]


def _filled(whole: Float64s, side: int) -> Float64s:
    found: Float64s = np.pad(whole, [(0, -size % side) for size in whole.shape])
    return found


def _summed(blocks: Sequence[Float64s], signs: Int64s) -> Float64s:
    """Blocks added and subtracted, in the format they are in."""
    used = np.flatnonzero(signs)
    total: Float64s = blocks[used[0]] if signs[used[0]] > 0 else -blocks[used[0]]
    for at in used[1:].tolist():
        total = total + blocks[at] if signs[at] > 0 else total - blocks[at]
    return total


@dataclass(frozen=True)
class FastProduct:
    """The rule: products by a fast scheme."""

    scheme: str  # "strassen": fused; "winograd": with workspace
    levels: int
    traffic_rate: float = TRAFFIC_RATE

    @property
    def name(self) -> str:
        """`strassen:1`."""
        return f"{self.scheme}:{self.levels}"

    @property
    def sentence(self) -> str:
        """How it is made, and what it does to numbers."""
        manner = "fused into the product" if self._is_fused else "with sums and products kept"
        share = f"{7**self.levels}/{8**self.levels}"
        growth = _ERROR_GROWTH[self.scheme][self.levels - 1]
        return (
            f"{self.name}: {share} of the arithmetic, {manner}; in 16 bit the largest error is "
            f"{growth:g} times a plain product's"
        )

    @property
    def _is_fused(self) -> bool:
        return self.scheme == "strassen"

    def offers(
        self, operations: Sequence[Operation], kernels: FittedKernels
    ) -> tuple[Offer | None, ...]:
        """Of products whose smallest blocks are as large as a tile."""
        found: list[Offer | None] = [None] * len(operations)
        rows = [at for at, one in enumerate(operations) if self._is_for(one)]
        chosen = [operations[at] for at in rows]
        # What the smallest product takes is a kernel's start, and no arithmetic.
        starts = [replace(one, sizes=(1, 1, 1, 1)) for one in chosen]
        costs_ns = kernels.operation_costs([*chosen, *starts]).duration_ns.tolist()
        plain_ns, start_ns = costs_ns[: len(chosen)], costs_ns[len(chosen) :]
        for at, whole, start in zip(rows, plain_ns, start_ns, strict=True):
            if whole > 0:
                found[at] = self._offer(operations[at], kernels, (whole, min(start, whole)))
        return tuple(found)

    def _is_for(self, one: Operation) -> bool:
        if one.model != GEMM or one.dtype not in _FORMATS:
            return False
        return bool(min(one.sizes[1:]) >= _LEAST_SIDE * 2**self.levels)

    def _offer(
        self, one: Operation, kernels: FittedKernels, taken_ns: tuple[float, float]
    ) -> Offer:
        plain_ns, start_ns = taken_ns
        side = 2**self.levels
        least = (7 / 8) ** self.levels
        filled = math.prod(-(-size // side) * side / size for size in one.sizes[1:])
        bytes_per_ns = kernels.chip.memory_bytes_per_ns
        moving_ns = (
            float(GemmShapes.of(np.array([one.sizes]), one.dtype).num_bytes[0]) / bytes_per_ns
        )
        added, workspace = self._added(one, bytes_per_ns)
        work_ns = max((plain_ns - start_ns) * least * filled, min(plain_ns - start_ns, moving_ns))
        body_ns = start_ns + work_ns
        return Offer(
            plain_ns=plain_ns,
            duration_ns=body_ns + sum(each.duration_ns for each in added),
            least_factor=least,
            added=added,
            workspace_bytes=workspace,
        )

    def _added(self, one: Operation, bytes_per_ns: float) -> tuple[tuple[AddedOperator, ...], int]:
        """Traffic that the whole product has not, and the bytes that are held for it."""
        batch, m, n, k = one.sizes
        item = FORMAT_BY_NAME[one.dtype].num_bytes
        result = batch * m * n
        operands = (batch * m * k * item, batch * n * k * item)
        scheme = FastScheme.of(self.scheme, self.levels)
        casts = (_SUM_BYTES + item) * result if item < _SUM_BYTES else 0.0
        sum_bytes = max(item, _SUM_BYTES)
        if self._is_fused:
            *twice, updated = scheme.touched
            read = sum((touched - 1) * size for touched, size in zip(twice, operands, strict=True))
            updates = (2 * updated * sum_bytes - item) * result + casts
            held = sum_bytes * result if casts else 0.0
            parts, launch_ns = (("sums of operands", read), ("updates of the result", updates)), 0.0
        else:
            *sums, products = scheme.kept
            made = sum((1 + kept) * size for kept, size in zip(sums, operands, strict=True))
            updates = 2 * products * sum_bytes * result
            held = sum(kept * size for kept, size in zip(sums, operands, strict=True))
            held += products * sum_bytes * result
            parts, launch_ns = (
                (("sums of operands", made), ("sums of products", updates)),
                LAUNCH_NS,
            )
        rate = bytes_per_ns * self.traffic_rate
        added = [AddedOperator(name, round(size), launch_ns + size / rate) for name, size in parts]
        return tuple(added), round(held)
