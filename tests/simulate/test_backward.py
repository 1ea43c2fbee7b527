"""Ways back and slack: the oracles', the stated order of ties, and what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import NO_EDGE, NO_LIMIT_NS, simulate, slack_before, way_back
from tests.graphs import Edge, GraphBuilder, timeline_of
from tests.oracles import backward as oracle
from tests.simulate.strategies import graphs


@given(graph=graphs(), data=st.data())
def test_the_way_back_is_the_oracles(graph: ExecutionGraph, data: st.DataObject) -> None:
    if graph.num_nodes == 0:
        return
    timeline = simulate(graph)
    end_node = data.draw(st.integers(0, graph.num_nodes - 1))
    begin_ns = data.draw(st.integers(-1, int(timeline.end_ns[end_node])))

    way = way_back(timeline, end_node, begin_ns=begin_ns)

    assert (way.node.tolist(), way.edge.tolist()) == oracle.way(timeline, end_node, begin_ns)


@given(graph=graphs(max_nodes=12), data=st.data())
def test_the_way_back_of_any_measured_times_is_the_oracles(
    graph: ExecutionGraph, data: st.DataObject
) -> None:
    if graph.num_nodes == 0:
        return
    start = st.integers(0, 300)
    starts = data.draw(st.lists(start, min_size=graph.num_nodes, max_size=graph.num_nodes))
    timeline = timeline_of(graph, starts)
    end_node = data.draw(st.integers(0, graph.num_nodes - 1))

    way = way_back(timeline, end_node, begin_ns=100)

    assert (way.node.tolist(), way.edge.tolist()) == oracle.way(timeline, end_node, 100)


@given(graph=graphs())
def test_durations_and_lags_of_the_way_sum_to_its_end(graph: ExecutionGraph) -> None:
    timeline = simulate(graph)
    for node in range(graph.num_nodes):
        way = way_back(timeline, node)

        lags_ns = graph.lag_ns[way.edge[way.edge != NO_EDGE]].sum()
        assert graph.measured_ns[way.node].sum() + lags_ns == timeline.end_ns[node]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_equally_late_predecessors_the_first_edge_counts(order: tuple[int, int]) -> None:
    build = GraphBuilder()
    for stream in (7, 8):
        build.add(NodeKind.KERNEL, lane=f"stream {stream}", takes_ns=10)
    build.add(NodeKind.KERNEL, lane="stream 7", after=order)

    assert way_back(simulate(build.graph()), 2).node.tolist() == [order[0], 2]


def test_a_lag_below_zero_that_holds_nobody_back_ends_the_way() -> None:
    build = GraphBuilder()
    first = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)
    second = build.add(
        NodeKind.KERNEL, lane="stream 7", takes_ns=5, after=[Edge(first, lag_ns=-20)]
    )

    assert way_back(simulate(build.graph()), second).node.tolist() == [second]


def test_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to -1, got 0"):
        way_back(simulate(GraphBuilder().graph()), 0)


@given(graph=graphs(max_nodes=8, max_ns=6), data=st.data())
def test_slack_is_what_a_duration_can_grow_by(graph: ExecutionGraph, data: st.DataObject) -> None:
    if graph.num_nodes == 0:
        return
    timeline = simulate(graph)
    due = sorted(data.draw(st.sets(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=3)))
    due_ns = int(timeline.end_ns[due].max())

    slack_ns = slack_before(timeline, np.array(due), due_ns)

    most_ns = int(timeline.end_ns.max()) + 10
    assert slack_ns.tolist() == oracle.slack(graph, due, due_ns, most_ns)


def test_measured_gaps_stay_where_they_are() -> None:
    build = GraphBuilder()
    first = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)
    build.add(NodeKind.KERNEL, lane="stream 8", takes_ns=4)
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5, after=[first, 1])
    measured = timeline_of(build.graph(), [0, 0, 30])

    slack_ns = slack_before(measured, np.array([2]), 35)

    # 20 ns before the last kernel are nobody's, and would follow the first kernel if it grew
    assert slack_ns.tolist() == [0, 6, 0]


def test_what_nothing_waits_for_has_no_limit() -> None:
    build = GraphBuilder()
    first = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5, after=[first])

    slack_ns = slack_before(simulate(build.graph()), np.array([first]), 12)

    assert slack_ns.tolist() == [2, NO_LIMIT_NS]
