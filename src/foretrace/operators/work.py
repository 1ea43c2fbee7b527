"""`Work`: arithmetic and least traffic of an operator; `OperatorClass`: of which kind it is.

Conventions: a multiply-add counts as two FLOPs, exp, sqrt and a division as one each. Bytes are
the least traffic: every input is read once, every output written once, nothing is kept in a
cache between operators. Products, convolutions and attention count as PyTorch's
torch.utils.flop_counter does (tests compare them), but a causal mask's upper half is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from foretrace.operators.shapes import Tensor

UNKNOWN_BYTES = -1  # lists of tensors stand in a trace without their number format


class OperatorClass(StrEnum):
    """What a kernel, or an operator on the host, does."""

    GEMM = "gemm"  # matrix products, matrix-vector products, and their split-K reductions
    ATTENTION = "attention"  # fused: products, softmax and dropout in one kernel
    CONVOLUTION = "convolution"  # also when a matrix product or a transform does it
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    LOSS = "loss"  # cross entropy and other criteria
    ELEMENTWISE = "elementwise"  # activations, dropout, random numbers, quantisation
    REDUCTION = "reduction"  # also pooling and prefix sums
    EMBEDDING = "embedding"  # rows of a table by index, pooled or not, and their gradients
    INDEXING = "indexing"  # gather, scatter, sort, top-k, unique
    OPTIMIZER = "optimizer"  # parameter updates, gradient clipping and scaling
    COPY = "copy"  # bytes moved, cast, transposed, concatenated, filled
    COLLECTIVE = "collective"  # kernels of a communication library
    OTHER = "other"


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
