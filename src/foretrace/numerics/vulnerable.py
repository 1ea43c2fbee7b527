"""`Vulnerability`: parts of a model by how often a fault in them makes an output wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import (
    Answer,
    Column,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    number_text,
)

_MOST_BITS = 8  # in a sentence
_ENOUGH = 0.8  # of all wrong outputs, that what is protected first accounts for


@dataclass(frozen=True, kw_only=True)
class PartVulnerability:
    """One part, and what faults in it did."""

    part: str
    num_elements: int
    num_bits: int
    num_injections: int
    num_wrong: int
    share: float  # of faults that make an output wrong: the vulnerability factor
    low_share: float
    high_share: float
    fit: float | None  # wrong outputs in a billion hours
    by_bit: tuple[tuple[int, int, int], ...]  # bit, injections, wrong outputs

    @property
    def worst_bits(self) -> str:
        """Bits that make outputs wrong, the worst first."""
        found = [(wrong / injected, bit) for bit, injected, wrong in self.by_bit if wrong]
        found.sort(reverse=True)
        return ", ".join(str(bit) for _, bit in found[:_MOST_BITS])

    @property
    def exposure(self) -> float:
        """What it weighs: bits times the share."""
        return self.num_bits * self.share


@dataclass(frozen=True, repr=False)
class Vulnerability(Answer):
    """Every part, that which is to be protected first above."""

    json_names: ClassVar = {"rows": "groups"}

    target: str
    kind: str
    storage: str
    confidence: float
    rows: tuple[PartVulnerability, ...]

    @property
    def headline(self) -> str:
        """The most vulnerable part, and how much was done."""
        worst = max(self.rows, key=lambda one: one.share)
        number = sum(one.num_injections for one in self.rows)
        half = 50 * (worst.high_share - worst.low_share)
        return (
            f"{100 * worst.share:.2f} +- {half:.2f} % of {self.kind} faults in {worst.part} make "
            f"an output wrong, the most of {count_text(len(self.rows), 'part')}; "
            f"{count_text(number, 'injection')}, stored as {self.storage}"
        )

    def parts(self) -> tuple[Told, ...]:
        """Parts, bits, and what to protect."""
        has_fit = any(one.fit is not None for one in self.rows)
        table = Table.of(
            "groups",
            self.rows,
            Column("part", "part", Unit.NAME),
            Column("num_elements"),
            Column("num_injections"),
            Column("num_wrong"),
            Column("share", "vulnerability", Unit.NUMBER),
            Column("low_share", "from", Unit.NUMBER),
            Column("high_share", "to", Unit.NUMBER),
            Column("worst_bits", "bits"),
            Column("fit", "FIT", Unit.NUMBER, shown=Shown.EVERYWHERE if has_fit else Shown.FILES),
            Column("exposure", shown=Shown.FILES),
        )
        bits = Table(
            "bits",
            "by bit",
            (Column("part", unit=Unit.NAME), Column("bit", unit=Unit.IDENTIFIER),
             Column("num_injections"), Column("num_wrong")),
            tuple((one.part, *row) for one in self.rows for row in one.by_bit if row[2]),
            shown=Shown.FILES,
        )  # fmt: skip
        return table, bits, Sentences.of("what to protect first", self._first())

    def _first(self) -> Iterator[str]:
        """Parts that most wrong outputs come from, if every bit is as likely to fail."""
        total = sum(one.exposure for one in self.rows)
        if total == 0:
            yield "no fault made an output wrong: nothing here needs protection from this kind"
            return
        reached = 0.0
        for one in sorted(self.rows, key=lambda one: -one.exposure):
            if reached >= _ENOUGH * total:
                return
            reached += one.exposure
            yield (
                f"{one.part}: {number_text(100 * one.exposure / total)} % of wrong outputs, where "
                "every stored bit fails as often"
            )
