"""Numbers as people read them; rounding happens here and nowhere below."""

from __future__ import annotations

import math

from foretrace.base import NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, NS_PER_MS, NS_PER_S, NS_PER_US

# From these on a value has three or two digits before its point and needs fewer after it.
_THREE_DIGITS, _TWO_DIGITS = 100, 10
_FOUR_DIGITS = 1_000
_SMALL = 0.01  # percent; below it a fourth decimal says more than a zero
_NEXT_BINARY_UNIT = 1024

# Below these a value is shown in the next smaller unit.
_UNITS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us"))
_LONG_UNITS = ((NS_PER_DAY, "d"), (NS_PER_HOUR, "h"), (NS_PER_MINUTE, "min"))


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
