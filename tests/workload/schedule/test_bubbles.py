"""Closed forms of pipelines, where they hold: equal stages, no communication, no optimizer."""

from __future__ import annotations

from itertools import product

import pytest

from foretrace.workload import Plan, Schedule, schedule_of
from tests.workload.schedule.running import Durations, run

# Forward, gradients of inputs, gradients of weights.
TIMES = [Durations(10, 10, 10), Durations(10, 12, 7), Durations(7, 12, 9), Durations(12, 7, 11)]


def scheduled(
    name: str, stages: int, microbatches: int, *, chunks: int = 1, contiguous: int | None = None
) -> Schedule:
    return schedule_of(
        Plan(
            pipeline=stages,
            global_batch=microbatches,
            schedule=name,
            num_chunks=chunks,
            contiguous=contiguous,
        )
    )


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("times", TIMES)
def test_gpipe_and_1f1b_take_as_if_microbatches_and_other_stages_stood_in_one_row(
    name: str, times: Durations
) -> None:
    one = times.forward + times.inputs + times.weights
    for stages, microbatches in product([1, 2, 3, 4, 8], [1, 2, 3, 4, 8, 13]):
        done = run(scheduled(name, stages, microbatches), times)

        assert done.total == (microbatches + stages - 1) * one


def test_1f1b_holds_as_many_microbatches_as_stages_follow_and_gpipe_all() -> None:
    stages, microbatches = 4, 9

    narrow = run(scheduled("1f1b", stages, microbatches), TIMES[0])
    wide = run(scheduled("gpipe", stages, microbatches), TIMES[0])

    assert narrow.num_held == (4, 3, 2, 1)
    assert wide.num_held == (9, 9, 9, 9)


@pytest.mark.parametrize("times", TIMES)
def test_interleaving_divides_the_bubble_by_the_chunks_of_a_stage(times: Durations) -> None:
    one = times.forward + times.inputs + times.weights  # of a chunk
    for stages, chunks, groups in product([2, 3, 4, 8], [2, 3, 4], [1, 2, 3]):
        microbatches = stages * groups
        done = run(scheduled("interleaved", stages, microbatches, chunks=chunks), times)

        ideal = microbatches * chunks * one
        assert done.bubble == (stages - 1) * one  # a stage's pass takes `chunks` times `one`
        assert done.bubble * chunks * microbatches == (stages - 1) * ideal


def test_the_bubbles_of_llama_3_are_those_of_the_paper() -> None:
    row_1 = run(scheduled("interleaved", 16, 32, chunks=8), Durations(1, 1, 1))
    row_2 = run(scheduled("interleaved", 16, 16, chunks=8), Durations(1, 1, 1))

    assert row_1.bubble / max(row_1.work) == 15 / (8 * 32)
    assert row_2.bubble / max(row_2.work) == 15 / (8 * 16)


def test_the_bubble_does_not_depend_on_how_many_microbatches_come_in_a_row() -> None:
    """Where each group, the last one too, has at least as many as there are stages."""
    stages, chunks = 4, 3
    for microbatches, contiguous in [(8, 8), (12, 6), (10, 5), (10, 6), (9, 5), (13, 13), (16, 4)]:
        order = scheduled("interleaved", stages, microbatches, chunks=chunks, contiguous=contiguous)
        done = run(order, TIMES[1])

        assert done.bubble == (stages - 1) * 29


def test_a_short_last_group_adds_to_the_bubble() -> None:
    order = scheduled("interleaved", 3, 8, chunks=2, contiguous=6)

    done = run(order, Durations(10, 12, 8))

    assert done.bubble > 2 * 30


def test_breadth_first_holds_more_than_depth_first() -> None:
    deep = run(scheduled("interleaved", 4, 16, chunks=2), TIMES[0])
    broad = run(scheduled("interleaved", 4, 16, chunks=2, contiguous=16), TIMES[0])

    # Megatron's warm-up, 2 (P - s - 1) + (V - 1) N forward passes, and one more.
    assert deep.num_held == (11, 9, 7, 5)
    assert broad.num_held == (23, 21, 19, 17)


def test_zb_h1_leaves_a_bubble_without_gradients_of_weights() -> None:
    """Where these take no longer than the other passes, and there is a microbatch per stage."""
    for stages, extra in product([1, 2, 3, 4, 8], [0, 1, 5]):
        order = scheduled("zb-h1", stages, stages + extra)
        for forward, inputs, weights in product([4, 7, 10, 13], repeat=3):
            done = run(order, Durations(forward, inputs, weights))

            closed = (stages - 1) * (forward + inputs - weights)
            if weights <= min(forward, inputs) or stages == 1:
                assert done.bubble == closed
            else:
                assert done.bubble > closed


def test_zb_h1_holds_no_more_than_the_first_stage_of_1f1b() -> None:
    done = run(scheduled("zb-h1", 4, 12), TIMES[0])

    assert done.num_held == (4, 4, 4, 4)


@pytest.mark.parametrize("stages", [2, 4, 6, 8, 16])
@pytest.mark.parametrize("turns", [2, 3, 5])
def test_dualpipe_leaves_the_bubble_of_its_table_on_the_middle_stages(
    stages: int, turns: int
) -> None:
    """(P / 2 - 1) (F&B + B - 3 W), with B the whole backward pass, where F, B - W and W are equal.

    Stages towards the ends weave more pairs and so have a little less to do, if weaving helps.
    """
    order = scheduled("dualpipe", stages, turns * stages)
    for pair in (20, 24, 29, 30, 33):
        done = run(order, Durations(10, 10, 10, pair))

        bubble = (stages // 2 - 1) * (pair + 20 - 3 * 10)
        assert done.total - done.work[stages // 2] == bubble
        assert done.total - done.work[stages // 2 - 1] == bubble


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_dualpipe_holds_at_most_one_microbatch_more_than_there_are_stages(stages: int) -> None:
    done = run(scheduled("dualpipe", stages, 3 * stages), Durations(10, 10, 10, 25))

    assert done.num_held == (stages + 1,) * stages


def test_one_stage_takes_each_microbatch_forward_and_back() -> None:
    order = scheduled("none", 1, 5)

    done = run(order, Durations(10, 12, 8))

    assert done.total == 5 * 30
    assert done.num_held == (1,)
