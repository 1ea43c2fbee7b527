"""The orders of units that training software runs: one way through a pipeline, or from both ends.

A stage's chunks are numbered along the route: chunk `v * num_stages + s` is the v-th of stage s.

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


def gpipe(num_stages: int, num_microbatches: int) -> Schedule:
    """All forward passes, then all backward passes, the first microbatch first.

    Source:
        Huang et al., "GPipe", arXiv:1811.06965; the order of backward passes is that of PyTorch's
        `ScheduleGPipe`.
    """
    return _of_one_chunk("gpipe", [num_microbatches] * num_stages, num_microbatches)


def one_forward_one_backward(
    num_stages: int, num_microbatches: int, *, is_joined: bool = False
) -> Schedule:
    """1F1B: stage s starts with `num_stages - s - 1` forward passes, then takes turns.

    Args:
        num_stages: of the pipeline.
        num_microbatches: of a step.
        is_joined: each turn's two passes are woven, so that one's communication hides behind the
            other's work; for that each stage starts with a forward pass more, so that neither
            works on the other's result.

    Source:
        Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", arXiv:2006.09503;
        `forward_backward_pipelining_without_interleaving` of Megatron-LM, joined: its
        `combined_1f1b` (`overlap_moe_expert_parallel_comm`).
    """
    ahead = [num_stages - stage - 1 + is_joined for stage in range(num_stages)]
    return _of_one_chunk("1f1b", ahead, num_microbatches, is_joined=is_joined)


def interleaved(
    num_stages: int,
    num_microbatches: int,
    *,
    num_chunks: int,
    contiguous: int,
    is_joined: bool = False,
) -> Schedule:
    """1F1B with several chunks per stage, `contiguous` microbatches of one chunk in a row.

    `contiguous == num_stages` is Megatron-LM's order ("depth first"), `num_microbatches` takes
    each chunk for all microbatches ("breadth first"). A last group may be shorter. Passes are
    joined as in 1F1B.

    Source:
        Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
        arXiv:2104.04473; Llama Team, "The Llama 3 Herd of Models", arXiv:2407.21783, section
        3.3.2; `get_schedule_table` and `get_pp_rank_microbatches` of Megatron-LM.
    """
    position = np.arange(num_microbatches * num_chunks)
    first = position // (contiguous * num_chunks) * contiguous
    size = np.minimum(num_microbatches - first, contiguous)
    turn, inside = np.divmod(position - first * num_chunks, size)

    ahead = 2 * (num_stages - np.arange(num_stages) - 1) + (num_chunks - 1) * contiguous + is_joined
    at, is_forward = _in_turns(len(position), ahead)
    place = np.where(is_forward, turn[at], num_chunks - 1 - turn[at])
    chunk = place * num_stages + np.arange(num_stages)[:, None]
    joined = _pairs(len(position), ahead) & is_joined
    orders = _orders(is_forward, (first + inside)[at], chunk, joined)
    return one_way("interleaved", orders, num_microbatches, num_chunks=num_chunks)


def zb_h1(num_stages: int, num_microbatches: int) -> Schedule:
    """1F1B with backward passes taken apart; stage s puts off weight gradients by s of them.

    So all stages keep activations of as many microbatches as the first one of 1F1B.

    Source:
        Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 2.2; the delay is
        that of PyTorch's `ScheduleInterleavedZeroBubble`.
    """
    index = np.arange(num_microbatches)
    kind = np.repeat([Pass.FORWARD, Pass.INPUT, Pass.WEIGHT], num_microbatches).astype(np.int64)

    def order(stage: int) -> tuple[Int64s, Int64s, Int64s]:
        # In the turn of which input gradient each comes: forward passes are ahead, weights behind.
        turn = np.concatenate([index - (num_stages - stage - 1), index, index + stage])
        found = np.lexsort((kind, turn))
        return kind[found], np.tile(index, 3)[found], np.full(len(found), stage)

    orders = Orders.of_stages([order(stage) for stage in range(num_stages)])
    return one_way("zb-h1", orders, num_microbatches)


def one_way(name: str, orders: Orders, num_microbatches: int, *, num_chunks: int = 1) -> Schedule:
    """A schedule with one route, whose chunks go round the stages `num_chunks` times."""
    num_stages = len(orders.begin) - 1
    return Schedule(
        name=name,
        orders=orders,
        stage_of_chunk=tuple(range(num_stages)) * num_chunks,
        routes=(tuple(range(num_stages * num_chunks)),),
        route_of_microbatch=(0,) * num_microbatches,
    )


def _of_one_chunk(
    name: str, ahead: list[int], num_microbatches: int, *, is_joined: bool = False
) -> Schedule:
    """Turns on every stage behind so many forward passes."""
    at, is_forward = _in_turns(num_microbatches, np.array(ahead))
    chunk = np.repeat(np.arange(len(ahead)), at.shape[1])
    joined = _pairs(num_microbatches, np.array(ahead)) & is_joined
    return one_way(name, _orders(is_forward, at, chunk, joined), num_microbatches)


def _orders(is_forward: Bools, microbatch: Int64s, chunk: Int64s, is_joined: Bools) -> Orders:
    """Of stages that have as many units each, a row for a stage."""
    kind = np.where(is_forward, Pass.FORWARD, Pass.BACKWARD).astype(np.int64)
    begin = np.arange(len(kind) + 1) * kind.shape[1]
    return Orders(kind.ravel(), microbatch.ravel(), chunk.ravel(), is_joined.ravel(), begin)


def _pairs(count: int, ahead: Int64s) -> Bools:
    """Forward passes that take turns with backward ones: the first of each pair of `_in_turns`."""
    begin = np.minimum(ahead, count)[:, None]
    position = np.arange(2 * count)
    inside = (position >= begin) & (position < 2 * count - begin)
    found: Bools = inside & ((position - begin) % 2 == 0)
    return found


def _in_turns(count: int, ahead: Int64s) -> tuple[Int64s, Bools]:
    """`ahead` forward passes, then forward and backward in turns, then the rest backward.

    Returns:
        Number of every pass among those of its kind, and whether it is a forward one; a row for
        each of `ahead`.
    """
    is_forward = np.arange(2 * count) < np.minimum(ahead, count)[:, None]
    is_forward |= _pairs(count, ahead)
    number = np.empty(is_forward.shape, np.int64)
    number[is_forward] = number[~is_forward] = np.tile(np.arange(count), len(ahead))
    return number, is_forward


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
