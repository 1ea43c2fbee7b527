"""Tensors that lie in pieces: rows of a sharded model, columns of tensor parallelism, blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretrace.base import TraceError
from foretrace.numerics.libraries import Tensor, torch

ReadElements = Callable[[int, int], "Tensor"]  # elements from, to; of what is flattened


@dataclass(frozen=True, kw_only=True)
class TensorPiece:
    """A block of a tensor, which lies in one file."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    read: ReadElements

    @property
    def num_elements(self) -> int:
        """Of the piece."""
        return math.prod(self.sizes)

    def num_before(self, place: int, shape: Sequence[int]) -> int:
        """Of its elements, those that lie before a place of the flattened tensor."""
        count = 0
        for axis, (offset, size) in enumerate(zip(self.offsets, self.sizes, strict=True)):
            at, place = divmod(place, math.prod(shape[axis + 1 :]))
            at -= offset
            count += min(max(at, 0), size) * math.prod(self.sizes[axis + 1 :])
            if not 0 <= at < size:
                break
        return count

    def places(self, begin: int, end: int, shape: Sequence[int]) -> Tensor:
        """Where in the flattened tensor these of its elements lie."""
        left, found, stride = torch.arange(begin, end), torch.zeros(()).long(), 1
        for offset, size, width in zip(
            reversed(self.offsets), reversed(self.sizes), reversed(shape), strict=True
        ):
            found = found + (left % size + offset) * stride
            left, stride = left // size, stride * width
        return found


def joined(name: str, shape: Sequence[int], pieces: Sequence[TensorPiece]) -> ReadElements:
    """Reads a tensor out of its pieces; in memory is what is asked for.

    Args:
        name: of the tensor, for what is wrong with it.
        shape: of the whole.
        pieces: that it is made of, in any order.

    Raises:
        TraceError: if they do not make it, once each element.
    """
    total, there = math.prod(shape), sum(one.num_elements for one in pieces)
    is_inside = all(
        len(one.sizes) == len(shape)
        and all(
            o >= 0 and o + s <= w for o, s, w in zip(one.offsets, one.sizes, shape, strict=True)
        )
        for one in pieces
    )
    if there != total or not is_inside:
        raise TraceError(
            f"{name} is {tuple(shape)}, {total:,} elements, of which its {len(pieces)} pieces hold "
            f"{there:,}{'' if is_inside else ', some outside'}: fetch every file of the checkpoint"
        )
    if len(pieces) == 1:
        return pieces[0].read

    def read(first: int, last: int) -> Tensor:
        found = None
        for piece in pieces:
            begin, end = (piece.num_before(place, shape) for place in (first, last))
            if begin == end:
                continue
            values = piece.read(begin, end)
            if found is None:
                found = torch.empty(last - first, dtype=values.dtype)
            found[piece.places(begin, end, shape) - first] = values
        return torch.empty(0) if found is None else found

    return read
