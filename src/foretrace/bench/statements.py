"""Calls as lines of Python, their arguments as the operators' schemas want them."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword

from foretrace.base import FORMAT_BY_CODE, NS_PER_US, TraceError
from foretrace.bench.arguments import Opaque, TensorRecord
from foretrace.bench.identities import ValueId, value_indices
from foretrace.bench.layout import escaped, target_list
from foretrace.bench.portable import PORTABLE
from foretrace.bench.program import USUAL_STREAM, BenchCall, BenchProgram, Number
from foretrace.bench.repetition import Item
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
    return ascii(value)


def dtype_text(record: TensorRecord) -> str:
    """A tensor's number format as the program writes it.

    Raises:
        TraceError: if PyTorch has none of that name.
    """
    if record.dtype not in _DTYPES.values():
        raise TraceError(
            f"the execution trace has a tensor of the number format {record.dtype!r}, where one "
            "of PyTorch's is expected: leave its operators out with --mode or --subgraph"
        )
    return f"torch.{record.dtype}"


def _is_default(parameter: Parameter, value: object) -> bool:
    if parameter.default is None:
        return False
    if isinstance(value, Opaque):
        return parameter.default == "None"
    try:
        default: object = ast.literal_eval(parameter.default)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # of what is deeply nested
        default = _UNKNOWN
    if isinstance(value, list) and isinstance(default, int) and value:
        return all(one == default for one in value)
    return type(value) is type(default) and value == default


_MOST_SHOWN = 3  # results whose shapes stand in a line's comment
_LEAST_DURATION_NS = 1000

_NAMES_OF_SIZED_BY_VALUES = """
nonzero nonzero_numpy masked_select _unique _unique2 unique_dim unique_consecutive
unique_dim_consecutive bincount repeat_interleave
"""
_SIZED_BY_VALUES = frozenset(_NAMES_OF_SIZED_BY_VALUES.split())
_MASKED = ("index", "_unsafe_index")  # by masks as well as by indices


def with_streams(lines: list[str], call: BenchCall) -> list[str]:
    """The lines of a call, on its stream and after what it needs of other streams."""
    if call.stream == USUAL_STREAM:
        return [*(f"join({stream})" for stream in call.after), *lines]
    after = f", after=[{', '.join(map(str, call.after))}]" if call.after else ""
    return [f"with on({call.stream}{after}):", *(f"    {line}" for line in lines)]


def lines_of(
    call: BenchCall, program: BenchProgram, *, name_of: Naming, wanted: Callable[[int], bool]
) -> Iterator[str]:
    """The lines that run one call.

    Args:
        call: the call.
        program: what it belongs to.
        name_of: how a value is called here.
        wanted: whether a value is read later.
    """
    for cut in call.cuts:
        yield f"{name_of(cut.value)} = {_cut(cut.record, name_of(cut.base))}"
    for node in call.waits:
        yield f"{work_name(node)}.wait()"
    if call.collective is not None:
        yield f"{work_name(call.node)} = {_communication(call, name_of)}"
        return
    if not call.is_supported or call.schema is None:
        yield _unsupported(call, program, name_of, wanted)
        return
    text = f"{callee(call.schema)}({argument_list(call.schema, call.reads, name_of)})"
    target = _target(call, name_of, wanted)
    yield f"{target} = {text}" if target else text
    if _is_sized_by_values(call, program):
        for one in value_indices(call.returns):
            if one in call.makes and wanted(one):
                yield f"{name_of(one)} = sized({name_of(one)}, {program.values[one].shape})"


def _is_sized_by_values(call: BenchCall, program: BenchProgram) -> bool:
    """Whether the results' shapes depend on values, which a trace does not hold."""
    name = call.name.partition("::")[2]
    masks = value_indices(call.reads[1:]) if name in _MASKED else []
    return name in _SIZED_BY_VALUES or any(
        program.values[one].dtype in ("bool", "uint8") for one in masks
    )


def comment_of(call: BenchCall, program: BenchProgram) -> str:
    """Shapes of what a call makes; "" if it makes nothing."""
    made = [program.values[one] for one in value_indices(call.returns) if one in call.makes]
    if not made:
        return ""
    shown = ", ".join(shape_text(one) for one in made[:_MOST_SHOWN])
    return shown + (", ..." if len(made) > _MOST_SHOWN else "")


def shape_text(record: TensorRecord) -> str:
    """A tensor in words: "float32[128, 1024]"."""
    return f"{escaped(record.dtype)}{list(record.shape)}"


def item_of(call: BenchCall, program: BenchProgram) -> Item:
    """What of a call decides whether it repeats another."""
    reads = tuple(value_indices(call.reads)) + tuple(cut.base for cut in call.cuts)
    makes = tuple(one for one in value_indices(call.returns) if one in call.makes)
    made_before = tuple(cut.value for cut in call.cuts)
    if call.collective is not None or call.waits or call.after or call.stream != USUAL_STREAM:
        return Item(None, reads, makes)
    text = tuple(lines_of(call, program, name_of=lambda _: "?", wanted=lambda _: True))
    return Item(
        (text, call.stream, bool(call.reason)), (*made_before, *reads), (*made_before, *makes)
    )


def work_name(node: int) -> str:
    """How the program calls a collective under way."""
    return f"w{node}"


def _cut(record: TensorRecord, base: str) -> str:
    place = f", {record.offset}"
    return f"{base}.as_strided({record.shape}, {record.strides}{place})"


def _communication(call: BenchCall, name_of: Naming) -> str:
    collective = call.collective
    if collective is None:
        raise AssertionError(call.name)
    parts = [literal(one, "", name_of) for one in collective.arguments]
    parts.append(f'group="{escaped(collective.group)}"')
    if call.duration_ns >= _LEAST_DURATION_NS:
        parts.append(f"took_us={call.duration_ns // NS_PER_US}")
    return f"comm.{collective.function}({', '.join(parts)})"


def _unsupported(
    call: BenchCall, program: BenchProgram, name_of: Naming, wanted: Callable[[int], bool]
) -> str:
    made = [one for one in value_indices(call.returns) if one in call.makes]
    shapes = ", ".join(
        f"({program.values[one].shape}, {dtype_text(program.values[one])})" for one in made
    )
    arguments = literal(list(call.reads), "", name_of)
    text = f'other("{escaped(call.name)}", {arguments}, [{shapes}])'
    names = [name_of(one) if wanted(one) else "_" for one in made]
    return f"{target_list(names)} = {text}" if set(names) - {"_"} else text


def _target(call: BenchCall, name_of: Naming, wanted: Callable[[int], bool]) -> str:
    """What stands left of the equals sign; "" where no result is read later."""

    def one(value: object) -> str:
        if isinstance(value, list):
            inside = ", ".join(one(each) for each in value)
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        if isinstance(value, ValueId) and value.index in call.makes and wanted(value.index):
            return name_of(value.index)
        return "_"

    if not any(wanted(each) for each in value_indices(call.returns) if each in call.makes):
        return ""
    returns = call.returns
    expected = len(call.schema.results) if call.schema is not None else len(returns)
    if expected == 1:
        value = returns[0] if len(returns) == 1 else list(returns)
        return one(value)
    return target_list([one(each) for each in returns])
