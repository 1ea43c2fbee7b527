"""Units of a schedule as columns, and what each has to do with others: `UnitColumns` of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from foretrace.base import Bools, Int64s, WorkloadError
from foretrace.workload.layout.tables import NOTHING
from foretrace.workload.layout.units import Chunk
from foretrace.workload.plan.plan import Plan, Sharding
from foretrace.workload.schedule.schedule import Orders, Pass, Schedule

# What stands where in a turn of a stage.
RECEIVED, GATHERED, RUN, SENT = range(4)
_PLACES = 4


class ScheduleColumns:
    """What a schedule alone says of its units; int64[units] each."""

    def __init__(self, schedule: Schedule) -> None:
        """Look it up."""
        orders = schedule.orders
        self.schedule = schedule
        self.kind, self.microbatch, self.chunk = orders.kind, orders.microbatch, orders.chunk
        self.stage = np.repeat(np.arange(schedule.num_stages), np.diff(orders.begin))
        self.is_forward = self.kind == Pass.FORWARD
        self.is_weight = self.kind == Pass.WEIGHT
        self.is_second = np.append(False, leads_of(orders.is_joined, self.stage))[:-1]
        self.turn = np.cumsum(~self.is_second) - 1  # over all stages
        self.lead = np.flatnonzero(~self.is_second)  # int64[turns], first unit
        self.turn_begin = self.turn[np.minimum(orders.begin[:-1], len(self.turn) - 1)]
        stage_of = np.array(schedule.stage_of_chunk, np.int64)
        own_before, own_behind = (column[self.chunk] for column in schedule.neighbours)
        source = np.where(self.is_forward, own_before, own_behind)
        # The last chunk's backward pass works on what its forward pass made.
        is_own = self.is_weight | (~self.is_forward & (own_behind < 0))
        source = np.where(is_own, self.chunk, source)
        self.has_source = source >= 0
        is_of_forward = self.is_forward | (is_own & ~self.is_weight)
        self.needed = np.where(self.has_source, self._result(is_of_forward, source), NOTHING)
        self.needs_forward = is_of_forward
        self.is_received = self.has_source & (stage_of[source] != self.stage)
        to = np.where(self.is_forward, own_behind, own_before)
        self.is_sent = ~self.is_weight & (to >= 0) & (stage_of[to] != self.stage)
        # Of both chunks that a transfer is between, the one behind; where there is one.
        self.crosses_before = np.where(self.is_forward, self.chunk, own_behind)
        self.crosses_behind = np.where(self.is_forward, own_behind, self.chunk)
        self.made = self._result(self.is_forward, self.chunk)

    def _result(self, is_forward: Bools, chunk: Int64s) -> Int64s:
        """A number for what a pass of a chunk makes for the unit's microbatch."""
        count = self.schedule.num_microbatches
        return (is_forward * count + self.microbatch) * len(self.schedule.stage_of_chunk) + chunk

    @cached_property
    def maker(self) -> Int64s:
        """Unit that makes what each works on; NOTHING where none does."""
        schedule = self.schedule
        num_results = 2 * schedule.num_microbatches * len(schedule.stage_of_chunk)
        found = np.full(num_results, NOTHING, np.int64)
        makers = np.flatnonzero(~self.is_weight)
        found[self.made[makers]] = makers
        return np.where(self.has_source, found[self.needed], NOTHING)

    @cached_property
    def is_first(self) -> Bools:
        """Which are the first forward pass of their chunk."""
        found = np.zeros(len(self.kind), np.bool_)
        forward = np.flatnonzero(self.is_forward)[::-1]
        first = np.full(len(self.schedule.stage_of_chunk), NOTHING, np.int64)
        first[self.chunk[forward]] = forward  # of several the last stays, which comes first
        found[first[first >= 0]] = True
        return found


class UnitColumns(ScheduleColumns):
    """Units of a plan's schedule as columns, and what each has to do with others."""

    def __init__(self, schedule: Schedule, chunks: Sequence[Chunk], plan: Plan) -> None:
        """Look them up."""
        super().__init__(schedule)
        self.chunks, self.plan = chunks, plan

    @cached_property
    def gathers(self) -> Bools:
        """Which gather parameters part by part: ZeRO-3."""
        if self.plan.sharding is not Sharding.ZERO3:
            return np.zeros(len(self.kind), np.bool_)
        again = self.plan.reshard_after_forward
        if not again and self.plan.pipeline > 1:
            return self.is_first
        found: Bools = ~self.is_weight & (self.is_forward | again)
        return found

    @cached_property
    def reduces(self) -> Bools:
        """Which reduce gradients; bool[units]."""
        return reducing_units(self.schedule.orders, self.plan)

    def when(self, turn: Int64s, place: int) -> Int64s:
        """A number that rises with turns and with places in them."""
        return turn * _PLACES + place

    def refuse_unready(self) -> None:
        """Refuse a unit that comes before what it works on.

        Raises:
            WorkloadError: where there is one.
        """
        is_early = (self.maker == NOTHING) | (self.turn[self.maker] >= self.turn)
        early = np.flatnonzero(self.has_source & ~self.is_received & is_early)
        if len(early):
            at = int(early[0])
            raise WorkloadError(
                f"schedule {self.schedule.name!r}, stage {self.stage[at]}: "
                f"{Pass(self.kind[at]).name.lower()} of microbatch {self.microbatch[at]} on chunk "
                f"{self.chunk[at]} comes before what it works on, which chunk "
                f"{self.needed[at] % len(self.chunks)} of the same stage makes. Change their order."
            )
        if (self.is_received & (self.maker == NOTHING)).any():
            raise WorkloadError(
                "the schedule lets a stage receive what no stage sends: check its units with "
                "foretrace.workload.check_schedule"
            )


def leads_of(is_joined: Bools, stage: Int64s) -> Bools:
    """Which units run together with the next one of their stage."""
    place = np.arange(len(is_joined))
    begins = ~np.append(False, is_joined[:-1]) | np.append(True, stage[1:] != stage[:-1])
    run = place - np.maximum.accumulate(np.where(begins, place, 0))
    has_next = np.append(stage[1:] == stage[:-1], False)
    found: Bools = is_joined & (run % 2 == 0) & has_next
    return found


def reducing_units(orders: Orders, plan: Plan) -> Bools:
    """Which units reduce gradients; bool[units].

    In a pipeline, ZeRO-2 adds up the gradients of a chunk's microbatches in a row and scatters
    them when the stage goes on to another chunk; without one, in every backward pass, as ZeRO-3.

    Source:
        Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.2:
        gradients are accumulated over microbatches, then reduced and scattered.
    """
    is_scattered = plan.sharding in {Sharding.ZERO2, Sharding.ZERO3}
    if is_scattered and (plan.sharding is Sharding.ZERO3 or plan.pipeline == 1):
        return orders.makes_gradients
    found = np.zeros(len(orders.kind), np.bool_)
    if is_scattered or plan.overlap.gradients:
        makers = np.flatnonzero(orders.makes_gradients)[::-1]
        found[makers[np.unique(orders.chunk[makers], return_index=True)[1]]] = True
    if is_scattered:
        found |= orders.ends_run
    return found
