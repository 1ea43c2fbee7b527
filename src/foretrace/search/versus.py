"""`Versus`: the best plan beside another one: where they differ, how sure that is, what would tell.

Both are simulated with the same cost models. An error of a kind of work is taken to be the same for
both, so that it matters as far as one plan has more of that work on its critical path than the
other has: what both have alike cannot turn their order around.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import ClassVar

from foretrace.answer import Column, Plain, Shown, Table, Unit, duration_text
from foretrace.estimate import NOT_MODELLED, FamilySpread
from foretrace.search.looked import Looked

_WIDTH_80 = 1.2816  # of a normal distribution: its 90th percentile, in standard deviations
_SURE = 0.95
_MOST_TOLD = 3
_LEAST_SHARE = 0.1  # of the doubt, to be worth a measurement


@dataclass(frozen=True)
class Doubt(Plain):
    """A kind of work whose times, if they are wrong, could turn the order of two plans around."""

    family: str
    difference_ns: int  # more of it on the other's critical path than on the best's
    share: float  # of the variance of the difference of both steps


@dataclass(frozen=True)
class Versus(Plain):
    """Another plan beside the best one."""

    json_only: ClassVar = ("name", "difference_ns", "difference_parts", "odds", "doubts")

    name: str
    best: Looked
    other: Looked

    @property
    def difference_ns(self) -> int:
        """How much longer its step is."""
        return self.other.step_ns - self.best.step_ns

    @property
    def difference_parts(self) -> Mapping[str, int]:
        """By part of the step; they sum to the difference but for rounding; none if not known."""
        if self.best.parts is None or self.other.parts is None:
            return {}
        own, others = dict(self.best.parts), dict(self.other.parts)
        return {part: others.get(part, 0) - own.get(part, 0) for part in own | others}

    @property
    def _spreads_ns(self) -> Mapping[str, tuple[int, float]]:
        """By family: how much more of it, and its spread in the difference.

        What the other has more of tells for the best one less if it is shorter than thought, what
        the best has more of if it is longer.
        """
        sides = [{one.family: one for one in side.spreads} for side in (self.other, self.best)]
        none = FamilySpread("", 0, 0, 0)
        found = {}
        for family in dict.fromkeys(sides[0] | sides[1]):
            other, own = (side.get(family, none) for side in sides)
            more_ns = other.critical_ns - own.critical_ns
            ends = (one.low_ns if more_ns > 0 else one.high_ns for one in (other, own))
            found[family] = (more_ns, abs(operator.sub(*ends)) / _WIDTH_80)
        return found

    @property
    def odds(self) -> float | None:
        """How likely the best one is the better; `None`: no interval is known of one of them."""
        if not (self.best.spreads and self.other.spreads):
            return None
        deviation = math.hypot(*(spread for _, spread in self._spreads_ns.values()))
        return NormalDist().cdf(self.difference_ns / deviation) if deviation else 1.0

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What to measure to decide between both, the most telling first."""
        spreads = self._spreads_ns
        variance = sum(spread**2 for _, spread in spreads.values())
        found = [
            Doubt(family, more_ns, spread**2 / variance)
            for family, (more_ns, spread) in spreads.items()
            if family != NOT_MODELLED and spread**2 > _LEAST_SHARE * variance
        ]
        return tuple(sorted(found, key=lambda one: -one.share)[:_MOST_TOLD])

    @property
    def sentence(self) -> str:
        """What it costs more, by part, and how sure that is."""
        largest = sorted(self.difference_parts.items(), key=lambda item: -abs(item[1]))[:_MOST_TOLD]
        parts = ", ".join(f"{part} {ns / 1e6:+,.0f} ms" for part, ns in largest)
        told = f": {parts}" if parts else ""
        fits = "" if self.other.fits is not False else "; it does not fit"
        share = self.difference_ns / self.best.step_ns
        return (
            f"{self.name} ({self.other.summary}) takes {duration_text(self.other.step_ns)}, "
            f"{100 * share:+.1f} %{told}{fits}{self._sure}"
        )

    @property
    def _sure(self) -> str:
        odds = self.odds
        if odds is None:
            own, other = self.best.high_ns, self.other.low_ns
            is_within = own is not None and other is not None and other <= own
            return "; intervals of the two overlap" if is_within else ""
        if odds >= _SURE:
            return f"; it is longer in {100 * min(odds, 0.999):.1f} % of what may be"
        kinds = ", ".join(f"{one.family} ({100 * one.share:.0f} %)" for one in self.doubts)
        measure = f"; to decide, measure {kinds} of the doubt" if kinds else ""
        return f"; it is longer in only {100 * odds:.0f} % of what may be{measure}"


@dataclass(frozen=True)
class _Row:
    part: str
    best: float
    others: tuple[float | None, ...]  # `None`: not known


def versus_table(found: Sequence[Versus]) -> Table:
    """Parts of the best plan's step, and by how much each of the others' is longer."""
    best = found[0].best if found else None
    own: Mapping[str, int] = {} if best is None or best.parts is None else best.parts
    parts = dict.fromkeys([*own, *(part for one in found for part in one.difference_parts)])
    rows = [
        _Row(
            part,
            own.get(part, 0),
            tuple(
                one.difference_parts.get(part, 0 if one.difference_parts else None) for one in found
            ),
        )
        for part in parts
    ]
    if best is not None:
        rows.append(_Row("step", best.step_ns, tuple(one.difference_ns for one in found)))
    return Table.of(
        "why",
        rows,
        Column("part", unit=Unit.WORD),
        Column("best_ns", "best, ms", Unit.MS, "best"),
        *(
            Column(f"versus_{at}_ns", one.name, Unit.SIGNED_MS, partial(_other, at=at))
            for at, one in enumerate(found)
        ),
        title="where the others are longer",
        shown=Shown.EVERYWHERE if found else Shown.FILES,
    )


def _other(row: _Row, *, at: int) -> float | None:
    return row.others[at]
