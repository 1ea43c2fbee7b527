"""`Call`: an operator and its signature, written as a trace would show it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from foretrace.base import WorkloadError
from foretrace.operators import Tensor

# How PyTorch's profiler calls the number formats; `foretrace.operators` reads them. Formats of
# blocks (mxfp8) count as their element's, and TF32 is a way to multiply fp32, which no profiler
# tells apart: the name here is ours.
_PROFILER_NAMES = {
    "fp32": "float",
    "tf32": "tensorfloat32",
    "fp16": "c10::Half",
    "bf16": "c10::BFloat16",
    "fp8": "c10::Float8_e4m3fn",
    "mxfp8": "c10::Float8_e4m3fn",
    "fp4": "c10::Float4_e2m1fn",
    "nvfp4": "c10::Float4_e2m1fn",
    "mxfp4": "c10::Float4_e2m1fn",
    "int64": "long int",
    "int32": "int",
    "bool": "bool",
    "complex64": "c10::complex<float>",
}
BYTES_BY_FORMAT: dict[str, float] = {
    **dict.fromkeys(("fp32", "tf32", "int32"), 4.0),
    **dict.fromkeys(("fp16", "bf16"), 2.0),
    **dict.fromkeys(("fp8", "mxfp8", "bool"), 1.0),
    **dict.fromkeys(("fp4", "nvfp4", "mxfp4"), 0.5),
    **dict.fromkeys(("int64", "complex64"), 8.0),
}
FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "fp4", "nvfp4", "mxfp4")
# An operator that PyTorch has not: one kernel that a compiler or a library made of several
# elementwise operators. Its inputs are as many tensors as it reads, and as it writes but one.
FUSED = "aten::_fused_elementwise"


class Call(NamedTuple):
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
def call(name: str, *inputs: Tensor | str | None) -> Call:
    """An operator with its inputs: tensors, texts of values, or nothing.

    Raises:
        WorkloadError: for a number format that no trace has.
    """
    dims: list[list[int]] = []
    types: list[str] = []
    strides: list[list[int]] = []
    values: list[str] = []
    for one in inputs:
        is_tensor = isinstance(one, Tensor)
        dims.append(list(one.shape) if isinstance(one, Tensor) else [])
        strides.append(list(one.strides) if isinstance(one, Tensor) else [])
        types.append(_format_name(one.dtype) if isinstance(one, Tensor) else "")
        values.append("" if is_tensor or one is None else str(one))
    said = {"dims": dims, "types": types, "strides": strides, "inputs": values}
    return Call(name, json.dumps(said, separators=(",", ":")))


def _format_name(dtype: str) -> str:
    found = _PROFILER_NAMES.get(dtype)
    if found is None:
        raise WorkloadError(
            f"number format {dtype!r} is not known to blocks, which know {', '.join(FORMATS)}: "
            "name one of these under [precision]"
        )
    return found


def num_bytes(num_elements: int, dtype: str) -> int:
    """Bytes of that many numbers of a format; half bytes are rounded up.

    Raises:
        WorkloadError: for an unknown format.
    """
    _format_name(dtype)
    return int(-(-num_elements * BYTES_BY_FORMAT[dtype] // 1))
