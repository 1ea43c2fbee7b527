"""The sampling engine: the longest path of drawn durations, sample by sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import SimulationError
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import (
    FIXED,
    Draws,
    quantile_table,
    sampled_duration_ns,
    simulate,
    simulate_samples,
)
from tests.graphs import GraphBuilder
from tests.oracles import sampling as oracle
from tests.simulate.strategies import graphs

# Hashes wrap around, of which numpy warns where nothing is compiled.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def draws_of(graph: ExecutionGraph, *, num_samples: int, seed: int, varies: bool) -> Draws:
    """Every other node drawn, factors of three labels."""
    node = np.arange(graph.num_nodes)
    generator = np.random.default_rng(seed)
    return Draws(
        duration_ns=graph.measured_ns.astype(np.float64),
        make=np.where((node % 2 == 0) & varies, node // 2 % 2, FIXED).astype(np.int32),
        draw=node // 3,
        table=np.stack([
            quantile_table(lambda share: 0.5 + share, 1.0),
            quantile_table(lambda share: -np.log1p(-share), 1.0),
        ]),
        label=(node % 3).astype(np.int32),
        factor=generator.uniform(0.5, 2, (num_samples, 3)) if varies else np.ones((num_samples, 3)),
        seed=seed,
    )  # fmt: skip


@given(graphs(max_nodes=14), st.sampled_from((1, 8, 11)), st.integers(0, 2**20))
def test_every_sample_is_the_longest_path_of_its_durations(
    graph: ExecutionGraph, num_samples: int, seed: int
) -> None:
    draws = draws_of(graph, num_samples=num_samples, seed=seed, varies=True)
    goal = (np.arange(graph.num_nodes) % 2).astype(np.int32)

    found = simulate_samples(graph, draws, goal)

    for sample in range(num_samples):
        ends = oracle.ends(graph, draws, sample)
        for target in range(found.shape[1]):
            latest = max(ends[node] for node in range(graph.num_nodes) if goal[node] == target)
            assert found[sample, target] == pytest.approx(latest, rel=1e-9)


@given(graphs(max_nodes=14), st.integers(0, 2**20))
def test_one_sample_can_be_made_again_alone(graph: ExecutionGraph, seed: int) -> None:
    draws = draws_of(graph, num_samples=9, seed=seed, varies=True)

    found = sampled_duration_ns(draws, 8)

    expected = [oracle.duration(draws, node, 8) for node in range(graph.num_nodes)]
    assert found.tolist() == pytest.approx(expected, rel=1e-9)


@given(graphs(max_nodes=30))
def test_nothing_that_varies_is_the_replay_to_the_nanosecond(graph: ExecutionGraph) -> None:
    draws = draws_of(graph, num_samples=9, seed=1, varies=False)

    found = simulate_samples(graph, draws, np.arange(graph.num_nodes, dtype=np.int32))

    assert (found == simulate(graph).end_ns).all()


def test_results_do_not_depend_on_threads() -> None:
    build = GraphBuilder()
    for node in range(40):
        build.add(NodeKind.KERNEL, takes_ns=100 + node, after=[node - 1] if node % 5 else [])
    graph = build.graph()
    draws = draws_of(graph, num_samples=100, seed=4, varies=True)
    goal = np.zeros(graph.num_nodes, np.int32)

    alone, shared = (simulate_samples(graph, draws, goal, workers=each) for each in (1, 3))

    assert (alone == shared).all()


def test_columns_that_do_not_fit_are_refused() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, takes_ns=1)
    graph = build.graph()
    draws = draws_of(graph, num_samples=2, seed=0, varies=True)
    goal = np.zeros(1, np.int32)
    wrong: dict[str, dict[str, Any]] = {
        "make must be": {"make": draws.make.astype(np.int64)},
        "make runs from": {"make": np.array([7], np.int32)},
        "label runs from": {"label": np.array([9], np.int32)},
        "table must be": {"table": draws.table[:, :5]},
        "factors must be": {"factor": -draws.factor},
    }

    for message, change in wrong.items():
        with pytest.raises(SimulationError, match=message):
            simulate_samples(graph, replace(draws, **change), goal)
    with pytest.raises(SimulationError, match="goal must be"):
        simulate_samples(graph, draws, goal.astype(np.int64))
    with pytest.raises(SimulationError, match="negative duration"):
        simulate_samples(graph, replace(draws, duration_ns=np.array([-1.0])), goal)
