"""A number of a hardware description with where it comes from.

In a file a figure is `{ value = "80 GiB", source = "datasheet" }`, where `datasheet` is a key of
the file's `[sources]`; or `{ value = ..., assumed = "why" }` where nobody published the number;
or, in a user's own file, just `"80 GiB"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foretrace import base
from foretrace.answer import Answer, Json, Plain, Told, stated_json, stated_parts
from foretrace.base import (
    Citation,
    DescriptionKey,
    MachineError,
    Statement,
    Table,
    read_statements,
)
from foretrace.machine.units import Quantity, QuantityKind, quantity


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
