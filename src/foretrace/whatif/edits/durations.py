"""How long work and transfers take, as stated: `Speed`, `Lasts`, `Delay`, `Network`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import EVERYTHING, Selection, fitting, nearest, selected, selection_of
from foretrace.base import Bools, Int64s, ScenarioError, numbered_rows
from foretrace.cost import STATED, Source
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.whatif.edits.costed import BLOCK_COLUMNS, CostedJob, launches, previous_on_host
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit, check_factor
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP
from foretrace.workload import Group

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_VALUES = tuple(group.value for group in Group)


@dataclass(frozen=True)
class Speed(WorkEdit):
    """Selected work runs `factor` times as fast: 1.25 takes a fifth less, 0.5 twice as long.

    Several on one operation multiply.
    """

    factor: float
    of: Selection = field(default=Selection())

    SPEED = Key(
        "speed",
        Holds.FACTORS,
        "Work and how many times as fast: gemm=1.2.",
        "a table of work and how many times as fast it is, as in { gemm = 1.2 }",
        "WORK=FACTOR",
    )
    SLOW_RANK = Key(
        "slow_rank",
        Holds.FACTORS,
        "A rank, and how many times as long its work takes.",
        "a table of ranks and how many times as long they take, as in { 3 = 1.1 }",
        "RANK=FACTOR",
    )
    KEYS = (SPEED, SLOW_RANK)
    TURNS = (EditTurn.FACTORS,)

    def __post_init__(self) -> None:
        """Refuse what is no speed."""
        if not 0 < self.factor < float("inf"):
            raise ScenarioError(f"a speed must be above 0, got {self.factor}")

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Speed]:
        """Of work, then of ranks."""
        for work, factor in stated.factors(cls.SPEED):
            yield cls(factor, selection_of(work))
        for rank, factor in stated.factors(cls.SLOW_RANK):
            yield cls(1 / factor, Selection(ranks=selection_of(f"ranks:{rank}").ranks))

    @property
    def changes_nothing(self) -> bool:
        """As fast as it was."""
        return self.factor == 1

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`gemm x 1.25 as fast`, `all work rank 1 takes x 1.1 as long`."""
        if self.factor < 1:
            return f"{self.of} takes x {1 / self.factor:g} as long"
        return f"{self.of} x {self.factor:g} as fast"

    def check(self, job: CostedJob) -> None:
        """Something must be selected."""
        selected(job.graph, self.of)

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """The factor on its nodes."""
        return job.with_factor(fitting(job.graph, self.of), 1 / self.factor)


@dataclass(frozen=True)
class Lasts(WorkEdit):
    """Every selected operation takes so long; of several, the one given last counts."""

    duration_ns: int
    of: Selection = field(default=Selection())

    TAKES = Key(
        "takes",
        Holds.TIMES,
        "Work and how long each operation of it takes.",
        "a table of work and how long each operation takes, as in { '*loss*' = '1 ms' }",
        "WORK=TIME",
    )
    KEYS = (TAKES,)
    TURNS = (EditTurn.LENGTHS,)

    def __post_init__(self) -> None:
        """Refuse what is no duration."""
        if self.duration_ns < 0:
            raise ScenarioError(f"a duration must be 0 or more, got {self.duration_ns} ns")

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Lasts]:
        """One for each work."""
        for work, time_ns in stated.times(cls.TAKES):
            yield cls(time_ns, selection_of(work))

    @property
    def order(self) -> str:
        """As given."""
        return ""

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`*loss* takes 0.2 ms each`."""
        return f"{self.of} takes {self.duration_ns / 1e6:g} ms each"

    def check(self, job: CostedJob) -> None:
        """Something must be selected."""
        selected(job.graph, self.of)

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Selected operations take what was stated; what a user states is a measurement."""
        mask = fitting(job.graph, self.of)
        return replace(
            job.lasting(mask, float(self.duration_ns)),
            source=np.where(mask, Source.TABLE, job.source).astype(np.uint8),
            family=np.where(mask, len(job.families), job.family).astype(np.int32),
            families=(*job.families, STATED),
        )


@dataclass(frozen=True)
class Delay(WorkEdit):
    """Before selected work passes more time: of the host, before its call, or of the device.

    Below zero: less, but nothing takes less than no time. Several on one operation add up.
    """

    extra_ns: int
    of: Selection = field(default=Selection())
    once_per_block: bool = True
    on_device: bool = False

    DELAY = Key(
        "delay",
        Holds.TIMES,
        "Work and what passes before each block: all=2ms.",
        "a table of work and the time before each block of it, as in { all = '2 ms' }",
        "WORK=TIME",
    )
    KEYS = (DELAY,)
    TURNS = (EditTurn.DELAYS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Delay]:
        """One for each work."""
        for work, time_ns in stated.times(cls.DELAY):
            yield cls(time_ns, selection_of(work))

    @property
    def changes_nothing(self) -> bool:
        """No time."""
        return self.extra_ns == 0

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`each block of all work layer forward rank 1 begins 2 ms later on the host`."""
        what = "each block of " if self.once_per_block else ""
        how = "later" if self.extra_ns >= 0 else "sooner"
        where = "device" if self.on_device else "host"
        time = f"{abs(self.extra_ns) / 1e6:g} ms"
        return f"{what}{self.of} begins {time} {how} on the {where}"

    def check(self, job: CostedJob) -> None:
        """Something must be selected."""
        selected(job.graph, self.of)

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """The time on its nodes."""
        return job.with_delay(_delayed_nodes(job.graph, self), self.extra_ns)


def _delayed_nodes(graph: ExecutionGraph, edit: Delay) -> Int64s:
    """Where the time is added: the segment before a call, else the call, else the operation."""
    nodes = np.flatnonzero(fitting(graph, edit.of))
    launch = launches(graph)
    entry = np.where(launch[nodes] >= 0, launch[nodes], nodes)
    if edit.once_per_block:
        first = _first_of_blocks(graph, nodes, entry)
        nodes, entry = nodes[first], entry[first]
    if edit.on_device:
        return nodes
    before = previous_on_host(graph)[entry]
    has_segment = (before >= 0) & (graph.kind[before] == NodeKind.HOST_SEGMENT)
    return np.where(has_segment, before, entry)


def _first_of_blocks(graph: ExecutionGraph, nodes: Int64s, entry: Int64s) -> Int64s:
    """Row of each block's operation that is launched first, int64[blocks]."""
    block = numbered_rows([getattr(graph, name)[nodes] for name in BLOCK_COLUMNS])
    order = np.lexsort((nodes, entry))
    _, first = np.unique(block[order], return_index=True)
    return np.sort(order[first])


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
        check_factor(self.factor)

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
