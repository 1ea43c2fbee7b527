"""Durations as people write them: `60min`, `10s`, `2.5h`, `7d` become ns."""

from __future__ import annotations

import re

from foretrace.base import NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, NS_PER_MS, NS_PER_S, RiskError

_UNITS = {
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "min": NS_PER_MINUTE,
    "h": NS_PER_HOUR,
    "d": NS_PER_DAY,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(ms|s|min|h|d)?\s*")
_LONGEST_NS = 1000 * 365 * NS_PER_DAY  # nine times longer does not fit 64 bits


def duration_ns(text: str, what: str = "duration") -> int:
    """The duration that a text states, in ns; a bare `0` needs no unit.

    Raises:
        RiskError: if it is no number with a unit, or beyond a thousand years.
    """
    match = _DURATION.fullmatch(text)
    value = float(match[1]) if match else 0.0
    if match is None or (match[2] is None and value):
        raise RiskError(
            f"{what} is {text!r}: expected a number and {', '.join(_UNITS)}, as in 60min or 10s"
        )
    found = value * _UNITS[match[2] or "s"]
    if found > _LONGEST_NS:
        raise RiskError(f"{what} is {text!r}, which is beyond a thousand years: check its unit")
    return round(found)
