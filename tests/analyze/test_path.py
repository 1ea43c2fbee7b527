from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import path_time_ns
from foretrace.graph import ExecutionGraph, NodeKind, Timeline
from foretrace.simulate import simulate
from tests.graphs import Edge, GraphBuilder
from tests.oracles import path as oracle
from tests.simulate.strategies import graphs


def _forked() -> Timeline:
    """0 -> (1 short, 2 long) -> 3, lags 5 before the branches."""
    build = GraphBuilder()
    fork = build.add(NodeKind.LAUNCH, takes_ns=10)
    short = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=20, after=[Edge(fork, lag_ns=5)])
    long = build.add(NodeKind.KERNEL, lane="stream 8", takes_ns=90, after=[Edge(fork, lag_ns=5)])
    build.add(NodeKind.SYNC, takes_ns=3, after=[short, long])
    return simulate(build.graph())


def test_only_the_longest_way_counts() -> None:
    label = np.array([0, 1, 2, 3], dtype=np.uint8)

    spent_ns = path_time_ns(
        _forked(), label, num_labels=4, end_node=np.array([3]), begin_ns=np.array([0])
    )

    assert spent_ns.tolist() == [[10, 0, 90, 3, 5]]


def test_walk_stops_inside_a_node_and_inside_a_lag() -> None:
    label = np.array([0, 1, 2, 3], dtype=np.uint8)

    spent_ns = path_time_ns(
        _forked(), label, num_labels=4, end_node=np.array([3, 3]), begin_ns=np.array([50, 12])
    )

    assert spent_ns.tolist() == [[0, 0, 55, 3, 0], [0, 0, 90, 3, 3]]


@given(graph=graphs(), data=st.data())
def test_equals_the_oracle_and_sums_to_the_way(graph: ExecutionGraph, data: st.DataObject) -> None:
    if graph.num_nodes == 0:
        return
    timeline = simulate(graph)
    end_node = data.draw(st.integers(0, graph.num_nodes - 1))
    end_ns = int(timeline.end_ns[end_node])
    begin_ns = data.draw(st.integers(0, end_ns))
    label = (graph.kind % 4).astype(np.uint8)

    spent_ns = path_time_ns(
        timeline,
        label,
        num_labels=4,
        end_node=np.array([end_node]),
        begin_ns=np.array([begin_ns]),
    )

    expected = oracle.path_time(timeline, label, num_labels=4, end_node=end_node, begin_ns=begin_ns)
    assert spent_ns[0].tolist() == expected
    assert spent_ns.sum() == end_ns - begin_ns


def test_label_beyond_the_last_is_refused() -> None:
    label = np.full(4, 9, dtype=np.uint8)

    with pytest.raises(ValueError, match="4 entries below 4, got 4 up to 9"):
        path_time_ns(_forked(), label, num_labels=4, end_node=np.array([3]), begin_ns=np.array([0]))


def test_begins_without_end_nodes_are_refused() -> None:
    label = np.zeros(4, dtype=np.uint8)

    with pytest.raises(ValueError, match="of one length, got 1 and 2"):
        path_time_ns(
            _forked(), label, num_labels=4, end_node=np.array([3]), begin_ns=np.array([0, 1])
        )
