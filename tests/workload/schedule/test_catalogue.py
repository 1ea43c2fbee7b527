from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    SCHEDULES,
    Overlap,
    Pass,
    Plan,
    Schedule,
    kinds_of_passes,
    pytorch_csv,
    schedule_of,
)

LETTERS = {Pass.FORWARD: "F", Pass.BACKWARD: "B", Pass.INPUT: "I", Pass.WEIGHT: "W"}


def words(schedule: Schedule, stage: int) -> str:
    return " ".join(
        f"{LETTERS[unit.kind]}{unit.microbatch}.{unit.chunk}{'+' if unit.is_joined else ''}"
        for unit in schedule.units[stage]
    )


def test_1f1b_is_the_order_of_its_paper() -> None:
    schedule = schedule_of(Plan(pipeline=3, global_batch=4))

    assert [words(schedule, stage) for stage in range(3)] == [
        "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0",
        "F0.1 F1.1 B0.1 F2.1 B1.1 F3.1 B2.1 B3.1",
        "F0.2 B0.2 F1.2 B1.2 F2.2 B2.2 F3.2 B3.2",
    ]


def test_exchanges_around_experts_join_passes_of_two_microbatches() -> None:
    plan = Plan(pipeline=2, global_batch=4, expert=2, overlap=Overlap(expert=True))
    f, b = Pass.FORWARD, Pass.BACKWARD

    orders = schedule_of(plan).units

    # A pass more ahead, so that no pair works on its own result.
    assert [(unit.kind, unit.microbatch) for unit in orders[1]] == [
        *((f, 0), (f, 1), (b, 0), (f, 2), (b, 1), (f, 3), (b, 2), (b, 3)),
    ]
    assert [unit.microbatch for unit in orders[1] if unit.is_joined] == [1, 2, 3]
    assert not any(unit.is_joined for unit in schedule_of(replace(plan, expert=1)).units[1])


def test_interleaving_is_the_order_of_megatron() -> None:
    """Its own example of a schedule table: two stages, two chunks, groups of three and of two."""
    schedule = schedule_of(
        Plan(pipeline=2, global_batch=5, schedule="interleaved", num_chunks=2, contiguous=3)
    )

    forward = [unit for unit in schedule.units[0] if unit.kind is Pass.FORWARD]
    backward = [unit for unit in schedule.units[0] if unit.kind is Pass.BACKWARD]
    assert [unit.microbatch for unit in forward] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [unit.chunk // 2 for unit in forward] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert [unit.chunk // 2 for unit in backward] == [1, 1, 1, 0, 0, 0, 1, 1, 0, 0]
    assert words(schedule, 0).startswith("F0.0 F1.0 F2.0 F0.2 F1.2 F2.2 B0.2")


def test_zb_h1_puts_gradients_of_weights_off_by_the_number_of_the_stage() -> None:
    schedule = schedule_of(Plan(pipeline=3, global_batch=3, schedule="zb-h1"))

    assert [words(schedule, stage) for stage in range(3)] == [
        "F0.0 F1.0 F2.0 I0.0 W0.0 I1.0 W1.0 I2.0 W2.0",
        "F0.1 F1.1 I0.1 F2.1 I1.1 W0.1 I2.1 W1.1 W2.1",
        "F0.2 I0.2 F1.2 I1.2 F2.2 I2.2 W0.2 W1.2 W2.2",
    ]


def test_dualpipe_sends_halves_of_the_microbatches_from_both_ends() -> None:
    schedule = schedule_of(Plan(pipeline=2, global_batch=4, schedule="dualpipe"))

    assert schedule.stage_of_chunk == (0, 1, 1, 0)
    assert schedule.routes == ((0, 1), (2, 3))
    assert schedule.route_of_microbatch == (0, 0, 1, 1)
    # Both stages are in the middle: the first pair is not woven.
    assert [words(schedule, stage) for stage in range(2)] == [
        "F0.0 F2.3 F1.0 B2.3 F3.3+ B0.0 B3.3 I1.0 W1.0",
        "F2.2 F0.1 F3.2 B0.1 F1.1+ B2.2 B1.1 I3.2 W3.2",
    ]


@pytest.mark.parametrize("name", sorted({*SCHEDULES} - {"dualpipe", "gpipe"}))
def test_without_a_pipeline_gradients_are_accumulated(name: str) -> None:
    schedule = schedule_of(Plan(global_batch=3, schedule=name))

    assert words(schedule, 0) == "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(pipeline=2, schedule="2f2b"), "no schedule is called '2f2b': known are none, gpipe"),
        (Plan(pipeline=2, schedule="none"), "'none' has no order for pp 2"),
        (Plan(pipeline=2, num_chunks=2), "one chunk on each stage, not 2"),
        (Plan(num_chunks=2, schedule="interleaved"), "several need the schedule 'interleaved'"),
        (Plan(data=8, global_batch=4), "the batch has to hold at least 8"),
        (
            Plan(pipeline=4, global_batch=8, schedule="dualpipe", data=2),
            "cannot run 4 microbatches on 4 stages.*; 8 microbatches on 4 stages would",
        ),
        (
            Plan(pipeline=5, global_batch=11, schedule="dualpipe"),
            "12 microbatches on 6 stages would run",
        ),
        (
            Plan(pipeline=8, global_batch=12, schedule="interleaved", num_chunks=2),
            "the last group has 4, where groups of at least pp = 8 always run: contiguous = 12",
        ),
    ],
)
def test_numbers_that_a_schedule_cannot_run_with_are_refused(plan: Plan, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        schedule_of(plan)


@pytest.mark.parametrize("microbatches", [7, 10, 13])
def test_what_the_error_proposes_runs(microbatches: int) -> None:
    plan = Plan(pipeline=4, global_batch=microbatches, schedule="interleaved", num_chunks=3)
    plan = replace(plan, contiguous=3)

    with pytest.raises(WorkloadError, match="stands still") as caught:
        schedule_of(plan)

    proposed = re.search(r"contiguous = (\d+) would", str(caught.value))
    assert proposed is not None
    schedule_of(replace(plan, contiguous=int(proposed[1])))


@pytest.mark.parametrize(
    ("name", "stages"), [(name, 1) for name in SCHEDULES] + [(name, 4) for name in SCHEDULES[1:]]
)
def test_kinds_of_passes_are_those_of_the_units(name: str, stages: int) -> None:
    chunks = 2 if name == "interleaved" and stages > 1 else 1
    plan = Plan(pipeline=stages, global_batch=8, schedule=name, num_chunks=chunks)

    kinds = kinds_of_passes(plan)

    assert kinds == tuple(sorted(set(schedule_of(plan).orders.kind.tolist())))


def test_kinds_of_passes_of_a_file_are_those_that_it_names(tmp_path: Path) -> None:
    plan = Plan(pipeline=2, global_batch=4, schedule="zb-h1")
    path = tmp_path / "order.csv"
    path.write_text(pytorch_csv(schedule_of(plan)))

    kinds = kinds_of_passes(replace(plan, schedule=str(path)))

    assert kinds == (Pass.FORWARD, Pass.INPUT, Pass.WEIGHT)
