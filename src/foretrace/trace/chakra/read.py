"""A Chakra protobuf file, plain or gzip, becomes a `ChakraTrace`; or batches of nodes.

The file passes through a buffer, so what is held beside the columns does not grow with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretrace.base import TraceError, UInt8s
from foretrace.trace.archives import num_bytes
from foretrace.trace.chakra._compiled import MessageTables, messages
from foretrace.trace.chakra.columns import Attributes, ChakraNodes, ChakraTrace, Texts
from foretrace.trace.chakra.schema import MessageState, MessageStatus
from foretrace.trace.ranks import rank_in_name
from foretrace.trace.source import CutShortError, opened_bytes
from foretrace.trace.texts._compiled import Pool, fill_slots

BATCH_NODES = 1 << 16
# Not the last part of a version, as in `resnet_et_1.1.1.json`.
_NUMBERED = re.compile(r"[^.\d]\.(\d+)\.(?:et|json)")
_LEAST = 1 << 12  # rows of a new table
_BUFFER_BYTES = 1 << 20
_ALL = 1 << 62
_Number = TypeVar("_Number", bound=np.generic)
_MOST_MESSAGE_BYTES = 1 << 31  # protobuf's own limit


def read_chakra(path: Path) -> ChakraTrace:
    """The whole file.

    Raises:
        TraceError: if the file cannot be read, or is no Chakra protobuf.
    """
    with _opened(path) as reader:
        metadata = reader.metadata()
        nodes = reader.nodes(_ALL)
        return ChakraTrace(
            path=path,
            version=metadata.texts[int(metadata.name[0])],
            metadata=metadata,
            nodes=nodes,
            rank=rank_of(path, metadata),
            is_truncated=reader.is_truncated,
            notes=reader.notes(nodes),
            file_bytes=num_bytes(path),
        )


def chakra_batches(path: Path, num_nodes: int = BATCH_NODES) -> Iterator[ChakraNodes]:
    """The nodes of a file in batches, each with texts of its own: memory does not grow with it.

    Raises:
        TraceError: if the file cannot be read, or is no Chakra protobuf.
    """
    with _opened(path) as reader:
        reader.metadata()
        while len(nodes := reader.nodes(num_nodes)):
            yield nodes


def rank_of(path: Path, metadata: ChakraNodes) -> int | None:
    """The rank that a file states, or its name: `chakra.3.et` by Chakra's own rule."""
    if metadata.has("rank")[0]:
        return int(metadata.numbers("rank")[0])
    match = _NUMBERED.search(path.name)
    return int(match.group(1)) if match else rank_in_name(path)


@contextmanager
def _opened(path: Path) -> Iterator[_Reader]:
    with opened_bytes(path) as pieces:
        yield _Reader(path, pieces)


@dataclass(frozen=True)
class _Room:
    """Tables of the reading loop, which grow."""

    tables: MessageTables
    pool: Pool


class _Reader:
    """Reads an open file message by message."""

    def __init__(self, path: Path, pieces: Iterator[bytes]) -> None:
        self._path = path
        self._pieces = pieces
        self._buffer = np.zeros(0, np.uint8)
        self._state = np.zeros(len(MessageState), np.int64)
        self._is_over = False
        self.is_truncated = False
        self._offset = 0  # of the buffer's begin, in the file's text

    def metadata(self) -> ChakraNodes:
        """The first message, as one row whose name is the version."""
        self._state[MessageState.IS_METADATA] = 1
        found = self.nodes(1)
        self._state[MessageState.IS_METADATA] = 0
        if not len(found):
            raise TraceError(
                f"cannot read {self._path}: no whole message in it, expected Chakra protobuf "
                "messages behind their lengths; record or copy it again"
            )
        return found

    def nodes(self, most: int) -> ChakraNodes:
        """Up to so many more messages."""
        room = _new_room()
        state = self._state
        for counter in (
            MessageState.NUM_NODES, MessageState.NUM_CONTROL, MessageState.NUM_DATA,
            MessageState.NUM_ATTRIBUTES, MessageState.NUM_UNKNOWN,
        ):  # fmt: skip
            state[counter] = 0
        while True:
            status = messages(self._buffer, len(self._buffer), most, room.tables, room.pool, state)
            if status == MessageStatus.BAD:
                raise self._bad()
            if status == MessageStatus.ENOUGH or (
                status == MessageStatus.MORE and not self._filled()
            ):
                break
            if status == MessageStatus.NO_ROOM:
                room = _wider(room, state)
        return _nodes_of(room, state)

    def notes(self, nodes: ChakraNodes) -> tuple[str, ...]:
        """What a reader of the file should know."""
        notes = []
        if self.is_truncated:
            notes.append("the file ends inside a message; what stands before is kept")
        if nodes.num_unknown:
            notes.append(
                f"{nodes.num_unknown:,} fields of a later schema are not known and not kept"
            )
        return tuple(notes)

    def _filled(self) -> bool:
        """Whether the file had more; the buffer then begins with what was not read yet."""
        at = int(self._state[MessageState.AT])
        if self._is_over:
            self.is_truncated |= at < len(self._buffer)
            return False
        rest = self._buffer[at:]
        wanted = max(_BUFFER_BYTES, int(self._state[MessageState.NEEDED]) + 16)
        if wanted > _MOST_MESSAGE_BYTES:
            raise self._bad()
        parts: list[UInt8s] = [rest]
        have = len(rest)
        while have < wanted:
            piece = self._next()
            if not piece:
                self._is_over = True
                break
            parts.append(np.frombuffer(piece, np.uint8))
            have += len(piece)
        self._offset += at
        self._state[MessageState.AT] = 0
        self._buffer = np.concatenate(parts)
        if have > len(rest):
            return True
        self.is_truncated |= have > 0
        return False

    def _next(self) -> bytes:
        try:
            return next(self._pieces, b"")
        except CutShortError:
            self.is_truncated = True
            return b""

    def _bad(self) -> TraceError:
        at = self._offset + int(self._state[MessageState.AT])
        return TraceError(
            f"cannot read {self._path}: no Chakra message at byte {at:,} of its text, expected a "
            "length and a Node of et_def.proto; record or copy it again"
        )


def _new_room() -> _Room:
    return _Room(
        MessageTables(
            node_id=np.zeros(_LEAST, np.int64),
            name=np.zeros(_LEAST, np.int32),
            kind=np.zeros(_LEAST, np.uint8),
            start=np.zeros(_LEAST, np.int64),
            duration=np.zeros(_LEAST, np.int64),
            values=np.zeros((_LEAST, 6), np.int32),
            first_control=np.zeros(_LEAST + 1, np.int64),
            control=np.zeros(_LEAST, np.int64),
            first_data=np.zeros(_LEAST + 1, np.int64),
            data=np.zeros(_LEAST, np.int64),
            first_attribute=np.zeros(_LEAST + 1, np.int64),
            attribute_name=np.zeros(_LEAST, np.int32),
            attribute_doc=np.zeros(_LEAST, np.int32),
            attribute_field=np.zeros(_LEAST, np.uint8),
            attribute_value=np.zeros(_LEAST, np.int64),
        ),
        Pool(
            arena=np.zeros(16 * _LEAST, np.uint8),
            begins=np.zeros(_LEAST + 1, np.int64),
            hashes=np.zeros(_LEAST, np.int64),
            slots=np.full(4 * _LEAST, -1, np.int32),
            size=np.zeros(1, np.int64),
        ),
    )


def _wider(room: _Room, state: NDArray[np.int64]) -> _Room:
    """The same tables with room for a message of `state[NEEDED]` bytes more."""
    length = int(state[MessageState.NEEDED])
    tables, pool = room.tables, room.pool
    num_texts = int(pool.size[0])
    nodes, control, data, attributes, texts, arena = (
        _size(have, used, more)
        for have, used, more in (
            (len(tables.node_id), int(state[MessageState.NUM_NODES]), 1),
            (len(tables.control), int(state[MessageState.NUM_CONTROL]), length),
            (len(tables.data), int(state[MessageState.NUM_DATA]), length),
            (len(tables.attribute_name), int(state[MessageState.NUM_ATTRIBUTES]), length // 2 + 1),
            (len(pool.hashes), num_texts, length // 2 + 8),
            (len(pool.arena), int(pool.begins[num_texts]), length),
        )
    )
    slots = pool.slots
    if 2 * texts > len(slots):
        slots = np.full(1 << (2 * texts - 1).bit_length(), -1, np.int32)
        fill_slots(slots, pool.hashes, num_texts)
    size_of = {"control": control, "data": data}
    grown: dict[str, Any] = {
        name: _grown(
            column,
            size_of.get(
                name,
                attributes
                if name.startswith("attribute_")
                else nodes + (1 if name.startswith("first_") else 0),
            ),
        )
        for name, column in tables._asdict().items()
    }
    return _Room(
        MessageTables(**grown),
        Pool(
            _grown(pool.arena, arena),
            _grown(pool.begins, texts + 1),
            _grown(pool.hashes, texts),
            slots,
            pool.size,
        ),
    )


def _size(have: int, used: int, more: int) -> int:
    return have if used + more <= have else max(2 * have, used + more)


def _grown(column: NDArray[_Number], size: int) -> NDArray[_Number]:
    if len(column) >= size:
        return column
    wider = np.zeros((size, *column.shape[1:]), column.dtype)
    wider[: len(column)] = column
    return wider


def _nodes_of(room: _Room, state: NDArray[np.int64]) -> ChakraNodes:
    """The columns, cut to what was read."""
    tables, pool = room.tables, room.pool
    texts = int(pool.size[0])
    nodes, control, data, attributes = (
        int(state[counter])
        for counter in (
            MessageState.NUM_NODES,
            MessageState.NUM_CONTROL,
            MessageState.NUM_DATA,
            MessageState.NUM_ATTRIBUTES,
        )
    )
    return ChakraNodes(
        texts=Texts(pool.arena[: pool.begins[texts]], pool.begins[: texts + 1]),
        node_id=tables.node_id[:nodes],
        name=tables.name[:nodes],
        kind=tables.kind[:nodes],
        start_micros=tables.start[:nodes],
        duration_micros=tables.duration[:nodes],
        values=tables.values[:nodes],
        first_control=tables.first_control[: nodes + 1],
        control=tables.control[:control],
        first_data=tables.first_data[: nodes + 1],
        data=tables.data[:data],
        attributes=Attributes(
            tables.first_attribute[: nodes + 1],
            tables.attribute_name[:attributes],
            tables.attribute_doc[:attributes],
            tables.attribute_field[:attributes],
            tables.attribute_value[:attributes],
        ),
        num_unknown=int(state[MessageState.NUM_UNKNOWN]),
    )
