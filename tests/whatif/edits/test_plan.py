"""Edits of a plan: what each makes of a scenario, says of itself, and refuses."""

from __future__ import annotations

import pytest

from foretrace.base import ScenarioError, WorkloadError
from foretrace.whatif import Batch, Edit, Parallelism, PlanKeys, Scenario, Sizes
from foretrace.workload import Plan, Sharding

BEFORE = Scenario(
    sizes=Sizes(layers=8),
    plan=Plan(tensor=2, data=2, pipeline=2, micro_batch=2, global_batch=16, sequence=128),
)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (Parallelism(tp=4), "tp 2 -> 4"),
        (Parallelism(dp=4, pp=1), "dp 2 -> 4, pp 2 -> 1, global_batch 16 -> 32"),
        (Parallelism(sequence_parallel=True), "sequence_parallel false -> true"),
        (Parallelism(schedule="gpipe", chunks=2), "schedule 1f1b -> gpipe, chunks 1 -> 2"),
        (Parallelism(dp=2), "the plan as it was"),
        (Batch(micro_batch=4), "micro_batch 2 -> 4, global_batch 16 -> 32"),
        (Batch(num_microbatches=8), "microbatches 4 -> 8, global_batch 16 -> 32"),
        (Batch(global_batch=32), "microbatches 4 -> 8, global_batch 16 -> 32"),
        (Batch(micro_batch=4, global_batch=16), "microbatches 4 -> 2, micro_batch 2 -> 4"),
        (Batch(sequence=256), "sequence 128 -> 256"),
        (PlanKeys({"sharding.level": "zero1"}), "sharding.level none -> zero1"),
        (PlanKeys({"overlap.gradients": False}), "overlap.gradients true -> false"),
        (PlanKeys({"bucket_bytes": 50}), "sharding.bucket_bytes by rule -> 50"),
    ],
)  # fmt: skip
def test_an_edit_says_what_it_changes(edit: Edit, sentence: str) -> None:
    assert edit.sentence(BEFORE) == sentence


def test_degrees_leave_each_ranks_batch_as_it_was() -> None:
    after = Parallelism(dp=8).applied(BEFORE).plan

    assert (after.num_microbatches, after.micro_batch, after.global_batch) == (4, 2, 64)


def test_keys_of_a_plan_leave_each_ranks_batch_unless_they_state_it() -> None:
    alone = PlanKeys({"dp": 4, "sharding.level": "zero1"}).applied(BEFORE).plan
    stated = PlanKeys({"dp": 4, "global_batch": 16}).applied(BEFORE).plan

    assert (alone.data, alone.sharding, alone.num_microbatches) == (4, Sharding.ZERO1, 4)
    assert (stated.global_batch, stated.num_microbatches) == (16, 2)


def test_of_a_batch_two_numbers_give_the_third() -> None:
    after = Batch(num_microbatches=8, global_batch=64).applied(BEFORE).plan

    assert (after.micro_batch, after.num_microbatches, after.global_batch) == (4, 8, 64)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (Batch(global_batch=15), "a global batch of 15 is not whole in microbatches of 2 on 2"),
        (Batch(global_batch=15, num_microbatches=2), "take 12"),
        (Batch(micro_batch=3, num_microbatches=2, global_batch=16), "leave one of the three out"),
        (Batch(micro_batch=0), "micro_batch must be a whole number from 1 on"),
        (Batch(), "no batch is stated"),
        (Parallelism(), "no degree is stated"),
    ],
)
def test_what_is_no_batch_or_degree_is_refused(edit: Edit, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        edit.applied(BEFORE)


def test_a_key_that_no_plan_has_is_refused() -> None:
    with pytest.raises(WorkloadError, match="did you mean"):
        PlanKeys({"overlap.gradient": False}).applied(BEFORE)


@pytest.mark.parametrize("degree", [0, -1, 1.5, "4", True])
def test_degrees_are_whole_numbers_from_one_on(degree: object) -> None:
    with pytest.raises(ScenarioError, match="dp must be a whole number from 1 on"):
        Parallelism(dp=degree)  # type: ignore[arg-type]
