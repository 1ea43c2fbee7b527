"""Recordings of one H200 that differ in one thing at a time: what is said fits all of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.api import Job
from foretrace.base import ScenarioError
from foretrace.graph import NO_STEP, Blocks, Part, Phase

TRACES = Path(__file__).parents[2] / "examples" / "h200" / "traces"


@cache
def job(name: str) -> Job:
    return ft.load(TRACES / name)


def work_ms(blocks: Blocks, phase: Phase) -> float:
    """Of all layers in a step."""
    rows = (blocks.part == Part.LAYER) & (blocks.phase == phase) & (blocks.step != NO_STEP)
    return int(blocks.work_ns[rows].sum()) / 3e6


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD])
def test_a_step_in_a_cuda_graph_has_the_layers_of_the_step_without(phase: Phase) -> None:
    """No autograd is recorded in a graph: names of kernels tell where the backward pass begins."""
    without, inside = ft.blocks(job("base")), ft.blocks(job("graph"))

    assert {*inside.layer.tolist()} == {*without.layer.tolist()} == {-1, *range(8)}
    assert work_ms(inside, phase) == pytest.approx(work_ms(without, phase), rel=0.03)


def test_layers_of_a_graph_are_not_added_as_if_each_were_launched() -> None:
    with pytest.raises(ScenarioError, match="launched as one, as CUDA graphs are"):
        ft.whatif(job("graph").edit(ft.Layers(16)))


def test_what_ran_when_the_recording_began_is_of_no_block_and_nothing_that_lacks() -> None:
    found = job("base")

    assert ft.blocks(found).share_assigned > 0.99
    assert any("launched before the recording began" in one.text for one in found.findings)
    assert found.lacks == ()


@pytest.mark.parametrize("name", ["base", "experts-8", "compiled"])
def test_no_product_is_faster_than_the_chip(name: str) -> None:
    told = ft.throughput(job(name).edit())
    rows = [row for row in ft.operators(job(name)).rows if row.is_product and row.flops_per_ns]

    assert told.mfu is not None
    assert 0.2 < told.mfu < 0.5
    assert max(row.flops_per_ns or 0 for row in rows) < 989e3


def test_more_layers_are_predicted_as_they_were_recorded() -> None:
    """Twice and half of the layers, within 2 % of runs that nobody profiled."""
    for layers, name in ((16, "layers-16"), (4, "layers-4")):
        told = ft.whatif(job("base").edit(ft.Layers(layers)))
        (measured_ns,) = job(name).recording.unprofiled_step_ns.values()

        assert told.step_ns == pytest.approx(measured_ns, rel=0.02)
