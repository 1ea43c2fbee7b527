"""DualPipe: microbatches enter a pipeline at both ends.

Every stage holds two chunks: stage s the s-th of the route from the first stage to the last, and
the s-th from the end of the route back, so that stages s and `num_stages - 1 - s` hold the same
parameters. Half of the microbatches take either route.

Source:
    DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.2.1; the order is
    that of the authors' own release (deepseek-ai/DualPipe).
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int64s, WorkloadError
from foretrace.workload.schedule.schedule import Orders, Pass, Schedule

# Passes of either direction; weights are those that were put off first.
_F0, _F1, _B0, _B1, _I0, _I1 = (
    4 * kind + 2 * way for kind in (Pass.FORWARD, Pass.BACKWARD, Pass.INPUT) for way in (0, 1)
)
_W, _JOINED = 4 * Pass.WEIGHT, 1


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
    stages = [_Stage(stage, num_stages, half).columns() for stage in range(num_stages)]
    return Schedule(
        name="dualpipe",
        orders=Orders.of_stages([own[:3] for own in stages], [own[3] for own in stages]),
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
    """One stage's order; direction 0 is the one that reaches the stage first."""

    def __init__(self, stage: int, num_stages: int, num_microbatches: int) -> None:
        """Say where the stage stands.

        Args:
            stage: from 0.
            num_stages: of the pipeline.
            num_microbatches: of one direction.
        """
        mirror = num_stages - 1 - stage
        self._to_middle = num_stages // 2 - 1 - min(stage, mirror)
        self._to_end = min(stage, mirror)
        self._num_turns = num_microbatches - num_stages + self._to_end + 1
        # Of both directions: the route's first microbatch, and the chunk that is here.
        ways = [(0, stage), (num_microbatches, num_stages + mirror)]
        self._ways = np.array(ways if stage < mirror else ways[::-1])

    def columns(self) -> tuple[Int64s, Int64s, Int64s, Bools]:
        """Kinds, microbatches, chunks, and which units are joined."""
        told = np.array(self._order())
        kind, direction, is_joined = told >> 2, told >> 1 & 1, told & 1 > 0
        microbatch = np.empty(len(told), np.int64)
        is_later = kind == Pass.WEIGHT
        for way in (0, 1):
            for is_own in (kind == Pass.FORWARD, (kind == Pass.BACKWARD) | (kind == Pass.INPUT)):
                own = np.flatnonzero(is_own & (direction == way))
                microbatch[own] = np.arange(len(own)) + self._ways[way, 0]
        # Weights follow in the order in which they were put off.
        put_off = np.flatnonzero(kind == Pass.INPUT)
        microbatch[is_later], direction[is_later] = microbatch[put_off], direction[put_off]
        return kind, microbatch, self._ways[direction, 1], is_joined

    def _order(self) -> list[int]:
        """All units of the stage: their pass, direction, and whether they are joined."""
        middle, end = self._to_middle, self._to_end
        found = [_F0] * (2 * middle) + [_F0, _F1] * (end + 1) + [_I1, _W, _F1] * middle
        found += self._main() + [_B1, _F1 + _JOINED, _B0] * middle
        # Backward passes of both directions; the second half of them puts weights off. Of an odd
        # count, the middle turn is split: its second direction puts off.
        found += ([_B1, _B0] * (end + 1))[: end + 1] + ([_I1, _I0] * (end + 1))[end + 1 :]
        found += [_W, _I0] * middle
        return found + [_W] * (found.count(_I0) + found.count(_I1) - found.count(_W))

    def _main(self) -> list[int]:
        """Forward of one direction beside backward of the other, both ways in turns."""
        found = [_F0 + _JOINED, _B1, _F1 + _JOINED, _B0] * self._num_turns
        if self._to_middle == 0 and found:
            found[0] = _F0  # apart: the bubble is smaller so
        return found
