"""Every rule of the graph's spec is broken by some graph, and says where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foretrace.base import GraphError
from foretrace.graph import Collectives, EdgeKind, ExecutionGraph, NodeKind, verify
from foretrace.graph.spec import RULES
from tests.graphs import Edge, GraphBuilder

LAUNCH_NS = 5


def legal_graph() -> ExecutionGraph:
    """Two ranks: start, host, launch, kernel, an all-reduce and a synchronisation."""
    build = GraphBuilder()
    kernels: dict[int, int] = {}
    calls: dict[int, int] = {}
    for rank in (0, 1):
        start = build.add(NodeKind.RANK_START, rank=rank, takes_ns=rank * 3)
        begin = build.add(NodeKind.STEP_BEGIN, rank=rank, after=[start], step="step 1")
        segment = build.add(NodeKind.HOST_SEGMENT, rank=rank, takes_ns=7, after=[begin])
        launch = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=10, after=[segment])
        kernels[rank] = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            takes_ns=100,
            after=[Edge(launch, EdgeKind.LAUNCH, LAUNCH_NS)],
        )
        calls[rank] = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=10, after=[launch])
    finishes = build.collective(
        {
            rank: [
                Edge(kernels[rank], EdgeKind.INTER_STREAM),
                Edge(calls[rank], EdgeKind.LAUNCH, LAUNCH_NS),
            ]
            for rank in (0, 1)
        },
        transfer_ns=50,
    )
    for rank in (0, 1):
        after = [Edge(calls[rank]), Edge(finishes[rank], EdgeKind.WAKE)]
        sync = build.add(NodeKind.SYNC, rank=rank, after=after)
        build.add(NodeKind.STEP_END, rank=rank, after=[sync], step="step 1")
    return build.graph((EdgeKind.LAUNCH, LAUNCH_NS))


def first(graph: ExecutionGraph, kind: NodeKind, *, rank: int = 0) -> int:
    return int(np.flatnonzero((graph.kind == kind) & ((graph.rank == rank) | (graph.rank < 0)))[0])


def with_value(graph: ExecutionGraph, column: str, at: int, value: int) -> ExecutionGraph:
    """The graph with one entry of one column replaced."""
    changed = getattr(graph, column).copy()
    changed[at] = value
    return replace(graph, **{column: changed})


def edge_into(graph: ExecutionGraph, node: int, kind: EdgeKind) -> int:
    low, high = graph.first_edge[node], graph.first_edge[node + 1]
    return int(low + np.flatnonzero(graph.edge_kind[low:high] == kind)[0])


def without_edge(graph: ExecutionGraph, edge: int) -> ExecutionGraph:
    target = int(np.searchsorted(graph.first_edge, edge, side="right")) - 1
    first_edge = graph.first_edge.copy()
    first_edge[target + 1 :] -= 1
    columns: dict[str, Any] = {
        name: np.delete(getattr(graph, name), edge)
        for name in ("predecessor", "edge_kind", "lag_ns")
    }
    return replace(graph, first_edge=first_edge, **columns)


def test_a_legal_graph_passes() -> None:
    verify(legal_graph())


@pytest.mark.parametrize("column", ["rank", "lane", "name", "step", "collective", "measured_ns"])
def test_columns_of_different_lengths_are_named(column: str) -> None:
    graph = legal_graph()

    with pytest.raises(GraphError, match=rf"differ in length: {graph.num_nodes} nodes.*{column}"):
        verify(replace(graph, **{column: getattr(graph, column)[:-1]}))


def test_first_edge_has_one_entry_more_than_there_are_nodes() -> None:
    graph = legal_graph()

    with pytest.raises(GraphError, match="differ in length"):
        verify(replace(graph, first_edge=graph.first_edge[:-1]))


@pytest.mark.parametrize(
    ("column", "value"), [("name", 999), ("lane", 999), ("step", 7), ("collective", 1)]
)
def test_positions_past_a_table_are_named(column: str, value: int) -> None:
    graph = legal_graph()

    with pytest.raises(GraphError, match=f"{column} points past its table"):
        verify(with_value(graph, column, 3, value))


def test_a_node_before_its_predecessor_is_named() -> None:
    graph = legal_graph()
    kernel = first(graph, NodeKind.KERNEL)
    edge = edge_into(graph, kernel, EdgeKind.LAUNCH)

    with pytest.raises(GraphError, match=rf"node {kernel} \(KERNEL.*waits for itself or a later"):
        verify(with_value(graph, "predecessor", edge, kernel))


def test_a_negative_duration_is_named() -> None:
    graph = legal_graph()
    kernel = first(graph, NodeKind.KERNEL, rank=1)

    with pytest.raises(GraphError, match=r"rank 1 stream 7\) has a negative duration; 1 nodes do"):
        verify(with_value(graph, "measured_ns", kernel, -1))


@pytest.mark.parametrize(
    "kind", [NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.ARRIVE, NodeKind.HUB]
)
def test_a_mark_with_a_duration_is_named(kind: NodeKind) -> None:
    graph = legal_graph()

    with pytest.raises(GraphError, match=rf"\({kind.name}.*is a mark with a duration"):
        verify(with_value(graph, "measured_ns", first(graph, kind), 1))


@pytest.mark.parametrize(
    ("kind", "lag_ns"), [(EdgeKind.LAUNCH, LAUNCH_NS + 1), (EdgeKind.HOST_ORDER, 1)]
)
def test_a_lag_of_its_own_is_named(kind: EdgeKind, lag_ns: int) -> None:
    graph = legal_graph()
    edge = int(np.flatnonzero(graph.edge_kind == kind)[0])

    with pytest.raises(GraphError, match="lag is not its kind's constant"):
        verify(with_value(graph, "lag_ns", edge, lag_ns))


def test_a_host_node_outside_its_chain_is_named() -> None:
    graph = legal_graph()
    sync = first(graph, NodeKind.SYNC)

    with pytest.raises(GraphError, match=r"\(SYNC.*is not linked once to its thread's chain"):
        verify(without_edge(graph, edge_into(graph, sync, EdgeKind.HOST_ORDER)))


def test_a_chain_that_forks_is_named() -> None:
    graph = legal_graph()
    launch, sync = first(graph, NodeKind.LAUNCH), first(graph, NodeKind.SYNC)
    edge = edge_into(graph, sync, EdgeKind.HOST_ORDER)

    with pytest.raises(GraphError, match=r"\(LAUNCH.*is followed twice on its thread"):
        verify(with_value(graph, "predecessor", edge, launch))


def test_a_chain_that_changes_threads_is_named() -> None:
    build = GraphBuilder()
    start = build.add(NodeKind.RANK_START)
    one = build.add(NodeKind.HOST_SEGMENT, lane="thread 1", after=[start])
    build.add(NodeKind.HOST_SEGMENT, lane="thread 2", after=[one])

    with pytest.raises(GraphError, match="follows a node of another thread"):
        verify(build.graph())


def test_a_chain_that_changes_ranks_is_named() -> None:
    build = GraphBuilder()
    start = build.add(NodeKind.RANK_START)
    build.add(NodeKind.HOST_SEGMENT, rank=1, after=[start])

    with pytest.raises(GraphError, match="follows a node of another thread"):
        verify(build.graph())


def test_a_collective_without_a_hub_is_named() -> None:
    graph = legal_graph()

    with pytest.raises(GraphError, match="2 collectives have 1 hubs"):
        verify(replace(graph, collectives=Collectives.of([*graph.collectives] * 2)))


def test_an_arrival_of_no_collective_is_named() -> None:
    graph = legal_graph()
    arrive = first(graph, NodeKind.ARRIVE)

    with pytest.raises(GraphError, match=r"\(ARRIVE.*belongs to no collective"):
        verify(with_value(graph, "collective", arrive, -1))


def test_arrivals_and_finishes_pair_up() -> None:
    graph = legal_graph()
    finish = first(graph, NodeKind.FINISH)

    with pytest.raises(GraphError, match="do not pair up"):
        verify(with_value(graph, "rank", finish, 1))


def test_a_kernel_in_a_collective_is_named() -> None:
    graph = legal_graph()

    with pytest.raises(GraphError, match=r"\(KERNEL.*belongs to a collective but is no part"):
        verify(with_value(graph, "collective", first(graph, NodeKind.KERNEL), 0))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (EdgeKind.LAUNCH, EdgeKind.WAKE),
        (EdgeKind.LAUNCH, EdgeKind.STREAM),
        (EdgeKind.LAUNCH, EdgeKind.QUEUE),
        (EdgeKind.LAUNCH, EdgeKind.THREAD),
        (EdgeKind.INTER_STREAM, EdgeKind.LAUNCH),
        (EdgeKind.INTER_STREAM, EdgeKind.ARRIVAL),
        (EdgeKind.INTER_STREAM, EdgeKind.TRANSFER),
        (EdgeKind.INTER_STREAM, EdgeKind.ISSUE),
        (EdgeKind.WAKE, EdgeKind.INTER_STREAM),
        (EdgeKind.WAKE, EdgeKind.INTER_STREAM_INFERRED),
    ],
)
def test_an_edge_of_a_wrong_kind_is_named(kind: EdgeKind, wrong: EdgeKind) -> None:
    graph = legal_graph()
    edge = int(np.flatnonzero(graph.edge_kind == kind)[0])
    lag = {constant.kind: constant.lag_ns for constant in graph.constants}

    changed = with_value(graph, "edge_kind", edge, wrong)
    changed = with_value(changed, "lag_ns", edge, lag.get(wrong, 0))

    with pytest.raises(GraphError, match=f"{wrong.name} edge that does not fit"):
        verify(changed)


def test_every_rule_is_run() -> None:
    assert len(RULES) == len({rule.__name__ for rule in RULES}) == 7
