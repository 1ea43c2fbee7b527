"""How values are shown: `Unit` of a column, numbers as people read them, names of kernels.

Rounding happens here and nowhere below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from foretrace.base import (
    NS_PER_DAY,
    NS_PER_HOUR,
    NS_PER_MINUTE,
    NS_PER_MS,
    NS_PER_S,
    NS_PER_US,
    visible,
)

_SAYS_LITTLE = re.compile(
    r"^void |\([^()]*(\([^()]*\)[^()]*)*\)( const)?$"  # return type, parameters
    r"|at::native::|at::cuda::|c10::|std::|\(anonymous namespace\)::|\bdetail::"
)
_WRAPPER = re.compile(r"^cutlass::(?:Kernel2?|device_kernel)<([\w:]+)>$")  # what it wraps says all
_OF_LAMBDA = re.compile(
    r"\(anonymous namespace\)::|\([^()]*\)|::\{lambda[^{}]*\}|::operator\b| *\bconst&?(?=[ >,:]|$)"
)
_END, _END_OF_TEMPLATE = 2 / 3, 1 / 3  # of the room: generated names differ at their end

# From these on a value has three or two digits before its point and needs fewer after it.
_THREE_DIGITS, _TWO_DIGITS = 100, 10
_FOUR_DIGITS = 1_000
_SMALL = 0.01  # percent; below it a fourth decimal says more than a zero
_NEXT_BINARY_UNIT = 1024

# Below these a value is shown in the next smaller unit.
_UNITS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us"))
_LONG_UNITS = ((NS_PER_DAY, "d"), (NS_PER_HOUR, "h"), (NS_PER_MINUTE, "min"))

Cell: TypeAlias = str | int | float | bool | None

MAX_NAME = 90  # of a kernel or an operator, on a page


def short_name(name: str, width: int) -> str:
    """A name without what says little, its middle left out if it is longer than `width`.

    Return type, parameters, the namespaces that most kernels share, a class that only wraps a
    name and what tells one lambda of a function from another go; control characters are escaped.
    Of a template's name the begin stays before its arguments do.
    """
    while "{lambda" in name and (told := _OF_LAMBDA.sub("", name)) != name:
        name = told
    name = visible(_WRAPPER.sub(r"\1", " ".join(_SAYS_LITTLE.sub("", name).split())))
    if len(name) <= width:
        return name
    own = name.find("<") + 1
    room = width - 3
    tail = int(room * _END)
    if own:
        tail = room - min(own, room - int(room * _END_OF_TEMPLATE))
    return f"{name[: room - tail]}...{name[-tail:]}" if tail else f"{name[:room]}..."


def milliseconds_text(duration_ns: float) -> str:
    """A duration in ms without the unit: `615.14`, `4.072`, for columns of steps."""
    value = duration_ns / NS_PER_MS
    return f"{value:,.2f}" if abs(value) >= _TWO_DIGITS else f"{value:.3f}"


def duration_text(duration_ns: float) -> str:
    """A duration with the unit that suits it: `1.30 s`, `615.1 ms`, `12.4 us`, `85 ns`."""
    for unit_ns, unit in _UNITS:
        if abs(duration_ns) >= unit_ns:
            value = duration_ns / unit_ns
            return f"{value:.1f} {unit}" if abs(value) >= _THREE_DIGITS else f"{value:.2f} {unit}"
    return f"{duration_ns:.0f} ns"


def long_duration_text(duration_ns: float) -> str:
    """A duration as campaigns have them: `12.0 s`, `7.90 min`, `3.10 h`, `54.0 d`, `never`."""
    if math.isinf(duration_ns):
        return "never"
    for unit_ns, unit in _LONG_UNITS:
        if duration_ns >= 2 * unit_ns:
            return f"{_three_digits(duration_ns / unit_ns)} {unit}"
    return f"{_three_digits(duration_ns / NS_PER_S)} s"


def percent_text(percent: float) -> str:
    """An error or share without sign: `0.012 %`, `3.4 %`, `21 %`."""
    return f"{_percent_digits(percent)} %"


def signed_percent_text(percent: float) -> str:
    """An error with its sign: `+0.012 %`, `-3.4 %`; what rounds to nothing has none."""
    digits = _percent_digits(abs(percent))
    if not digits.strip("0."):
        return f"{digits} %"
    return f"{'-' if percent < 0 else '+'}{digits} %"


def _percent_digits(percent: float) -> str:
    if abs(percent) >= _THREE_DIGITS:
        return f"{percent:,.0f}"
    if abs(percent) >= _TWO_DIGITS:
        return f"{percent:.1f}"
    if abs(percent) >= 1:
        return f"{percent:.2f}"
    return f"{percent:.3f}" if abs(percent) >= _SMALL or not percent else f"{percent:.4f}"


def bytes_text(num_bytes: int) -> str:
    """A size in binary units: `512 B`, `64.0 MiB`; `unknown` if negative."""
    if num_bytes < 0:
        return "unknown"
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _NEXT_BINARY_UNIT:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _NEXT_BINARY_UNIT
    return f"{value:.1f} TiB"


def rate_text(per_second: float, unit: str) -> str:
    """A rate with a decimal prefix: `312 TFLOP/s`, `1.94 TB/s`."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(per_second) >= size:
            return f"{_three_digits(per_second / size)} {prefix}{unit}"
    return f"{_three_digits(per_second)} {unit}"


def per_second_text(count: float) -> str:
    """How many in a second: `12,927`, `33.81`."""
    return f"{count:,.0f}" if count >= _FOUR_DIGITS else f"{count:.4g}"


def parameters_text(count: float) -> str:
    """A number of parameters as papers write it: `405.9B`, `6.738B`, `1.026T`, `124.4M`."""
    for size, prefix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{prefix}"
    return f"{count:.4g}"


def number_text(value: float) -> str:
    """Any other quantity, three digits of it: `0.0123`, `4.56`, `1,230`."""
    return _three_digits(value)


def _three_digits(value: float) -> str:
    if abs(value) >= _THREE_DIGITS or not value:
        return f"{value:,.0f}"
    if abs(value) >= _TWO_DIGITS:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def count_text(count: int, noun: str) -> str:
    """`1 rank`, `8 ranks`, `1,024 kernels`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def component_text(component: str) -> str:
    """A component's name as words: `exposed_compute` is `exposed compute`."""
    return component.replace("_", " ")


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
