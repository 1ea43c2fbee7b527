"""Calls as lines of Python: arguments as schemas want them, long lines broken, devices left open.

A trace of a GPU holds what autograd called there, cuDNN's gradient of batch normalisation say. So
that the program also runs elsewhere, it calls a function that looks where its tensors are.
"""

from __future__ import annotations

import ast
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword

from foretrace.base import FORMAT_BY_CODE, NS_PER_US, TraceError
from foretrace.bench.identities import ValueId, value_indices
from foretrace.bench.program import USUAL_STREAM, BenchCall, BenchProgram, Number
from foretrace.bench.repetition import Item
from foretrace.bench.schema import Opaque, Parameter, Schema, TensorRecord

WIDTH = 100
_MOST_BARE = 6  # names in a row without brackets
_INDENT = 4
_KEPT = "\x00"  # stands for a space where a line must not be broken

# What stands in for an operator of this name, as text of a function of that name.
PORTABLE = {
    "aten::cudnn_batch_norm_backward": '''
def cudnn_batch_norm_backward(x, grad, weight, mean, var, save_mean, save_var, eps, reserve):
    """Of cuDNN on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda:
        return aten.cudnn_batch_norm_backward.default(
            x, grad, weight, mean, var, save_mean, save_var, eps, reserve
        )
    return aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, save_mean, save_var, True, eps, [True, True, True]
    )
''',
    "aten::miopen_batch_norm_backward": '''
def miopen_batch_norm_backward(x, grad, weight, mean, var, save_mean, save_var, eps):
    """Of MIOpen on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda and torch.version.hip:
        return aten.miopen_batch_norm_backward.default(
            x, grad, weight, mean, var, save_mean, save_var, eps
        )
    return aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, save_mean, save_var, True, eps, [True, True, True]
    )
''',
    "aten::cudnn_batch_norm": '''
def cudnn_batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """Of cuDNN on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda:
        return aten.cudnn_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    made = aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    return *made, x.new_empty(0, dtype=torch.uint8)
''',
    "aten::miopen_batch_norm": '''
def miopen_batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """Of MIOpen on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda and torch.version.hip:
        return aten.miopen_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    return aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
''',
}

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

_MOST_SHOWN = 3  # results whose shapes stand in a line's comment
_LEAST_DURATION_NS = 1000

_NAMES_OF_SIZED_BY_VALUES = """
nonzero nonzero_numpy masked_select _unique _unique2 unique_dim unique_consecutive
unique_dim_consecutive bincount repeat_interleave
"""
_SIZED_BY_VALUES = frozenset(_NAMES_OF_SIZED_BY_VALUES.split())
_MASKED = ("index", "_unsafe_index")  # by masks as well as by indices


def target_list(names: Sequence[str]) -> str:
    """Names to assign to or to return."""
    inside = ", ".join(names)
    return f"({inside})" if len(names) > _MOST_BARE else inside


def deletion(names: Sequence[str]) -> str:
    """The statement that forgets these names."""
    return f"del {target_list(names)}"


def escaped(text: str) -> str:
    """Text of a trace between double quotes or in a comment: ASCII that ends neither."""
    return ascii(text)[1:-1].replace('"', '\\"')


def with_comment(line: str, comment: str) -> str:
    """A line with a comment after it, if there is one."""
    return f"{line}  # {comment}" if comment else line


def wrapped(line: str) -> str:
    """A line, broken inside of its brackets if it is too long; a comment goes before it."""
    if len(line) <= WIDTH or line.lstrip().startswith(("#", '"', "SOURCE = ")):
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    code, comment = _split(line.strip())
    rows = [f"{indent}# {comment}"] if comment else []
    breakable = _protected(code)
    rows += textwrap.wrap(
        breakable,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + " " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(rows).replace(_KEPT, " ")


def _split(line: str) -> tuple[str, str]:
    """A line's code and its comment; what looks like one inside of a text is none."""
    at = next((i for i, letter, is_text in _letters(line) if letter == "#" and not is_text), None)
    return (line, "") if at is None else (line[:at].rstrip(), line[at + 1 :].strip())


def _protected(code: str) -> str:
    """The code with all spaces kept but those after a comma inside of brackets."""
    depth, before, letters = 0, " ", []
    for _, letter, is_text in _letters(code):
        depth += 0 if is_text else (letter in "([{") - (letter in ")]}")
        is_kept = letter == " " and (depth == 0 or is_text or before != ",")
        letters.append(_KEPT if is_kept else letter)
        before = letter
    return "".join(letters)


def _letters(code: str) -> Iterator[tuple[int, str, bool]]:
    """Each letter with its place, and whether it stands inside of a text."""
    quote, is_escaped = "", False
    for i, letter in enumerate(code):
        yield i, letter, bool(quote)
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter


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
