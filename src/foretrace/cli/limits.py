"""`3%` or `5ms` as a limit of how much longer a step may get."""

from __future__ import annotations

import re
from dataclasses import dataclass

import typer

from foretrace.base import NS_PER_UNIT

_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(%|s|ms|us|ns)")


@dataclass(frozen=True)
class Limit:
    """How much longer a step may get, in percent of the step before or in ns."""

    text: str
    percent: float | None
    extra_ns: float

    def is_exceeded(self, before_ns: int, after_ns: int) -> bool:
        """Whether the step got longer by more than this."""
        allowed_ns = self.extra_ns if self.percent is None else before_ns * self.percent / 100
        return after_ns - before_ns > allowed_ns


def parsed_limit(text: str) -> Limit:
    """The limit that a text states."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is no limit: expected a number and %, s, ms, us or ns, as in 3% or 5ms"
        )
    number, unit = float(match[1]), match[2]
    if unit == "%":
        return Limit(f"{match[1]} %", number, 0.0)
    return Limit(f"{match[1]} {unit}", None, number * NS_PER_UNIT[unit])
