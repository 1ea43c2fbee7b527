"""Experts loaded unevenly: even ones give the estimate, others what a loaded rank takes."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from foretrace.api import estimate
from foretrace.balance import ExpertLoad, ExpertPlacement
from foretrace.base import WorkloadError
from foretrace.cost import step_costs
from foretrace.estimate import estimate as estimated
from foretrace.estimate import expert_mixes, loaded_plan, uneven_step
from foretrace.machine import load_machine
from foretrace.risk import Sampling, estimated_steps, variation_named
from foretrace.workload import Plan, Transformer, load_model

MACHINE = load_machine("dgx-h100")
COSTS = step_costs(MACHINE)
MODEL = cast("Transformer", load_model("mixtral-8x7b"))
PLANS = [
    Plan(data=4, expert=4, global_batch=8, sequence=2048),
    Plan(data=4, expert=4, pipeline=2, global_batch=16, sequence=2048, sequence_parallel=False),
]
PLAN = PLANS[0]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("load", [1.0, 2.0, 4.0])
def test_layers_loaded_alike_give_the_estimate_of_that_load(plan: Plan, load: float) -> None:
    step = uneven_step(MODEL, plan, MACHINE, costs=COSTS, has_experts=True)
    even = np.ones((1, step.num_replicas, step.num_microbatches))
    experts = step.follows.experts
    assert experts is not None
    loads = np.full((1, step.num_microbatches, len(experts.layers)), load)

    found = float(step.step_ns(even, even, loads)[0])

    expected = estimated(MODEL, loaded_plan(plan, MODEL, load), MACHINE, costs=COSTS).step_ns
    assert len(experts.layers) == 32
    assert found == pytest.approx(expected, rel=0 if load == 1 else 0.02)


def test_one_loaded_layer_costs_its_part() -> None:
    step = uneven_step(MODEL, PLAN, MACHINE, costs=COSTS, has_experts=True)
    even = np.ones((3, step.num_replicas, step.num_microbatches))
    loads = np.ones((3, step.num_microbatches, 32))
    loads[1, :, 7], loads[2] = 2.0, 2.0

    plain, one, all_of_them = step.step_ns(even, even, loads)

    assert one - plain == pytest.approx((all_of_them - plain) / 32, rel=0.1)


def test_capacity_and_replicas_shorten_the_step_and_are_told() -> None:
    load = ExpertLoad("power:0", exponent=0.0)
    placements = [ExpertPlacement(), ExpertPlacement(4)]

    order, copied = expert_mixes(
        MODEL, PLAN, MACHINE, load=load, placements=placements, costs=COSTS, num_steps=16
    )
    (dropping,) = expert_mixes(
        MODEL, PLAN, MACHINE, load=replace(load, capacity=1.0), placements=placements[:1],
        costs=COSTS, num_steps=16,
    )  # fmt: skip

    assert order.even_ns < copied.mean_ns < order.mean_ns <= order.p95_ns
    assert order.dropped == 0 < dropping.dropped
    assert dropping.mean_ns < order.mean_ns
    assert order.imbalance <= order.worst_imbalance


def test_an_estimate_has_the_mean_load_and_tells_its_steps() -> None:
    keys = {"dp": 4, "ep": 4, "global_batch": 8, "batch.sequence": 2048}

    even, loaded = (estimate(MODEL, keys, MACHINE, expert_load=one) for one in ("even", "power:0"))

    assert even.experts == ()
    assert even.plan.token_shares is None
    assert [one.placement for one in loaded.experts] == [
        "in order", "balanced", "balanced, 4 replicas",
    ]  # fmt: skip
    first = loaded.experts[0]
    assert first.even_ns == even.step_ns
    assert loaded.step_ns == pytest.approx(first.mean_ns, rel=0.02)
    assert loaded.as_json()["expert_load"][0]["imbalance"] == first.imbalance
    assert "experts" in {table.key for table in loaded.tables()}
    assert any("fullest rank" in note for note in loaded.notes)


def test_sampled_steps_draw_loads() -> None:
    load = ExpertLoad("power:0", exponent=0.0)

    def sampled(one: ExpertLoad | None) -> float:
        return estimated_steps(
            MODEL, PLAN, MACHINE, variation=variation_named("none"), costs=COSTS, expert_load=one,
            sampling=Sampling(num_samples=64, has_shares=False),
        ).mean_ns  # fmt: skip

    (mix,) = expert_mixes(
        MODEL, PLAN, MACHINE, load=load, placements=[ExpertPlacement()], costs=COSTS, num_steps=64
    )
    even = sampled(None)
    assert sampled(ExpertLoad("even")) == pytest.approx(even, rel=1e-9)
    assert sampled(load) / even == pytest.approx(mix.mean_ns / mix.even_ns, rel=0.02)


@pytest.mark.parametrize(
    ("model", "plan", "says"),
    [
        (MODEL, replace(PLAN, expert=1), "ep is 1, so that every rank holds all 8"),
        (load_model("llama2-7b"), Plan(data=4, global_batch=8, sequence=2048), "has no experts"),
        (MODEL, replace(PLAN, token_shares=(0.125,) * 8), "token_shares"),
    ],
)
def test_what_has_no_load_of_experts_is_refused(model: Transformer, plan: Plan, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        estimate(model, plan, MACHINE, expert_load="power:1.2", costs=COSTS)
