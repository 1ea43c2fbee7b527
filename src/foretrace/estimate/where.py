"""`Where`: what a step is spent on, with waiting for other ranks apart from transfers.

A breakdown counts a wait inside a collective as exposed communication, and a wait for something
to receive as idle. Here both are waiting for others: in a pipeline, its bubble.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from foretrace.analyze import Stillness, breakdown, exposed_transfers, idle, windows
from foretrace.answer import Json, Plain, plain
from foretrace.base import Int64s
from foretrace.graph import Timeline
from foretrace.workload import Role


@dataclass(frozen=True)
class StepParts(Plain):
    """A length of time in parts that sum to it exactly."""

    json_names: ClassVar = {
        "compute_ns": "compute",
        "overlapped_ns": "overlapped",
        "transfer_ns_by_group": "transfers",
        "waiting_ns": "waiting",
        "idle_ns": "idle",
    }

    compute_ns: int  # computation alone
    overlapped_ns: int  # computation beside communication
    waiting_ns: int  # neither computation nor a transfer, because of another stage
    idle_ns: int  # neither, because of its own: launches, hand-overs between streams
    transfer_ns_by_group: Mapping[str, int] = field(default_factory=dict)  # no computation beside

    @property
    def transfer_ns(self) -> int:
        """Exposed transfers of all groups."""
        return sum(self.transfer_ns_by_group.values())

    @property
    def total_ns(self) -> int:
        """Sum of all parts."""
        return sum(self.by_name().values())

    def by_name(self) -> dict[str, int]:
        """Time by part, in ns: compute, overlapped, transfer of each group, waiting, idle."""
        return {
            "compute": self.compute_ns,
            "overlapped": self.overlapped_ns,
            **{f"transfer {group}": ns for group, ns in self.transfer_ns_by_group.items()},
            "waiting": self.waiting_ns,
            "idle": self.idle_ns,
        }


@dataclass(frozen=True)
class RankParts(Plain):
    """The step of one rank of the graph."""

    rank: int
    stage: int
    num_ranks: int  # that it stands for
    parts: StepParts


@dataclass(frozen=True)
class Where(Plain):
    """One step of the job, in parts on every rank of the graph; by rank."""

    step_ns: int
    rows: tuple[RankParts, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that have exposed transfers on any rank, in order of their time."""
        return tuple(self.mean.transfer_ns_by_group)

    @property
    def mean(self) -> StepParts:
        """Of the mean rank of all that the rows stand for; parts still sum to the step."""
        counts = [row.num_ranks for row in self.rows]
        by_name: dict[str, int] = {}
        for row, count in zip(self.rows, counts, strict=True):
            for name, time_ns in row.parts.by_name().items():
                by_name[name] = by_name.get(name, 0) + count * time_ns
        return _parts_of(_shared(by_name, sum(counts)))

    def as_json(self) -> Json:
        """One mapping per rank of the graph, times in ns."""
        return plain(self.rows)


def where(timeline: Timeline, roles: Sequence[Role]) -> Where:
    """What the step of a simulated timeline is spent on.

    Args:
        timeline: of one step.
        roles: of the ranks in its graph.
    """
    step_ns = int(windows(timeline).duration_ns[0])
    exposed = exposed_transfers(timeline)
    by_rank = {row.rank: row for row in breakdown(timeline).rows}
    transfers: dict[int, dict[str, int]] = {role.rank: {} for role in roles}
    for one in exposed.rows:
        own = transfers[one.rank]
        own[one.group] = own.get(one.group, 0) + one.time_ns
    for_others_ns, alone_ns = _lost(timeline, roles)
    rows = []
    for role in sorted(roles, key=lambda role: role.rank):
        found = by_rank[role.rank]
        # A rank whose own step is over earlier waits for the job's to end.
        waiting_ns = int(for_others_ns[role.rank]) + step_ns - found.step_ns
        parts = StepParts(
            compute_ns=found.parts.exposed_compute_ns,
            overlapped_ns=found.parts.overlapped_ns,
            waiting_ns=waiting_ns,
            idle_ns=int(alone_ns[role.rank]),
            transfer_ns_by_group=transfers[role.rank],
        )
        rows.append(RankParts(role.rank, role.stage, role.num_ranks, parts))
    return Where(step_ns, tuple(rows))


def _lost(timeline: Timeline, roles: Sequence[Role]) -> tuple[Int64s, Int64s]:
    """Time that ranks lost because of others, and because of their own stage, by rank.

    Who only waits inside a collective waits for others. Idle time is theirs if its cause lies on
    another stage: ranks of one stage do the same at the same time.
    """
    lost = idle(timeline)
    size = max(role.rank for role in roles) + 1
    stage = np.full(size, -1, np.int64)
    stage[[role.rank for role in roles]] = [role.stage for role in roles]
    is_for_others = stage[lost.culprit_rank] != stage[lost.rank]
    is_for_others |= lost.kind == Stillness.WAITING
    for_others_ns, alone_ns = np.zeros((2, size), np.int64)
    np.add.at(for_others_ns, lost.rank, lost.duration_ns * is_for_others)
    np.add.at(alone_ns, lost.rank, lost.duration_ns * ~is_for_others)
    return for_others_ns, alone_ns


def _shared(by_name: Mapping[str, int], count: int) -> dict[str, int]:
    """Sums over so many ranks as those of one; the largest remainders are rounded up."""
    found = {name: time_ns // count for name, time_ns in by_name.items()}
    left = (sum(by_name.values()) - count * sum(found.values())) // count
    for name in sorted(by_name, key=lambda name: (-(by_name[name] % count), name))[:left]:
        found[name] += 1
    return found


def _parts_of(by_name: Mapping[str, int]) -> StepParts:
    transfers = {
        name.removeprefix("transfer "): time_ns
        for name, time_ns in by_name.items()
        if name.startswith("transfer ")
    }
    return StepParts(
        compute_ns=by_name["compute"],
        overlapped_ns=by_name["overlapped"],
        waiting_ns=by_name["waiting"],
        idle_ns=by_name["idle"],
        transfer_ns_by_group=dict(sorted(transfers.items(), key=lambda item: -item[1])),
    )
