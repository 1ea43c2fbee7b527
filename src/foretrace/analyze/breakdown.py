"""`Breakdown`: where each step's time went, on each rank and over all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretrace.analyze.activity import activity_by_rank
from foretrace.analyze.options import Step, step_name
from foretrace.analyze.steps import steps
from foretrace.analyze.windows import step_time_facts, step_time_ns
from foretrace.answer import (
    Answer,
    Column,
    Json,
    Plain,
    Shown,
    Table,
    Told,
    Unit,
    component_text,
    count_text,
    percent_text,
    plain,
    question,
)
from foretrace.base import GraphError
from foretrace.graph import MEASURED, Timeline

# The four parts, in the order in which they are shown everywhere.
COMPONENTS = ("exposed_compute", "overlapped", "exposed_communication", "idle")
# As readers see them: exposed communication is waiting for other ranks, or a transfer.
COLOUR_OF_SHOWN = {
    "exposed_compute": "compute",
    "overlapped": "overlapped",
    "waiting_for_ranks": "wait",
    "exposed_transfer": "communication",
    "idle": "idle",
}
SHOWN_PARTS = tuple(COLOUR_OF_SHOWN)


@dataclass(frozen=True)
class Parts(Plain):
    """A length of time in four parts that sum to it exactly."""

    exposed_compute_ns: int  # compute runs, no communication
    overlapped_ns: int  # both run
    exposed_communication_ns: int  # communication runs or waits for other ranks, no compute
    idle_ns: int  # neither
    waiting_for_ranks_ns: int = 0  # of exposed communication: no transfer runs

    @property
    def exposed_transfer_ns(self) -> int:
        """Exposed communication in which data moves."""
        return self.exposed_communication_ns - self.waiting_for_ranks_ns

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
            waiting_for_ranks_ns=self.waiting_for_ranks_ns + other.waiting_for_ranks_ns,
        )

    def shown(self) -> dict[str, int]:
        """Part to ns, named as in `SHOWN_PARTS`; they sum to the whole too."""
        return {name: getattr(self, f"{name}_ns") for name in SHOWN_PARTS}

    def as_json(self) -> dict[str, int]:
        """Part to ns, named as in `COMPONENTS`."""
        return {name: getattr(self, f"{name}_ns") for name in COMPONENTS}


@dataclass(frozen=True)
class RankBreakdown(Plain):
    """One step on one rank, in parts."""

    json_names: ClassVar = {"step": "", "step_name": "step", "parts": "components"}

    step: int  # position in the graph's `step_names`
    step_name: str
    rank: int
    step_ns: int
    parts: Parts

    def __post_init__(self) -> None:
        """Refuse parts that are not the whole, or less than nothing."""
        parts_ns = (*self.parts.as_json().values(), *self.parts.shown().values())
        if self.parts.total_ns != self.step_ns or min(parts_ns) < 0:
            raise ValueError(
                f"breakdown of step {self.step_name!r} on rank {self.rank}: parts "
                f"{self.parts.as_json()} must not be negative and must sum to {self.step_ns} ns"
            )


@dataclass(frozen=True, repr=False)
class Breakdown(Answer):
    """Every step on every rank, in parts; rows by step, then rank."""

    rows: tuple[RankBreakdown, ...]
    step_time_ns: int = 0  # the job's step time, or that of the one step

    @property
    def own_step_ns(self) -> float:
        """Mean of what the rows' steps take: what shares are of."""
        return self.overall.total_ns / max(len(self.rows), 1)

    @property
    def overall(self) -> Parts:
        """All rows together."""
        return sum((row.parts for row in self.rows), Parts(0, 0, 0, 0))

    def of_rank(self, rank: int) -> Parts:
        """All steps of one rank together."""
        return sum((row.parts for row in self.rows if row.rank == rank), Parts(0, 0, 0, 0))

    def only(self, step: str | int) -> Breakdown:
        """The rows of one step, by name or number.

        Raises:
            GraphError: if no rank has it.
        """
        name = step_name(step, dict.fromkeys(row.step_name for row in self.rows))
        chosen = tuple(row for row in self.rows if row.step_name == name)
        if not chosen:
            names = dict.fromkeys(row.step_name for row in self.rows)
            have = ", ".join(list(names)[:8]) or "none"
            raise GraphError(f"no step {name!r}: the recording has {have}.")
        return Breakdown(chosen, self.step_time_ns)

    @property
    def headline(self) -> str:
        """The ranks' own steps in parts."""
        whole_ns = max(self.overall.total_ns, 1)
        shares = ", ".join(
            f"{percent_text(100 * time_ns / whole_ns)} {component_text(name)}"
            for name, time_ns in self.overall.shown().items()
        )
        steps = count_text(len({row.step for row in self.rows}), "step")
        ranks = count_text(len({row.rank for row in self.rows}), "rank")
        return f"{steps} on {ranks}: {shares}"

    def parts(self) -> tuple[Told, ...]:
        """Every step on every rank, then all of them together."""
        components = (
            Column(f"{name}_ns", f"{component_text(name)} ms", value=f"parts.{name}_ns")
            for name in SHOWN_PARTS
        )
        both = Column(
            "exposed_communication_ns",
            value="parts.exposed_communication_ns",
            shown=Shown.FILES,
        )
        whole_ns = max(self.overall.total_ns, 1)
        overall = Table.of(
            "overall",
            self.overall.shown().items(),
            Column("component", "", Unit.WORD, lambda one: component_text(one[0])),
            Column("time_ns", "ms", value=lambda one: one[1]),
            Column("share", "of own steps", value=lambda one: one[1] / whole_ns),
            title="all steps and ranks",
        )
        rows = Table.of(
            "rows",
            self.rows,
            Column("step", value="step_name"),
            Column("rank"),
            Column("step_ns", "own step ms"),
            *components,
            both,
        )
        return step_time_facts(self.step_time_ns, self.own_step_ns), rows, overall

    def as_json(self) -> Json:
        """The job's step time; a mapping per step and rank, the parts under `components`."""
        return {
            "step_time_ns": self.step_time_ns,
            "rows": [
                {**plain(row), "waiting_for_ranks_ns": row.parts.waiting_for_ranks_ns}
                for row in self.rows
            ],
        }


@question(
    MEASURED,
    help="Split steps into compute, overlap, communication and idle.",
    doing="adding up what ran",
    top=32,
)
def breakdown(timeline: Timeline, *, step: Step = None) -> Breakdown:
    """Every step's time on every rank as compute, communication, both or neither.

    Compute is kernels, copies and fills; communication lasts from a rank's arrival at a
    collective to its finish, waiting included; of exposed communication the time without a transfer
    is waiting for ranks. What runs inside a step's window counts, whichever
    step launched it: where the device lags behind the host, a step's window holds work of the
    step before. On a rank without a device stream compute is operators on any thread, and
    Python or framework time between them is idle.

    Args:
        timeline: of a job, what was measured.
        step: by name or number; all, if left out.

    Raises:
        GraphError: if there is no such step.
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
        moving = activity.compute.union(activity.transfer)
        moving_ns = moving.within_ns(begin_ns, end_ns).tolist()
        step_ns = (end_ns - begin_ns).tolist()
        for index, row in enumerate(chosen.tolist()):
            busy_ns = compute_ns[index] + communication_ns[index] - both_ns[index]
            number = int(table.step[row])
            rows[row] = RankBreakdown(
                step=number,
                step_name=table.step_names[number],
                rank=rank,
                step_ns=step_ns[index],
                parts=Parts(
                    exposed_compute_ns=compute_ns[index] - both_ns[index],
                    overlapped_ns=both_ns[index],
                    exposed_communication_ns=communication_ns[index] - both_ns[index],
                    idle_ns=step_ns[index] - busy_ns,
                    waiting_for_ranks_ns=busy_ns - moving_ns[index],
                ),
            )
    found = Breakdown(
        rows=tuple(row for row in rows if row is not None),
        step_time_ns=step_time_ns(timeline, step),
    )
    return found if step is None else found.only(step)
