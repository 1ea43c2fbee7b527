"""Passes of parts by themselves take what their kernels take in a graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.cost import Inflation, Remembered, step_costs
from foretrace.estimate import UnitTiming, run_units
from foretrace.graph import NodeKind
from foretrace.machine import load_machine
from foretrace.workload import (
    ContextExchange,
    KernelTimes,
    Pass,
    Plan,
    Recompute,
    RunTimes,
    Tables,
    blocks_of_model,
    load_model,
    unit_layout,
)
from tests.models import transformer

COSTS = Remembered(step_costs(load_machine("llama3-24k")))
BASE = Plan(global_batch=1, sequence=2048)
PLANS = [
    replace(BASE, tensor=4, sequence_parallel=True),
    replace(BASE, context=4, context_exchange=ContextExchange.RING),
    replace(BASE, tensor=2, recompute=Recompute.FULL),
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("inflation", [Inflation(), None])
def test_passes_of_all_parts_take_what_segments_of_a_step_take(
    plan: Plan, inflation: Inflation | None
) -> None:
    model = transformer("llama3-8b")
    blocks = blocks_of_model(replace(model, num_layers=2), plan)
    parts = [one for one in (blocks.embedding, *blocks.layers, blocks.head) if one is not None]
    times = RunTimes(plan, KernelTimes(UnitTiming(COSTS, inflation), Tables()))

    # Ranks of a context reduce gradients, which cuts backward passes.
    kinds = (Pass.FORWARD, Pass.BACKWARD)[: 1 if plan.context > 1 else 2]

    whole = [times.pass_ns(parts, kind) for kind in kinds]

    units = run_units(unit_layout(blocks, plan), COSTS, inflation)
    graph = units.laid_out.graph
    kernels = np.flatnonzero(graph.kind == NodeKind.KERNEL)
    assert units.duration_ns[kernels[: len(kinds)]].tolist() == [one[0] for one in whole]
    assert all(operators_ns <= length_ns for length_ns, operators_ns, _ in whole)
    assert all(host_ns > 0 for *_, host_ns in whole)


def test_the_more_parts_the_longer() -> None:
    plan = PLANS[0]
    blocks = blocks_of_model(load_model("llama3-8b"), plan)
    times = RunTimes(plan, KernelTimes(UnitTiming(COSTS, Inflation()), Tables()))

    found = [times.pass_ns(blocks.layers[:count], Pass.FORWARD) for count in (1, 2, 4, 0)]

    assert found[0] < found[1] < found[2]
    assert found[3] == (0, 0, 0)
