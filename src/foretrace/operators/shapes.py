"""`Shapes`: what a signature's text says of an operator's inputs.

A signature is JSON text with the profiler's `Input Dims`, `Input type`, `Input Strides` and
`Concrete Inputs` under `dims`, `types`, `strides` and `inputs`, as `trace` keeps it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache

from foretrace.base import FORMAT_BY_CODE, FORMAT_BY_NAME, tensor_format

_PROMOTION = ("fp64", "fp32", "bf16", "fp16", "int64", "int32", "int16", "int8", "uint8", "bool")

_LIST = "TensorList"


@dataclass(frozen=True)
class Tensor:
    """Shape and number format of one tensor."""

    shape: tuple[int, ...]
    dtype: str  # "bf16", "fp32", "int64", ...; "" unknown
    strides: tuple[int, ...] = ()  # in elements; empty: unknown, or a scalar

    @property
    def num_elements(self) -> int:
        """Elements, as many as the shape says."""
        return math.prod(self.shape)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; 0 if its format is unknown, or takes less than a byte."""
        found = FORMAT_BY_NAME.get(self.dtype)
        return found.whole_bytes if found is not None else 0

    @property
    def num_bytes(self) -> int:
        """Bytes that reading it once moves: an expanded dimension (stride 0) is stored once."""
        stored = self.shape
        if len(self.strides) == len(self.shape):
            pairs = zip(self.shape, self.strides, strict=True)
            stored = tuple(size for size, stride in pairs if stride != 0)
        return math.prod(stored) * self.element_bytes


@dataclass(frozen=True)
class Shapes:
    """An operator's inputs, in order."""

    # None: no tensor; an empty tuple: a list without tensors, or of more than profilers tell
    inputs: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    values: tuple[str, ...]  # text of inputs that are no tensors; "" unknown

    def tensor(self, position: int) -> Tensor | None:
        """The tensor at a position; none if there is none."""
        found = self.inputs[position] if position < len(self.inputs) else None
        return found if isinstance(found, Tensor) else None

    def tensors(self, position: int) -> tuple[Tensor, ...]:
        """The list of tensors at a position; empty if there is none."""
        found = self.inputs[position] if position < len(self.inputs) else None
        return found if isinstance(found, tuple) else ()

    @property
    def is_untold(self) -> bool:
        """Whether it works on lists alone, of which no tensor is told."""
        return () in self.inputs and not any(self.inputs)

    @property
    def single(self) -> tuple[Tensor, ...]:
        """All inputs that are one tensor."""
        return tuple(one for one in self.inputs if isinstance(one, Tensor))

    def numbers(self, position: int) -> tuple[int, ...] | None:
        """A list of integers among the concrete inputs; `[1, 1]` and `1` alike; none: unknown."""
        try:
            found = json.loads(self.value(position))
        except (ValueError, RecursionError):
            return None
        numbers = found if isinstance(found, list) else [found]
        return tuple(numbers) if all(type(one) is int for one in numbers) else None

    def flags(self, position: int) -> tuple[bool, ...] | None:
        """A list of booleans, or one; none: unknown."""
        words = self.value(position).strip("[]").replace(",", " ").lower().split()
        known = {"true": True, "false": False, "1": True, "0": False}
        return tuple(known[word] for word in words) if words and set(words) <= set(known) else None

    def dtype(self, position: int) -> str:
        """A number format among the concrete inputs; "" if none is given."""
        code = self.numbers(position)
        found = FORMAT_BY_CODE.get(code[0]) if code else None
        return found.name if found is not None else ""

    def value(self, position: int) -> str:
        """Text of a concrete input; empty: unknown, or a tensor."""
        return self.values[position] if position < len(self.values) else ""


# Pure, and asked for the same few texts of a job by every question about it.
@lru_cache(maxsize=65_536)
def parsed_shapes(signature: str) -> Shapes | None:
    """The inputs that a signature names; none if it has no shapes."""
    try:
        said = json.loads(signature)
    except (ValueError, RecursionError):  # the text is the file's, and may be anything
        return None
    dims = said.get("dims") if isinstance(said, dict) else None
    if not isinstance(dims, list):
        return None
    types = _list_of(said, "types", len(dims))
    strides = _list_of(said, "strides", len(dims))
    values = _list_of(said, "inputs", len(dims))
    return Shapes(
        inputs=tuple(map(_input, dims, types, strides)),
        values=tuple(one if isinstance(one, str) else "" for one in values),
    )


def promoted(tensors: tuple[Tensor, ...]) -> str:
    """The number format of what tensors of these give together; scalars do not widen tensors."""
    shaped = [one.dtype for one in tensors if one.shape] or [one.dtype for one in tensors]
    return next((dtype for dtype in _PROMOTION if dtype in shaped), shaped[0] if shaped else "")


def broadcast(tensors: tuple[Tensor, ...]) -> tuple[int, ...]:
    """The shape that tensors have together; of a size that does not fit, the largest."""
    rank = max((len(one.shape) for one in tensors), default=0)
    padded = [(1,) * (rank - len(one.shape)) + one.shape for one in tensors]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


def _list_of(said: dict[str, object], key: str, length: int) -> list[object]:
    found = said.get(key)
    known = found if isinstance(found, list) else []
    return [*known[:length], *([""] * (length - len(known)))]


def _input(dims: object, kind: object, strides: object) -> Tensor | tuple[Tensor, ...] | None:
    if not isinstance(dims, list):
        return None
    if dims and all(isinstance(one, list) for one in dims):
        parts = strides if isinstance(strides, list) and len(strides) == len(dims) else dims
        known = parts is strides
        # A profiler names no formats here; `foretrace.capture` does.
        kinds = kind if isinstance(kind, list) and len(kind) == len(dims) else [""] * len(dims)
        return tuple(
            Tensor(shape, _format(each), _sizes(part) or () if known else ())
            for one, part, each in zip(dims, parts, kinds, strict=True)
            if (shape := _sizes(one)) is not None
        )
    if not dims and kind == _LIST:
        return ()
    dtype = _format(kind)
    shape = _sizes(dims)
    if shape is None or (not dims and not dtype):
        return None
    return Tensor(shape, dtype, _sizes(strides) or ())


def _format(kind: object) -> str:
    found = tensor_format(kind) if isinstance(kind, str) else None
    return found.name if found is not None else ""


def _sizes(dims: object) -> tuple[int, ...] | None:
    if not isinstance(dims, list) or not all(type(one) is int and one >= 0 for one in dims):
        return None
    return tuple(dims)
