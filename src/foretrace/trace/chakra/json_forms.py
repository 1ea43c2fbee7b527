"""Chakra in JSON: the feeder's own form, the jsonizer's, and PyTorch execution traces.

- the feeder's: `{"workload_graph": [{"Id": 216, "Name": ..., "NodeType": 4, ...}]}`
- the jsonizer's: protobuf messages as JSON objects one after the other, metadata first
- execution traces, with device operations linked in by `chakra_trace_link` or without
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from foretrace.base import TraceError
from foretrace.trace.archives import num_bytes
from foretrace.trace.chakra.collect import Attribute, Collected, metadata_of
from foretrace.trace.chakra.columns import ChakraTrace
from foretrace.trace.chakra.linked import linked_nodes
from foretrace.trace.chakra.read import rank_of
from foretrace.trace.chakra.schema import NodeType, ValueField
from foretrace.trace.source import CutShortError, opened_bytes

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
