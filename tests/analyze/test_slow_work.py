"""A chip that is slow for a while is told from a few calls that took long."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import foretrace as ft
from foretrace.analyze.slow_work import Compute, SlowKind, SlowWork
from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph
from foretrace.simulate import simulate
from tests.truth import JobConfig, make_job, write


@cache
def recorded() -> ExecutionGraph:
    with TemporaryDirectory() as folder:
        write(make_job(JobConfig(tp=1, dp=1, num_layers=4, num_steps=5)), Path(folder))
        return ft.load(folder, cache=False).recording.graph


def of_second_step(graph: ExecutionGraph) -> Int64s:
    """Its kernels, in time."""
    kernels = np.flatnonzero(graph.is_device & (graph.step == 1))
    start_ns = simulate(graph, graph.measured_ns).start_ns
    return kernels[np.argsort(start_ns[kernels], kind="stable")]


def slow_with(node: Int64s, factor: float) -> SlowWork | None:
    graph = recorded()
    duration_ns = graph.measured_ns.astype(np.float64)
    duration_ns[node] *= factor
    return Compute.of(simulate(graph, np.rint(duration_ns).astype(np.int64))).against_itself(0)


def test_a_stretch_of_slow_kernels_is_a_chip_that_is_slow_for_a_while() -> None:
    kernels = of_second_step(recorded())

    found = slow_with(kernels[len(kernels) // 3 : len(kernels) // 2], 2.0)

    assert found is not None
    assert found.kind is SlowKind.WHILE
    assert 1.5 < found.factor <= 2.1


def test_one_call_that_took_very_long_is_no_slow_chip() -> None:
    graph = recorded()
    kernels = of_second_step(graph)
    short = kernels[np.argsort(graph.measured_ns[kernels])[: len(kernels) // 4]]

    assert slow_with(short[-1:], 1_000.0) is None


def test_no_chip_is_a_hundred_times_slower_for_a_while() -> None:
    kernels = of_second_step(recorded())

    assert slow_with(kernels[len(kernels) // 3 : len(kernels) // 2], 100.0) is None
