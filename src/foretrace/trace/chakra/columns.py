"""`ChakraTrace`: what one NPU's Chakra file says, as columns, with nothing lost.

Every attribute keeps the field it was written in, so what is written again is equal in value and
in type. Texts are bytes in one arena, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s
from foretrace.trace.chakra.schema import CHAKRA_VERSION, NO_TEXT, NodeType, ValueField, kind_name
from foretrace.trace.columns import TraceMeta

_TEXT_FIELDS = (ValueField.STRING, ValueField.BYTES)

_NO_ROWS = np.zeros(0, np.int64)

Attribute = tuple[ValueField, int | str | bytes]
_NONE: Mapping[str, Attribute] = {}


@dataclass(frozen=True)
class Texts:
    """Unique byte strings; text `s` is `arena[begins[s]:begins[s + 1]]`."""

    arena: UInt8s  # uint8[bytes]
    begins: Int64s  # int64[texts + 1]

    @staticmethod
    def of(texts: Iterable[bytes]) -> Texts:
        """These texts, in this order."""
        listed = list(texts)
        begins = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(text) for text in listed], out=begins[1:])
        return Texts(np.frombuffer(b"".join(listed), np.uint8), begins)

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.begins) - 1

    def bytes_of(self, text: int) -> bytes:
        """The bytes of one text; of none, none."""
        if text == NO_TEXT:
            return b""
        return self.arena[self.begins[text] : self.begins[text + 1]].tobytes()

    def __getitem__(self, text: int) -> str:
        """One text; what is no UTF-8 is replaced."""
        return self.bytes_of(text).decode("utf-8", "replace")

    def with_text(self, text: str) -> Texts:
        """These texts and one more, if it is not here yet."""
        if self.found(text) != NO_TEXT:
            return self
        more = np.frombuffer(text.encode(), np.uint8)
        begins = np.append(self.begins, self.begins[-1] + len(more))
        return Texts(np.concatenate([self.arena, more]), begins)

    def found(self, text: str) -> int:
        """Position of a text; NO_TEXT if it is not here."""
        wanted = np.frombuffer(text.encode(), np.uint8)
        for position in np.flatnonzero(np.diff(self.begins) == len(wanted)).tolist():
            if np.array_equal(self.arena[self.begins[position] :][: len(wanted)], wanted):
                return int(position)
        return NO_TEXT


@dataclass(frozen=True)
class Attributes:
    """The attributes of nodes: those of node `i` are rows `first[i]` to `first[i + 1]`."""

    first: Int64s  # int64[nodes + 1]
    name: Int32s  # int32[attributes], text
    doc: Int32s  # int32[attributes], text; NO_TEXT
    field: UInt8s  # uint8[attributes], ValueField, or one above: a list of it
    # int64[attributes]: a number, or its bits if it has a fraction; of texts and bytes the text;
    # of lists the text that holds the list's message.
    value: Int64s


@dataclass(frozen=True)
class ChakraNodes:
    """Nodes in the order of the file."""

    texts: Texts
    node_id: Int64s  # int64[nodes], bits of a uint64
    name: Int32s  # int32[nodes], text
    kind: UInt8s  # uint8[nodes], NodeType
    start_micros: Int64s  # int64[nodes]; 0 where the file does not say
    duration_micros: Int64s  # int64[nodes]
    # int32[nodes, 6], texts: values, shapes and types of inputs, then of outputs; NO_TEXT where
    # the message is absent.
    values: Int32s
    first_control: Int64s  # int64[nodes + 1]
    control: Int64s  # int64[control dependencies], ids
    first_data: Int64s  # int64[nodes + 1]
    data: Int64s  # int64[data dependencies], ids
    attributes: Attributes
    num_unknown: int = 0  # fields that the schema does not know, not kept

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.node_id)

    def numbers(self, name: str, default: int = 0) -> Int64s:
        """Each node's attribute of that name as a whole number, int64[nodes].

        Whatever type of number it was written in counts; a text that is a number does too.
        """
        found = np.full(len(self), default, np.int64)
        rows, owners = self._rows_of(name)
        field, value = self.attributes.field[rows], self.attributes.value[rows].copy()
        is_double = field == ValueField.DOUBLE
        value[is_double] = value[is_double].view(np.float64).astype(np.int64)
        is_float = field == ValueField.FLOAT
        bits = value[is_float].astype(np.uint32)
        value[is_float] = bits.view(np.float32).astype(np.int64)
        is_number = field % 2 == 1
        for at in np.flatnonzero(np.isin(field, _TEXT_FIELDS)).tolist():
            text = self.texts[int(value[at])]
            is_number[at] = text.lstrip("-").isdigit()
            value[at] = int(text) if is_number[at] else 0
        found[owners[is_number]] = value[is_number]
        return found

    def bits(self, name: str, default: int = 0) -> Int64s:
        """Each node's attribute of that name as it is stored, int64[nodes]: see `Attributes`."""
        found = np.full(len(self), default, np.int64)
        rows, owners = self._rows_of(name)
        found[owners] = self.attributes.value[rows]
        return found

    def text_numbers(self, name: str) -> Int32s:
        """Each node's attribute of that name as a position in `texts`, int32[nodes]; NO_TEXT."""
        found = np.full(len(self), NO_TEXT, np.int32)
        rows, owners = self._rows_of(name)
        is_text = np.isin(self.attributes.field[rows], _TEXT_FIELDS)
        found[owners[is_text]] = self.attributes.value[rows[is_text]]
        return found

    def list_numbers(self, name: str) -> Int32s:
        """The text that holds the list of that name, int32[nodes]; NO_TEXT where there is none."""
        found = np.full(len(self), NO_TEXT, np.int32)
        rows, owners = self._rows_of(name)
        is_list = (self.attributes.field[rows] % 2 == 0) & (self.attributes.field[rows] > 0)
        found[owners[is_list]] = self.attributes.value[rows[is_list]]
        return found

    def has(self, name: str) -> Bools:
        """Which nodes have an attribute of that name, bool[nodes]."""
        found = np.zeros(len(self), np.bool_)
        found[self._rows_of(name)[1]] = True
        return found

    def _rows_of(self, name: str) -> tuple[Int64s, Int64s]:
        """Rows of attributes with that name, and the nodes they belong to."""
        text = self.texts.found(name)
        rows = np.flatnonzero(self.attributes.name == text) if text != NO_TEXT else _NO_ROWS
        owners = np.searchsorted(self.attributes.first, rows, side="right") - 1
        return rows, owners


def unknown_kinds(nodes: ChakraNodes) -> tuple[str, ...]:
    """A sentence on every type of node that the schema does not name."""
    kinds, counts = np.unique(nodes.kind[nodes.kind >= len(NodeType)], return_counts=True)
    return tuple(
        f"{count:,} nodes are of type {kind} ({kind_name(kind)}), which Chakra {CHAKRA_VERSION} "
        "does not name: they take their time beside computation, and are none"
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
    )


@dataclass(frozen=True)
class ChakraTrace:
    """One NPU's file."""

    path: Path
    version: str  # as the metadata states it; "" if it does not
    metadata: ChakraNodes  # one row: its attributes are the file's
    nodes: ChakraNodes
    rank: int | None  # as the file or its name says
    is_truncated: bool  # the file ends inside a message; what stands before is kept
    notes: tuple[str, ...] = ()
    file_bytes: int = 0

    @property
    def meta(self) -> TraceMeta:
        """What the file says about itself, as of any other."""
        return TraceMeta(
            path=self.path,
            content_key="",
            file_bytes=self.file_bytes,
            json_bytes=self.file_bytes,
            rank=self.rank,
            world_size=None,
            backend=None,
            process_groups=(),
            device_names=(),
            timestamp_unit_ns=1 if self.nodes.has("start_ns").any() else 1000,
            is_truncated=self.is_truncated,
            num_events=len(self.nodes),
            dropped={},
            notes=self.notes,
        )

    def told(self, name: str) -> str:
        """The file's own attribute of that name as text; "" if there is none."""
        text = int(self.metadata.text_numbers(name)[0])
        if text != NO_TEXT:
            return self.metadata.texts[text]
        return str(int(self.metadata.numbers(name)[0])) if self.metadata.has(name)[0] else ""


def listed_numbers(message: bytes) -> list[int]:
    """The numbers in a list message of varints (int32, int64, uint32, uint64, bool)."""
    numbers: list[int] = []
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            value, at = _varint(message, at)
            numbers.append(value)
            continue
        length, at = _varint(message, at)
        end = min(at + length, len(message))  # a damaged length may reach beyond the list
        while at < end:
            value, at = _varint(message, at)
            numbers.append(value)
    return [number - (1 << 64) if number >> 63 else number for number in numbers]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 1 << 7:
            break
    return value & ((1 << 64) - 1), at


class Collected:
    """Takes nodes; gives their columns."""

    def __init__(self) -> None:
        self._position: dict[bytes, int] = {}
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._values: list[tuple[int, ...]] = []
        self._control: list[Sequence[int]] = []
        self._data: list[Sequence[int]] = []
        self._attributes: list[tuple[int, int, int]] = []
        self._num_attributes: list[int] = []

    def add(
        self,
        node_id: int,
        name: str,
        kind: NodeType,
        *,
        control: Sequence[int] = (),
        data: Sequence[int] = (),
        start_micros: int = 0,
        duration_micros: int = 0,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        attributes: Mapping[str, Attribute] = _NONE,
    ) -> None:
        """Add a node; inputs and outputs are their values, shapes and types as text."""
        self._rows.append((_signed(node_id), self._text(name), kind, start_micros, duration_micros))
        self._values.append(
            tuple(
                NO_TEXT if texts is None else self._text(text)
                for texts in (inputs, outputs)
                for text in (texts or ("", "", ""))
            )
        )
        self._control.append(control)
        self._data.append(data)
        for key, (field, value) in attributes.items():
            stored = value if isinstance(value, int) else self._text(value)
            self._attributes.append((self._text(key), int(field), stored))
        self._num_attributes.append(len(attributes))

    def nodes(self) -> ChakraNodes:
        """All nodes added so far."""
        rows = np.array(self._rows, np.int64).reshape(-1, 5)
        attributes = np.array(self._attributes, np.int64).reshape(-1, 3)
        first = _first(self._num_attributes)
        return ChakraNodes(
            texts=Texts.of(self._position),
            node_id=rows[:, 0].copy(),
            name=rows[:, 1].astype(np.int32),
            kind=rows[:, 2].astype(np.uint8),
            start_micros=rows[:, 3].copy(),
            duration_micros=rows[:, 4].copy(),
            values=np.array(self._values, np.int32).reshape(-1, 6),
            first_control=_first([len(ids) for ids in self._control]),
            control=_joined(self._control),
            first_data=_first([len(ids) for ids in self._data]),
            data=_joined(self._data),
            attributes=Attributes(
                first,
                attributes[:, 0].astype(np.int32),
                np.full(len(attributes), NO_TEXT, np.int32),
                attributes[:, 1].astype(np.uint8),
                attributes[:, 2].copy(),
            ),
        )

    def _text(self, text: str | bytes) -> int:
        raw = text.encode() if isinstance(text, str) else text
        return self._position.setdefault(raw, len(self._position))


def metadata_of(version: str, attributes: Mapping[str, Attribute] = _NONE) -> ChakraNodes:
    """A file's metadata, as one row whose name is the version."""
    collected = Collected()
    collected.add(0, version, NodeType.INVALID, attributes=attributes)
    return collected.nodes()


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _first(sizes: Sequence[int]) -> Int64s:
    first = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=first[1:])
    return first


def _joined(lists: Sequence[Sequence[int]]) -> Int64s:
    return np.array([_signed(number) for numbers in lists for number in numbers], np.int64)
