"""A step with one node per unit takes what the same step takes kernel by kernel."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import spearmanr

from foretrace.analyze import windows
from foretrace.cost import Inflation, Remembered, step_costs
from foretrace.estimate import UnitRun, run_units, simulated_step, unit_programs, unit_step
from foretrace.graph import NodeKind, verify
from foretrace.machine import load_machine
from foretrace.workload import (
    Channels,
    ContextExchange,
    Overlap,
    Plan,
    Recompute,
    Sharding,
    Transformer,
    blocks_of_model,
    layout,
    load_model,
    unit_layout,
)

MACHINE = load_machine("llama3-24k")
COSTS = step_costs(MACHINE)
BASE = Plan(global_batch=32, sequence=1024)
PIPED = replace(BASE, pipeline=4, tensor=2, schedule="1f1b")
AT_ONCE_ALL = Overlap(gradients=False, parameters=False, pipeline=False)
DENSE = [
    PIPED,
    replace(PIPED, schedule="gpipe", sequence_parallel=True),
    replace(PIPED, schedule="interleaved", num_chunks=2, data=2, sharding=Sharding.ZERO2),
    replace(PIPED, schedule="zb-h1", data=2),
    replace(PIPED, schedule="dualpipe", data=2, sharding=Sharding.ZERO1),
    replace(PIPED, data=2, sharding=Sharding.ZERO3),
    replace(PIPED, data=2, sharding=Sharding.ZERO1, overlap=AT_ONCE_ALL),
    replace(BASE, data=4),
    replace(BASE, data=4, sharding=Sharding.ZERO2, overlap=AT_ONCE_ALL),
    replace(BASE, data=8, sharding=Sharding.ZERO3, sequence=4096),
    replace(BASE, context=4, data=2, tensor=2, sequence=8192),
    replace(BASE, context=2, data=2, sequence=8192, sharding=Sharding.ZERO3),
    replace(BASE, sequence=128, data=4),
]
WITH_EXPERTS = [
    replace(BASE, data=8, expert=4, sharding=Sharding.ZERO1),
    replace(BASE, data=4, expert=4, pipeline=4, schedule="dualpipe"),
]
ODD = [
    *(replace(plan, bucket_bytes=100_000_000, micro_batch=2) for plan in DENSE[:10]),
    *(replace(plan, overlap=AT_ONCE_ALL) for plan in DENSE[:6]),
    replace(DENSE[5], reshard_after_forward=False),
    replace(DENSE[9], prefetch=3),
]
IN_CHANNELS = replace(PIPED, channels=Channels(tensor=12, pipeline=2, data=4))
WOVEN = [replace(plan, overlap=Overlap(expert=True)) for plan in WITH_EXPERTS]


def transformer(name: str) -> Transformer:
    """A published model cut to eight layers."""
    model = load_model(name)
    assert isinstance(model, Transformer)
    return replace(model, num_layers=8)


def both(model: Transformer, plan: Plan) -> tuple[int, UnitRun]:
    """A step kernel by kernel, in ns, and at unit grain."""
    kernels = simulated_step(layout(blocks_of_model(model, plan), plan).graph, COSTS, Inflation())
    return int(windows(kernels.timeline).duration_ns[0]), unit_step(model, plan, MACHINE)


def test_steps_of_both_grains_agree_and_rank_plans_alike() -> None:
    dense, experts = transformer("llama3-8b"), transformer("mixtral-8x7b")
    found = [both(dense, plan) for plan in DENSE]
    found += [both(experts, plan) for plan in WITH_EXPERTS]
    kernels, units = np.array([(kernel_ns, unit.step_ns) for kernel_ns, unit in found]).T
    error = np.abs(units / kernels - 1)

    assert error.mean() < 0.002
    assert error.max() < 0.01
    assert spearmanr(kernels, units).statistic >= 0.999


@pytest.mark.parametrize(
    ("model", "plans"),
    [
        (transformer("llama3-8b"), [*DENSE, *ODD, PIPED, IN_CHANNELS]),
        (transformer("mixtral-8x7b"), [*WITH_EXPERTS, *WOVEN]),
        (transformer("llama3.2-1b"), [PIPED, DENSE[4], BASE]),  # with a tied table
        (replace(transformer("llama3-8b"), num_layers=1), DENSE[:5]),  # and stages without layers
    ],
)
@pytest.mark.parametrize("inflation", [Inflation(), None])
def test_programs_take_to_the_nanosecond_what_graphs_of_units_take(
    model: Transformer, plans: list[Plan], inflation: Inflation | None
) -> None:
    costs = Remembered(COSTS)
    programs = unit_programs(model, costs, inflation)
    plans = plans if inflation else plans[:2]

    found = [programs.step_ns(plan) for plan in plans]

    graphs = [unit_layout(blocks_of_model(model, plan), plan) for plan in plans]
    assert found == [run_units(graph, costs, inflation).step_ns for graph in graphs]


def test_what_is_timed_first_changes_no_step() -> None:
    """Keys of a ring are passed on before recomputed attention; nothing holds the first up."""
    model, costs = transformer("llama3-8b"), Remembered(COSTS)
    exchange, recompute = ContextExchange.RING, Recompute.SELECTIVE
    base = replace(BASE, sequence=8192, micro_batch=4, pipeline=2, context=8, recompute=recompute)
    base = replace(base, context_exchange=exchange, schedule="zb-h1")
    plans = [
        replace(one, data=data, sharding=sharding)
        for one in (replace(base, schedule="interleaved", num_chunks=2), base)
        for data, sharding in ((1, Sharding.NONE), (2, Sharding.ZERO1), (2, Sharding.ZERO3))
    ]

    found = unit_programs(model, costs, Inflation())

    steps = [found.step_ns(plan) for plan in plans]
    alone = [unit_programs(model, costs, Inflation()).step_ns(plan) for plan in plans]
    assert steps == alone
    assert both(model, plans[2])[0] == pytest.approx(steps[2], rel=0.01)


@pytest.mark.parametrize("plan", DENSE[:6])
def test_graphs_of_units_obey_the_rules_and_are_small(plan: Plan) -> None:
    model = transformer("llama3-8b")

    found = unit_step(model, plan, MACHINE).laid_out

    verify(found.graph)
    laid_out = layout(blocks_of_model(model, plan), plan)
    assert found.roles == laid_out.roles
    assert 3 * found.graph.num_nodes < laid_out.graph.num_nodes
    assert found.graph.ranks == laid_out.graph.ranks


def test_a_unit_that_nothing_cuts_is_one_node() -> None:
    plan = replace(BASE, pipeline=2, schedule="1f1b", global_batch=4)

    graph = unit_step(transformer("llama3-8b"), plan, MACHINE).laid_out.graph

    # On both stages as many forward and backward passes as microbatches, and the optimizer, which
    # the sum of the gradients' norm cuts in two.
    assert int((graph.kind == NodeKind.KERNEL).sum()) == 2 * (2 * plan.num_microbatches + 2)


def test_steps_grow_with_launch_time_once_the_host_is_slower() -> None:
    model = transformer("gpt2")
    plan = Plan(global_batch=8, sequence=128)
    steps = []
    for way in ("graph", "compiled", "eager"):
        own = replace(plan, implementation=replace(plan.implementation, launch=way))
        steps.append(unit_step(model, own, MACHINE).step_ns)

    assert all(one < other for one, other in pairwise(steps))
