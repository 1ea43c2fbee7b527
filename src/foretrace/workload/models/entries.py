"""What a model file says, key by key, with where it comes from.

An entry is `layers = { value = 126, source = "paper" }`, where `paper` is a key of the file's
`[sources]`; or `{ value = ..., assumed = "why" }`; or just `126`, in a user's own file or in a
table that states `source = "paper"` once for all its entries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta

from foretrace.answer import Json, Plain, plain, stated_json
from foretrace.base import (
    Citation,
    DescriptionKey,
    Statement,
    Table,
    WorkloadError,
    read_statements,
    read_value,
)

MOST_COUNT = 2**53  # whole numbers beyond it have no float of their own
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([kMBT]?)")
_WORTH = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}

Value = int | float | bool | str | tuple[int, ...]


class EntryKind(StrEnum):
    """What an entry holds."""

    COUNT = "a whole number"
    COUNTS = "a list of whole numbers"
    FLAG = "true or false"
    CHOICE = "one of a few words"
    AMOUNT = 'a whole number, or a text like "405B"'


@dataclass(frozen=True)
class EntryField:
    """An entry that a table may hold."""

    key: str
    kind: EntryKind
    meaning: str
    is_required: bool = False
    low: int = 1  # smallest whole number that makes sense
    high: int = MOST_COUNT  # and the largest: what is walked one by one must have an end
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry(Plain):
    """One statement of a file, and why it is believed."""

    key: str  # "shape.layers"
    value: Value
    text: str  # as written: "405B"
    source: Citation | None
    assumed: str  # the reason, where a source gives it in part or not at all; else ""
    note: str

    @property
    def amount(self) -> float:
        """The number that it holds.

        Raises:
            TypeError: if its field holds none.
        """
        if not isinstance(self.value, int | float):
            raise TypeError(f"{self.key!r} holds {self.value!r}, which is no number")
        return self.value

    def as_json(self) -> Json:
        """Everything, as plain values."""
        return {"value": plain(self.value), **stated_json(self)}


@dataclass(frozen=True)
class Entries:
    """The entries of one table of a file, asked for by type."""

    name: str  # "shape"
    where: str  # "[shape] of model file '...'"
    by_key: Mapping[str, Entry]

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def count(self, key: str, default: int = 0) -> int:
        """The whole number under `key`."""
        entry = self.by_key.get(key)
        return default if entry is None else int(entry.amount)

    def amount(self, key: str) -> float | None:
        """The amount under `key`; `None` if there is none."""
        entry = self.by_key.get(key)
        return None if entry is None else entry.amount

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Whether `key` is true."""
        entry = self.by_key.get(key)
        return default if entry is None else bool(entry.value)

    def choice(self, key: str, default: str) -> str:
        """The word under `key`."""
        entry = self.by_key.get(key)
        return default if entry is None else str(entry.value)

    def counts(self, key: str) -> tuple[int, ...]:
        """The whole numbers under `key`; none, if there is no such key."""
        entry = self.by_key.get(key)
        return entry.value if entry is not None and isinstance(entry.value, tuple) else ()


def read_entries(
    table: Table,
    fields: Sequence[EntryField],
    *,
    name: str,
    sources: Mapping[str, Citation],
    where: str,
) -> Entries:
    """The entries of one table, in the order of `fields`; other keys are refused.

    Raises:
        WorkloadError: for an unknown key, value or source, or a required entry that is missing.
    """
    place = f"[{name}] of {where}"
    keys = [DescriptionKey(field.key, Any, is_required=field.is_required) for field in fields]
    stated = read_statements(table, keys, place, sources=sources, error=WorkloadError)
    by_key = {field.key: field for field in fields}
    found = {key: _entry(one, by_key[key], name, place) for key, one in stated.items()}
    return Entries(name, place, found)


def _entry(stated: Statement, field: EntryField, name: str, where: str) -> Entry:
    return Entry(
        key=f"{name}.{field.key}",
        value=_value(stated.value, field, where),
        text=_text(stated.value),
        source=stated.source,
        assumed=stated.assumed,
        note=stated.note,
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _value(written: object, field: EntryField, where: str) -> Value:
    if field.kind is EntryKind.AMOUNT and isinstance(written, str):
        match = _AMOUNT.fullmatch(written)
        value = float(match[1]) * _WORTH[match[2]] if match else 0.0
        if 0 < value < math.inf:
            return value
    key = DescriptionKey(field.key, _kind(field), expected=_words(field))
    found: Value = read_value(written, key, where, error=WorkloadError)
    return found


@cache
def _kind(field: EntryField) -> Any:
    """The type that an entry's value converts to."""
    limits = Meta(ge=field.low, le=field.high)
    return {
        EntryKind.COUNT: Annotated[int, limits],
        EntryKind.COUNTS: Annotated[tuple[Annotated[int, limits], ...], Meta(min_length=1)],
        EntryKind.FLAG: bool,
        EntryKind.CHOICE: Literal[tuple(map(str, field.choices))] if field.choices else str,
        EntryKind.AMOUNT: Annotated[int, limits],
    }[field.kind]


def _words(field: EntryField) -> str:
    """What an entry may hold; of a choice what its kind says."""
    limits = ""
    if field.kind in {EntryKind.COUNT, EntryKind.COUNTS}:
        limits = f" of at least {field.low}"
        limits += f" and at most {field.high}" if field.high < MOST_COUNT else ""
    return "" if field.kind is EntryKind.CHOICE else f"{field.kind}{limits}"


def rounding(text: str) -> float:
    """Half a unit of the last digit of an amount as written: 0.5e9 for "405B", 0 for a count."""
    match = _AMOUNT.fullmatch(text)
    if match is None or not match[2]:
        return 0.0
    _, _, digits = match[1].partition(".")
    return float(0.5 * _WORTH[match[2]] * 10.0 ** -len(digits))
