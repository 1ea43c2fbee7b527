"""How long transfers take without a machine's figures: `Network`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import EVERYTHING, nearest
from foretrace.base import Bools, ScenarioError
from foretrace.graph import NodeKind
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP
from foretrace.workload import Group

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_VALUES = tuple(group.value for group in Group)


@dataclass(frozen=True)
class Network(WorkEdit):
    """Transfers take so many times as long, and then a fixed time more.

    For what no machine describes; a described network is changed by its figures instead.
    """

    extra_ns: int = 0
    factor: float = 1.0
    groups: tuple[str, ...] = ()  # "dp", or a process group as the recording calls it; none: all

    TRANSFERS = Key(
        "transfers",
        Holds.FACTORS,
        "A group, and how many times as long it sends.",
        "a table of groups and how many times as long they take, as in { dp = 2 }",
        "GROUP=FACTOR",
    )
    TRANSFER_DELAY = Key(
        "transfer_delay",
        Holds.TIMES,
        "A group, and what each transfer adds.",
        "a table of groups and a time, as in { all = '1 ms' }",
        "GROUP=TIME",
    )
    KEYS = (TRANSFERS, TRANSFER_DELAY)
    TURNS = (EditTurn.FACTORS, EditTurn.DELAYS)

    def __post_init__(self) -> None:
        """Refuse what is no factor."""
        if not 0 <= self.factor < float("inf"):
            raise ScenarioError(f"a factor must be 0 or more, got {self.factor}")

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Network]:
        """Factors, then times."""
        for group, factor in stated.factors(cls.TRANSFERS):
            yield cls(factor=factor, groups=_groups(group))
        for group, time_ns in stated.times(cls.TRANSFER_DELAY):
            yield cls(extra_ns=time_ns, groups=_groups(group))

    @property
    def changes_nothing(self) -> bool:
        """As long as they were."""
        return self.factor == 1 and self.extra_ns == 0

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`transfers of dp x 2 + 1 ms`."""
        which = ", ".join(self.groups) or "all groups"
        return f"transfers of {which} x {self.factor:g} + {self.extra_ns / 1e6:g} ms"

    def check(self, job: CostedJob) -> None:
        """There must be such transfers."""
        transfers_of(job, self.groups)

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:
        """The factor first, the time with all other delays."""
        mask = transfers_of(job, self.groups)
        if turn is EditTurn.FACTORS:
            return job.with_factor(mask, self.factor)
        return job.with_delay(np.flatnonzero(mask), self.extra_ns)


def _groups(name: str) -> tuple[str, ...]:
    return () if name == EVERYTHING else (name,)


def transfers_of(job: CostedJob, groups: tuple[str, ...]) -> Bools:
    """FINISH nodes of the collectives of these groups, of all if none are named; bool[nodes].

    Args:
        job: whose program, if it has one, says which group of the plan a collective belongs to.
        groups: of the plan ("dp"), or process groups as the recording calls them.

    Raises:
        ScenarioError: if a name is that of no group here.
    """
    graph = job.graph
    is_transfer: Bools = graph.kind == NodeKind.FINISH
    if not groups:
        if not is_transfer.any():
            raise ScenarioError("this job has no transfers: one rank was recorded, or none meets")
        return is_transfer
    names = _names(job)
    for wanted in groups:
        if not any(wanted in each for each in names):
            raise ScenarioError(
                f"no transfer is of a group {wanted!r}: "
                f"{nearest(wanted, sorted({one for each in names for one in each if one}))}."
            )
    chosen = np.array([not set(groups).isdisjoint(each) for each in names], np.bool_)
    mask: Bools = is_transfer & chosen[graph.collective]
    return mask


def _names(job: CostedJob) -> list[tuple[str, str]]:
    """Group of the plan ("" unknown) and process group of each collective."""
    found, arranged, program = [], job.arranged, job.program
    for collective, source in zip(
        arranged.graph.collectives, arranged.source_collective.tolist(), strict=True
    ):
        of_plan = collective.group if collective.group in _VALUES else ""
        if program is not None and source >= 0:
            position = int(program.group_of_collective[source])
            of_plan = GROUPS[position].value if position != NO_GROUP else ""
        found.append((of_plan, collective.group))
    return found
