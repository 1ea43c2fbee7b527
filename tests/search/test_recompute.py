"""What each layer computes again: within a budget, never slower than the same for all layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.estimate import estimate, software_costs
from foretrace.graph import Phase
from foretrace.machine import load_machine
from foretrace.search import chosen_recompute
from foretrace.search.bound import Prices
from foretrace.workload import (
    Exchange,
    Operator,
    Plan,
    PlanMemory,
    Recompute,
    Sharding,
    Transformer,
    blocks_of_model,
    check_plan,
    chunk_layers,
    footprint,
    plan_of_layer,
    schedule_of,
)
from tests.models import transformer

MACHINE = load_machine("superpod-h100")
COSTS = software_costs(MACHINE)
CHIP = MACHINE.chip
PLAN = Plan(global_batch=64, sharding=Sharding.ZERO1, data=8)
LONG = replace(PLAN, sequence=4096)
# Ten models, with stages and without, interleaved and in two directions.
CASES: dict[str, Plan] = {
    "llama3-8b": LONG,
    "llama3-70b": replace(LONG, tensor=4, pipeline=4, sequence_parallel=True),
    "llama3-405b": replace(
        LONG, tensor=8, pipeline=8, sequence_parallel=True, schedule="interleaved", num_chunks=2
    ),
    "gpt3-175b": replace(PLAN, tensor=8, pipeline=8),
    "qwen3-32b": replace(LONG, tensor=2, pipeline=4),
    "mixtral-8x7b": replace(LONG, expert=8, pipeline=4),
    "qwen3-235b-a22b": replace(LONG, expert=8, pipeline=8, tensor=2, sequence_parallel=True),
    "deepseek-v3": replace(LONG, expert=8, pipeline=8, schedule="dualpipe", global_batch=128),
    "gpt-oss-120b": replace(LONG, expert=8, pipeline=4),
    "llama4-scout": replace(LONG, expert=8, pipeline=4),
}


def again_ns(model: Transformer, plan: Plan) -> int:
    """What the stage that computes most again does for a microbatch of each of its chunks."""
    prices, schedule = Prices(COSTS), schedule_of(plan)
    by_layer = []
    for one in blocks_of_model(model, plan).layers:
        items = [item for item in one.backward.items if item.phase == Phase.RECOMPUTE]
        own = [prices.operator_ns(i.name, i.signature) for i in items if isinstance(i, Operator)]
        sent = [item for item in items if isinstance(item, Exchange)]
        by_layer.append(sum(own) + prices.exchanges_ns(sent, plan))
    stages = [0] * schedule.num_stages
    for route in schedule.routes:
        rest = iter(by_layer)
        for chunk, size in zip(route, chunk_layers(plan, model.num_layers), strict=True):
            stages[schedule.stage_of_chunk[chunk]] += sum(next(rest) for _ in range(size))
    return max(stages)


@pytest.mark.parametrize("name", CASES)
def test_it_fits_and_is_never_slower_than_the_same_for_all_layers(name: str) -> None:
    model, plan = transformer(name), CASES[name]
    memory = PlanMemory(model, chip=CHIP)
    alike = {kind: replace(plan, recompute=kind) for kind in Recompute}
    peaks = {kind: int(memory.stage_bytes(one).max()) for kind, one in alike.items()}
    most, least = peaks[Recompute.NONE], peaks[Recompute.FULL]
    # Each alone at its own memory, and budgets between, with what nothing limits.
    times = {}
    for kind, peak in peaks.items():
        found = chosen_recompute(model, plan, capacity=peak, costs=COSTS, chip=CHIP)
        assert found is not None
        assert found.peak_bytes <= peak
        assert found.again_ns == again_ns(model, found.plan)
        assert found.again_ns <= again_ns(model, alike[kind])
        times[kind] = found.again_ns
    assert times[Recompute.NONE] == 0
    before = 0
    for share in (0.9, 0.6, 0.3, 0.1):
        capacity = round(least + share * (most - least))
        found = chosen_recompute(model, plan, capacity=capacity, costs=COSTS, chip=CHIP)
        assert found is not None
        check_plan(found.plan, model)
        exact = footprint(model, found.plan, schedule_of(found.plan), chip=CHIP).peak.total
        assert exact == found.peak_bytes <= capacity
        # Less memory never takes less time, up to what the program leaves open.
        assert found.again_ns >= 0.98 * before
        assert found.again_ns <= times[Recompute.FULL] or peaks[Recompute.FULL] > capacity
        before = found.again_ns


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b"])
def test_the_step_is_no_longer_than_with_full_recompute(name: str) -> None:
    model = transformer(name)
    plan = replace(CASES[name], global_batch=16)
    memory = PlanMemory(model, chip=CHIP)
    full = replace(plan, recompute=Recompute.FULL)
    capacity = round(0.5 * memory.stage_bytes(plan).max() + 0.5 * memory.stage_bytes(full).max())
    found = chosen_recompute(model, plan, capacity=capacity, costs=COSTS, chip=CHIP)
    assert found is not None

    chosen, alike = (estimate(model, one, MACHINE) for one in (found.plan, full))

    assert chosen.footprint is not None
    assert chosen.footprint.peak.total <= capacity
    assert chosen.step_ns < alike.step_ns


def test_what_never_fits_is_none() -> None:
    model = transformer("llama3-70b")

    assert chosen_recompute(model, LONG, capacity=2**30, costs=COSTS, chip=CHIP) is None


def test_layers_say_what_they_compute_again() -> None:
    model = transformer("llama3-8b")
    words = ("full", "layernorm+mlp", "none", "selective") * 8
    plan = replace(LONG, recompute_of_layer=words)
    check_plan(plan, model)

    assert plan_of_layer(plan, 0).recompute is Recompute.FULL
    assert plan_of_layer(plan, 1).recompute_modules == ("layernorm", "mlp")
    assert plan_of_layer(plan, 2).recompute is Recompute.NONE
    for wrong, told in (
        (("full",), "layers of .memory. has 1 words"),
        (("full", "half", *["none"] * 30), "layer 1 is to compute 'half' again"),
    ):
        with pytest.raises(WorkloadError, match=told):
            check_plan(replace(plan, recompute_of_layer=wrong), model)


def test_all_layers_told_alike_are_as_if_told_once() -> None:
    model = transformer("llama3-8b")
    for kind in Recompute:
        once = replace(LONG, recompute=kind)
        each = replace(LONG, recompute_of_layer=(kind.value,) * model.num_layers)
        assert (
            footprint(model, once, schedule_of(once)).stages
            == footprint(model, each, schedule_of(each)).stages
        )
