"""`OperatorCall`: an operator and its signature, written as a trace would show it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from foretrace.base import WorkloadError, known_format
from foretrace.operators import Tensor

# An operator that PyTorch has not: one kernel that a compiler or a library made of several
# elementwise operators. Its inputs are as many tensors as it reads, and as it writes but one.
FUSED = "aten::_fused_elementwise"
# Another one: a matrix becomes one of a narrow format, and its transposed copy, in one kernel.
QUANTISED = "aten::_quantize_both"
# And one that reads each row of a matrix, finds its largest number, and writes it in a narrow
# format with a scale of its own.
QUANTISED_ROWS = "aten::_quantize_rows"
# Products of scans of states, and attention to what an indexer scores or picks: libraries have
# kernels of their own for them.
STATE_PRODUCT = "aten::_state_product"
PICKED_ATTENTION = "aten::_picked_attention"


class OperatorCall(NamedTuple):
    """One operator on a device."""

    name: str
    signature: str


def array(shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] = ()) -> Tensor:
    """A tensor whose elements lie next to each other in order unless strides are given."""
    return Tensor(shape, dtype, strides or contiguous(shape))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor that lies in memory in the order of its dimensions."""
    strides = [1]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()


def turned(shape: tuple[int, int], dtype: str) -> Tensor:
    """A matrix of that shape which lies in memory column by column: a weight, transposed."""
    return Tensor(shape, dtype, (1, shape[0]))


@lru_cache(maxsize=65_536)
def call(name: str, *inputs: Tensor | str | None) -> OperatorCall:
    """An operator with its inputs: tensors, texts of values, or nothing.

    Raises:
        WorkloadError: for an unknown number format.
    """
    dims: list[list[int]] = []
    types: list[str] = []
    strides: list[list[int]] = []
    values: list[str] = []
    for one in inputs:
        is_tensor = isinstance(one, Tensor)
        dims.append(list(one.shape) if isinstance(one, Tensor) else [])
        strides.append(list(one.strides) if isinstance(one, Tensor) else [])
        types.append(known_format(one.dtype).profiled if isinstance(one, Tensor) else "")
        values.append("" if is_tensor or one is None else str(one))
    said = {"dims": dims, "types": types, "strides": strides, "inputs": values}
    return OperatorCall(name, json.dumps(said, separators=(",", ":")))


def num_bytes(num_elements: int, dtype: str) -> int:
    """Bytes of that many numbers of a format; half bytes are rounded up.

    Raises:
        WorkloadError: for an unknown format, or more numbers than any memory holds.
    """
    try:
        return int(-(-num_elements * known_format(dtype).num_bytes // 1))
    except OverflowError as err:
        raise WorkloadError(
            "a tensor of this model has more numbers than can be counted: state smaller sizes"
        ) from err
