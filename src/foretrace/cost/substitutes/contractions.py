"""Operators that somebody described by indices, and contractions of tensors by products and copies.

A contraction of two tensors is a matrix product once its indices are put into groups. A library's
product wants each group to lie together, which a transposed copy sees to (TTGT); a product that
gathers its tiles through the strides of every index (block-scatter: Huang, Matthews and van de
Geijn, "Strassen's Algorithm for Tensor Contraction", arXiv:1704.03092) wants none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.answer import Plain
from foretrace.base import FORMAT_BY_NAME, ModelError
from foretrace.cost.gemm import LIBRARY
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.memory_bound import Access
from foretrace.cost.model import Costs
from foretrace.cost.signatures import GEMM, MOVEMENT, Operation
from foretrace.operators import IndexedOperator

_READ_AND_WRITTEN = 2
_MOST_EXACT = 6  # tensors of which every order is tried; of more, the cheapest pair goes first


@dataclass(frozen=True)
class ContractionStep(Plain):
    """One product of two tensors on the way."""

    expression: str  # "bqhd,bkhd->bhqk"
    sizes: tuple[int, int, int, int]  # batch, m, n, k
    copied: tuple[str, ...]  # index texts of tensors that are copied with their groups together
    copied_bytes: int  # read and written
    product_ns: int
    copies_ns: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition as two."""
        return 2 * math.prod(self.sizes)

    @property
    def gain(self) -> float:
        """How many times as fast it is without copies."""
        return (self.product_ns + self.copies_ns) / self.product_ns


def contraction_steps(
    expression: str, shapes: Sequence[tuple[int, ...]], dtype: str, *, kernels: FittedKernels
) -> tuple[ContractionStep, ...]:
    """The products that a contraction becomes, in the order that needs least arithmetic.

    Args:
        expression: as of `torch.einsum`, with `->`: "bqhd,bkhd->bhqk"; no index twice in a tensor.
        shapes: of its tensors.
        dtype: their format.
        kernels: models of the chip's kernels.

    Raises:
        ModelError: for an expression that these shapes do not fit.
    """
    left, arrow, out = expression.replace(" ", "").partition("->")
    texts = left.split(",")
    sizes = _sizes(expression, texts, shapes)
    if not arrow or len(texts) <= 1 or not set(out) <= set(sizes):
        raise ModelError(
            f"{expression!r} is no contraction of two tensors or more with a result: write it as "
            "in bqhd,bkhd->bhqk"
        )
    manner = "optimal" if len(texts) <= _MOST_EXACT else "greedy"
    empty = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    order = np.einsum_path(expression, *empty, optimize=(manner, 2**62))[0][1:]
    found = []
    for pair in order:
        first, second = (texts[at] for at in sorted(pair)[:2])
        texts = [each for at, each in enumerate(texts) if at not in pair]
        wanted = set(out).union(*texts)
        kept = (
            out
            if not texts
            else "".join(one for one in dict.fromkeys(first + second) if one in wanted)
        )
        found.append(_step((first, second, kept), sizes, dtype, kernels=kernels))
        texts.append(kept)
    return tuple(found)


def _sizes(
    expression: str, texts: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """Size of every index."""
    found: dict[str, int] = {}
    if len(texts) != len(shapes):
        raise ModelError(f"{expression!r} is of {len(texts)} tensors, and {len(shapes)} are given")
    for text, shape in zip(texts, shapes, strict=True):
        if len(text) != len(shape) or len(set(text)) < len(text):
            raise ModelError(f"{text!r} of {expression!r} does not name the dimensions of {shape}")
        for name, size in zip(text, shape, strict=True):
            if found.setdefault(name, size) != size:
                raise ModelError(
                    f"{name!r} of {expression!r} is {found[name]} and {size}: sizes must agree"
                )
    return found


def _step(
    of: tuple[str, str, str], sizes: Mapping[str, int], dtype: str, *, kernels: FittedKernels
) -> ContractionStep:
    first, second, out = of
    left, right, kept = set(first), set(second), set(out)
    groups = (left & right & kept, left & kept - right, right & kept - left, left & right - kept)
    batch, m, n, k = groups
    copied = [
        text
        for text, sides in ((first, (m, k)), (second, (k, n)), (out, (m, n)))
        if not _lies_together(text, (batch, *sides), against=(first, second, out))
    ]
    item = FORMAT_BY_NAME[dtype].num_bytes
    moved = [
        round(_READ_AND_WRITTEN * item * math.prod(sizes[name] for name in text)) for text in copied
    ]
    of_groups = tuple(math.prod(sizes[name] for name in each) for each in groups)
    product = Operation(GEMM, LIBRARY, dtype, of_groups)
    copies = [Operation(MOVEMENT, "uneven", dtype, (size, int(Access.UNEVEN))) for size in moved]
    product_ns, *copies_ns = kernels.operation_costs([product, *copies]).duration_ns.tolist()
    return ContractionStep(
        expression=f"{first},{second}->{out}",
        sizes=(of_groups[0], of_groups[1], of_groups[2], of_groups[3]),
        copied=tuple(copied),
        copied_bytes=sum(moved),
        product_ns=product_ns,
        copies_ns=sum(copies_ns),
    )


def _lies_together(
    text: str, groups: tuple[set[str], set[str], set[str]], *, against: tuple[str, str, str]
) -> bool:
    """Whether batch, then both other groups, stand one after the other, in one order everywhere."""
    batch, *sides = (
        "".join(one for one in next(t for t in against if set(t) >= group) if one in group)
        for group in groups
    )
    return text in {batch + sides[0] + sides[1], batch + sides[1] + sides[0]}


def described_costs(operator: IndexedOperator, kernels: FittedKernels) -> Costs:
    """One row of an operator's: a product by its model; else the longer of traffic and arithmetic.

    A kernel of one's own may be slower than either; it is not faster.
    """
    dtype = next(iter(operator.formats.values()))
    sizes = operator.product_sizes
    if sizes is not None and kernels.chip.peak_flops_per_ns(dtype) is not None:
        return kernels.operation_costs([Operation(GEMM, LIBRARY, dtype, sizes)])
    stream = (operator.num_bytes, int(Access.STREAM))
    costs = kernels.operation_costs([Operation(MOVEMENT, "stream", dtype, stream)])
    is_wide = FORMAT_BY_NAME[dtype].num_bytes > FORMAT_BY_NAME["fp32"].num_bytes
    peak = kernels.chip.peak_flops_per_ns(dtype if is_wide else "fp32", on_matrix_units=False)
    least_ns = round(operator.flops / peak) if peak else 0
    return Costs(
        duration_ns=np.maximum(costs.duration_ns, least_ns),
        low_ns=np.maximum(costs.low_ns, least_ns),
        high_ns=np.maximum(costs.high_ns, 2 * least_ns),
        source=costs.source,
        family=costs.family,
        families=costs.families,
    )
