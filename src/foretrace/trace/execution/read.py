"""A PyTorch execution trace, of any schema version, becomes an `ExecutionTrace`.

Versions differ in where things stand: 1.0.1 keeps all in the node itself, later ones nest inputs
and outputs and list attributes; 1.0.3 names a process group by a pair; 1.0.4 adds kernels, 1.1.0
attributes of communication, 1.1.1 strides. Positions in `record_param_comms` differ likewise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec
import numpy as np

from foretrace.base import Int32s, Int64s, TraceError
from foretrace.trace.archives import files_in
from foretrace.trace.execution.columns import (
    NO_STRING,
    CommunicationColumns,
    ExecutionArgument,
    ExecutionNode,
    ExecutionTrace,
    TensorColumns,
)
from foretrace.trace.formats import EXECUTION, JSON_ENDINGS, format_of
from foretrace.trace.ranks import rank_in_name
from foretrace.trace.source import CutShortError, opened_source

Values = Mapping[str, object]
_TENSOR = re.compile(r"Tensor\(([^()]*(?:\([^()]*\))?[^()]*)\)")
_TENSOR_FIELDS = 6  # id, storage, offset, elements, item bytes, device
_COMMUNICATION = "record_param_comms"
_ADDED = {  # attributes of communication since 1.1.0 -> columns
    "collective_name": "collective", "dtype": "dtype", "pg_name": "group",
    "pg_desc": "group_description", "in_msg_nelems": "in_elements",
    "out_msg_nelems": "out_elements", "pg_size": "group_size",
    "global_rank_start": "first_rank", "global_rank_stride": "rank_stride",
}  # fmt: skip

# What tells the two apart in names that are else the same: "linear_et", "linear_kineto".
_KINDS = re.compile(r"kineto|execution_trace|host|device|trace|et|pt|json|gz|tar|tgz")
_MOST_FILES = 2_000  # of a folder that are looked at


class _Side(msgspec.Struct):
    values: list[object] = []
    types: list[str] = []
    shapes: list[object] = []
    strides: list[object] = []


class _Attribute(msgspec.Struct):
    name: str
    value: object = None


class _Node(msgspec.Struct):
    """A node of any version; what a version has elsewhere is filled in by `_flattened`."""

    id: int
    name: str
    ctrl_deps: int = 0
    parent: int = 0
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    op_schema: str = ""
    inputs: _Side | list[object] = msgspec.field(default_factory=list)
    outputs: _Side | list[object] = msgspec.field(default_factory=list)
    input_types: list[str] = []
    output_types: list[str] = []
    input_shapes: list[object] = []
    output_shapes: list[object] = []
    attrs: list[_Attribute] | None = None
    kernel_backend: str = ""
    kernel_file: str = ""


class _File(msgspec.Struct):
    schema: str
    nodes: list[_Node]
    pid: int = 0
    time: str = ""


_FILES = msgspec.json.Decoder(_File)


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is an execution trace."""
    return head.lstrip()[:1] == b"{" and b'"nodes"' in head and b'"schema"' in head


def read_execution_trace(path: Path) -> ExecutionTrace:
    """The execution trace in one file: JSON, gzip of it, or a tar archive that holds it.

    Raises:
        TraceError: if the file cannot be read or is no execution trace.
    """
    return _columns(path, _content(path))


def read_execution_nodes(path: Path) -> tuple[ExecutionNode, ...]:
    """The same file node by node in its own order, with shapes, strides and plain values.

    Raises:
        TraceError: if the file cannot be read or is no execution trace.
    """
    return tuple(_whole_node(node) for node in _content(path).nodes)


def _content(path: Path) -> _File:
    try:
        with opened_source(path) as source:
            text = b"".join(source.pieces)
    except CutShortError as err:
        raise TraceError(f"cannot read {path}: {err}; copy it again") from err
    try:
        return _FILES.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise TraceError(
            f"cannot read {path}: {err}, expected an execution trace, JSON with 'schema' and "
            "'nodes' as torch.profiler.ExecutionTraceObserver writes it"
        ) from err


def _whole_node(node: _Node) -> ExecutionNode:
    told = _flattened(node)
    return ExecutionNode(
        id=node.id,
        parent=node.parent,
        name=node.name,
        schema=node.op_schema,
        record_function=node.rf_id,
        inputs=_arguments(node, is_output=False),
        outputs=_arguments(node, is_output=True),
        attributes=told,
    )


def _arguments(node: _Node, *, is_output: bool) -> tuple[ExecutionArgument, ...]:
    values, types = _side(node, is_output=is_output)
    side = node.outputs if is_output else node.inputs
    if isinstance(side, _Side):
        shapes, strides = side.shapes, side.strides
    else:
        shapes, strides = node.output_shapes if is_output else node.input_shapes, []
    columns = zip_longest(types, values, shapes, strides)
    return tuple(ExecutionArgument(str(kind), *rest) for kind, *rest in columns)


class _Strings:
    def __init__(self) -> None:
        self._position: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self._position.setdefault(text, len(self._position)) if text else NO_STRING

    def all(self) -> tuple[str, ...]:
        return tuple(self._position)


def _columns(path: Path, content: _File) -> ExecutionTrace:
    nodes = sorted(content.nodes, key=lambda node: node.id)
    strings = _Strings()
    told = [_flattened(node) for node in nodes]
    row_of = {node.id: row for row, node in enumerate(nodes)}
    tensors = [row for at, node in enumerate(nodes) for row in _tensors(at, node, strings)]
    communication = [
        (at, _communication(node, added))
        for at, (node, added) in enumerate(zip(nodes, told, strict=True))
        if node.name == _COMMUNICATION
    ]
    parents = [row_of.get(node.parent, -1) if node.parent != node.id else -1 for node in nodes]
    return ExecutionTrace(
        path=path,
        schema=content.schema,
        process=content.pid,
        started=content.time,
        node_id=np.array([node.id for node in nodes], np.int64),
        parent=np.array(parents, np.int32),
        name=np.array([strings.of(node.name) for node in nodes], np.int32),
        record_function=np.array([node.rf_id for node in nodes], np.int64),
        forward=np.array([node.fw_parent for node in nodes], np.int64),
        sequence=np.array([node.seq_id for node in nodes], np.int64),
        scope=np.array([node.scope for node in nodes], np.int32),
        thread=np.array([node.tid for node in nodes], np.int64),
        operator_schema=np.array([strings.of(node.op_schema) for node in nodes], np.int32),
        kernel_backend=np.array([strings.of(node.kernel_backend) for node in nodes], np.int32),
        kernel_file=np.array([strings.of(node.kernel_file) for node in nodes], np.int32),
        tensors=_tensor_columns(tensors),
        communication=_communication_columns(communication, strings),
        strings=strings.all(),
    )


def _flattened(node: _Node) -> dict[str, object]:
    """A node's attributes, those that 1.0.1 keeps in the node filled into it. out: node."""
    if node.attrs is None:
        return {}
    told = {one.name: one.value for one in node.attrs}
    node.parent = node.ctrl_deps
    for name in ("rf_id", "fw_parent", "seq_id", "scope", "tid"):
        setattr(node, name, _whole(told.get(name), getattr(node, name)))
    for name in ("op_schema", "kernel_backend", "kernel_file"):
        setattr(node, name, str(told.get(name) or ""))
    return told


def _side(node: _Node, *, is_output: bool) -> tuple[Sequence[object], Sequence[str]]:
    side = node.outputs if is_output else node.inputs
    if isinstance(side, _Side):
        return side.values, side.types
    return side, node.output_types if is_output else node.input_types


def _tensors(row: int, node: _Node, strings: _Strings) -> Iterator[tuple[int, ...]]:
    """Rows of `TensorColumns` of one node."""
    for is_output in (False, True):
        values, types = _side(node, is_output=is_output)
        for value, kind in zip(values, types, strict=False):
            if "Tensor" not in kind:
                continue
            dtypes = iter(_TENSOR.findall(kind))
            for tensor in _found(value):
                *numbers, device = tensor
                yield (
                    row, int(is_output), *(_whole(number, 0) for number in numbers),
                    strings.of(str(device)), strings.of(next(dtypes, "")),
                )  # fmt: skip


def _found(value: object) -> Iterator[Sequence[object]]:
    """The tensors in a value, which may be lists of lists of them."""
    if not isinstance(value, list):
        return
    is_tensor = len(value) == _TENSOR_FIELDS and isinstance(value[-1], str)
    if is_tensor and all(isinstance(one, int) for one in value[:-1]):
        yield value
        return
    for one in value:
        yield from _found(one)


def _tensor_columns(rows: Sequence[tuple[int, ...]]) -> TensorColumns:
    table = np.array(rows, np.int64).reshape(-1, 9)
    return TensorColumns(
        node=table[:, 0].astype(np.int32),
        is_output=table[:, 1] != 0,
        tensor=table[:, 2].copy(),
        storage=table[:, 3].copy(),
        offset=table[:, 4].copy(),
        num_elements=table[:, 5].copy(),
        item_bytes=table[:, 6].copy(),
        device=table[:, 7].astype(np.int32),
        dtype=table[:, 8].astype(np.int32),
    )


def _communication(node: _Node, told: Mapping[str, object]) -> dict[str, object]:
    """What a node says of its communication: by attribute, else by its inputs' positions."""
    found: dict[str, object] = {
        column: told[name] for name, column in _ADDED.items() if name in told
    }
    values, types = _side(node, is_output=False)
    # Tensors first, where there are any; then sequence, group, rank, name, splits, and since
    # 1.0.2 how the group's ranks are spaced and how many they are.
    at = next((at for at, kind in enumerate(types) if kind == "Int"), len(types))
    rest = list(values[at:])
    if rest:
        found.setdefault("sequence", rest[0])
    if len(rest) > 1:
        group = rest[1] if isinstance(rest[1], list) else [rest[1]]
        found.setdefault("group", str(group[0]))
        found.setdefault("group_description", str(group[1]) if len(group) > 1 else "")
    names = [at for at, one in enumerate(rest) if isinstance(one, str)]
    if names:
        found.setdefault("collective", rest[names[0]])
        behind = [_whole(one, -1) for one in rest[names[0] + 3 :]]
        if len(behind) > 2:  # noqa: PLR2004  first rank, stride, size
            found.setdefault("first_rank", behind[0])
            found.setdefault("rank_stride", behind[1])
        if behind:
            found.setdefault("group_size", behind[-1])
    elements = [sum(_whole(one[3], 0) for one in _found(list(values[:at])))]
    found.setdefault("in_elements", elements[0])
    if not found.get("dtype"):
        found["dtype"] = next(iter(_TENSOR.findall(" ".join(types[:at]))), "")
    return found


def _communication_columns(
    rows: Sequence[tuple[int, Mapping[str, object]]], strings: _Strings
) -> CommunicationColumns:

    def texts(name: str) -> Int32s:
        return np.array([strings.of(str(told.get(name) or "")) for _, told in rows], np.int32)

    def numbers(name: str) -> Int64s:
        return np.array([_whole(told.get(name), -1) for _, told in rows], np.int64)

    return CommunicationColumns(
        node=np.array([row for row, _ in rows], np.int32),
        collective=texts("collective"),
        dtype=texts("dtype"),
        group=texts("group"),
        group_description=texts("group_description"),
        in_elements=numbers("in_elements"),
        out_elements=numbers("out_elements"),
        group_size=numbers("group_size"),
        sequence=numbers("sequence"),
        first_rank=numbers("first_rank"),
        rank_stride=numbers("rank_stride"),
    )


def _whole(value: object, otherwise: int) -> int:
    if isinstance(value, int):
        return value
    text = str(value)
    return int(text) if text.lstrip("-").isdigit() else otherwise


def execution_traces_beside(paths: Sequence[Path]) -> dict[Path, Path]:
    """The execution trace of each of these Kineto files that has one in its folder.

    Names say which belong together: by rank, else by what is left without the words for the kind.
    A lone pair in a folder belongs together whatever its names.
    """
    found: dict[Path, Path] = {}
    for folder in dict.fromkeys(path.parent for path in paths):
        kineto = [path for path in paths if path.parent == folder]
        others = _in_folder(folder, set(kineto))
        by_rank = {rank_in_name(path): path for path in others}
        by_stem = {_stem(path): path for path in others}
        for path in kineto:
            rank = rank_in_name(path)
            other = by_stem.get(_stem(path)) or (by_rank.get(rank) if rank is not None else None)
            if other is None and len(kineto) == len(others) == 1:
                other = others[0]
            if other is not None:
                found[path] = other
    return found


def _in_folder(folder: Path, known: set[Path]) -> list[Path]:
    files = sorted(path for path in files_in(folder) if path.name.endswith(JSON_ENDINGS))
    files = [path for path in files if path not in known][:_MOST_FILES]
    return [path for path in files if _is_execution_trace(path)]


def _is_execution_trace(path: Path) -> bool:
    try:
        return format_of(path) is EXECUTION
    except TraceError:
        return False


def _stem(path: Path) -> tuple[str, ...]:
    words = re.split(r"[._-]+", path.name.lower())
    return tuple(word for word in words if not _KINDS.fullmatch(word))
