"""`Sweep`: many scenarios of one recording, each predicted, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
)


class Order(StrEnum):
    """What is best."""

    STEP = "step"  # the shortest step
    THROUGHPUT = "throughput"  # the most sequences in a second
    PER_RANK = "per-rank"  # the most sequences in a second of each rank


@dataclass(frozen=True, kw_only=True)
class SweepRow(Plain):
    """One scenario, without its timelines; the numbers are 0 if it was refused."""

    name: str
    sentences: tuple[str, ...]  # one per edit
    step_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    change_ns: int = 0
    throughput: float = 0.0  # times that of the recording
    throughput_per_rank: float = 0.0
    num_ranks: int = 0
    global_batch: int = 0
    peak_bytes: int | None = None  # of the fullest rank; `None`: the model was not stated
    method: str = ""
    refusal: str = ""  # why it cannot be predicted; "" if it was

    @property
    def is_refused(self) -> bool:
        """Whether there is no prediction of it."""
        return bool(self.refusal)


@dataclass(frozen=True, repr=False)
class Sweep(Answer):
    """Scenarios, the best first; those that were refused last, in the order of the file."""

    json_names: ClassVar = {
        "rows": "scenarios", "measured_step_ns": "measured_ns", "replayed_step_ns": "replayed_ns",
    }  # fmt: skip

    rows: tuple[SweepRow, ...]
    order: Order
    measured_step_ns: int
    replayed_step_ns: int

    @property
    def best(self) -> SweepRow | None:
        """The first, unless all were refused."""
        return None if not self.rows or self.rows[0].is_refused else self.rows[0]

    @property
    def headline(self) -> str:
        """How many scenarios there are, and what they are held against."""
        return (
            f"{count_text(len(self.rows), 'scenario')}, best {_ORDERS[self.order]} first; before: "
            f"{duration_text(self.replayed_step_ns)} replayed, "
            f"{duration_text(self.measured_step_ns)} measured"
        )

    def parts(self) -> tuple[Told, ...]:
        """The scenarios, then why some were refused."""
        refused = (f"{row.name}: {row.refusal}" for row in self.rows if row.is_refused)
        kept = [row for row in self.rows if not row.is_refused]
        return _table(kept), Sentences.of("refused", refused)

    def tables(self) -> tuple[Table, ...]:
        """All scenarios, those that were refused too."""
        return (_table(self.rows),)


_ORDERS = {
    Order.STEP: "step",
    Order.THROUGHPUT: "throughput",
    Order.PER_RANK: "throughput per rank",
}


def _table(rows: Sequence[SweepRow]) -> Table:
    # Where all have the recording's ranks, a rank does what the job does.
    has_ranks = any(row.throughput != row.throughput_per_rank for row in rows)
    ranks = Shown.EVERYWHERE if has_ranks else Shown.FILES
    return Table.of(
        "scenarios",
        rows,
        Column("name", "scenario", Unit.NAME),
        Column("sentences", value=lambda row: "; ".join(row.sentences), shown=Shown.FILES),
        Column("step_ns"),
        Column("change", unit=Unit.SIGNED_SHARE, value=_change),
        Column("change_ns", unit=Unit.SIGNED_MS, shown=Shown.FILES),
        Column("low_ns", "10 % ms"),
        Column("high_ns", "90 % ms"),
        Column("throughput", "seq/s, times", Unit.NUMBER),
        Column("throughput_per_rank", "per rank", Unit.NUMBER, shown=ranks),
        Column("num_ranks", shown=ranks),
        Column("global_batch", unit=Unit.COUNT, shown=Shown.FILES),
        Column("peak_bytes", "memory"),
        Column("method", shown=Shown.FILES),
        Column("refusal", shown=Shown.FILES),
    )


def _change(row: SweepRow) -> float:
    """How much longer a scenario's step is, as a share of the step before."""
    return row.change_ns / max(row.step_ns - row.change_ns, 1)
