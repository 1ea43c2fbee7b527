"""How a search is asked for, how far it is, and when it stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from foretrace.base import SweepEngine
from foretrace.search.objectives import Target


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

    # Of all objectives and dimensions together; `None`: it has time.
    time_s: float | None = 120.0
    gap: float = 0.01  # share of the best step that may be left to gain


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How plans are searched, whatever they are of."""

    target: Target = field(default_factory=Target)  # what is best
    limits: Limits = field(default_factory=Limits)  # when to stop
    where: str | None = None  # a constraint, as in "tp <= 8 and peak_gb < 70 and days <= 60"
    margin: float = 0.0  # share of a chip's memory that plans leave free
    alone: bool = False  # look for the best of each dimension alone too, all else as by default
    resume: Path | None = None  # a file that what is found is kept in, and read from if it is there
    workers: int = 1  # processes that simulate plans
    engine: SweepEngine = SweepEngine.PROCESSES  # where they run
    progress: Callable[[Progress], None] = lambda _: None  # called now and then
    version: str = ""  # of foretrace; what another one found is not gone on with


class SearchClock:
    """How long a search has been at it, and whether the time of one of its parts is over."""

    def __init__(self, limits: Limits, *, before_s: float = 0.0) -> None:
        """Start now.

        Args:
            limits: of what starts.
            before_s: seconds since the search began that it is a part of.
        """
        self._begin_s = time.monotonic()
        self._limit_s, self._before_s = limits.time_s, before_s

    def part(self, share: float, *, most_s: float | None = None) -> SearchClock:
        """The clock of a part that starts now.

        Args:
            share: of the time that is left.
            most_s: seconds that it has at most; as many as that share is, if left out. What has
                time has it for all of its parts.
        """
        own_s = None
        if self._limit_s is not None:
            left_s = share * max(self._limit_s - self._own_s, 0.0)
            own_s = left_s if most_s is None else min(left_s, most_s)
        return SearchClock(Limits(time_s=own_s), before_s=self.spent_s)

    @property
    def spent_s(self) -> float:
        """Seconds since the search began."""
        return self._before_s + self._own_s

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self.is_past(1.0)

    def is_past(self, share: float) -> bool:
        """Whether so much of the time is over."""
        return self._limit_s is not None and self._own_s >= share * self._limit_s

    @property
    def _own_s(self) -> float:
        return time.monotonic() - self._begin_s
