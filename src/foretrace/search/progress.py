"""How far a search is, and when it stops."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum


class Rung(StrEnum):
    """What a search does with plans, in words."""

    LISTED = "listing plans"
    BOUNDED = "bounding plans"
    SIMULATED = "simulating plans"
    LEADERS = "simulating the best, kernel by kernel"


@dataclass(frozen=True)
class Progress:
    """How far a search is."""

    rung: Rung
    done: int
    total: int
    best_ns: int | None = None
    gap: float | None = None  # `None`: not all plans have a bound yet


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a search stops."""

    time_s: float | None = 120.0  # `None`: it has time
    gap: float = 0.01  # share of the best step that may be left to gain


class SearchClock:
    """How long a search has been at it."""

    def __init__(self, limits: Limits) -> None:
        """Start now."""
        self._begin_s = time.monotonic()
        self._limit_s = limits.time_s

    @property
    def spent_s(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._begin_s

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self.is_past(1.0)

    def is_past(self, share: float) -> bool:
        """Whether so much of the time is over."""
        return self._limit_s is not None and self.spent_s >= share * self._limit_s
