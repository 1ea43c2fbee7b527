"""`Schedule`: which unit of work each pipeline stage does after which."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


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


@dataclass(frozen=True)
class Schedule:
    """The order of units on every stage.

    A chunk is a run of layers that one stage holds. Chunks form one or more *routes* from the
    first layer to the last: microbatch m passes the chunks of its route one after another, and
    back. 1F1B has one route of `num_stages` chunks, interleaved schedules one of more, DualPipe
    two, in opposite directions, with the whole model on each.
    """

    name: str
    units: tuple[tuple[ScheduleUnit, ...], ...]  # by stage, in order
    stage_of_chunk: tuple[int, ...]
    routes: tuple[tuple[int, ...], ...]  # chunks from the model's first layers to its last
    route_of_microbatch: tuple[int, ...]

    @property
    def num_stages(self) -> int:
        """Pipeline stages."""
        return len(self.units)

    @property
    def num_microbatches(self) -> int:
        """Microbatches of one step."""
        return len(self.route_of_microbatch)
