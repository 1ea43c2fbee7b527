"""The batched engine: like the static one on every sample, and slopes that are derivatives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import Int32s, SimulationError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.simulate import NO_GOAL, Scaling, passes_at_once, simulate, simulate_batch
from tests.graphs import Edge, GraphBuilder
from tests.oracles import batch as oracle
from tests.simulate.strategies import graphs

NUM_LABELS = 3
# Sums of these times whole numbers are exact in float64, so that ends can be compared exactly.
FACTORS = st.sampled_from((0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0))


@st.composite
def kinded(draw: st.DrawFn) -> ExecutionGraph:
    """A random graph whose edges are of several kinds, with lags below zero too."""
    graph = draw(graphs(max_nodes=14))
    size = graph.num_edges
    kinds = draw(st.lists(st.sampled_from((0, 2, 4)), min_size=size, max_size=size))
    lags = draw(st.lists(st.integers(-20, 30), min_size=size, max_size=size))
    return replace(graph, edge_kind=np.array(kinds, np.uint8), lag_ns=np.array(lags, np.int32))


@st.composite
def scalings(draw: st.DrawFn, graph: ExecutionGraph) -> Scaling:
    """Random factors, removed edges and weights for a few samples, more than one pass of them."""
    num_samples = draw(st.sampled_from((1, 3, 8, 9, 17)))

    def table(columns: int, values: st.SearchStrategy[float]) -> list[list[float]]:
        row = st.lists(values, min_size=columns, max_size=columns)
        few = draw(st.lists(row, min_size=1, max_size=3))
        return [few[sample % len(few)] for sample in range(num_samples)]

    label = st.integers(0, NUM_LABELS - 1)
    kinds = len(EdgeKind)
    labels = draw(st.lists(label, min_size=graph.num_nodes, max_size=graph.num_nodes))
    removed = table(kinds, st.sampled_from((0.0, 0.0, 0.0, 1.0)))
    return Scaling(
        label=np.array(labels, np.int32),
        factor=np.array(table(NUM_LABELS, FACTORS)),
        lag_factor=np.array(table(kinds, FACTORS)),
        is_removed=np.array(removed, np.bool_),
        weight=np.array(table(NUM_LABELS, st.sampled_from((0.0, 1.0)))),
        lag_weight=np.array(table(kinds, st.sampled_from((0.0, 1.0)))),
    )


def goals_of(graph: ExecutionGraph) -> Int32s:
    """Every third node in goal 0, the others in goal 1 or none."""
    goal = np.arange(graph.num_nodes, dtype=np.int32) % 3
    return np.where(goal == 2, NO_GOAL, goal).astype(np.int32)


@given(graph=graphs())
def test_factor_one_is_a_simulation(graph: ExecutionGraph) -> None:
    everyone = np.zeros(graph.num_nodes, np.int32)
    each_node = np.arange(graph.num_nodes, dtype=np.int32)

    ends = simulate_batch(graph, Scaling(label=everyone, factor=np.ones((1, 1))), each_node)

    assert ends.end_ns[0].tolist() == simulate(graph).end_ns.tolist()
    assert ends.node[0].tolist() == each_node.tolist()


@given(graph=kinded(), data=st.data())
def test_ends_and_slopes_are_the_oracles(graph: ExecutionGraph, data: st.DataObject) -> None:
    scaling = data.draw(scalings(graph))
    goal = goals_of(graph)

    ends = simulate_batch(graph, scaling, goal, workers=data.draw(st.sampled_from((1, 2))))

    for sample in range(scaling.num_samples):
        end = oracle.ends(graph, scaling, sample)
        for number in range(ends.end_ns.shape[1]):
            nodes = np.flatnonzero(goal == number).tolist()
            last = max(nodes, key=lambda node: (end[node], -node))
            assert ends.end_ns[sample, number] == end[last]
            assert ends.node[sample, number] == last
            assert ends.slope_ns[sample, number] == oracle.slope(graph, scaling, sample, last)


@given(graph=graphs(), factor=st.floats(0.01, 1.99))
def test_what_a_slope_promises_no_way_falls_below(graph: ExecutionGraph, factor: float) -> None:
    label = (np.arange(graph.num_nodes) % 2).astype(np.int32)
    goal = np.zeros(graph.num_nodes, np.int32)
    if not graph.num_nodes:
        return

    ends = simulate_batch(
        graph,
        Scaling(
            label=label,
            factor=np.array([[1, 1], [1, factor]]),
            weight=np.array([[0.0, 1.0], [0.0, 1.0]]),
        ),
        goal,
    )

    at_one, at_factor = ends.end_ns[:, 0]
    line = at_one + ends.slope_ns[0, 0] * (factor - 1)
    assert at_factor >= line - 1e-9
    assert at_one >= at_factor + ends.slope_ns[1, 0] * (1 - factor) - 1e-9


def test_nodes_after_the_last_goal_do_not_matter() -> None:
    build = GraphBuilder()
    first = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5)
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=2**62, after=[first])
    scaling = Scaling(label=np.zeros(2, np.int32), factor=np.ones((1, 1)))

    ends = simulate_batch(build.graph(), scaling, np.array([0, NO_GOAL], np.int32))

    assert ends.end_ns.tolist() == [[5.0]]


def test_passes_side_by_side_fit_into_memory() -> None:
    assert passes_at_once(0) >= passes_at_once(10_000_000) >= 1
    assert passes_at_once(10**9) == 1


def test_a_graph_without_goals_has_no_ends() -> None:
    scaling = Scaling(label=np.zeros(0, np.int32), factor=np.ones((2, 1)))

    ends = simulate_batch(GraphBuilder().graph(), scaling, np.zeros(0, np.int32))

    assert ends.end_ns.shape == (2, 0)


def test_given_durations_may_be_fractions() -> None:
    scaling = Scaling(label=np.zeros(2, np.int32), factor=np.array([[1.0], [2.0]]))

    ends = simulate_batch(
        _two(), scaling, np.array([-1, 0], np.int32), duration_ns=np.array([0.5, 0.25])
    )

    assert ends.end_ns[:, 0].tolist() == [0.75, 1.5]


def _two() -> ExecutionGraph:
    build = GraphBuilder()
    first = build.add(NodeKind.KERNEL, lane="stream 7", name="gemm", takes_ns=5)
    build.add(NodeKind.KERNEL, lane="stream 7", name="softmax", takes_ns=5, after=[Edge(first)])
    return build.graph()


LABEL = np.zeros(2, np.int32)
ONE = np.ones((1, 1))


@pytest.mark.parametrize(
    ("scaling", "goal", "sentence"),
    [
        (Scaling(label=np.zeros(3, np.int32), factor=ONE), LABEL, r"label must be int32\[2\]"),
        (Scaling(label=LABEL.astype(np.int64), factor=ONE), LABEL, "got int64 of shape"),
        (Scaling(label=LABEL, factor=ONE), np.zeros(1, np.int32), r"goal must be int32\[2\]"),
        (Scaling(label=LABEL, factor=np.ones(1)), LABEL, "dimensions samples and labels"),
        (Scaling(label=LABEL + 1, factor=ONE), LABEL, "labels run from 0 to 1, expected 0 to 0"),
        (Scaling(label=LABEL - 1, factor=ONE), LABEL, "labels run from -1"),
        (Scaling(label=LABEL, factor=-ONE), LABEL, "numbers of 0 or more"),
        (Scaling(label=LABEL, factor=ONE * np.nan), LABEL, "numbers of 0 or more"),
        (Scaling(label=LABEL, factor=ONE, weight=np.ones((2, 1))), LABEL, "weight must have"),
        (Scaling(label=LABEL, factor=ONE, lag_factor=ONE), LABEL, "lag_factor must have shape"),
        (
            Scaling(label=LABEL, factor=ONE, lag_factor=np.full((1, len(EdgeKind)), np.inf)),
            LABEL,
            "factors of lags must be numbers",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused(scaling: Scaling, goal: Int32s, sentence: str) -> None:
    with pytest.raises(SimulationError, match=sentence):
        simulate_batch(_two(), scaling, goal)


def test_goals_beyond_exact_numbers_are_refused() -> None:
    scaling = Scaling(label=LABEL, factor=ONE)

    with pytest.raises(SimulationError, match=r"node 1 \('softmax'.*104 days"):
        simulate_batch(
            _two(), scaling, np.array([-1, 0], np.int32), duration_ns=np.full(2, 2.0**53)
        )


@pytest.mark.parametrize("duration", [-1.0, np.nan])
def test_durations_that_are_none_are_refused(duration: float) -> None:
    scaling = Scaling(label=LABEL, factor=ONE)

    with pytest.raises(SimulationError, match="negative duration: node 1"):
        simulate_batch(_two(), scaling, LABEL, duration_ns=np.array([1.0, duration]))


def test_node_order_that_is_not_topological_is_refused() -> None:
    graph = replace(_two(), predecessor=np.array([1], np.int32))

    with pytest.raises(SimulationError, match="not topological"):
        simulate_batch(graph, Scaling(label=LABEL, factor=ONE), LABEL)
