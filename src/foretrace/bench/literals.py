"""Arguments as Python text, as the operator's schema wants them."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from keyword import iskeyword

from foretrace.base import FORMAT_BY_CODE
from foretrace.bench.arguments import Opaque
from foretrace.bench.identities import ValueId
from foretrace.bench.portable import PORTABLE
from foretrace.bench.program import Number
from foretrace.bench.schema import Parameter, Schema

_DTYPES = {code: each.torch for code, each in FORMAT_BY_CODE.items()}
_LAYOUTS = {0: "strided", 1: "sparse_coo"}  # c10/core/Layout.h
# c10/core/MemoryFormat.h
_FORMATS = {
    0: "contiguous_format",
    1: "preserve_format",
    2: "channels_last",
    3: "channels_last_3d",
}
_ENUMERATIONS = {"ScalarType": _DTYPES, "Layout": _LAYOUTS, "MemoryFormat": _FORMATS}
_UNKNOWN = object()

Naming = Callable[[int], str]


def callee(schema: Schema) -> str:
    """How the program names the operator."""
    if schema.operator in PORTABLE:
        return schema.name
    text = f"torch.ops.{schema.namespace}.{schema.name}"
    text = f"aten.{schema.name}" if schema.namespace == "aten" else text
    if iskeyword(schema.overload):
        return f'getattr({text}, "{schema.overload}")'
    return f"{text}.{schema.overload}"


def argument_list(schema: Schema, reads: Sequence[object], name_of: Naming) -> str:
    """Arguments between the brackets; what equals its default is left out.

    Args:
        schema: the operator's.
        reads: its recorded arguments.
        name_of: how the program names a value.
    """
    pairs = list(zip(schema.parameters, reads, strict=False))
    positional = [pair for pair in pairs if not pair[0].is_keyword]
    while positional and _is_default(*positional[-1]):
        positional.pop()
    parts = [literal(value, parameter.base_type, name_of) for parameter, value in positional]
    parts += [
        f"{parameter.name}={literal(value, parameter.base_type, name_of)}"
        for parameter, value in pairs
        if parameter.is_keyword and not _is_default(parameter, value)
    ]
    return ", ".join(parts)


def literal(value: object, kind: str, name_of: Naming) -> str:
    """One value as text.

    Args:
        value: as recorded.
        kind: type of the parameter without optionality; "" if unknown.
        name_of: how the program names a tensor.
    """
    if isinstance(value, ValueId):
        return name_of(value.index)
    if isinstance(value, list | tuple):
        inside = ", ".join(literal(one, kind.removesuffix("[]"), name_of) for one in value)
        return f"[{inside}]"
    if isinstance(value, Number):
        return value.text
    return _plain(value, kind)


def _plain(value: object, kind: str) -> str:
    if isinstance(value, Opaque):
        return "None"
    if kind in _ENUMERATIONS and isinstance(value, int):
        known = _ENUMERATIONS[kind].get(value)
        return f"torch.{known}" if known else str(value)
    if kind == "Device" and isinstance(value, str):
        return "CPU" if value == "cpu" else "DEVICE"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _is_default(parameter: Parameter, value: object) -> bool:
    if parameter.default is None:
        return False
    if isinstance(value, Opaque):
        return parameter.default == "None"
    try:
        default: object = ast.literal_eval(parameter.default)
    except (ValueError, SyntaxError):
        default = _UNKNOWN
    if isinstance(value, list) and isinstance(default, int) and value:
        return all(one == default for one in value)
    return type(value) is type(default) and value == default
