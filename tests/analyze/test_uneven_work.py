"""Longer documents and slower hardware are told apart, in jobs in which both are planted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import foretrace as ft
from foretrace.analyze import Stragglers, stragglers
from foretrace.graph import ExecutionGraph, Timeline, operator_classes
from foretrace.operators import OperatorClass
from foretrace.simulate import simulate
from tests.truth import JobConfig, make_job, write


@cache
def recorded(slow_ranks: tuple[tuple[int, float], ...] = ()) -> ExecutionGraph:
    config = JobConfig(tp=1, dp=4, num_layers=2, num_steps=4, slow_ranks=slow_ranks)
    with TemporaryDirectory() as folder:
        write(make_job(config), Path(folder))
        return ft.load(folder, cache=False).recording.graph


def with_documents(graph: ExecutionGraph, longer: dict[int, float]) -> Timeline:
    """The job whose ranks' attention takes so many times as long, each step another time."""
    row, names = operator_classes(graph, np.arange(graph.num_nodes))
    is_attention = (
        graph.is_device & np.array([one == OperatorClass.ATTENTION for one in names])[row]
    )
    duration_ns = graph.measured_ns.astype(np.float64)
    for rank, factor in longer.items():
        chosen = is_attention & (graph.rank == rank)
        by_step = 1 + (factor - 1) * (1 + 0.3 * np.sin(graph.step[chosen]))
        duration_ns[chosen] *= by_step
    return simulate(graph, np.rint(duration_ns).astype(np.int64))


def told(found: Stragglers) -> dict[int, tuple[float, float]]:
    """Share of documents, and slowness, by rank."""
    return {
        one.rank: (one.work_ns / (one.work_ns + one.hardware_ns), one.slowness)
        for one in found.work
    }


def test_a_slow_chip_is_hardware() -> None:
    share, slowness = told(stragglers(simulate(recorded(((2, 1.3),)))))[2]

    assert share < 0.05
    assert slowness == pytest.approx(1.3, abs=0.03)


def test_longer_documents_are_work() -> None:
    found = stragglers(with_documents(recorded(), {1: 4.0}))
    share, slowness = told(found)[1]

    assert share > 0.95
    assert slowness == pytest.approx(1.0, abs=0.02)
    assert found.work[0].work > 1.05
    assert any("longer documents" in one for one in found.sentences())


def test_both_on_one_rank_are_split() -> None:
    graph = recorded(((3, 1.2),))
    alone = stragglers(simulate(graph)).work[0]
    both = stragglers(with_documents(graph, {3: 4.0})).work[0]

    assert (alone.rank, both.rank) == (3, 3)
    assert both.slowness == pytest.approx(1.2, abs=0.03)
    assert both.hardware_ns > 0.8 * alone.hardware_ns
    assert both.work_ns > 5 * alone.work_ns


def test_each_of_two_ranks_has_its_own_reason() -> None:
    found = told(stragglers(with_documents(recorded(((0, 1.25),)), {2: 8.0})))

    assert found[0][0] < 0.1
    assert found[2][0] > 0.9


def test_nothing_is_told_without_shapes() -> None:
    graph = recorded(((2, 1.3),))
    bare = replace(graph, operator_signature=np.full_like(graph.operator_signature, -1))

    assert stragglers(simulate(bare)).work == ()


def test_a_rank_that_is_slow_in_some_steps_and_fast_in_others_is_neither() -> None:
    """As on cores that others use too."""
    graph = recorded()
    duration_ns = graph.measured_ns.astype(np.float64)
    chosen = graph.is_device & (graph.rank == 1)
    duration_ns[chosen] *= np.array([1.6, 0.7, 1.5, 0.8])[graph.step[chosen]]
    found = stragglers(simulate(graph, np.rint(duration_ns).astype(np.int64)))

    assert found.waiting_ns.sum() > 0
    assert found.work == ()
