"""One PyTorch execution trace: every schema's members, with neutral names."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from math import prod
from typing import cast

import msgspec

from foretrace.exchange.anonymised.kineto import FIRST_MICROS, KinetoAnonymiser, Record
from foretrace.exchange.anonymised.replacements import DimensionScale, Names, numbers_in

_FILE = ("schema", "nodes")
_NUMBERS = frozenset((
    "id", "rf_id", "parent", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "ctrl_deps",
    "dur", "stream", "inclusive_dur", "exclusive_dur", "sync_dep", "inter_thread_dep", "pg_size",
    "global_rank_start", "global_rank_stride",
))  # fmt: skip
_SIZES = frozenset(("in_msg_nelems", "out_msg_nelems"))
_SIDES = ("inputs", "outputs")
_TENSOR_FIELDS = 6  # id, storage, offset, elements, item bytes, device
_ELEMENTS = 3
_UNDATED = "1970-01-01 00:00:00"


def execution_content(text: bytes) -> Record:
    """A file's content."""
    return cast("Record", msgspec.json.Decoder(float_hook=Decimal).decode(text))


def nodes_of(content: Record) -> list[Record]:
    """The nodes of a file's content."""
    nodes = content.get("nodes")
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def glance(content: Record) -> tuple[Decimal | None, set[str]]:
    """The earliest time in micros, of traces with device operations linked in; operators."""
    times = [at for node in nodes_of(content) if isinstance(at := node.get("ts"), int | Decimal)]
    named = {str(node.get("name", "")) for node in nodes_of(content)}
    operators = {name.removeprefix("aten::") for name in named if name.startswith("aten::")}
    return (Decimal(min(times)) if times else None), operators


class ExecutionAnonymiser:
    """Writes execution traces anew; the same for all files of a run."""

    def __init__(
        self,
        names: Names,
        scale: DimensionScale,
        *,
        earliest: Decimal | None,
        events: KinetoAnonymiser,
    ) -> None:
        self._names = names
        self._scale = scale
        self._events = events  # for device operations that were linked in
        self._shift = 0 if earliest is None else int(earliest) - FIRST_MICROS
        self.shapes: set[int] = set()

    def text(self, content: Record) -> bytes:
        """The file's text."""
        for name, value in content.items():
            if name not in _FILE:
                self._names.remove(name, value)
        kept: Record = {
            "schema": content.get("schema"),
            "pid": 1,
            "time": _UNDATED,
            "start_ts": 0,
            "nodes": [self._node(node) for node in nodes_of(content)],
            "finish_ts": 0,
        }
        return msgspec.json.Encoder(decimal_format="number").encode(kept) + b"\n"

    def _node(self, node: Record) -> Record:
        kept: Record = {}
        for name, value in node.items():
            if name in _NUMBERS or name in ("cat", "ph", "pid"):
                kept[name] = value
            elif name in _SIDES:
                kept |= self._side(name, node)
            elif (new := self._member(name, value, node)) is not None:
                kept[name] = new
            elif not name.startswith(("input_", "output_")):
                self._names.remove(name, value)
        return kept

    def _member(self, name: str, value: object, node: Record) -> object:
        """The new value of a member that needs more than copying; None of unknown ones."""
        if name == "name":
            return self._name(str(value), node)
        if name in ("op_schema", "pg_name"):
            renamed = self._names.schema if name == "op_schema" else self._names.group
            return renamed(str(value))
        if name == "ts" and isinstance(value, int | Decimal):
            return value - self._shift
        if name == "args" and isinstance(value, dict):
            return self._events.arguments(value)
        if name == "attrs" and isinstance(value, list):
            return list(self._attributes(value))
        return None

    def _name(self, name: str, node: Record) -> str:
        return self._names.kernel(name) if "cat" in node else self._names.either(name)

    def _side(self, name: str, node: Record) -> Record:
        side = node[name]
        one = name.removesuffix("s")
        if isinstance(side, dict):
            new: Record = {
                "values": self._values(side.get("values"), side.get("shapes")),
                "shapes": self._shape(side.get("shapes")),
                "types": self._types(side.get("types")),
            }
            if "strides" in side:
                new["strides"] = [] if self._scale.is_on else side["strides"]
            return {name: new}
        return {
            name: self._values(side, node.get(f"{one}_shapes")),
            f"{one}_shapes": self._shape(node.get(f"{one}_shapes")),
            f"{one}_types": self._types(node.get(f"{one}_types")),
        }

    def _shape(self, value: object) -> object:
        scaled = self._scale.sizes(value) if self._scale.is_on else value
        self.shapes.update(numbers_in(scaled))
        return scaled or []

    def _types(self, value: object) -> list[str]:
        return [self._names.type(str(one)) for one in value] if isinstance(value, list) else []

    def _values(self, value: object, shapes: object) -> object:
        if not isinstance(value, list):
            return []
        shapes = shapes if isinstance(shapes, list) else []
        return [
            self._value(one, shapes[place] if place < len(shapes) else None)
            for place, one in enumerate(value)
        ]

    def _value(self, value: object, shape: object) -> object:
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, list):
            return self._scale.value(value) if self._scale.is_on else value
        is_tensor = len(value) == _TENSOR_FIELDS and isinstance(value[-1], str)
        if is_tensor and self._scale.is_on:
            return self._scaled_tensor(value, shape)
        inner = shape if isinstance(shape, list) else []
        return [
            self._value(one, None if is_tensor else inner[place] if place < len(inner) else None)
            for place, one in enumerate(value)
        ]

    def _scaled_tensor(self, value: list[object], shape: object) -> list[object]:
        """A tensor whose elements fit its scaled shape; its place in its storage is not kept."""
        sizes = [size for size in shape if isinstance(size, int)] if isinstance(shape, list) else []
        elements = prod(self._scale.size(size) for size in sizes)
        if not sizes and isinstance(value[_ELEMENTS], int):
            elements = cast("int", value[_ELEMENTS])
        return [*value[:2], 0, elements, value[4], self._names.value(str(value[5]))]

    def _text(self, text: str) -> str:
        """A plain value; a list of process groups as JSON is looked into."""
        if text[:2] in ("[{", '{"'):
            try:
                groups = msgspec.json.decode(text)
            except msgspec.DecodeError:
                return self._names.value(text)
            return msgspec.json.encode(self._listed(groups)).decode()
        return self._names.value(text)

    def _listed(self, value: object) -> object:
        if isinstance(value, dict):
            return {
                key: self._listed(inner)
                for key, inner in value.items()
                if key in ("pg_name", "pg_desc", "ranks", "group_size", "group_count", "backend_id")
            }
        if isinstance(value, list):
            return [self._listed(inner) for inner in value]
        return self._names.group(value) if isinstance(value, str) else value

    def _attributes(self, attributes: list[object]) -> Iterator[Record]:
        for attribute in attributes:
            if not isinstance(attribute, dict):
                continue
            name, value = str(attribute.get("name")), attribute.get("value")
            new = self._attribute(name, value)
            if new is None:
                self._names.remove(name, value)
            else:
                yield {"name": name, "type": attribute.get("type"), "value": new}

    def _attribute(self, name: str, value: object) -> object:
        """The new value; None of attributes that are not known."""
        if name in _NUMBERS and not isinstance(value, str):
            return value
        if name in _SIZES and isinstance(value, int):
            return self._scale.size(value) if self._scale.is_on else value
        text = value if isinstance(value, str) else ""
        given = {
            "op_schema": self._names.schema,
            "collective_name": self._names.collective,
            "dtype": self._names.type,
            "pg_name": self._names.group,
            "pg_desc": self._names.group,
            "in_split_size": self._names.numbers,
            "out_split_size": self._names.numbers,
            "kernel_backend": self._backend,
            "kernel_file": self._nothing,
            "tensor_range": self._nothing,
        }.get(name)
        return given(text) if given is not None else None

    def _backend(self, text: str) -> str:
        return text if text in ("", "triton") else self._names.value(text)

    def _nothing(self, text: str) -> str:
        self._names.remove("kernel_file", text)
        return ""
