"""Columns of Chakra nodes become protobuf messages, each behind its length.

Metadata goes first. What is written is what protobuf's own library would write, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretrace.exchange.chakra._compiled import Columns, message_sizes, messages_into
from foretrace.exchange.protobuf import field_bytes, varint
from foretrace.trace import CHAKRA_VERSION, ChakraNodes, Texts, ValueField

CHUNK_NODES = 1 << 16  # of about 0.5 kB each: some 30 MB
_LENGTH_BYTES = 10  # most bytes of a length
_Number = TypeVar("_Number", bound=np.generic)
Value = int | str | Sequence[int] | Sequence[str]
_FIXED = {
    ValueField.DOUBLE: (1, 8),
    ValueField.FIXED64: (1, 8),
    ValueField.SFIXED64: (1, 8),
    ValueField.FLOAT: (5, 4),
    ValueField.FIXED32: (5, 4),
    ValueField.SFIXED32: (5, 4),
}


def write_nodes(out: IO[bytes], nodes: ChakraNodes) -> None:
    """Write nodes; a file's metadata stands before."""
    for chunk in node_chunks(nodes):
        out.write(chunk)


def node_chunks(nodes: ChakraNodes) -> Iterator[memoryview]:
    """The nodes' messages in pieces."""
    columns = _columns(nodes)
    for begin in range(0, len(nodes), CHUNK_NODES):
        end = min(begin + CHUNK_NODES, len(nodes))
        sizes = np.empty(end - begin, np.int64)
        message_sizes(begin, end, columns, sizes)
        buffer = np.empty(int(sizes.sum()) + _LENGTH_BYTES * len(sizes), np.uint8)
        used = messages_into(buffer, begin, end, columns, sizes)
        yield buffer[:used].data


def _columns(nodes: ChakraNodes) -> Columns:
    attributes = nodes.attributes
    return Columns(
        arena=_to_read(nodes.texts.arena),
        begins=_to_read(nodes.texts.begins),
        node_id=_to_read(nodes.node_id),
        name=_to_read(nodes.name),
        kind=_to_read(nodes.kind),
        start=_to_read(nodes.start_micros),
        duration=_to_read(nodes.duration_micros),
        values=_to_read(nodes.values),
        first_control=_to_read(nodes.first_control),
        control=_to_read(nodes.control),
        first_data=_to_read(nodes.first_data),
        data=_to_read(nodes.data),
        first_attribute=_to_read(attributes.first),
        attribute_name=_to_read(attributes.name),
        attribute_doc=_to_read(attributes.doc),
        attribute_field=_to_read(attributes.field),
        attribute_value=_to_read(attributes.value),
    )


def _to_read(column: NDArray[_Number]) -> NDArray[_Number]:
    """Without gaps, and as what cannot be written to: loops are made for one form of arrays."""
    found = np.ascontiguousarray(column).view()
    found.flags.writeable = False
    return found


def metadata_message(version: str, attributes: Mapping[str, tuple[ValueField, Value]]) -> bytes:
    """A GlobalMetadata message behind its length."""
    content = field_bytes(1, version.encode()) if version else b""
    for name, (field, value) in attributes.items():
        content += field_bytes(2, field_bytes(1, name.encode()) + _value(field, value))
    return varint(len(content)) + content


def copied_metadata(metadata: ChakraNodes) -> bytes:
    """The metadata of a file that was read, behind its length."""
    content = b""
    version = metadata.texts.bytes_of(int(metadata.name[0]))
    if version:
        content += field_bytes(1, version)
    # A node's attributes stand in field 10 where the metadata's stand in field 2.
    attributes = metadata.attributes
    for row in range(len(attributes.name)):
        inner = b""
        for number, text in ((1, attributes.name[row]), (2, attributes.doc[row])):
            raw = metadata.texts.bytes_of(int(text))
            inner += field_bytes(number, raw) if raw else b""
        field, value = int(attributes.field[row]), int(attributes.value[row])
        if field % 2 == 0 or field in (ValueField.STRING, ValueField.BYTES):
            inner += field_bytes(field, metadata.texts.bytes_of(value)) if field else b""
        else:
            inner += _number(field, value)
        content += field_bytes(2, inner)
    if not content:  # a file without any (JSON forms have none): readers would stop here
        content = field_bytes(1, CHAKRA_VERSION.encode())
    return varint(len(content)) + content


def list_message(field: ValueField, values: Sequence[int] | Sequence[str]) -> bytes:
    """The message of a list of numbers (varints, packed) or of texts."""
    if field == ValueField.STRING_LIST:
        return b"".join(field_bytes(1, str(value).encode()) for value in values)
    packed = b"".join(varint(int(value)) for value in values)
    return field_bytes(1, packed) if packed else b""


def _value(field: ValueField, value: Value) -> bytes:
    if isinstance(value, str):
        return field_bytes(field, value.encode())
    if isinstance(value, int):
        return _number(field, value)
    return field_bytes(field, list_message(field, value))


def _number(field: int, value: int) -> bytes:
    if field in _FIXED:
        wire, size = _FIXED[ValueField(field)]
        return varint(field << 3 | wire) + (value % (1 << 8 * size)).to_bytes(size, "little")
    if field in (ValueField.SINT32, ValueField.SINT64):
        value = value << 1 ^ value >> 63
    return varint(field << 3) + varint(value)


class TextPool:
    """Texts of a file, each once: a graph's names first, in their order."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._texts = [name.encode() for name in names]
        self._position = {text: at for at, text in enumerate(self._texts)}

    def of(self, text: str | bytes) -> int:
        """Position of a text, added if it is new."""
        raw = text.encode() if isinstance(text, str) else text
        position = self._position.setdefault(raw, len(self._texts))
        if position == len(self._texts):
            self._texts.append(raw)
        return position

    def texts(self) -> Texts:
        """All texts so far."""
        return Texts.of(self._texts)
