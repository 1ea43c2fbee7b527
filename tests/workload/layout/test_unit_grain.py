"""Where nothing but work takes time, a step of units is the step of their kernels to the ns."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph import verify
from foretrace.simulate import simulate
from foretrace.workload import (
    AT_ONCE,
    Group,
    Launch,
    ModelBlocks,
    Overlap,
    ParameterCount,
    Plan,
    Sharding,
    layout,
    unit_layout,
)
from tests.workload.layout.parts import (
    durations,
    layer,
    model,
    no_update,
    step_ns,
    whole_model,
)

SUMS = layer(100, 130, 70, groups=(Group.TENSOR,), parameters=ParameterCount(dense=300))
SLOW = Launch(forward_ns=90, backward_ns=110, optimizer_ns=5, exchange_ns=40)
PIPED = Plan(pipeline=4, global_batch=8, schedule="1f1b")


def both_ns(blocks: ModelBlocks, plan: Plan, launch: Launch = AT_ONCE) -> tuple[int, int]:
    """A step at unit grain and kernel by kernel, whose exchanges take 7 ns and more."""
    kernels = layout(blocks, plan, launch=launch, optimizer=no_update).graph
    grains = unit_layout(blocks, plan, launch=launch, optimizer=no_update)
    fragments = grains.fragments
    known_ns = durations(fragments.graph)
    lengths_ns = fragments.lengths_ns(simulate(fragments.graph, fragments.at_once(known_ns)))
    late = simulate(fragments.graph, fragments.held_up(known_ns))
    graph = grains.step(lengths_ns, fragments.leads_ns(late, lengths_ns)).laid_out.graph
    verify(graph)
    return (
        step_ns(simulate(graph, durations(graph))),
        step_ns(simulate(kernels, durations(kernels))),
    )


@pytest.mark.parametrize(
    "plan",
    [
        PIPED,
        Plan(global_batch=4, data=2),
        Plan(pipeline=4, global_batch=8, schedule="gpipe"),
        Plan(pipeline=2, global_batch=8, schedule="interleaved", num_chunks=4),
        Plan(pipeline=4, global_batch=8, schedule="zb-h1"),
        Plan(pipeline=4, global_batch=16, schedule="1f1b", data=2, bucket_bytes=2000),
        Plan(global_batch=16, data=4, sharding=Sharding.ZERO1, bucket_bytes=2000),
        Plan(global_batch=16, data=4, sharding=Sharding.ZERO2, bucket_bytes=2000),
        Plan(global_batch=16, data=4, sharding=Sharding.ZERO3),
        Plan(global_batch=16, data=4, sharding=Sharding.ZERO3, overlap=Overlap(parameters=False)),
    ],
)
def test_both_grains_take_the_same_time(plan: Plan) -> None:
    units_ns, kernels_ns = both_ns(model(8, SUMS), plan)

    assert units_ns == kernels_ns


def test_stages_that_differ_keep_their_differences() -> None:
    units_ns, kernels_ns = both_ns(whole_model(6, SUMS), PIPED)

    assert units_ns == kernels_ns


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_host_that_is_slower_than_the_device_holds_units_up(schedule: str) -> None:
    plan = Plan(pipeline=2, global_batch=8, schedule=schedule)
    units_ns, kernels_ns = both_ns(model(8, SUMS), plan, SLOW)
    alone_ns, _ = both_ns(model(8, SUMS), plan)

    assert units_ns == pytest.approx(kernels_ns, rel=0.01)
    assert units_ns > 1.1 * alone_ns


def test_segments_of_a_fragment_tile_it() -> None:
    plan = Plan(global_batch=4, data=2, sharding=Sharding.ZERO3)
    blocks = model(4, layer(parameters=ParameterCount(dense=300)))
    fragments = unit_layout(blocks, plan, launch=AT_ONCE, optimizer=no_update).fragments

    lengths_ns = fragments.lengths_ns(simulate(fragments.graph))

    # One per layer and pass, between the gathers of their parameters.
    assert lengths_ns.tolist() == [100] * 4 + [200] * 4
    assert np.flatnonzero(fragments.is_first).tolist() == [0, 4]
