"""A step of many microbatches from two of few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.cost import step_costs
from foretrace.estimate import estimate
from foretrace.validate.runs.configuration import machine_of, model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.validate.runs.steps import Steps, few_microbatches, with_microbatches
from tests.validate.runs.sample import published


@pytest.mark.parametrize(
    "layout",
    [
        {"tp": 4, "pp": 1, "dp": 2, "schedule": "none"},
        {"tp": 1, "pp": 4, "dp": 2},
        {"tp": 1, "pp": 4, "dp": 2, "vp": 2, "schedule": "interleaved-1f1b"},
        {"tp": 2, "pp": 1, "dp": 4, "sharding": "zero3/fsdp", "schedule": "none"},
    ],
)
def test_the_step_is_as_long_as_simulated_in_full(
    tmp_path: Path, layout: dict[str, object]
) -> None:
    run = published(tmp_path, global_batch=64, **layout)
    model, machine = model_of(run), machine_of(run)
    plan = plans_of(run, model).plans[0]
    costs = step_costs(machine)
    assert plan.num_microbatches > few_microbatches(plan)[1]

    found = Steps(model, machine, costs).of(plan)

    whole = estimate(model, plan, machine, costs=costs)
    assert found.step_ns == pytest.approx(whole.step_ns, rel=2e-3)


def test_a_step_is_simulated_once(tmp_path: Path) -> None:
    run = published(tmp_path)
    model, machine = model_of(run), machine_of(run)
    plan = plans_of(run, model).plans[0]
    steps = Steps(model, machine, step_costs(machine))

    first = steps.of(plan)
    again = steps.of(replace(plan, name="another"))

    assert first == again
    assert len(steps.known) == 2


def test_plans_are_compared_by_a_few_layers(tmp_path: Path) -> None:
    run = published(tmp_path, recompute="")
    model, machine = model_of(run), machine_of(run)
    answer, *others = plans_of(run, model).plans
    full = others[-1]
    steps = Steps(model, machine, step_costs(machine))

    ratio = steps.shallow_ns(full) / steps.shallow_ns(answer)

    assert ratio == pytest.approx(steps.of(full).step_ns / steps.of(answer).step_ns, rel=0.05)


def test_a_batch_of_so_many_microbatches(tmp_path: Path) -> None:
    run = published(tmp_path)
    plan = plans_of(run, model_of(run)).plans[0]

    assert with_microbatches(plan, 7).num_microbatches == 7
