"""`Unit`: what a column's values are, from which it follows how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from foretrace.answer.names import short_name
from foretrace.answer.numbers import (
    bytes_text,
    duration_text,
    long_duration_text,
    milliseconds_text,
    number_text,
    parameters_text,
    percent_text,
    rate_text,
    signed_percent_text,
)
from foretrace.base import NS_PER_S

Cell: TypeAlias = str | int | float | bool | None

MAX_NAME = 90  # of a kernel or an operator, on a page


class Unit(StrEnum):
    """How values are shown; a file holds them as they are."""

    TEXT = "text"
    NAME = "name"  # of a kernel, an operator or a call: shortened in its middle
    WORD = "word"  # a text that stays on one line
    IDENTIFIER = "identifier"  # a position, a layer: a number that is not counted with
    RANK = "rank"  # below 0: one that was not recorded
    FLAG = "flag"  # yes or no
    COUNT = "count"
    NUMBER = "number"
    NS = "ns"
    SIGNED_NS = "signed_ns"
    LONG_NS = "long_ns"  # from seconds to days
    MS = "ms"  # values in ns too, shown in ms without the unit, for columns of steps
    SIGNED_MS = "signed_ms"
    BYTES = "bytes"
    # Values in bytes per ns, FLOPs per ns and FLOPs, shown without the unit, which the title has.
    GIGABYTES_PER_S = "gigabytes_per_s"
    TERAFLOPS_PER_S = "teraflops_per_s"
    GIGAFLOPS = "gigaflops"
    PARAMETERS = "parameters"
    PERCENT = "percent"
    SIGNED_PERCENT = "signed_percent"
    SHARE = "share"  # of 1, shown as percent
    SIGNED_SHARE = "signed_share"
    FLOPS = "flops"
    FLOPS_PER_S = "flops_per_s"
    BYTES_PER_S = "bytes_per_s"
    FLOPS_PER_NS = "flops_per_ns"
    BYTES_PER_NS = "bytes_per_ns"
    FLOPS_PER_BYTE = "flops_per_byte"

    @property
    def is_text(self) -> bool:
        """Whether values stand left, as words do."""
        return self in _TEXTS


_TEXTS = {Unit.TEXT, Unit.NAME, Unit.WORD, Unit.FLAG}
_IDENTIFIERS = {"layer", "microbatch", "position", "stage", "node"}
# The end of a key, the unit that it means, and whether the title must say so.
_ENDS = (
    ("flops_per_ns", Unit.FLOPS_PER_NS),
    ("bytes_per_ns", Unit.BYTES_PER_NS),
    ("flops_per_s", Unit.FLOPS_PER_S),
    ("bytes_per_s", Unit.BYTES_PER_S),
    ("flops_per_byte", Unit.FLOPS_PER_BYTE),
    ("_ns", Unit.MS),
    ("bytes", Unit.BYTES),
    ("percent", Unit.PERCENT),
    ("share", Unit.SHARE),
    ("flops", Unit.FLOPS),
)


def unit_of(key: str) -> Unit:
    """The unit that a key's last word states, or its first: `wait_ns`, `num_ranks`, `is_late`."""
    for end, unit in _ENDS:
        if key.endswith(end):
            return unit
    if key.startswith("num_"):
        return Unit.COUNT
    if key.startswith(("is_", "has_")) or key == "fits":
        return Unit.FLAG
    if key == "rank" or key.endswith("_rank"):
        return Unit.RANK
    return Unit.IDENTIFIER if key in _IDENTIFIERS else Unit.TEXT


def title_of(key: str, unit: Unit) -> str:
    """A key as words, its unit left out where every value shows it."""
    if unit in {Unit.MS, Unit.SIGNED_MS}:
        return f"{key.removesuffix('_ns').replace('_', ' ')} ms"
    for end in ("_ns", "_percent", "_share"):
        key = key.removesuffix(end)
    for begin in ("num_", "is_", "has_"):
        key = key.removeprefix(begin)
    return key.replace("_", " ")


def _signed(text: Callable[[float], str]) -> Callable[[float], str]:
    """A number's text with `+` before what is above nothing; what is shown as nothing has none."""

    def shown(value: float) -> str:
        size = text(abs(value))
        if not any(digit in size for digit in "123456789"):
            return size
        return f"{'-' if value < 0 else '+'}{size}"

    return shown


_TEXT_OF: dict[Unit, Callable[[float], str]] = {
    Unit.IDENTIFIER: lambda value: f"{value:.0f}",
    Unit.RANK: lambda value: f"{value:.0f}" if value >= 0 else "not recorded",
    Unit.FLAG: lambda value: "yes" if value else "no",
    Unit.COUNT: lambda value: f"{value:,.0f}",
    Unit.NUMBER: number_text,
    Unit.NS: duration_text,
    Unit.SIGNED_NS: _signed(duration_text),
    Unit.LONG_NS: long_duration_text,
    Unit.MS: milliseconds_text,
    Unit.SIGNED_MS: _signed(milliseconds_text),
    Unit.BYTES: lambda value: bytes_text(round(value)),
    Unit.GIGABYTES_PER_S: number_text,
    Unit.TERAFLOPS_PER_S: lambda value: number_text(value / 1e3),
    Unit.GIGAFLOPS: lambda value: number_text(value / 1e9),
    Unit.PARAMETERS: parameters_text,
    Unit.PERCENT: percent_text,
    Unit.SIGNED_PERCENT: signed_percent_text,
    Unit.SHARE: lambda value: f"{100 * value:.1f} %",
    Unit.SIGNED_SHARE: lambda value: signed_percent_text(100 * value),
    Unit.FLOPS: lambda value: rate_text(value, "FLOP"),
    Unit.FLOPS_PER_S: lambda value: rate_text(value, "FLOP/s"),
    Unit.BYTES_PER_S: lambda value: rate_text(value, "B/s"),
    Unit.FLOPS_PER_NS: lambda value: rate_text(value * NS_PER_S, "FLOP/s"),
    Unit.BYTES_PER_NS: lambda value: rate_text(value * NS_PER_S, "B/s"),
    Unit.FLOPS_PER_BYTE: lambda value: f"{number_text(value)} FLOP/B",
}


def cell_text(value: Cell, unit: Unit | str) -> str:
    """The value with the unit that suits it; "" if there is none."""
    if value is None or value != value:  # noqa: PLR0124  a float that is no number
        return ""
    if isinstance(value, str):
        return short_name(value, MAX_NAME) if unit is Unit.NAME else value
    shown = _TEXT_OF.get(Unit(unit))
    return str(value) if shown is None else shown(value)


def readable(name: str) -> str:
    """A file's name with what is no text replaced: names on disk may hold any bytes."""
    return name.encode("utf-8", "replace").decode()
