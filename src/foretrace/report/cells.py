"""A table's cell as text; a download has the value itself."""

from __future__ import annotations

from collections.abc import Callable

from foretrace.report.document import Cell, Unit
from foretrace.report.numbers import (
    bytes_text,
    duration_text,
    milliseconds_text,
    number_text,
    percent_text,
    rate_text,
    signed_percent_text,
)

_TEXT_OF: dict[Unit, Callable[[float], str]] = {
    Unit.IDENTIFIER: lambda value: f"{value:.0f}",
    Unit.COUNT: lambda value: f"{value:,.0f}",
    Unit.NUMBER: number_text,
    Unit.NS: duration_text,
    Unit.SIGNED_NS: lambda value: f"{'+' if value > 0 else ''}{duration_text(value)}",
    Unit.MS: milliseconds_text,
    Unit.BYTES: lambda value: bytes_text(round(value)),
    Unit.PERCENT: percent_text,
    Unit.SIGNED_PERCENT: signed_percent_text,
    Unit.FLOPS: lambda value: rate_text(value, "FLOP"),
    Unit.FLOPS_PER_S: lambda value: rate_text(value, "FLOP/s"),
    Unit.BYTES_PER_S: lambda value: rate_text(value, "B/s"),
    Unit.FLOPS_PER_BYTE: lambda value: f"{number_text(value)} FLOP/B",
}


def cell_text(value: Cell, unit: Unit | str) -> str:
    """The value with the unit that suits it; "" if there is none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return _TEXT_OF[Unit(unit)](value)


def readable(name: str) -> str:
    """A file's name with what is no text replaced: names on disk may hold any bytes."""
    return name.encode("utf-8", "replace").decode()
