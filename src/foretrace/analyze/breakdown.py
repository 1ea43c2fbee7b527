"""`Breakdown`: where each step's time went, on each rank and over all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze.activity import activity_by_rank
from foretrace.analyze.steps import steps
from foretrace.base import GraphError
from foretrace.graph import Timeline

if TYPE_CHECKING:
    import polars as pl

# The four parts, in the order in which they are shown everywhere.
COMPONENTS = ("exposed_compute", "overlapped", "exposed_communication", "idle")


@dataclass(frozen=True)
class Parts:
    """A length of time in four parts that sum to it exactly."""

    exposed_compute_ns: int  # compute runs, no communication
    overlapped_ns: int  # both run
    exposed_communication_ns: int  # communication runs or waits for other ranks, no compute
    idle_ns: int  # neither

    @property
    def total_ns(self) -> int:
        """Sum of the four parts."""
        return (
            self.exposed_compute_ns
            + self.overlapped_ns
            + self.exposed_communication_ns
            + self.idle_ns
        )

    def __add__(self, other: Parts) -> Parts:
        """The parts of both lengths together."""
        return Parts(
            exposed_compute_ns=self.exposed_compute_ns + other.exposed_compute_ns,
            overlapped_ns=self.overlapped_ns + other.overlapped_ns,
            exposed_communication_ns=(
                self.exposed_communication_ns + other.exposed_communication_ns
            ),
            idle_ns=self.idle_ns + other.idle_ns,
        )

    def as_json(self) -> dict[str, int]:
        """Part to ns, named as in `COMPONENTS`."""
        return {
            "exposed_compute": self.exposed_compute_ns,
            "overlapped": self.overlapped_ns,
            "exposed_communication": self.exposed_communication_ns,
            "idle": self.idle_ns,
        }


@dataclass(frozen=True)
class RankBreakdown:
    """One step on one rank, in parts."""

    step: int  # position in the graph's `step_names`
    step_name: str
    rank: int
    step_ns: int
    parts: Parts

    def __post_init__(self) -> None:
        """Refuse parts that are not the whole, or less than nothing."""
        if self.parts.total_ns != self.step_ns or min(self.parts.as_json().values()) < 0:
            raise ValueError(
                f"breakdown of step {self.step_name!r} on rank {self.rank}: parts "
                f"{self.parts.as_json()} must not be negative and must sum to {self.step_ns} ns"
            )


@dataclass(frozen=True)
class Breakdown:
    """Every step on every rank, in parts; rows by step, then rank."""

    rows: tuple[RankBreakdown, ...]

    @property
    def overall(self) -> Parts:
        """All rows together."""
        return sum((row.parts for row in self.rows), Parts(0, 0, 0, 0))

    def of_rank(self, rank: int) -> Parts:
        """All steps of one rank together."""
        return sum((row.parts for row in self.rows if row.rank == rank), Parts(0, 0, 0, 0))

    def of_step(self, step_name: str) -> Parts:
        """All ranks of one step together."""
        chosen = (row.parts for row in self.rows if row.step_name == step_name)
        return sum(chosen, Parts(0, 0, 0, 0))

    def only(self, step_name: str) -> Breakdown:
        """The rows of one step.

        Raises:
            GraphError: if no rank has it.
        """
        chosen = tuple(row for row in self.rows if row.step_name == step_name)
        if not chosen:
            names = dict.fromkeys(row.step_name for row in self.rows)
            have = ", ".join(list(names)[:8]) or "none"
            raise GraphError(f"no step {step_name!r}: the recording has {have}.")
        return Breakdown(chosen)

    def __str__(self) -> str:
        """A table in ms, one line per step and rank."""
        width = max((len(row.step_name) for row in self.rows), default=0)
        titles = (f"{part.replace('_', ' '):>22}" for part in COMPONENTS)
        lines = [f"{'step':<{width}}  rank  {'step ms':>10}{''.join(titles)}"]
        for row in self.rows:
            parts = "".join(f"{ns / 1e6:>22,.3f}" for ns in row.parts.as_json().values())
            name = f"{row.step_name:<{width}}"
            lines.append(f"{name}  {row.rank:>4}  {row.step_ns / 1e6:>10,.3f}{parts}")
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, object]]:
        """One mapping per row: step, rank, step_ns and the parts in ns."""
        return [
            {
                "step": row.step_name,
                "rank": row.rank,
                "step_ns": row.step_ns,
                "components": row.parts.as_json(),
            }
            for row in self.rows
        ]

    def to_frame(self) -> pl.DataFrame:
        """One row per step and rank."""
        import polars as pl  # on demand: it takes longer to import than this analysis to run

        return pl.DataFrame(
            {
                "step": [row.step_name for row in self.rows],
                "rank": [row.rank for row in self.rows],
                "step_ns": [row.step_ns for row in self.rows],
                "exposed_compute_ns": [row.parts.exposed_compute_ns for row in self.rows],
                "overlapped_ns": [row.parts.overlapped_ns for row in self.rows],
                "exposed_communication_ns": [
                    row.parts.exposed_communication_ns for row in self.rows
                ],
                "idle_ns": [row.parts.idle_ns for row in self.rows],
            }
        )


def breakdown(timeline: Timeline) -> Breakdown:
    """Every step's time on every rank as compute, communication, both or neither.

    Compute is kernels, copies and fills; communication lasts from a rank's arrival at a
    collective to its finish, waiting included. What runs inside a step's window counts, whichever
    step launched it: where the device lags behind the host, a step's window holds work of the
    step before. On a rank without a device stream compute is operators on any thread, and
    Python or framework time between them is idle.
    """
    table = steps(timeline)
    rows: list[RankBreakdown | None] = [None] * len(table)
    for rank, activity in activity_by_rank(timeline).items():
        chosen = np.flatnonzero(table.rank == rank)
        begin_ns, end_ns = table.begin_ns[chosen], table.end_ns[chosen]
        both = activity.compute.intersect(activity.communication)
        compute_ns = activity.compute.within_ns(begin_ns, end_ns).tolist()
        communication_ns = activity.communication.within_ns(begin_ns, end_ns).tolist()
        both_ns = both.within_ns(begin_ns, end_ns).tolist()
        step_ns = (end_ns - begin_ns).tolist()
        for index, row in enumerate(chosen.tolist()):
            busy_ns = compute_ns[index] + communication_ns[index] - both_ns[index]
            step = int(table.step[row])
            rows[row] = RankBreakdown(
                step=step,
                step_name=table.step_names[step],
                rank=rank,
                step_ns=step_ns[index],
                parts=Parts(
                    exposed_compute_ns=compute_ns[index] - both_ns[index],
                    overlapped_ns=both_ns[index],
                    exposed_communication_ns=communication_ns[index] - both_ns[index],
                    idle_ns=step_ns[index] - busy_ns,
                ),
            )
    return Breakdown(rows=tuple(row for row in rows if row is not None))
