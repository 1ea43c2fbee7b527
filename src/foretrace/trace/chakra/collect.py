"""Nodes that come one by one, as JSON forms hold them, become columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foretrace.base import Int64s
from foretrace.trace.chakra.columns import Attributes, ChakraNodes, Texts
from foretrace.trace.chakra.schema import NO_TEXT, NodeType, ValueField

Attribute = tuple[ValueField, int | str | bytes]
_NONE: Mapping[str, Attribute] = {}


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
