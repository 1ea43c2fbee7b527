"""`Schedule`: which unit of work each pipeline stage does after which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np

from foretrace.base import Bools, Int64s


class Pass(IntEnum):
    """What a unit does with one chunk of the model for one microbatch."""

    FORWARD = 0
    BACKWARD = 1  # gradients of inputs and of weights
    INPUT = 2  # gradients of inputs alone: B of zero-bubble schedules
    WEIGHT = 3  # gradients of weights alone: W


@dataclass(frozen=True)
class ScheduleUnit:
    """One pass of one chunk for one microbatch."""

    kind: Pass
    microbatch: int
    chunk: int  # over all stages, see `Schedule.stage_of_chunk`
    is_joined: bool = False  # woven with the next unit of its stage: DualPipe's pairs


@dataclass(frozen=True, eq=False)
class Orders:
    """Units of all stages as columns, one stage behind the other."""

    kind: Int64s  # int64[units], `Pass`
    microbatch: Int64s  # int64[units]
    chunk: Int64s  # int64[units]
    is_joined: Bools  # bool[units]
    begin: Int64s  # int64[stages + 1], first unit of every stage, and their number

    @classmethod
    def of_units(cls, units: Sequence[Sequence[ScheduleUnit]]) -> Orders:
        """Columns of units one by one."""
        rows = [
            (unit.kind, unit.microbatch, unit.chunk, unit.is_joined)
            for order in units
            for unit in order
        ]
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        kind, microbatch, chunk, is_joined = columns
        begin = _begin([len(order) for order in units])
        return cls(kind, microbatch, chunk, is_joined > 0, begin)

    @classmethod
    def of_stages(
        cls,
        stages: Sequence[tuple[Int64s, Int64s, Int64s]],
        joined: Sequence[Bools] | None = None,
    ) -> Orders:
        """Columns of every stage's kinds, microbatches and chunks, and which units are joined."""
        kind, microbatch, chunk = (np.concatenate(column) for column in zip(*stages, strict=True))
        begin = _begin([len(own[0]) for own in stages])
        is_joined = np.zeros(len(kind), np.bool_) if joined is None else np.concatenate(joined)
        return cls(kind, microbatch, chunk, is_joined, begin)

    @property
    def makes_gradients(self) -> Bools:
        """Which units make gradients of weights; bool[units]."""
        found: Bools = (self.kind == Pass.BACKWARD) | (self.kind == Pass.WEIGHT)
        return found

    @property
    def ends_run(self) -> Bools:
        """Those behind which a stage's gradients are another chunk's, or none's; bool[units]."""
        makers = np.flatnonzero(self.makes_gradients)
        stage = np.searchsorted(self.begin, makers, side="right")
        own = np.append(self.chunk[makers] + stage * (self.chunk.max() + 1), -1)
        found = np.zeros(len(self.kind), np.bool_)
        found[makers[own[:-1] != own[1:]]] = True
        return found

    def __eq__(self, other: object) -> bool:
        """Whether all units are the same."""
        return isinstance(other, Orders) and all(
            np.array_equal(own, its)
            for own, its in zip(vars(self).values(), vars(other).values(), strict=True)
        )

    def __hash__(self) -> int:
        """By every unit's place."""
        return hash((self.chunk.tobytes(), self.kind.tobytes()))


def _begin(sizes: Sequence[int]) -> Int64s:
    return np.cumsum([0, *sizes], dtype=np.int64)


@dataclass(frozen=True)
class Schedule:
    """The order of units on every stage.

    A chunk is a run of layers that one stage holds. Chunks form one or more *routes* from the
    first layer to the last: microbatch m passes the chunks of its route one after another, and
    back. 1F1B has one route of `num_stages` chunks, interleaved schedules one of more, DualPipe
    two, in opposite directions, with the whole model on each.
    """

    name: str
    orders: Orders
    stage_of_chunk: tuple[int, ...]
    routes: tuple[tuple[int, ...], ...]  # chunks from the model's first layers to its last
    route_of_microbatch: tuple[int, ...]

    @cached_property
    def units(self) -> tuple[tuple[ScheduleUnit, ...], ...]:
        """By stage, in order."""
        orders = self.orders
        kinds = tuple(Pass)
        columns = zip(
            orders.kind.tolist(),
            orders.microbatch.tolist(),
            orders.chunk.tolist(),
            orders.is_joined.tolist(),
            strict=True,
        )
        units = [ScheduleUnit(kinds[kind], *rest) for kind, *rest in columns]
        begin = orders.begin.tolist()
        return tuple(tuple(units[at:end]) for at, end in pairwise(begin))

    @cached_property
    def neighbours(self) -> tuple[Int64s, Int64s]:
        """Chunks before and behind each on its route, int64[chunks] each; below 0: none."""
        before, behind = np.full((2, len(self.stage_of_chunk)), -1, np.int64)
        for route in self.routes:
            before[list(route[1:])] = route[:-1]
            behind[list(route[:-1])] = route[1:]
        return before, behind

    @property
    def num_stages(self) -> int:
        """Pipeline stages."""
        return len(self.orders.begin) - 1

    @property
    def num_microbatches(self) -> int:
        """Microbatches of one step."""
        return len(self.route_of_microbatch)
