"""Quantities as people write them, "3.35 TB/s", become numbers in the units used inside.

Strict on purpose: a bandwidth in bits read as bytes is wrong by eight, so "Gb/s" and "GB/s" are
both known, their case counts, and any other spelling is refused with the spellings allowed.
Prefixes: k, M, G, T, P are powers of ten; Ki, Mi, Gi, Ti powers of two.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from foretrace.base import NS_PER_S, NS_PER_UNIT, MachineError


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
