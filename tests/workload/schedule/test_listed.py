"""Listed orders reach closed forms, keep to the memory, and can run."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.workload import (
    ListRule,
    Pass,
    PipelineWork,
    Schedule,
    check_schedule,
    improved,
    listed_schedule,
)
from foretrace.workload.schedule.orders import one_forward_one_backward, zb_h1

ROUND, BACK = (0, 1, 2, 3), (0, 1, 2, 3, 3, 2, 1, 0)


def work(
    stage_of_chunk: tuple[int, ...], *, times: tuple[int, int, int], held: int, count: int = 12
) -> PipelineWork:
    """Units of F, B and W that take so long; a stage has room for so many chunks' activations."""
    num_chunks = len(stage_of_chunk)
    forward, back, weight = times
    unit_ns = np.array([forward, back + weight, back, weight])[:, None]
    return PipelineWork(
        stage_of_chunk=stage_of_chunk,
        unit_ns=np.repeat(unit_ns, num_chunks, axis=1),
        transfer_ns=np.zeros(num_chunks, np.int64),
        num_bytes=np.ones((4, num_chunks), np.int64),
        room=np.full(max(stage_of_chunk) + 1, held, np.int64),
        num_microbatches=count,
    )


def listed(pipeline: PipelineWork) -> list[tuple[ListRule, Schedule]]:
    """Of every rule that finds one."""
    found = [(rule, listed_schedule(pipeline, rule)) for rule in ListRule.all()]
    return [(rule, one) for rule, one in found if one is not None]


def best_ns(pipeline: PipelineWork, *, is_split: bool = True) -> int:
    return min(
        pipeline.length_ns(one) or 0
        for rule, one in listed(pipeline)
        if rule.is_split or not is_split
    )


def most_held(schedule: Schedule) -> int:
    """Activations of chunks that a stage has at once, those that wait for W among them."""
    most = 0
    for order in schedule.units:
        held = 0
        for unit in order:
            held += unit.kind is Pass.FORWARD
            most = max(most, held)
            held -= unit.kind in {Pass.BACKWARD, Pass.WEIGHT}
    return most


@pytest.mark.parametrize("times", [(100, 100, 100), (100, 100, 60)])
def test_split_passes_leave_no_more_idle_time_than_filling_takes(
    times: tuple[int, int, int],
) -> None:
    # Nothing is below the first stages' filling and one stage's work.
    forward, back, weight = times
    bound_ns = 3 * forward + 12 * sum(times)
    closed_ns = 12 * sum(times) + 3 * (forward + back - weight)

    found = best_ns(work(ROUND, times=times, held=4))

    assert bound_ns <= found <= 1.01 * closed_ns


def test_whole_passes_are_as_good_as_1f1b() -> None:
    pipeline = work(ROUND, times=(100, 120, 80), held=4)

    found = min(pipeline.length_ns(one) or 0 for rule, one in listed(pipeline) if not rule.is_split)

    assert found == pipeline.length_ns(one_forward_one_backward(4, 12)) == 15 * 300


def test_chunks_there_and_back_fill_the_pipeline_with_half_units() -> None:
    pipeline = work(BACK, times=(50, 50, 50), held=8)

    assert best_ns(pipeline) == 3 * 50 + 12 * 300


@pytest.mark.parametrize("stage_of_chunk", [ROUND, ROUND * 2, BACK])
@pytest.mark.parametrize("held", [3, 4, 7, 12])
def test_no_order_holds_more_than_there_is_room_for(
    stage_of_chunk: tuple[int, ...], held: int
) -> None:
    pipeline = work(stage_of_chunk, times=(100, 110, 90), held=held)

    for _, one in listed(pipeline):
        check_schedule(one)
        assert pipeline.fits(one)
        assert most_held(one) <= held


def test_moving_units_makes_no_order_longer_and_is_repeatable() -> None:
    pipeline = work(ROUND, times=(100, 120, 80), held=5)
    split = [one for rule, one in listed(pipeline) if rule.is_split]
    slow = max(split, key=lambda one: pipeline.length_ns(one) or 0)

    found = improved(slow, pipeline, tries=400, seed=3)

    check_schedule(found)
    assert pipeline.fits(found)
    assert (pipeline.length_ns(found) or 0) < (pipeline.length_ns(slow) or 0)
    assert improved(slow, pipeline, tries=400, seed=3).orders == found.orders


def test_a_stage_without_room_for_one_microbatch_has_no_order() -> None:
    assert not listed(work(ROUND * 2, times=(1, 1, 1), held=1))
    assert work(ROUND, times=(1, 1, 1), held=4).fits(zb_h1(4, 12))
    assert not work(ROUND, times=(1, 1, 1), held=3).fits(zb_h1(4, 12))
