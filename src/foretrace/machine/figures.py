"""A number of a hardware description: its quantity as people write it, its source, its file.

Strict on purpose: a bandwidth in bits read as bytes is wrong by eight, so "Gb/s" and "GB/s" are
both known, their case counts, and any other spelling is refused with the spellings allowed.
Prefixes: k, M, G, T, P are powers of ten; Ki, Mi, Gi, Ti powers of two.

In a file a figure is `{ value = "80 GiB", source = "datasheet" }`, where `datasheet` is a key of
the file's `[sources]`; or `{ value = ..., assumed = "why" }` where nobody published the number;
or, in a user's own file, just `"80 GiB"`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

from foretrace import base
from foretrace.answer import Answer, Json, Plain, Told, stated_json, stated_parts
from foretrace.base import (
    NS_PER_S,
    NS_PER_UNIT,
    Citation,
    DescriptionKey,
    Document,
    MachineError,
    Shelf,
    Statement,
    Table,
    document_names,
    document_path,
    read_document,
    read_statements,
)

PRESETS = Path(__file__).parent / "presets"


class QuantityKind(StrEnum):
    """What a number measures, and with it the unit it has inside."""

    SIZE = "size"  # bytes
    BANDWIDTH = "bandwidth"  # bytes per ns
    OPERATIONS = "operations"  # operations per ns; a fused multiply-add counts two
    TIME = "time"  # ns
    CLOCK = "clock"  # cycles per ns
    POWER = "power"  # watts
    LENGTH = "length"  # metres
    PRICE = "price"  # of one byte per ns for an hour, in any currency
    COUNT = "count"  # a whole number
    RATIO = "ratio"  # 7.0 for "7:1"


def _prefixed(unit: str, prefixes: str, *, per: float = 1.0) -> dict[str, float]:
    tens = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    return {f"{prefix}{unit}": tens[prefix] / per for prefix in prefixes.split(",")}


_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BITS_PER_BYTE = 8
_HOURS_PER_YEAR = 8766  # of 365.25 days
_MAX_COUNT = 2**53  # whole numbers beyond it have no float of their own

# What one of each unit is worth inside.
UNITS: dict[QuantityKind, dict[str, float]] = {
    QuantityKind.SIZE: {
        **_prefixed("B", ",k,M,G,T"),
        **{f"{prefix}B": factor for prefix, factor in _BINARY.items()},
    },
    QuantityKind.BANDWIDTH: {
        **_prefixed("B/s", "k,M,G,T,P", per=NS_PER_S),
        **{f"{prefix}B/s": factor / NS_PER_S for prefix, factor in _BINARY.items()},
        **_prefixed("b/s", "k,M,G,T,P", per=NS_PER_S * _BITS_PER_BYTE),
    },
    QuantityKind.OPERATIONS: {
        **_prefixed("FLOP/s", "G,T,P", per=NS_PER_S),
        **_prefixed("OP/s", "G,T,P", per=NS_PER_S),
    },
    QuantityKind.TIME: {unit: float(ns) for unit, ns in reversed(NS_PER_UNIT.items())},
    QuantityKind.CLOCK: {"MHz": 1e-3, "GHz": 1.0},
    QuantityKind.POWER: {"W": 1.0, "kW": 1e3},
    QuantityKind.LENGTH: {"m": 1.0, "km": 1e3},
    QuantityKind.PRICE: {
        "/Gb/s/month": _BITS_PER_BYTE * 12 / _HOURS_PER_YEAR,
        "/Gb/s/year": _BITS_PER_BYTE / _HOURS_PER_YEAR,
    },
}

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z/][A-Za-z/]*)\s*")
_RATIO = re.compile(r"\s*(\d+(?:\.\d+)?)\s*:\s*(\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Quantity:
    """A number in the unit used inside, beside the text it was written as."""

    value: float  # see `QuantityKind` for the unit
    text: str
    kind: QuantityKind


def quantity(written: str | float, kind: QuantityKind) -> Quantity:
    """The number written, in the unit that `kind` has inside.

    Raises:
        MachineError: if it is no number, lacks its unit, or has a unit of another kind.
    """
    if kind is QuantityKind.COUNT:
        return Quantity(_count(written), str(written), kind)
    if kind is QuantityKind.RATIO:
        return Quantity(_ratio(written), str(written), kind)
    if not isinstance(written, str):
        raise MachineError(
            f"{written!r} has no unit: write a text with one of {_allowed(kind)}, "
            f'as in "{_example(kind)}"'
        )
    match = _QUANTITY.fullmatch(written)
    if match is None:
        raise MachineError(
            f"{written!r} is not a number with a unit: write it as in "
            f'"{_example(kind)}", with one of {_allowed(kind)} and no thousands separator'
        )
    number, unit = match.groups()
    factor = UNITS[kind].get(unit)
    if factor is None:
        raise MachineError(_unknown_unit(written, unit, kind))
    value = float(number) * factor
    if not 0 < value < math.inf:
        raise MachineError(f"{written!r} is no {kind} that hardware can have: leave it out instead")
    return Quantity(value, written.strip(), kind)


def _unknown_unit(written: str, unit: str, kind: QuantityKind) -> str:
    spelled = unit.replace("bps", "b/s").replace("Bps", "B/s").replace("FLOPS", "FLOP/s")
    spelled = spelled.replace("TOPS", "TOP/s")
    allowed = UNITS[kind]
    alike = [each for each in allowed if each.lower() == spelled.lower()]
    near = [spelled] if spelled in allowed else alike or get_close_matches(unit, allowed, n=1)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{written!r} has the unit {unit!r}, where a {kind} has one of {_allowed(kind)}{hint}"


def _count(written: str | float) -> int:
    if isinstance(written, bool) or not isinstance(written, int) or not 0 < written < _MAX_COUNT:
        raise MachineError(
            f"{written!r} is not a count: write a whole number above 0 without quotes"
        )
    return written


def _ratio(written: str | float) -> float:
    if isinstance(written, str):
        match = _RATIO.fullmatch(written)
        value = float(match[1]) / float(match[2]) if match and float(match[2]) else 0.0
    else:
        value = 0.0 if isinstance(written, bool) or written > _MAX_COUNT else float(written)
    if not 0 < value < math.inf:
        raise MachineError(f'{written!r} is not a ratio: write it as in "7:1" or as a number')
    return value


def _allowed(kind: QuantityKind) -> str:
    return ", ".join(UNITS[kind])


def _example(kind: QuantityKind) -> str:
    examples = {
        QuantityKind.SIZE: "80 GiB",
        QuantityKind.BANDWIDTH: "3.35 TB/s",
        QuantityKind.OPERATIONS: "312 TFLOP/s",
        QuantityKind.TIME: "1.2 us",
        QuantityKind.CLOCK: "1410 MHz",
        QuantityKind.POWER: "700 W",
        QuantityKind.LENGTH: "12 km",
        QuantityKind.PRICE: "150 /Gb/s/month",
    }
    return examples[kind]


@dataclass(frozen=True)
class Figure(Plain):
    """One number, and why it is believed."""

    key: str  # "memory", "peak.bf16", "tier rack.latency"
    quantity: Quantity
    source: Citation | None
    assumed: str  # the reason, where a source gives it in part or not at all; else ""
    note: str

    @property
    def text(self) -> str:
        """The number as written, with its unit."""
        return self.quantity.text

    @property
    def value(self) -> float:
        """The number in the unit used inside."""
        return self.quantity.value

    def as_json(self) -> Json:
        """Everything, as plain values."""
        return {"kind": self.quantity.kind.value, "value": self.value, **stated_json(self)}


class DataSheet(Answer):
    """A description of hardware: what it states, with the documents that say so."""

    name: str
    title: str
    figures: tuple[Figure, ...]

    @property
    def headline(self) -> str:
        """Its name and its title."""
        return f"{self.name}: {self.title}"

    @property
    def statements(self) -> tuple[tuple[str, tuple[Figure, ...]], ...]:
        """Its own numbers, then those of what it is made of, each with a title."""
        return (("numbers", self.figures),)

    def parts(self) -> tuple[Told, ...]:
        """Every number with its source."""
        return stated_parts(self.statements)


@dataclass(frozen=True)
class FigureField:
    """A number that a description may hold, and the range in which hardware has it."""

    key: str
    kind: QuantityKind
    low: str | float  # as written in a file; smaller is reported as implausible
    high: str | float
    meaning: str
    is_required: bool = False


def check_keys(table: Table, allowed: Sequence[str], where: str) -> None:
    """Refuse a key that nothing reads.

    Raises:
        MachineError: naming the key, what is allowed, and the nearest allowed key.
    """
    base.check_keys(table, allowed, where, error=MachineError)


def read_sources(table: object, where: str) -> dict[str, Citation]:
    """The documents a file names, by the key it refers to them with."""
    return base.read_sources(table, where, error=MachineError)


def read_figures(
    table: Table, fields: Sequence[FigureField], *, sources: Mapping[str, Citation], where: str
) -> dict[str, Figure]:
    """The figures of one table of a file, by key; keys that `fields` does not know are refused.

    Raises:
        MachineError: for an unknown key, unit or source, or a required number that is missing.
    """
    keys = [
        DescriptionKey(
            field.key,
            str | int | float,
            is_required=field.is_required,
            expected=f"a number of {field.kind.value} with its unit",
        )
        for field in fields
    ]
    kinds = {field.key: field.kind for field in fields}
    stated = read_statements(table, keys, where, sources=sources, error=MachineError)
    return {key: _figure(key, one, kinds[key], where) for key, one in stated.items()}


def _figure(key: str, stated: Statement, kind: QuantityKind, where: str) -> Figure:
    try:
        found = quantity(stated.value, kind)
    except MachineError as err:
        raise MachineError(f"{key!r} of {where}: {err}") from None
    return Figure(key, found, stated.source, stated.assumed, stated.note)


def as_table(value: object, where: str) -> Table:
    """`value` as a table; nothing counts as an empty one.

    Raises:
        MachineError: if it is something else.
    """
    return base.as_table(value, where, error=MachineError)


def prefixed(prefix: str, figures: Mapping[str, Figure]) -> tuple[Figure, ...]:
    """The same figures under longer keys: "bf16" becomes "peak.bf16"."""
    return tuple(replace(figure, key=f"{prefix}.{figure.key}") for figure in figures.values())


def number(figures: Mapping[str, Figure], key: str) -> float | None:
    """The number under `key`; `None` if the description lacks it."""
    return figures[key].value if key in figures else None


def whole(figures: Mapping[str, Figure], key: str) -> int | None:
    """The number under `key` rounded; `None` if the description lacks it."""
    return round(figures[key].value) if key in figures else None


class DescriptionKind(StrEnum):
    """What a file describes; the presets of each stand in a folder of that name and an s."""

    CHIP = "chip"
    HOST = "host"
    MACHINE = "machine"


_LIBRARIES = {
    described: Shelf(
        noun=described.value,
        kinds=(described.value,),
        presets=PRESETS,
        folder=f"{described}s",
        error=MachineError,
        named_lists=("tiers",),
    )
    for described in DescriptionKind
}


def names(described: DescriptionKind, folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all descriptions of a kind, sorted; a user's file hides the preset of its name."""
    return document_names(_LIBRARIES[described], folders)


def text_of(name: str, described: DescriptionKind, folders: Sequence[Path] = ()) -> str:
    """The file of that name as it is written: a hundred times faster than what it says.

    Raises:
        MachineError: if there is none.
    """
    path = document_path(name, _LIBRARIES[described], folders)
    return path.read_text(encoding="utf-8", errors="replace")


def document(
    name_or_path: str | Path,
    described: DescriptionKind,
    folders: Sequence[Path] = (),
    *,
    also: Sequence[str] = (),
) -> Document:
    """The description of that name, or in that file, merged; arguments are `read_document`'s.

    Raises:
        MachineError: if there is none, it cannot be parsed, or it extends itself.
    """
    return read_document(name_or_path, _LIBRARIES[described], folders, also=also)
