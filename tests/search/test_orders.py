"""A found order is never worse than a named one within its memory, and PyTorch's table holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.estimate import unit_step
from foretrace.machine import load_machine
from foretrace.search import FoundSchedule, found_schedule
from foretrace.workload import (
    Plan,
    PlanMemory,
    Transformer,
    check_schedule,
    schedule_of,
)
from tests.models import transformer

MACHINE = load_machine("dgx-h100")
PLAN = Plan(
    pipeline=4, tensor=2, global_batch=8, sequence=4096, sequence_parallel=True, schedule="1f1b"
)
GIB = 2**30


def model() -> Transformer:
    found = transformer("llama3-8b")
    return replace(found, num_layers=16)


@pytest.fixture(scope="module")
def roomy() -> FoundSchedule:
    """What is found where everything fits."""
    return found_schedule(model(), PLAN, MACHINE, capacity=1000 * GIB)


def test_within_the_memory_of_every_named_order_none_is_better(roomy: FoundSchedule) -> None:
    named = [one for one in roomy.orders if one.name != "found"]

    assert {one.name for one in named} >= {"1f1b", "zb-h1", "interleaved x 2", "dualpipe"}
    for own in named:
        found = found_schedule(model(), PLAN, MACHINE, capacity=own.peak_bytes)
        assert found.best.step_ns <= own.step_ns
        assert found.best.peak_bytes <= own.peak_bytes


def test_less_memory_than_any_named_order_needs_is_kept_to(roomy: FoundSchedule) -> None:
    named = [one.peak_bytes for one in roomy.orders if one.name != "found"]
    capacity = round(0.97 * min(named))

    found = found_schedule(model(), PLAN, MACHINE, capacity=capacity)

    assert found.best.peak_bytes <= capacity
    assert "no order with a name fits" in found.headline
    with pytest.raises(WorkloadError, match="no order of the plan's units fits"):
        found_schedule(model(), PLAN, MACHINE, capacity=GIB)


def test_the_table_that_is_written_is_the_order_that_was_simulated(
    tmp_path: Path, roomy: FoundSchedule
) -> None:
    best = next(one for one in roomy.orders if one.name == "found")
    path = tmp_path / "mine.csv"
    path.write_text(roomy.csv)
    plan = replace(best.plan, schedule=str(path))

    read = schedule_of(plan)

    one_way = min(
        (one for one in roomy.orders if len(one.schedule.routes) == 1), key=lambda one: one.step_ns
    )
    check_schedule(read)
    assert read.orders == one_way.schedule.orders
    assert unit_step(model(), plan, MACHINE).step_ns == one_way.step_ns
    memory = PlanMemory(model(), chip=MACHINE.chip)
    assert int(memory.stage_bytes(plan).max()) == one_way.peak_bytes


def test_the_published_plan_of_llama_3_405b_has_a_better_order_than_all_named() -> None:
    giant = transformer("llama3-405b")
    plan = replace(PLAN, pipeline=16, tensor=8, data=128, global_batch=2048, sequence=8192)
    machine = load_machine("llama3-24k")

    found = found_schedule(giant, plan, machine, capacity=400 * GIB)

    named = [one for one in found.orders if one.name != "found"]
    assert found.best.name == "found"
    assert found.best.step_ns < 0.95 * min(one.step_ns for one in named)
    assert found.best.peak_bytes <= max(one.peak_bytes for one in named) * 1.001


def test_one_stage_has_nothing_to_order() -> None:
    with pytest.raises(WorkloadError, match="has one order of units"):
        found_schedule(model(), replace(PLAN, pipeline=1), MACHINE)
