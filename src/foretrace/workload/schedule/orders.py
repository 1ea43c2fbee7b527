"""The orders of units that training software runs, for pipelines whose microbatches go one way.

A stage's chunks are numbered along the route: chunk `v * num_stages + s` is the v-th of stage s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretrace.workload.schedule.schedule import Pass, Schedule, ScheduleUnit


def gpipe(num_stages: int, num_microbatches: int) -> Schedule:
    """All forward passes, then all backward passes, the first microbatch first.

    Source:
        Huang et al., "GPipe", arXiv:1811.06965; the order of backward passes is that of PyTorch's
        `ScheduleGPipe`.
    """
    order = (
        *(ScheduleUnit(Pass.FORWARD, index, 0) for index in range(num_microbatches)),
        *(ScheduleUnit(Pass.BACKWARD, index, 0) for index in range(num_microbatches)),
    )
    units = tuple(_on_chunk(order, stage) for stage in range(num_stages))
    return one_way("gpipe", units, num_microbatches=num_microbatches)


def one_forward_one_backward(num_stages: int, num_microbatches: int) -> Schedule:
    """1F1B: stage s starts with `num_stages - s - 1` forward passes, then takes turns.

    Source:
        Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", arXiv:2006.09503;
        `forward_backward_pipelining_without_interleaving` of Megatron-LM.
    """

    def order(stage: int) -> tuple[ScheduleUnit, ...]:
        def unit(kind: Pass, index: int) -> ScheduleUnit:
            return ScheduleUnit(kind, index, stage)

        return _in_turns(num_microbatches, num_stages - stage - 1, unit)

    units = tuple(order(stage) for stage in range(num_stages))
    return one_way("1f1b", units, num_microbatches=num_microbatches)


def interleaved(
    num_stages: int, num_microbatches: int, *, num_chunks: int, contiguous: int
) -> Schedule:
    """1F1B with several chunks per stage, `contiguous` microbatches of one chunk in a row.

    `contiguous == num_stages` is Megatron-LM's order ("depth first"), `num_microbatches` takes
    each chunk for all microbatches ("breadth first"). A last group may be shorter.

    Source:
        Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
        arXiv:2104.04473; Llama Team, "The Llama 3 Herd of Models", arXiv:2407.21783, section
        3.3.2; `get_schedule_table` and `get_pp_rank_microbatches` of Megatron-LM.
    """
    table = [
        (index, chunk)
        for first in range(0, num_microbatches, contiguous)
        for chunk in range(num_chunks)
        for index in range(first, min(first + contiguous, num_microbatches))
    ]

    def order(stage: int) -> tuple[ScheduleUnit, ...]:
        def unit(kind: Pass, position: int) -> ScheduleUnit:
            index, chunk = table[position]
            place = chunk if kind is Pass.FORWARD else num_chunks - 1 - chunk
            return ScheduleUnit(kind, index, place * num_stages + stage)

        ahead = 2 * (num_stages - stage - 1) + (num_chunks - 1) * contiguous
        return _in_turns(len(table), ahead, unit)

    units = tuple(order(stage) for stage in range(num_stages))
    return one_way("interleaved", units, num_microbatches=num_microbatches, num_chunks=num_chunks)


def zb_h1(num_stages: int, num_microbatches: int) -> Schedule:
    """1F1B with backward passes taken apart; stage s puts off weight gradients by s of them.

    So all stages keep activations of as many microbatches as the first one of 1F1B.

    Source:
        Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 2.2; the delay is
        that of PyTorch's `ScheduleInterleavedZeroBubble`.
    """

    def order(stage: int) -> tuple[ScheduleUnit, ...]:
        ahead = min(num_stages - stage - 1, num_microbatches)
        found = [ScheduleUnit(Pass.FORWARD, index, stage) for index in range(ahead)]
        for index in range(num_microbatches):
            if index + ahead < num_microbatches:
                found.append(ScheduleUnit(Pass.FORWARD, index + ahead, stage))
            found.append(ScheduleUnit(Pass.INPUT, index, stage))
            if index >= stage:
                found.append(ScheduleUnit(Pass.WEIGHT, index - stage, stage))
        put_off = range(max(num_microbatches - stage, 0), num_microbatches)
        return (*found, *(ScheduleUnit(Pass.WEIGHT, index, stage) for index in put_off))

    units = tuple(order(stage) for stage in range(num_stages))
    return one_way("zb-h1", units, num_microbatches=num_microbatches)


def one_way(
    name: str,
    units: tuple[tuple[ScheduleUnit, ...], ...],
    *,
    num_microbatches: int,
    num_chunks: int = 1,
) -> Schedule:
    """A schedule with one route, whose chunks go round the stages `num_chunks` times."""
    num_stages = len(units)
    return Schedule(
        name=name,
        units=units,
        stage_of_chunk=tuple(range(num_stages)) * num_chunks,
        routes=(tuple(range(num_stages * num_chunks)),),
        route_of_microbatch=(0,) * num_microbatches,
    )


def _on_chunk(order: Sequence[ScheduleUnit], chunk: int) -> tuple[ScheduleUnit, ...]:
    return tuple(ScheduleUnit(unit.kind, unit.microbatch, chunk) for unit in order)


def _in_turns(
    count: int, ahead: int, unit: Callable[[Pass, int], ScheduleUnit]
) -> tuple[ScheduleUnit, ...]:
    """`ahead` forward passes, then forward and backward in turns, then the rest backward."""
    ahead = min(ahead, count)
    found = [unit(Pass.FORWARD, position) for position in range(ahead)]
    for position in range(count - ahead):
        found.append(unit(Pass.FORWARD, position + ahead))
        found.append(unit(Pass.BACKWARD, position))
    found += [unit(Pass.BACKWARD, position) for position in range(count - ahead, count)]
    return tuple(found)
