from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from foretrace.graph import Collectives, ExecutionGraph, verify
from foretrace.simulate import simulate
from foretrace.validate import duration_mix
from tests.validate.strategies import training_graph, training_graphs


def test_mix_of_a_device_bound_step() -> None:
    graph = training_graph([{0: [40, 50], 1: [80, 60]}])

    mix = duration_mix(simulate(graph), [0])

    # both ranks end with rank 1's kernels: host 7, lag 3, kernels 140, transfer 7
    assert mix.recorded_host == pytest.approx(7 / 157)
    assert mix.constant == pytest.approx(3 / 157)
    assert mix.recorded_device == pytest.approx(140 / 157)
    assert mix.split == pytest.approx(7 / 157)
    assert mix.estimated == 0


def test_transfer_with_a_missing_rank_counts_as_estimated() -> None:
    graph = training_graph([{0: [40, 50]}])
    estimated = tuple(replace(each, is_transfer_estimated=True) for each in graph.collectives)

    mix = duration_mix(simulate(replace(graph, collectives=Collectives.of(estimated))), [0])

    assert mix.estimated == pytest.approx(7 / 107)
    assert mix.split == 0


@given(graph=training_graphs())
def test_shares_sum_to_one(graph: ExecutionGraph) -> None:
    mix = duration_mix(simulate(graph), range(len(graph.step_names)))

    shares = vars(mix).values()
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0


@given(graph=training_graphs())
def test_graphs_of_these_tests_are_legal(graph: ExecutionGraph) -> None:
    verify(graph)
