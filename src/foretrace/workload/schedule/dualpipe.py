"""DualPipe: microbatches enter a pipeline at both ends.

Every stage holds two chunks: stage s the s-th of the route from the first stage to the last, and
the s-th from the end of the route back, so that stages s and `num_stages - 1 - s` hold the same
parameters. Half of the microbatches take either route.

Source:
    DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.2.1; the order is
    that of the authors' own release (deepseek-ai/DualPipe).
"""

from __future__ import annotations

from collections import deque

from foretrace.base import WorkloadError
from foretrace.workload.schedule.schedule import Orders, Pass, Schedule, ScheduleUnit


def dualpipe(num_stages: int, num_microbatches: int) -> Schedule:
    """The order of the authors' release.

    Args:
        num_stages: has to be even.
        num_microbatches: of both directions together; even, and at least twice the stages.

    Raises:
        WorkloadError: if a number is not what it has to be.
    """
    check_dualpipe(num_stages, num_microbatches)
    half = num_microbatches // 2
    return Schedule(
        name="dualpipe",
        orders=Orders.of_units(
            [_Stage(stage, num_stages, half).order() for stage in range(num_stages)]
        ),
        stage_of_chunk=(*range(num_stages), *reversed(range(num_stages))),
        routes=(tuple(range(num_stages)), tuple(range(num_stages, 2 * num_stages))),
        route_of_microbatch=(0,) * half + (1,) * half,
    )


def check_dualpipe(num_stages: int, num_microbatches: int) -> None:
    """Refuse numbers that the order is not made for.

    Raises:
        WorkloadError: so too.
    """
    if num_stages % 2 or num_microbatches % 2 or num_microbatches < 2 * num_stages:
        stages = num_stages + num_stages % 2
        microbatches = max(2 * stages, num_microbatches + num_microbatches % 2)
        raise WorkloadError(
            f"dualpipe cannot run {num_microbatches} microbatches on {num_stages} stages: it needs "
            "an even number of stages, and an even number of microbatches of at least twice as "
            f"many; {microbatches} microbatches on {stages} stages would run"
        )


class _Stage:
    """Writes one stage's order down; direction 0 is the one that reaches the stage first."""

    def __init__(self, stage: int, num_stages: int, num_microbatches: int) -> None:
        """Start with an empty order.

        Args:
            stage: from 0.
            num_stages: of the pipeline.
            num_microbatches: of one direction.
        """
        mirror = num_stages - 1 - stage
        self._to_middle = num_stages // 2 - 1 - min(stage, mirror)
        self._to_end = min(stage, mirror)
        self._num_stages = num_stages
        self._num_microbatches = num_microbatches
        # Of both directions: the route's first microbatch, and the chunk that is here.
        ways = [(0, stage), (num_microbatches, num_stages + mirror)]
        self._ways = ways if stage < mirror else ways[::-1]
        self._num_forward = [0, 0]
        self._num_backward = [0, 0]
        self._put_off: deque[ScheduleUnit] = deque()
        self._units: list[ScheduleUnit] = []

    def order(self) -> tuple[ScheduleUnit, ...]:
        """All units of the stage."""
        for _ in range(2 * self._to_middle):
            self._forward(0)
        for _ in range(self._to_end + 1):
            self._forward(0)
            self._forward(1)
        for _ in range(self._to_middle):
            self._input(1)
            self._weight()
            self._forward(1)
        self._main()
        for _ in range(self._to_middle):
            self._backward(1)
            self._pair(1, 0)
        self._last_backwards()
        for _ in range(self._to_middle):
            self._weight()
            self._input(0)
        while self._put_off:
            self._weight()
        return tuple(self._units)

    def _main(self) -> None:
        """Forward of one direction beside backward of the other, both ways in turns."""
        is_middle = self._to_middle == 0
        for turn in range(self._num_microbatches - self._num_stages + self._to_end + 1):
            if is_middle and turn == 0:  # apart: the bubble is smaller so
                self._forward(0)
                self._backward(1)
            else:
                self._pair(0, 1)
            self._pair(1, 0)

    def _last_backwards(self) -> None:
        """Backward passes of both directions; the second half of them puts weights off."""
        count = self._to_end + 1
        for turn in range(2 * count):
            # Of an odd count, the middle turn is split: its second direction puts off.
            self._input(1 - turn % 2) if turn >= count else self._backward(1 - turn % 2)

    def _unit(self, kind: Pass, direction: int, index: int) -> ScheduleUnit:
        first, chunk = self._ways[direction]
        return ScheduleUnit(kind, first + index, chunk)

    def _forward(self, direction: int, *, is_joined: bool = False) -> None:
        unit = self._unit(Pass.FORWARD, direction, self._num_forward[direction])
        self._num_forward[direction] += 1
        self._units.append(ScheduleUnit(unit.kind, unit.microbatch, unit.chunk, is_joined))

    def _backward(self, direction: int) -> None:
        self._units.append(self._unit(Pass.BACKWARD, direction, self._num_backward[direction]))
        self._num_backward[direction] += 1

    def _input(self, direction: int) -> None:
        index = self._num_backward[direction]
        self._units.append(self._unit(Pass.INPUT, direction, index))
        self._put_off.append(self._unit(Pass.WEIGHT, direction, index))
        self._num_backward[direction] += 1

    def _weight(self) -> None:
        self._units.append(self._put_off.popleft())

    def _pair(self, forward: int, backward: int) -> None:
        self._forward(forward, is_joined=True)
        self._backward(backward)
