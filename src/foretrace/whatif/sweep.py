"""`Sweep`: many scenarios of one recording, each predicted, the best first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from foretrace.base import NS_PER_MS

if TYPE_CHECKING:
    import polars as pl


class Order(StrEnum):
    """What is best."""

    STEP = "step"  # the shortest step
    THROUGHPUT = "throughput"  # the most sequences in a second
    PER_RANK = "per-rank"  # the most sequences in a second of each rank


@dataclass(frozen=True, kw_only=True)
class SweepRow:
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


@dataclass(frozen=True)
class Sweep:
    """Scenarios, the best first; those that were refused last, in the order of the file."""

    rows: tuple[SweepRow, ...]
    order: Order
    measured_step_ns: int
    replayed_step_ns: int

    @property
    def best(self) -> SweepRow | None:
        """The first, unless all were refused."""
        return None if not self.rows or self.rows[0].is_refused else self.rows[0]

    def to_frame(self) -> pl.DataFrame:
        """One row per scenario."""
        import polars as pl  # on demand: it takes longer to import than this to make

        return pl.DataFrame(
            [asdict(row) | {"sentences": list(row.sentences)} for row in self.rows],
            schema_overrides={"peak_bytes": pl.Int64},
        )

    def as_json(self) -> dict[str, object]:
        """The rows and the recording's own step; times in ns."""
        return {
            "order": self.order.value,
            "measured_ns": self.measured_step_ns,
            "replayed_ns": self.replayed_step_ns,
            "scenarios": [asdict(row) | {"sentences": list(row.sentences)} for row in self.rows],
        }

    def __str__(self) -> str:
        """A line per scenario."""
        return "\n".join(
            f"{row.name}: {row.refusal}"
            if row.is_refused
            else f"{row.name}: {row.step_ns / NS_PER_MS:,.3f} ms, x {row.throughput:.3f}"
            for row in self.rows
        )
