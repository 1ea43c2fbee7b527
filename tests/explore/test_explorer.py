"""Answers of a page whose sliders move a plan."""

from __future__ import annotations

import json

import pytest

from foretrace.estimate import unit_step
from foretrace.explore import Explorer
from foretrace.machine import load_machine
from foretrace.workload import PlanDraft, PlanMemory, complete
from tests.models import transformer


def explorer(**keys: object) -> Explorer:
    model = transformer("llama3.2-1b")
    own = {"global_batch": 16, "batch.sequence": 2048, "micro_batch": 1, "tp": 2, "pp": 2, **keys}
    plan = complete(PlanDraft().with_keys(own), model, 8)
    return Explorer(model=model, machine=load_machine("dgx-h100"), start=plan)


def test_the_first_answer_is_the_plan_s_step_at_unit_grain() -> None:
    one = explorer()

    found = one.answer({})

    assert one.plan({}).data == 2
    expected = unit_step(one.model, one.plan({}), one.machine)
    assert found["step_ns"] == expected.step_ns
    memory = PlanMemory(one.model, chip=one.machine.chip).stage_bytes(one.plan({}))
    assert found["memory_bytes"] == memory.tolist()
    parts, stages = found["parts"], found["stages"]
    assert isinstance(parts, dict)
    assert abs(sum(parts.values()) - expected.step_ns) < 100
    assert isinstance(stages, list)
    assert len(stages) == 2
    for units in stages:
        assert {phase for _, _, phase, _ in units} == {"F", "B", "O"}
        assert {microbatch for *_, phase, microbatch in units if phase == "F"} == set(range(8))
        assert all(0 <= begin < end <= expected.step_ns for begin, end, *_ in units)
    json.dumps(found)


def test_a_backward_pass_that_begins_with_work_done_again_is_one() -> None:
    stages = explorer(recompute="full").answer({})["stages"]
    assert isinstance(stages, list)
    for units in stages:
        of_phase = {
            name: sum(end - begin for begin, end, phase, _ in units if phase == name)
            for name in "FBO"
        }
        assert 2 < of_phase["B"] / of_phase["F"] < 4
        assert of_phase["O"] < of_phase["F"]


def test_sliders_move_the_plan() -> None:
    one = explorer()

    moved = one.plan({"gpus": "16", "pp": "4", "chunks": "2", "sequence": "4096"})

    assert (moved.num_ranks, moved.pipeline, moved.data) == (16, 4, 2)
    assert (moved.schedule, moved.num_chunks) == ("interleaved", 2)
    assert moved.sequence == 4096
    assert one.plan({"pp": "1", "schedule": "gpipe", "tp": "1"}).schedule == "1f1b"
    assert explorer(**{"precision.products": "fp8"}).plan({"tp": "4"}).precision.products == "fp8"
    assert {"gpus", "tp", "pp", "global_batch", "sequence"} <= {each.key for each in one.sliders}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"gpus": "2", "tp": "4"}, "does not divide 2 GPUs"),
        ({"tp": "3"}, "tp is '3': it is one of 1, 2, 4"),
        ({"global_batch": "1"}, "global batch"),
    ],
)
def test_what_cannot_run_is_a_sentence(asked: dict[str, str], why: str) -> None:
    found = explorer().answer(asked)

    assert set(found) == {"refusal"}
    assert why in str(found["refusal"])
