"""One Chakra file: ids, types, dependencies and numbers stay, texts become neutral."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int32s, Int64s, row_starts
from foretrace.exchange.anonymised.kineto import FIRST_MICROS
from foretrace.exchange.anonymised.replacements import DimensionScale, Names
from foretrace.exchange.chakra.messages import TextPool
from foretrace.trace import NO_TEXT, Attributes, ChakraNodes, ChakraTrace, ValueField

# Names are numbered by the converter: "aten::mm(12)".
_NUMBERED = re.compile(r"(.*?)(\(\d+\))?$", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_KEPT = frozenset((
    "rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "is_cpu_op", "stream", "comm_type",
    "comm_size", "comm_priority", "comm_src", "comm_dst", "comm_tag", "num_ops", "tensor_size",
    "involved_dim", "duration_ns", "start_ns", "end_ns", "node_kind", "lane", "step", "part",
    "phase", "layer", "microbatch", "inflation", "edge_kinds", "remote_edges", "more_edges",
    "collective", "position", "num_bytes", "is_transfer_estimated", "waits_for_lanes",
    "foretrace", "rank", "num_ranks", "lanes", "constants", "version", "runtime",
))  # fmt: skip
_SIZES = frozenset(("comm_size", "tensor_size", "num_bytes"))
_TEXT_FIELDS = (ValueField.STRING, ValueField.BYTES)
_STRING_LISTS = (ValueField.STRING_LIST, ValueField.BYTES_LIST)


class ChakraAnonymiser:
    """Makes Chakra files anew; the same for all files of a run."""

    def __init__(self, names: Names, scale: DimensionScale, earliest_micros: int) -> None:
        self._names = names
        self._scale = scale
        self._shift = earliest_micros - FIRST_MICROS if earliest_micros > 0 else 0
        self._texts: dict[str, Callable[[str], str]] = {
            "op_schema": names.schema,
            "pg_name": names.group,
            "collective_name": names.collective,
            "dtype": names.type,
            "operator": names.either,
            "signature": self._signature,
            "operator_signature": self._signature,
            "schema": names.numbers,
            "groups": self._groups,
            "steps": self._steps,
            **dict.fromkeys(("lanes", "constants", "version"), _same),
        }

    def nodes(self, nodes: ChakraNodes) -> ChakraNodes:
        """A file's nodes, or its metadata, with neutral texts."""
        pool = TextPool(())
        name = self._column(nodes, nodes.name, self._name, pool)
        values = nodes.values.copy()
        for side in (0, 3):
            values[:, side] = self._column(nodes, values[:, side], self._values, pool)
            values[:, side + 1] = self._column(nodes, values[:, side + 1], self._shapes, pool)
            values[:, side + 2] = self._column(nodes, values[:, side + 2], self._types, pool)
        attributes = self._attributes(nodes, pool)
        start = nodes.start_micros
        return replace(
            nodes,
            name=name,
            values=values,
            attributes=attributes,
            start_micros=np.where(start > 0, start - self._shift, start),
            texts=pool.texts(),
        )

    def version(self, metadata: ChakraNodes) -> ChakraNodes:
        """The metadata's one row: its name is the version and stays."""
        made = self.nodes(replace(metadata, name=np.array([NO_TEXT], np.int32)))
        version = metadata.texts[int(metadata.name[0])]
        texts = made.texts.with_text(version)
        return replace(made, texts=texts, name=np.array([texts.found(version)], np.int32))

    def _column(
        self,
        nodes: ChakraNodes,
        column: NDArray[np.integer],
        renamed: Callable[[str], str],
        pool: TextPool,
    ) -> Int32s:
        unique, place = np.unique(column, return_inverse=True)
        new = [
            NO_TEXT if text == NO_TEXT else pool.of(renamed(nodes.texts[int(text)]))
            for text in unique.tolist()
        ]
        renumbered: Int32s = np.array(new, np.int32)[place.reshape(-1)]
        return renumbered

    def _attributes(self, nodes: ChakraNodes, pool: TextPool) -> Attributes:
        attributes = nodes.attributes
        is_kept = np.ones(len(attributes.name), np.bool_)
        value = attributes.value.copy()
        name = np.full(len(attributes.name), NO_TEXT, np.int32)
        for text in np.unique(attributes.name).tolist():
            called = nodes.texts[int(text)]
            rows = np.flatnonzero(attributes.name == text)
            if called not in _KEPT and called not in self._texts:
                self._remove(nodes, called, rows)
                is_kept[rows] = False
                continue
            name[rows] = pool.of(called)
            self._attribute_values(nodes, called, rows, pool=pool, value=value)
        is_kept &= ~np.isin(attributes.field, _STRING_LISTS)
        return _rows(attributes, is_kept, name, value)

    def _attribute_values(
        self, nodes: ChakraNodes, called: str, rows: Int64s, *, pool: TextPool, value: Int64s
    ) -> None:
        """The new values of one attribute. out: value."""
        field = nodes.attributes.field[rows]
        is_text = np.isin(field, _TEXT_FIELDS)
        renamed = self._texts.get(called, self._names.numbers)
        value[rows[is_text]] = self._column(nodes, value[rows[is_text]], renamed, pool)
        is_list = (field % 2 == 0) & (field > 0)
        for row in rows[is_list & ~is_text].tolist():
            value[row] = pool.of(nodes.texts.bytes_of(int(value[row])))
        if called in _SIZES and self._scale.is_on:
            sizes = rows[~is_text & ~is_list]
            value[sizes] = [self._scale.size(int(number)) for number in value[sizes]]

    def _remove(self, nodes: ChakraNodes, called: str, rows: Int64s) -> None:
        is_text = np.isin(nodes.attributes.field[rows], _TEXT_FIELDS)
        texts = np.unique(nodes.attributes.value[rows[is_text]]).tolist()
        self._names.remove(called, [nodes.texts[int(text)] for text in texts])
        docs = np.unique(nodes.attributes.doc[rows]).tolist()
        self._names.remove(called, [nodes.texts[int(text)] for text in docs])

    def _name(self, text: str) -> str:
        found = _NUMBERED.match(text)
        name, number = (found[1], found[2] or "") if found else (text, "")
        return self._names.either(name) + number

    def _values(self, text: str) -> str:
        return self._scaled(self._names.value(text) if text else text)

    def _shapes(self, text: str) -> str:
        return self._scaled(self._names.numbers(text) if text else text)

    def _scaled(self, text: str) -> str:
        if not self._scale.is_on:
            return text
        return _NUMBER.sub(lambda found: str(self._scale.size(int(found[0]))), text)

    def _types(self, text: str) -> str:
        return self._names.type(text) if text else text

    def _signature(self, text: str) -> str:
        """A signature of ours: JSON with dimensions, types, strides and plain values."""
        try:
            told = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return self._names.value(text)
        if not isinstance(told, dict):
            return self._names.value(text)
        changed = (told.get("dims"), told.get("types"), told.get("inputs"))
        if isinstance(changed[0], list) and self._scale.is_on:
            told = {"dims": self._scale.sizes(changed[0])} | (
                {"types": changed[1]} if changed[1] else {}
            )
        if isinstance(changed[1], list):
            told["types"] = [self._names.type(str(one)) for one in changed[1]]
        if isinstance(changed[2], list) and not self._scale.is_on:
            told["inputs"] = [self._names.value(str(one)) for one in changed[2]]
        return msgspec.json.encode(told).decode()

    def _groups(self, text: str) -> str:
        groups = msgspec.json.decode(text, type=dict[str, tuple[str, list[int]]])
        renamed = {
            number: [self._names.group(name), ranks] for number, (name, ranks) in groups.items()
        }
        return msgspec.json.encode(renamed).decode()

    def _steps(self, text: str) -> str:
        names = msgspec.json.decode(text, type=list[str])
        return msgspec.json.encode([self._names.operator(name) for name in names]).decode()


def earliest_micros(trace: ChakraTrace) -> int:
    """The earliest time that a file states; 0 if it states none."""
    start = trace.nodes.start_micros
    return int(start[start > 0].min(initial=np.iinfo(np.int64).max)) if (start > 0).any() else 0


def _rows(attributes: Attributes, is_kept: Bools, name: Int32s, value: Int64s) -> Attributes:
    owner = np.repeat(np.arange(len(attributes.first) - 1), np.diff(attributes.first))
    return Attributes(
        row_starts(owner[is_kept], len(attributes.first) - 1),
        name[is_kept],
        np.full(int(is_kept.sum()), NO_TEXT, np.int32),
        attributes.field[is_kept],
        value[is_kept],
    )


def _same(text: str) -> str:
    return text
