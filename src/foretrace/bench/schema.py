"""`Schema`: an operator's name, arguments and results; and the values a trace records of them.

The text is PyTorch's own: "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) ->
Tensor(a!)".

A tensor is recorded as `[tensor, storage, offset, elements, bytes of one element, device]` with
its shape, strides and type in lists beside it; lists of tensors are nested the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword
from typing import TypeAlias

from foretrace.base import TraceError, tensor_format
from foretrace.trace import ExecutionArgument

# Operators of PyTorch whose names look like Python's own methods.
_DUNDER = frozenset(
    f"__{in_place}{name}__"
    for in_place in ("", "i")
    for name in ("and", "or", "xor", "lshift", "rshift")
)
_OPENING, _CLOSING = "([{<", ")]}>"

_TENSOR, _LIST, _TUPLE = "Tensor(", "GenericList[", "Tuple["
_UNDEFINED = "nullptr"  # "Tensor(nullptr (uninitialized))"
_NUM_IDENTITY = 6  # numbers that identify a tensor
# Kinds of devices that PyTorch has (c10/core/DeviceType.h); a tensor of none has no name there.
_NAMES_OF_DEVICES = """
cpu cuda hip xpu mps mtia xla hpu npu ipu ve fpga maia meta lazy vulkan metal opencl opengl
mkldnn ideep privateuseone
"""
_DEVICES = frozenset(("", *_NAMES_OF_DEVICES.split()))

# A tensor, nothing, a number, a text, a flag, something opaque, or a list of these.
Recorded: TypeAlias = "TensorRecord | Opaque | list[Recorded] | float | str | bool | None"


@dataclass(frozen=True)
class Parameter:
    """One argument that an operator takes."""

    type: str  # "Tensor(a!)", "SymInt[]", "ScalarType?", ...
    name: str
    default: str | None  # its text; none: it must be given
    is_keyword: bool

    @property
    def base_type(self) -> str:
        """The type without aliasing and optionality: "Tensor", "SymInt[]", "ScalarType"."""
        return _without_aliasing(self.type).rstrip("?")


@dataclass(frozen=True)
class Schema:
    """An operator's signature."""

    namespace: str  # "aten"
    name: str  # "add_"
    overload: str  # "Tensor"; "default" where the text names none
    parameters: tuple[Parameter, ...]
    results: tuple[str, ...]  # types

    @property
    def operator(self) -> str:
        """Name with its namespace: "aten::add_"."""
        return f"{self.namespace}::{self.name}"


@lru_cache(maxsize=4096)
def parsed_schema(text: str) -> Schema | None:
    """The schema in this text; none where the text is none, or names what Python could not.

    Args:
        text: as an execution trace records it.
    """
    head, _, rest = text.replace(" -> *", "").partition("(")  # of `Tensor(a -> *)`
    namespace, _, full_name = head.partition("::")
    inside, arrow, results = _cut(rest)
    if not full_name or not arrow:
        return None
    name, _, overload = full_name.partition(".")
    overload, parameters = overload or "default", _parameters(inside)
    names = [namespace, *(one.name for one in parameters if one.is_keyword)]
    is_called = (name in _DUNDER or _is_plain(name)) and not iskeyword(name)
    if not is_called or not _is_plain(overload) or not all(map(_is_plain, names)):
        return None
    return Schema(namespace, name, overload, parameters, _results(results))


def _is_plain(name: str) -> bool:
    """Whether it is a name that Python's own machinery does not use."""
    return name.isascii() and name.isidentifier() and not name.startswith("__")


def _cut(rest: str) -> tuple[str, str, str]:
    """What stands inside the arguments' brackets, the arrow, and what follows it."""
    depth = 1
    for position, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            _, arrow, results = rest[position + 1 :].partition("->")
            return rest[:position], arrow, results.strip()
    return "", "", ""


def _parameters(text: str) -> tuple[Parameter, ...]:
    found, is_keyword = [], False
    for part in top_level_parts(text):
        if part == "*":
            is_keyword = True
            continue
        declared, has_default, default = part.partition("=")
        kind, _, name = declared.strip().rpartition(" ")
        found.append(Parameter(kind, name, default if has_default else None, is_keyword))
    return tuple(found)


def _results(text: str) -> tuple[str, ...]:
    if not text or text == "()":
        return ()
    inside = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    kinds = (part.split(" ")[0] for part in top_level_parts(inside))
    return tuple(_without_aliasing(kind) for kind in kinds)


def _without_aliasing(kind: str) -> str:
    """A type without its alias set: "Tensor(a!)[]" is "Tensor[]"."""
    head, has_set, rest = kind.partition("(")
    return head + rest.partition(")")[2] if has_set else kind


def top_level_parts(text: str) -> tuple[str, ...]:
    """Parts between commas that no bracket encloses, stripped; empty text has none."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return (*parts, text[start:].strip()) if text.strip() else ()


@dataclass(frozen=True)
class TensorRecord:
    """A tensor as one operator saw it."""

    tensor: int  # id of the tensor's object; used again once that is gone
    storage: int  # id of its memory; used again too
    offset: int  # in elements
    item_bytes: int
    device: str  # "cpu", "cuda:0"
    dtype: str  # "float32"; as in the trace where that is no name of PyTorch's
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements; contiguous ones where the trace has none
    has_strides: bool  # whether the trace says the strides

    @property
    def end_bytes(self) -> int:
        """Bytes of memory from its storage's begin to its last element's end."""
        if 0 in self.shape:
            return self.offset * self.item_bytes
        reach = sum(
            (size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)
        )
        return (self.offset + reach + 1) * self.item_bytes


@dataclass(frozen=True)
class Opaque:
    """A value that a trace names but does not hold: a generator, a storage, an object."""

    type: str


def recorded(argument: ExecutionArgument) -> Recorded:
    """The value of one argument."""
    return _value(argument.type, argument.value, argument.shape, strides=argument.strides)


def tensors_in(value: object) -> Iterator[TensorRecord]:
    """All tensors of a value, in order."""
    if isinstance(value, TensorRecord):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from tensors_in(one)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a tensor that is stored row by row."""
    return tuple(math.prod(max(size, 1) for size in shape[i + 1 :]) for i in range(len(shape)))


def _value(kind: str, value: object, shape: object, *, strides: object) -> Recorded:
    if kind.startswith(_TENSOR):
        return _tensor(kind, value, shape, strides=strides)
    if kind.startswith((_LIST, _TUPLE)) and isinstance(value, list):
        return _list(kind, value, shape, strides=strides)
    if value == "<None>" or value is None:
        return None
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return Opaque(kind)
    if kind == "Double" and isinstance(value, str):
        return float(value)  # "inf", "nan"
    return value if isinstance(value, bool | int | float | str) else Opaque(kind)


def _list(kind: str, values: list[object], shapes: object, *, strides: object) -> Recorded:
    kinds = top_level_parts(kind[kind.index("[") + 1 : -1])
    if len(kinds) != len(values):  # the observer keeps the first 4,096 of a long list
        return Opaque(f"{kind[: kind.index('[')]} of {max(len(kinds), len(values))} elements")
    shapes = shapes if isinstance(shapes, list) and len(shapes) == len(values) else None
    strides = strides if isinstance(strides, list) and len(strides) == len(values) else None
    return [
        _value(
            each,
            value,
            shapes[i] if shapes is not None else [],
            strides=strides[i] if strides is not None else None,
        )
        for i, (each, value) in enumerate(zip(kinds, values, strict=True))
    ]


def _tensor(kind: str, value: object, shape: object, *, strides: object) -> Recorded:
    if _UNDEFINED in kind or not isinstance(value, list) or len(value) < _NUM_IDENTITY:
        return None
    tensor, storage, offset, _, item_bytes, device = value[:_NUM_IDENTITY]
    sizes = tuple(shape) if isinstance(shape, list) else ()
    steps = strides if isinstance(strides, list) else ()
    if any(type(one) is not int for one in (tensor, storage, offset, item_bytes, *sizes, *steps)):
        raise TraceError(
            f"the execution trace has the tensor {str(value)[:80]!r} of shape {str(shape)[:80]!r}, "
            "where whole numbers are expected: record it again"
        )
    if not isinstance(device, str) or device.partition(":")[0] not in _DEVICES:
        raise TraceError(
            f"the execution trace has a tensor on the device {str(device)[:80]!r}, where one of "
            "PyTorch's is expected, such as 'cpu' or 'cuda:0': record it again"
        )
    has_strides = isinstance(strides, list) and len(strides) == len(sizes)
    name = kind[len(_TENSOR) : -1]
    found = tensor_format(name)
    return TensorRecord(
        tensor=tensor,
        storage=storage,
        offset=offset,
        item_bytes=item_bytes,
        device=device,
        dtype=found.torch if found is not None and found.torch else name,
        shape=sizes,
        strides=tuple(strides)
        if isinstance(strides, list) and has_strides
        else contiguous_strides(sizes),
        has_strides=has_strides,
    )
