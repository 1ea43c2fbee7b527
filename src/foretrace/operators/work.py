"""`Work`: the arithmetic and the least memory traffic of an operator, from its shapes.

Conventions: a multiply-add counts as two FLOPs, exp, sqrt and a division as one each. Bytes are
the least traffic: every input is read once, every output written once, nothing is kept in a
cache between operators. Products, convolutions and attention count as PyTorch's
torch.utils.flop_counter does (tests compare them), but a causal mask's upper half is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.operators.shapes import Tensor

UNKNOWN_BYTES = -1  # lists of tensors stand in a trace without their number format


@dataclass(frozen=True)
class Work:
    """What an operator must at least do."""

    flops: int
    bytes_read: int  # UNKNOWN_BYTES
    bytes_written: int  # UNKNOWN_BYTES
    dtype: str  # number format of its operands; "" unknown
    is_product: bool = False  # sums of products, for which chips have matrix units

    @property
    def num_bytes(self) -> int:
        """Bytes read and written; UNKNOWN_BYTES."""
        if UNKNOWN_BYTES in {self.bytes_read, self.bytes_written}:
            return UNKNOWN_BYTES
        return self.bytes_read + self.bytes_written


def moved(
    flops: int,
    *,
    read: tuple[Tensor | None, ...],
    written: tuple[Tensor | None, ...],
    dtype: str,
    is_product: bool = False,
) -> Work:
    """Work that reads and writes these tensors once; what is None is not there."""
    return Work(
        flops=flops,
        bytes_read=_bytes(read),
        bytes_written=_bytes(written),
        dtype=dtype,
        is_product=is_product,
    )


def _bytes(tensors: tuple[Tensor | None, ...]) -> int:
    present = [one for one in tensors if one is not None]
    if any(one.element_bytes == 0 for one in present):
        return UNKNOWN_BYTES
    return sum(one.num_bytes for one in present)
