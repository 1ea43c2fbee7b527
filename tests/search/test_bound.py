"""No simulation of a plan's step is below its bounds, unit by unit or kernel by kernel."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from foretrace.analyze import windows
from foretrace.cost import Inflation
from foretrace.estimate import run_units, simulated_step, software_costs
from foretrace.machine import load_machine
from foretrace.search import StepBound
from foretrace.workload import (
    ContextExchange,
    Implementation,
    Plan,
    Precision,
    Transformer,
    blocks_of_model,
    layout,
    load_model,
    unit_layout,
)
from tests.workload.footprint.test_many_plans import legal_plans

_MOST_LAYERS = 500  # times microbatches: what is simulated kernel by kernel
_MOST_UNITS = 400


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
    model = load_model(name)
    assert isinstance(model, Transformer)
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


def test_a_bound_of_a_pipeline_that_is_all_work_is_near_its_step() -> None:
    model = load_model("llama3-8b")
    assert isinstance(model, Transformer)
    costs = software_costs(load_machine("llama3-24k"))
    plan = Plan(tensor=2, pipeline=4, global_batch=16, sequence=4096, sequence_parallel=True)
    step_ns = run_units(unit_layout(blocks_of_model(model, plan), plan), costs, Inflation()).step_ns

    bound_ns = StepBound(model, costs, Inflation()).run_ns(plan)

    assert 0.95 * step_ns < bound_ns <= step_ns
