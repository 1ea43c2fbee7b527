"""Placement: a slow GPU costs what the stage that all wait for makes of it."""

from __future__ import annotations

import pytest

from foretrace.analyze import windows
from foretrace.base import RiskError
from foretrace.graph import NodeKind
from foretrace.risk import (
    NO_VARIATION,
    SampledCell,
    cell_of,
    estimated_placement,
    recorded_placement,
    variation_named,
)
from foretrace.simulate import simulate
from tests.risk.steps.jobs import recorded
from tests.risk.steps.plans import MACHINE, plan_of, small_model


def cell() -> SampledCell:
    model = small_model(4)
    return cell_of(model, plan_of(model, tp=2, pp=2, dp=4, global_batch=32), MACHINE)


def test_the_stage_with_the_output_projection_is_the_worst_place() -> None:
    found = estimated_placement(cell(), slowdown=0.2, variation=NO_VARIATION)

    assert [row.place for row in found.rows] == ["stage 0", "stage 1"]
    assert found.rows[0].cost < found.rows[1].cost < 0.2
    assert found.spread > 0.01


def test_without_variation_a_place_costs_what_slow_kernels_alone_cost() -> None:
    one = cell()

    found = estimated_placement(one, slowdown=0.2, variation=NO_VARIATION, num_samples=8)

    for row in found.rows:
        duration_ns = one.duration_ns.copy()
        slow = (one.graph.rank == row.ranks[0]) & (one.graph.kind == NodeKind.KERNEL)
        duration_ns[slow] *= 1.2
        alone = windows(simulate(one.graph, duration_ns.round().astype("int64"))).duration_ns[0]
        assert row.mean_ns == pytest.approx(alone, rel=1e-6)


def test_a_slow_host_costs_at_least_what_a_slow_gpu_of_it_does() -> None:
    noise = variation_named("prism-low")

    gpu, host = (
        estimated_placement(cell(), slowdown=0.2, variation=noise, gpus_per_host=each)
        for each in (None, 2)
    )

    assert host.unit == "host"
    for row in host.rows:
        alone = next(one for one in gpu.rows if one.ranks[0] in row.ranks)
        assert row.mean_ns >= alone.mean_ns


def test_slowing_a_recorded_rank_delays_all_that_wait_for_it() -> None:
    graph = recorded(ranks=3, steps=2)

    found = recorded_placement(graph, slowdown=0.5)

    kernels = 3 * 1_400_000
    for row in found.rows:
        assert row.mean_ns - found.mean_ns == pytest.approx(0.5 * kernels, rel=1e-6)


def test_a_slowdown_to_nothing_is_refused() -> None:
    with pytest.raises(RiskError, match="more than -1"):
        recorded_placement(recorded(steps=1), slowdown=-1)
