"""No simulation of a plan's step is below its bounds, unit by unit or kernel by kernel."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.analyze import windows
from foretrace.base import WorkloadError
from foretrace.cost import CostModel, Inflation, Remembered
from foretrace.estimate import run_units, simulated_step, software_costs, unit_programs
from foretrace.machine import load_machine
from foretrace.search import MORE_VARIABLES, SpaceLimits, StepBound, plan_space
from foretrace.search.space import columns_of
from foretrace.workload import (
    Adapters,
    ContextExchange,
    Implementation,
    Overlap,
    Plan,
    PlanDraft,
    Precision,
    Recompute,
    Sharding,
    Transformer,
    blocks_of_model,
    check_plan,
    layout,
    unit_layout,
)
from tests.models import transformer
from tests.workload.footprint.test_many_plans import legal_plans

_MOST_LAYERS = 500  # times microbatches: what is simulated kernel by kernel
_MOST_UNITS = 400
_MOST_STAGES = 9
_ENOUGH = 4  # values of a variable


def small_plans(model: Transformer, choice: random.Random, count: int) -> list[Plan]:
    """Legal plans whose steps are simulated in a moment."""
    found: list[Plan] = []
    for plan in legal_plans(model, choice):
        simple = replace(
            plan,
            shard_ranks=None,
            precision=Precision(),
            implementation=Implementation(),
            context_exchange=ContextExchange.ALL_GATHER,
        )
        num_units = simple.num_microbatches * simple.pipeline * simple.num_chunks
        is_small = simple.num_microbatches * model.num_layers < _MOST_LAYERS
        if num_units < _MOST_UNITS and is_small:
            found.append(simple)
        if len(found) == count:
            return found
    raise AssertionError


@pytest.mark.parametrize(
    ("name", "machine", "count"),
    [
        ("llama3.2-1b", "llama3-24k", 6),
        ("gpt2", "perlmutter-gpu", 6),
        ("mixtral-8x7b", "llama3-24k", 4),
        ("llama3-8b", "perlmutter-gpu", 4),
        ("gpt3-6.7b", "llama3-24k", 4),
    ],
)
def test_steps_are_never_below_their_bounds(name: str, machine: str, count: int) -> None:
    model = transformer(name)
    costs = software_costs(load_machine(machine))
    bound = StepBound(model, costs, Inflation())
    for plan in small_plans(model, random.Random(f"{name} {machine}"), count):
        blocks = blocks_of_model(model, plan)
        units_ns = run_units(unit_layout(blocks, plan), costs, Inflation()).step_ns
        kernels = simulated_step(layout(blocks, plan).graph, costs, Inflation()).timeline

        lowest = min(units_ns, int(windows(kernels).duration_ns[0]))
        quick_ns, run_ns = bound.quick_ns(plan), bound.run_ns(plan)

        assert max(quick_ns, run_ns) <= lowest, plan
        assert run_ns > lowest / 4, plan


@pytest.mark.parametrize("vary", MORE_VARIABLES)
def test_steps_with_other_variables_are_never_below_their_bounds(vary: str) -> None:
    model = transformer("mixtral-8x7b" if vary == "experts" else "llama3.2-1b")
    costs = Remembered(software_costs(load_machine("llama3-24k")))
    bound = StepBound(model, costs, Inflation())
    keys = {"global_batch": 32, "batch.sequence": 2048, "recompute": "none", "micro_batch": 1}
    draft = PlanDraft().with_keys({**keys, "tp": 2})
    plans = list(plan_space(draft, SpaceLimits.of(model), 32, vary=(vary,)).plans())
    random.Random(vary).shuffle(plans)
    seen: set[object] = set()
    num_steps = 0

    for plan in plans:
        if columns_of(plan)[vary] in seen or not 1 < plan.pipeline < _MOST_STAGES:
            continue
        try:
            check_plan(plan, model)
        except WorkloadError:
            continue
        seen.add(columns_of(plan)[vary])
        layout = unit_layout(blocks_of_model(model, plan), plan)
        step_ns = run_units(layout, costs, Inflation()).step_ns
        num_steps += 1

        assert max(bound.quick_ns(plan), bound.run_ns(plan)) <= step_ns, plan
        if num_steps == _ENOUGH:
            break

    assert num_steps > 1


def test_steps_that_train_adapters_alone_are_never_below_their_bounds() -> None:
    model = transformer("llama3.2-1b")
    costs = Remembered(software_costs(load_machine("llama3-24k")))
    bound = StepBound(model, costs, Inflation())
    num_steps = 0
    for plan in small_plans(model, random.Random("adapters"), 12):
        adapted = replace(plan, adapters=Adapters(rank=16))
        if adapted.sharding is Sharding.ZERO3:
            continue
        check_plan(adapted, model)
        step_ns = units_ns(model, adapted, costs)
        num_steps += 1

        assert max(bound.quick_ns(adapted), bound.run_ns(adapted)) <= step_ns, adapted

    assert num_steps > 1


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_parameters_that_stay_gathered_are_bound_as_those_that_do_not(schedule: str) -> None:
    model = transformer("gpt2")
    plan = Plan(context=2, data=2, pipeline=4, micro_batch=2, global_batch=32, sequence=1024)
    plan = replace(plan, schedule=schedule, sharding=Sharding.ZERO3, reshard_after_forward=False)
    costs = Remembered(software_costs(load_machine("perlmutter-gpu")))
    bound, step_ns = StepBound(model, costs, Inflation()), units_ns(model, plan, costs)

    assert 0.8 * step_ns < bound.run_ns(plan) <= step_ns
    assert bound.quick_ns(plan) <= step_ns


def test_reductions_beside_a_host_that_is_behind_are_bound() -> None:
    model = transformer("llama3.2-1b")
    plan = Plan(tensor=2, context=2, data=3, global_batch=48, sequence=1024, sequence_parallel=True)
    plan = replace(plan, sharding=Sharding.ZERO1, recompute=Recompute.SELECTIVE)
    costs = Remembered(software_costs(load_machine("llama3-24k")))

    bound = StepBound(model, costs, Inflation()).run_ns(plan)

    step_ns = units_ns(model, plan, costs)
    assert 0.95 * step_ns < bound <= step_ns


@pytest.mark.parametrize(
    "plan",
    [
        Plan(global_batch=32, tensor=4, context=2, pipeline=4, expert=2, schedule="gpipe"),
        Plan(global_batch=24, pipeline=3, data=4, expert=4, schedule="interleaved", num_chunks=2),
        Plan(global_batch=32, tensor=4, data=4, pipeline=4, expert=4, schedule="1f1b"),
        Plan(global_batch=32, data=2, context=4, expert=8),
        Plan(global_batch=64, tensor=8, data=8, expert=8),
        Plan(global_batch=128, data=8, pipeline=4, expert=8, schedule="dualpipe"),
    ],
)
def test_exchanges_of_experts_beside_other_work_are_never_bound_too_high(plan: Plan) -> None:
    model = replace(transformer("mixtral-8x7b"), num_layers=8)
    plan = replace(plan, sequence=2048, micro_batch=2, overlap=Overlap(expert=True))
    costs = Remembered(software_costs(load_machine("llama3-24k")))
    bound, step_ns = StepBound(model, costs, Inflation()), units_ns(model, plan, costs)

    assert bound.quick_ns(plan) <= step_ns
    assert bound.run_ns(plan) <= step_ns


def test_exchanges_of_experts_between_hosts_are_bound_though_they_are_hidden() -> None:
    model = replace(transformer("mixtral-8x7b"), num_layers=4)
    plan = Plan(global_batch=256, tensor=8, data=32, expert=8, sequence=2048, micro_batch=2)
    plan = replace(plan, overlap=Overlap(expert=True))
    costs = Remembered(software_costs(load_machine("llama3-24k")))
    bound, step_ns = StepBound(model, costs, Inflation()), units_ns(model, plan, costs)

    assert 0.6 * step_ns < bound.run_ns(plan) <= step_ns


def units_ns(model: Transformer, plan: Plan, costs: CostModel) -> int:
    """A step at unit grain."""
    return unit_programs(model, costs, Inflation()).step_ns(plan)


def test_a_bound_of_a_pipeline_that_is_all_work_is_near_its_step() -> None:
    model = transformer("llama3-8b")
    costs = software_costs(load_machine("llama3-24k"))
    plan = Plan(tensor=2, pipeline=4, global_batch=16, sequence=4096, sequence_parallel=True)
    step_ns = run_units(unit_layout(blocks_of_model(model, plan), plan), costs, Inflation()).step_ns

    bound_ns = StepBound(model, costs, Inflation()).run_ns(plan)

    assert 0.95 * step_ns < bound_ns <= step_ns


def test_a_written_order_is_never_below_its_bounds_wherever_its_chunks_lie(tmp_path: Path) -> None:
    model = transformer("llama3.2-1b")
    costs = software_costs(load_machine("llama3-24k"))
    bound = StepBound(model, costs, Inflation())
    first = [word.format(m) for m in range(4) for word in ("0F{0}", "3F{0}", "3B{0}", "0B{0}")]
    last = [word.format(m) for m in range(4) for word in ("1F{0}", "2F{0}", "2B{0}", "1B{0}")]
    written = tmp_path / "v.csv"
    written.write_text(f"{','.join(first)}\n{','.join(last)}\n")
    plan = Plan(
        pipeline=2, num_chunks=2, global_batch=4, sequence=4096, micro_batch=1,
        schedule=str(written),
    )  # fmt: skip
    step_ns = run_units(unit_layout(blocks_of_model(model, plan), plan), costs, Inflation()).step_ns

    assert step_ns / 10 < bound.quick_ns(plan) <= step_ns
    assert bound.run_ns(plan) == bound.quick_ns(plan)
