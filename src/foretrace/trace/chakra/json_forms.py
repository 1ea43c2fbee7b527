"""Chakra in JSON: the feeder's own form, the jsonizer's, and PyTorch execution traces.

A host operator works for as long as it does not call another; a device operation waits for the
operator that launched it. Order on threads and streams is not stated here: it is the same for
every file, and added where the graph is built. Names, sizes and dependencies of communication
come from the execution trace. Source: src/converter/pytorch_converter.py of mlcommons/chakra at
21585d8, whose losses (synchronisations, sub-microsecond durations) are not repeated.

- the feeder's: `{"workload_graph": [{"Id": 216, "Name": ..., "NodeType": 4, ...}]}`
- the jsonizer's: protobuf messages as JSON objects one after the other, metadata first
- execution traces, with device operations linked in by `chakra_trace_link` or without
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from foretrace.base import NS_PER_US, CollectiveKind, TraceError, collective_kind_of
from foretrace.trace.archives import num_bytes
from foretrace.trace.chakra.columns import Attribute, ChakraTrace, Collected, metadata_of
from foretrace.trace.chakra.read import rank_of
from foretrace.trace.chakra.schema import COMM_TYPES, NodeType, ValueField
from foretrace.trace.runtime import is_communication
from foretrace.trace.source import CutShortError, opened_bytes

Node = Mapping[str, object]
_NUMBERS = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
_ITEM_BYTES, _NUM_ITEMS = 4, 3  # places in a tensor: id, storage, offset, elements, item bytes
_TENSOR_FIELDS = 6

# Values that the feeder's form gives, and the types that protobuf files give them.
_FEEDER_FIELDS = {
    "is_cpu_op": ValueField.BOOL,
    "tensor_size": ValueField.UINT64,
    "num_ops": ValueField.INT64,
    "comm_type": ValueField.INT64,
    "comm_size": ValueField.INT64,
    "comm_priority": ValueField.INT32,
    "comm_src": ValueField.INT32,
    "comm_dst": ValueField.INT32,
    "comm_tag": ValueField.INT32,
    "pg_name": ValueField.STRING,
}
_JSONIZED_FIELDS = {
    "doubleVal": ValueField.DOUBLE,
    "int32Val": ValueField.INT32,
    "int64Val": ValueField.INT64,
    "uint32Val": ValueField.UINT32,
    "uint64Val": ValueField.UINT64,
    "boolVal": ValueField.BOOL,
    "stringVal": ValueField.STRING,
}
# What hostile values raise where whole numbers of 64 bit and texts are expected.
_DAMAGED = (msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)
_MOST_JSON_BYTES = 2 * 10**9  # read whole: JSON forms are small next to what protobuf is for


def linked_nodes(
    content: Mapping[str, object],
) -> tuple[str, dict[str, Attribute], Collected]:
    """Version, metadata and nodes of an execution trace that was read whole."""
    listed = content["nodes"]
    if not isinstance(listed, list) or not all(isinstance(node, dict) for node in listed):
        raise TypeError("its nodes are no list of objects")
    nodes = [_flat(node) for node in listed]
    told: dict[str, Attribute] = {
        name: (ValueField.STRING, str(content[name]))
        for name in ("schema", "pid", "time", "start_ts", "finish_ts")
        if name in content
    }
    called_us: dict[int, float] = {}
    for node in nodes:
        if "cat" not in node:
            parent = _stated_whole(node.get("parent", 0))
            called_us[parent] = called_us.get(parent, 0) + _number(node.get("dur", 0))
    callers = {_stated_whole(node["id"]): node for node in nodes if "cat" not in node}
    collected = Collected()
    for node in sorted(nodes, key=lambda node: _stated_whole(node["id"])):
        if "cat" in node:
            _add_device(collected, node, callers)
        else:
            _add_host(collected, node, called_us)
    return str(content.get("schema", "")), told, collected


def _flat(node: Node) -> Node:
    """A node as version 1.0.1 has it: attributes and lists of inputs stand in the node itself."""
    if "attrs" not in node:
        return node
    flat = {key: value for key, value in node.items() if key not in {"attrs", "inputs", "outputs"}}
    attributes = node["attrs"]
    for one in attributes if isinstance(attributes, list) else []:
        flat[str(one["name"])] = one["value"]
    for side in ("input", "output"):
        told = node.get(f"{side}s")
        told = told if isinstance(told, dict) else {}
        flat[f"{side}s"] = told.get("values", [])
        flat[f"{side}_shapes"] = told.get("shapes", [])
        flat[f"{side}_types"] = told.get("types", [])
    flat["parent"] = node.get("ctrl_deps", 0)
    return flat


def _add_host(collected: Collected, node: Node, called_us: Mapping[int, float]) -> None:
    number = _stated_whole(node["id"])
    parent = _stated_whole(node.get("parent", 0))
    own_us = _number(node.get("exclusive_dur", -1))
    if own_us < 0:
        own_us = max(_number(node.get("dur", 0)) - called_us.get(number, 0), 0)
    is_group = "process_group:init" in str(node["name"])
    collected.add(
        number,
        str(node["name"]),
        NodeType.METADATA if is_group else NodeType.COMP,
        control=[parent] if parent != number else [],
        data=_also(node),
        duration_micros=round(own_us),
        inputs=_values(node, "input"),
        outputs=_values(node, "output"),
        attributes={
            "is_cpu_op": (ValueField.BOOL, 1),
            **{
                name: (ValueField.INT64, _stated_whole(node[name]))
                for name in _NUMBERS
                if name in node
            },
            "op_schema": (ValueField.STRING, str(node.get("op_schema", ""))),
            **_times(node, own_us),
        },
    )


def _add_device(collected: Collected, node: Node, callers: Mapping[int, Node]) -> None:
    told = node.get("args")
    stream = node.get("stream", told.get("stream") if isinstance(told, dict) else None)
    name, parent = str(node["name"]), _stated_whole(node.get("parent", node.get("ctrl_deps", 0)))
    kind = NodeType.COMM_COLL if is_communication(name) else NodeType.COMP
    duration_us = _number(node.get("exclusive_dur", node.get("dur", 0)))
    collected.add(
        _stated_whole(node["id"]),
        name,
        kind,
        control=[parent],
        data=[parent, *_also(node)],
        duration_micros=round(duration_us),
        inputs=_values(node, "input"),
        outputs=_values(node, "output"),
        attributes={
            "is_cpu_op": (ValueField.BOOL, 0),
            "stream": (ValueField.INT64, _stated_whole(stream if stream is not None else 0)),
            **_communication(node, name, callers.get(parent, {})),
            **_times(node, duration_us),
        },
    )


def _times(node: Node, duration_us: float) -> dict[str, Attribute]:
    """Times to the nanosecond, where the trace has any."""
    found: dict[str, Attribute] = {
        "duration_ns": (ValueField.INT64, round(duration_us * NS_PER_US))
    }
    if "dur" not in node and "exclusive_dur" not in node:
        return {}
    if "ts" in node:
        found["start_ns"] = (ValueField.INT64, round(_number(node["ts"]) * NS_PER_US))
    return found


def _communication(node: Node, name: str, caller: Node) -> dict[str, Attribute]:
    if not is_communication(name):
        return {}
    kind = collective_kind_of(name)
    if kind is CollectiveKind.SEND_RECV:
        # One kernel serves sends, receives and all-to-all: the caller's inputs name which.
        inputs = caller.get("inputs")
        words = inputs if isinstance(inputs, list) else []
        kinds = [collective_kind_of(word) for word in words if isinstance(word, str)]
        kind = next((one for one in kinds if one in COMM_TYPES), kind)
    found: dict[str, Attribute] = {"comm_size": (ValueField.INT64, _bytes(node.get("inputs")))}
    if kind in COMM_TYPES:
        found["comm_type"] = (ValueField.INT64, int(COMM_TYPES[kind]))
    if node.get("pg_name"):
        found["pg_name"] = (ValueField.STRING, str(node["pg_name"]))
    return found


def _bytes(inputs: object) -> int:
    """Bytes of all tensors among these inputs."""
    if not isinstance(inputs, list):
        return 0
    if len(inputs) == _TENSOR_FIELDS and isinstance(inputs[-1], str) and ":" in inputs[-1]:
        return _stated_whole(inputs[_NUM_ITEMS]) * _stated_whole(inputs[_ITEM_BYTES])
    return sum(map(_bytes, inputs))


def _also(node: Node) -> list[int]:
    """Nodes that `chakra_trace_link` found a node to wait for: of another thread, of a device."""
    found: list[int] = []
    for name in ("inter_thread_dep", "sync_dep"):
        value = node.get(name)
        if isinstance(value, list):
            found += [_stated_whole(each) for each in value]
        elif value is not None:
            found.append(_stated_whole(value))
    return found


def _values(node: Node, side: str) -> Sequence[str] | None:
    texts = [
        msgspec.json.encode(node.get(name, [])).decode()
        for name in (f"{side}s", f"{side}_shapes", f"{side}_types")
    ]
    return None if all(text == "[]" for text in texts) else texts


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float(str(value))


def _stated_whole(value: object) -> int:
    return int(_number(value)) if isinstance(value, float) else int(str(value))


def read_feeder(path: Path) -> ChakraTrace:
    """A file of the feeder's own form.

    Raises:
        TraceError: if the file cannot be read, or is no such file.
    """

    def made(text: bytes) -> ChakraTrace:
        return _trace(path, "", {}, _feeder(msgspec.json.decode(text)))

    return _read(path, "Chakra feeder's JSON", made)


def read_jsonized(path: Path) -> ChakraTrace:
    """A file of the jsonizer.

    Raises:
        TraceError: if the file cannot be read, or is no such file.
    """
    return _read(path, "Chakra jsonizer's output", lambda text: _jsonized(path, text))


def read_linked(path: Path) -> ChakraTrace:
    """An execution trace, with device operations linked in or without.

    Raises:
        TraceError: if the file cannot be read, or is no such file.
    """

    def made(text: bytes) -> ChakraTrace:
        version, told, nodes = linked_nodes(msgspec.json.decode(text))
        return _trace(path, version, told, nodes)

    return _read(path, "execution trace", made)


def _read(path: Path, what: str, made: Callable[[bytes], ChakraTrace]) -> ChakraTrace:
    try:
        return made(_text(path))
    except _DAMAGED as err:
        raise TraceError(
            f"cannot read {path} as {what}: {type(err).__name__} {err}; record or convert it again"
        ) from err


def _text(path: Path) -> bytes:
    parts: list[bytes] = []
    try:
        with opened_bytes(path) as pieces:
            for piece in pieces:
                parts.append(piece)
                if sum(map(len, parts[-1:])) * len(parts) > _MOST_JSON_BYTES:
                    raise TraceError(
                        f"cannot read {path}: more than {_MOST_JSON_BYTES:,} bytes of JSON; "
                        "convert it to protobuf first"
                    )
    except CutShortError as err:
        raise TraceError(f"cannot read {path}: {err}; copy it again") from err
    return b"".join(parts)


def _trace(
    path: Path, version: str, told: Mapping[str, Attribute], collected: Collected
) -> ChakraTrace:
    metadata = metadata_of(version, told)
    return ChakraTrace(
        path=path,
        version=version,
        metadata=metadata,
        nodes=collected.nodes(),
        rank=rank_of(path, metadata),
        is_truncated=False,
        file_bytes=num_bytes(path),
    )


def _feeder(content: Mapping[str, Sequence[Mapping[str, object]]]) -> Collected:
    collected = Collected()
    for node in content["workload_graph"]:
        collected.add(
            int(str(node["Id"])),
            str(node.get("Name", "")),
            NodeType(int(str(node.get("NodeType", 0)))),
            control=_ids(node.get("ctrl_deps", node.get("ctrlDeps", ()))),
            data=_ids(node.get("data_deps", ())),
            duration_micros=int(str(node.get("runtime", 0))),
            attributes={
                name: (field, str(node[name]) if field == ValueField.STRING else _whole(node[name]))
                for name, field in _FEEDER_FIELDS.items()
                if name in node
            },
        )
    return collected


def _whole(value: object) -> int:
    return int(value) if isinstance(value, bool | int | float) else int(str(value))


def _ids(value: object) -> list[int]:
    return [int(each) for each in value] if isinstance(value, list) else []


def _jsonized(path: Path, text: bytes) -> ChakraTrace:
    """Messages of protobuf as its library prints them: 64-bit numbers are text."""
    objects = _objects(text.decode("utf-8", "replace"))
    metadata = next(objects, {})
    collected = Collected()
    for node in objects:
        values = [
            tuple(str(_mapping(node[side]).get(key, "")) for key in ("values", "shapes", "types"))
            if side in node
            else None
            for side in ("inputs", "outputs")
        ]
        collected.add(
            _whole(node.get("id", 0)),
            str(node.get("name", "")),
            NodeType[str(node.get("type", "INVALID_NODE")).removesuffix("_NODE")],
            control=_ids(node.get("ctrlDeps", ())),
            data=_ids(node.get("dataDeps", ())),
            start_micros=_whole(node.get("startTimeMicros", 0)),
            duration_micros=_whole(node.get("durationMicros", 0)),
            inputs=values[0],
            outputs=values[1],
            attributes=_jsonized_attributes(node),
        )
    return _trace(path, str(metadata.get("version", "")), _jsonized_attributes(metadata), collected)


def _jsonized_attributes(message: Mapping[str, object]) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    listed = message.get("attr", [])
    for one in listed if isinstance(listed, list) else []:
        for key, field in _JSONIZED_FIELDS.items():
            if key not in one:
                continue
            value = one[key]
            found[str(one.get("name", ""))] = (
                field, str(value) if field == ValueField.STRING else _whole(value)
            )  # fmt: skip
    return found


def _objects(text: str) -> Iterator[dict[str, object]]:
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        one, at = decoder.raw_decode(text, at)
        yield one


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
