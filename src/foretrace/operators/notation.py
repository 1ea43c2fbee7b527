"""An operator as a line: index notation, from which ranges, arithmetic and traffic follow.

    def mm(fp16(1024, 4096) A, fp16(4096, 512) B) -> (C) {
        C(m, n) +=! A(m, k) * B(k, n)
    }

As in Tensor Comprehensions (Vasilache et al., arXiv:1802.04730): an index that stands on the right
alone is summed over (`+=`; with `!` the result begins at zero), every index takes all values with
which all reads are in bounds, and an index of a read may be a sum such as `2*h + kh - 1`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s, ModelError

_OPERANDS = 2  # of a product


@dataclass(frozen=True)
class Affine:
    """An index of a read: `2*h + kh - 1`."""

    factor_by_index: tuple[tuple[str, int], ...]
    constant: int
    at: int  # where it stands in the text

    @property
    def names(self) -> tuple[str, ...]:
        """Its indices."""
        return tuple(name for name, _ in self.factor_by_index)

    @property
    def is_bare(self) -> bool:
        """Whether it is one index and nothing else."""
        return [factor for _, factor in self.factor_by_index] == [1] and not self.constant


@dataclass(frozen=True)
class IndexedRead:
    """A tensor at an index of every dimension."""

    tensor: str
    indices: tuple[Affine, ...]
    at: int

    @property
    def names(self) -> tuple[str, ...]:
        """All indices in it, each once."""
        return tuple(dict.fromkeys(name for one in self.indices for name in one.names))


@dataclass(frozen=True)
class NotationTerm:
    """A product of reads and numbers; terms are added up."""

    factor: float
    reads: tuple[IndexedRead, ...]
    num_products: int


@dataclass(frozen=True)
class IndexedOperator:
    """An operator in index notation, with its sizes."""

    name: str
    formats: Mapping[str, str]  # of tensors
    shapes: Mapping[str, tuple[int, ...]]  # of tensors that are read
    result: IndexedRead
    is_sum: bool
    keeps_result: bool  # adds to what the result holds
    terms: tuple[NotationTerm, ...]
    ranges: Mapping[str, range]

    @property
    def num_points(self) -> int:
        """Of the space that all indices span."""
        return math.prod(len(each) for each in self.ranges.values())

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        products = sum(term.num_products for term in self.terms)
        return self.num_points * (products + len(self.terms) - 1 + self.is_sum)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """How many values the result's indices take."""
        return tuple(len(self.ranges[one.names[0]]) for one in self.result.indices)

    @cached_property
    def elements_by_tensor(self) -> Mapping[str, int]:
        """Distinct elements that are read of each tensor, and written of the result."""
        found = {name: self._distinct(self._reads(name)) for name in self.shapes}
        return {**found, self.result.tensor: math.prod(self.result_shape)}

    @property
    def num_bytes(self) -> int:
        """Least traffic: what is read once, and the result; twice, if it is added to."""
        taken = dict(self.elements_by_tensor)
        taken[self.result.tensor] *= 2 if self.keeps_result else 1
        return round(
            sum(n * FORMAT_BY_NAME[self.formats[name]].num_bytes for name, n in taken.items())
        )

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.num_bytes

    @property
    def halo_by_tensor(self) -> Mapping[str, int]:
        """Elements that windows add: reads at sums of indices beside those of the result's own."""
        return {
            name: self.elements_by_tensor[name]
            - max(self._distinct([one], is_own=True) for one in self._reads(name))
            for name in self.shapes
        }

    @property
    def product_sizes(self) -> tuple[int, int, int, int] | None:
        """Batch, m, n and k, if it is a product of two tensors at bare indices."""
        if len(self.terms) != 1 or len(self.terms[0].reads) != _OPERANDS or not self.is_sum:
            return None
        first, second = self.terms[0].reads
        if not all(one.is_bare for one in (*first.indices, *second.indices)):
            return None
        left, right, kept = set(first.names), set(second.names), set(self.result.names)
        if not left & right - kept or (left ^ right) - kept:
            return None
        groups = (
            left & right & kept,
            (left - right) & kept,
            (right - left) & kept,
            left & right - kept,
        )
        batch, m, n, k = (math.prod(len(self.ranges[one]) for one in each) for each in groups)
        return batch, m, n, k

    def run(self, tensors: Mapping[str, Float64s]) -> Float64s:
        """The result of arrays, by name; what it is added to, if it is, is left to the caller."""
        letters = {name: chr(ord("a") + at) for at, name in enumerate(self.ranges)}
        out = "".join(letters[name] for name in self.result.names)
        total: Float64s | None = None
        for term in self.terms:
            views = [self._view(one, tensors[one.tensor]) for one in term.reads]
            words = ",".join("".join(letters[name] for name in one.names) for one in term.reads)
            part = term.factor * np.einsum(f"{words}->{out}", *views, optimize=True)
            total = part if total is None else total + part
        if total is None:
            raise ModelError(f"{self.name} reads nothing")
        return total

    def _view(self, access: IndexedRead, whole: Float64s) -> Float64s:
        strides = dict.fromkeys(access.names, 0)
        first = []
        for one, stride in zip(access.indices, whole.strides, strict=True):
            least = sum(each * self.ranges[name].start for name, each in one.factor_by_index)
            first.append(least + one.constant)
            for name, each in one.factor_by_index:
                strides[name] += each * stride
        begin = whole[tuple(slice(one, None) for one in first)]
        sizes = tuple(len(self.ranges[name]) for name in access.names)
        return np.lib.stride_tricks.as_strided(
            begin, sizes, tuple(strides.values()), writeable=False
        )

    def _reads(self, tensor: str) -> list[IndexedRead]:
        return [one for term in self.terms for one in term.reads if one.tensor == tensor]

    def _distinct(self, reads: Sequence[IndexedRead], *, is_own: bool = False) -> int:
        """Elements that reads of one tensor touch together: a union of boxes with gaps."""
        masks = [self._masks(one, is_own=is_own) for one in reads]
        total = 0
        for count in range(1, len(masks) + 1):
            for chosen in combinations(masks, count):
                both = [np.logical_and.reduce(sides) for sides in zip(*chosen, strict=True)]
                total -= (-1) ** count * math.prod(int(side.sum()) for side in both)
        return total

    def _masks(self, access: IndexedRead, *, is_own: bool) -> list[Bools]:
        """For each dimension which positions are touched; with windows of one place, if own."""
        own = set(self.result.names)
        found = []
        for one, size in zip(access.indices, self.shapes[access.tensor], strict=True):
            places: Int64s = np.array([one.constant], np.int64)
            for name, factor in one.factor_by_index:
                taken = self.ranges[name]
                is_window = name not in own and len(one.names) > 1
                taken = taken[:1] if is_own and is_window else taken
                places = np.unique(np.add.outer(places, factor * np.array(taken, np.int64)))
            mask = np.zeros(size, np.bool_)
            mask[places] = True
            found.append(mask)
        return found
