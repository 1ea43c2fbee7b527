"""Orders of units that have no name: list scheduling under a memory cap, improved by moving units.

A stage that is free begins what can begin soonest, by a rule that says who comes first. A rule is
good for some times and some memory, so several are tried; then single units are moved for as long
as that makes the step shorter. Microbatches stay in their order.

Source:
    the rules' freedom is that of Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241,
    section 4.1, and "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from foretrace.base import Int64s
from foretrace.workload.schedule._compiled import list_units
from foretrace.workload.schedule.legality import UnitTimes, stage_ends_ns
from foretrace.workload.schedule.schedule import Orders, Pass, Schedule

_FARTHEST = 12  # places by which a unit is moved


@dataclass(frozen=True, eq=False)
class PipelineWork:
    """What the units of a pipeline with one route take and hold."""

    stage_of_chunk: tuple[int, ...]  # chunks along the route
    unit_ns: Int64s  # int64[kinds of passes, chunks]
    transfer_ns: Int64s  # int64[chunks], between a chunk and the one before it
    # int64[4, chunks]: kept, in a forward pass, in a backward pass, kept until gradients of weights
    num_bytes: Int64s
    room: Int64s  # int64[stages], bytes for these
    num_microbatches: int

    @property
    def num_stages(self) -> int:
        """Of the pipeline."""
        return max(self.stage_of_chunk) + 1

    def schedule(self, orders: Orders) -> Schedule:
        """Orders of these chunks as a schedule."""
        return Schedule(
            name="found",
            orders=orders,
            stage_of_chunk=self.stage_of_chunk,
            routes=(tuple(range(len(self.stage_of_chunk))),),
            route_of_microbatch=(0,) * self.num_microbatches,
        )

    def length_ns(self, schedule: Schedule) -> int | None:
        """Until the last stage is done; `None`: stages wait for each other."""
        times = UnitTimes(
            alone_ns=self.unit_ns,
            joined_ns=self.unit_ns,
            transfer_ns=self.transfer_ns,
            begin_ns=np.zeros(self.num_stages, np.int64),
        )
        ends_ns = stage_ends_ns(schedule, times)
        return None if ends_ns is None else int(ends_ns.max())

    def fits(self, schedule: Schedule) -> bool:
        """Whether every stage has room at its worst moment."""
        orders = schedule.orders
        kept, forward, backward, until_weights = self.num_bytes[:, orders.chunk]
        kind = orders.kind
        change = np.select(
            [kind == Pass.FORWARD, kind == Pass.BACKWARD, kind == Pass.INPUT],
            [kept, -kept, until_weights - kept],
            -until_weights,
        )
        before = np.cumsum(change) - change
        before -= np.repeat(before[orders.begin[:-1]], np.diff(orders.begin))
        within = np.select(
            [kind == Pass.FORWARD, kind == Pass.WEIGHT], [forward, 0 * kept], backward - kept
        )
        stage = np.repeat(np.arange(self.num_stages), np.diff(orders.begin))
        return bool((before + within <= self.room[stage]).all())


@dataclass(frozen=True)
class ListRule:
    """Who comes first where a stage has a choice."""

    is_split: bool  # backward passes, into gradients of inputs and of weights
    first: int  # 0: backward passes, 1: forward passes, 2: whichever was not last
    last_chunk_first: bool
    reserved: int  # percent of its later chunks' memory that a microbatch reserves on a stage
    patience: int  # percent of a weight gradient that a stage rather waits than begin one

    @classmethod
    def all(cls) -> Iterator[ListRule]:
        """Every rule that is tried."""
        yield from (
            cls(*one)
            for one in product(
                (False, True), (0, 1, 2), (False, True), (100, 60, 30, 0), (0, 50, 100)
            )
            if one[0] or one[-1] == 0
        )


def listed_schedule(work: PipelineWork, rule: ListRule) -> Schedule | None:
    """The order that a rule makes; `None`, if it comes to a stand or does not fit."""
    stage_of_chunk = np.array(work.stage_of_chunk, np.int64)
    stages = [np.flatnonzero(stage_of_chunk == stage) for stage in range(work.num_stages)]
    own = np.full((len(stages), max(map(len, stages))), -1, np.int64)
    for stage, chunks in enumerate(stages):
        own[stage, : len(chunks)] = chunks
    passes = 3 if rule.is_split else 2
    orders = np.zeros((len(stages), own.shape[1] * passes * work.num_microbatches, 3), np.int64)
    count = np.zeros(len(stages), np.int64)
    left = list_units(
        own,
        stage_of_chunk,
        work.unit_ns,
        work.transfer_ns,
        work.num_bytes,
        work.room,
        np.array(list(vars(rule).values()), np.int64),
        work.num_microbatches,
        orders,
        count,
    )
    if left:
        return None
    columns = [orders[at, :size].T for at, size in enumerate(count.tolist())]
    found = work.schedule(Orders.of_stages([(one[0], one[1], one[2]) for one in columns]))
    return found if work.fits(found) else None


def improved(schedule: Schedule, work: PipelineWork, *, tries: int, seed: int = 0) -> Schedule:
    """A schedule whose units were moved, one at a time, as long as it became no longer.

    Args:
        schedule: fits, and can run.
        work: of its units.
        tries: moves to look at.
        seed: of where units are moved.
    """
    drawn = np.random.default_rng(seed)
    best_ns = work.length_ns(schedule)
    assert best_ns is not None  # noqa: S101  it can run
    begin = schedule.orders.begin
    for _ in range(tries):
        stage = int(drawn.integers(len(begin) - 1))
        low, high = int(begin[stage]), int(begin[stage + 1])
        at = int(drawn.integers(low, high))
        to = int(np.clip(at + drawn.integers(-_FARTHEST, _FARTHEST + 1), low, high - 1))
        if at == to:
            continue
        moved = replace(schedule, orders=_moved(schedule.orders, at, to))
        length_ns = work.length_ns(moved)
        if length_ns is not None and length_ns <= best_ns and work.fits(moved):
            schedule, best_ns = moved, length_ns
    return schedule


def _moved(orders: Orders, at: int, to: int) -> Orders:
    """One unit taken out and put in elsewhere."""
    low, high = min(at, to), max(at, to) + 1
    place = np.arange(len(orders.kind))
    place[low:high] = np.roll(place[low:high], -1 if at < to else 1)
    return replace(
        orders,
        kind=orders.kind[place],
        microbatch=orders.microbatch[place],
        chunk=orders.chunk[place],
        is_joined=orders.is_joined[place],
    )
