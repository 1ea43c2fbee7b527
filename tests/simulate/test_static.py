"""The static engine against its oracle, closed forms, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import SimulationError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.simulate import simulate
from tests.graphs import Edge, GraphBuilder
from tests.oracles import static as oracle
from tests.simulate.strategies import graphs


@given(graph=graphs(), data=st.data())
def test_equals_the_oracle_on_any_graph(graph: ExecutionGraph, data: st.DataObject) -> None:
    durations = data.draw(
        st.lists(st.integers(0, 1000), min_size=graph.num_nodes, max_size=graph.num_nodes)
    )
    duration_ns = np.array(durations, dtype=np.int64)

    timeline = simulate(graph, duration_ns)

    starts, ends = oracle.start_and_end(graph, duration_ns)
    assert timeline.start_ns.tolist() == starts
    assert timeline.end_ns.tolist() == ends
    assert not timeline.is_measured


@given(graph=graphs())
def test_takes_the_measured_durations_by_default(graph: ExecutionGraph) -> None:
    timeline = simulate(graph)

    assert (timeline.end_ns - timeline.start_ns).tolist() == graph.measured_ns.tolist()


@given(graph=graphs(), more_ns=st.integers(1, 100), data=st.data())
def test_longer_work_never_ends_anything_earlier(
    graph: ExecutionGraph, more_ns: int, data: st.DataObject
) -> None:
    if graph.num_nodes == 0:
        return
    node = data.draw(st.integers(0, graph.num_nodes - 1))
    duration_ns = graph.measured_ns.copy()
    duration_ns[node] += more_ns

    before, after = simulate(graph), simulate(graph, duration_ns)

    later_ns = after.end_ns - before.end_ns
    assert later_ns[node] == more_ns
    assert later_ns.min() >= 0
    assert later_ns.max() == more_ns


def test_chain_takes_the_sum_of_durations_and_lags() -> None:
    build = GraphBuilder()
    durations, lags = [10, 0, 30, 7], [0, 5, 1, 100]
    node: list[Edge] = []
    for takes_ns, lag_ns in zip(durations, lags, strict=True):
        after = [Edge(each.node, lag_ns=lag_ns) for each in node]
        node = [Edge(build.add(NodeKind.HOST_SEGMENT, takes_ns=takes_ns, after=after))]

    timeline = simulate(build.graph())

    assert timeline.end_ns.tolist() == [10, 15, 46, 153]


def test_join_waits_for_the_longest_branch_of_a_fork() -> None:
    build = GraphBuilder()
    fork = build.add(NodeKind.LAUNCH, takes_ns=10)
    short = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=20, after=[Edge(fork, lag_ns=1)])
    long = build.add(NodeKind.KERNEL, lane="stream 8", takes_ns=90, after=[Edge(fork, lag_ns=2)])
    join = build.add(
        NodeKind.SYNC, takes_ns=3, after=[Edge(short, lag_ns=50), Edge(long, lag_ns=4)]
    )

    timeline = simulate(build.graph())

    assert timeline.start_ns[join] == 10 + 2 + 90 + 4
    assert timeline.end_ns[join] == 10 + 2 + 90 + 4 + 3


def test_rendezvous_starts_every_transfer_at_the_last_arrival() -> None:
    build = GraphBuilder()
    work = {rank: 100 * (rank + 1) for rank in range(4)}
    kernels = {
        rank: [build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=takes_ns)]
        for rank, takes_ns in work.items()
    }
    finish = build.collective(kernels, transfer_ns={0: 30, 1: 31, 2: 32, 3: 33})

    timeline = simulate(build.graph())

    assert [int(timeline.start_ns[finish[rank]]) for rank in range(4)] == [400] * 4
    assert [int(timeline.end_ns[finish[rank]]) for rank in range(4)] == [430, 431, 432, 433]


def test_skewed_ranks_meet_at_the_skewed_one_and_stay_together() -> None:
    build = GraphBuilder()
    skew = {0: 0, 1: 250}
    last = {
        rank: build.add(NodeKind.RANK_START, rank=rank, takes_ns=skew_ns)
        for rank, skew_ns in skew.items()
    }
    for _ in range(3):
        work = {
            rank: [build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=100, after=[at])]
            for rank, at in last.items()
        }
        last = build.collective(work, transfer_ns=10)

    timeline = simulate(build.graph())

    # the skew is waited for once, at the first meeting
    assert [int(timeline.end_ns[last[rank]]) for rank in skew] == [250 + 3 * 110] * 2


def test_neighbour_exchange_is_free_of_circles_and_spreads_one_rank_per_round() -> None:
    build = GraphBuilder()
    num_ranks, num_rounds, slow = 6, 2, 0
    ready: dict[int, int] = {
        rank: build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=100 if rank else 500)
        for rank in range(num_ranks)
    }
    for _ in range(num_rounds):
        arrive = {
            rank: build.add(NodeKind.ARRIVE, rank=rank, lane="stream 7", after=[node])
            for rank, node in ready.items()
        }
        hubs = {
            rank: build.add(
                NodeKind.HUB,
                lane=None,
                after=[
                    Edge(arrive[(rank + shift) % num_ranks], EdgeKind.ARRIVAL)
                    for shift in (-1, 0, 1)
                ],
            )
            for rank in ready
        }
        ready = {
            rank: build.add(
                NodeKind.FINISH,
                rank=rank,
                lane="stream 7",
                takes_ns=10,
                after=[Edge(hub, EdgeKind.TRANSFER)],
            )
            for rank, hub in hubs.items()
        }

    timeline = simulate(build.graph())

    # a rank is late once a neighbour of a neighbour was: distance up to the rounds
    distance = {rank: min((rank - slow) % num_ranks, (slow - rank) % num_ranks) for rank in ready}
    expected = {
        rank: (500 if distance[rank] <= num_rounds else 100) + num_rounds * 10 for rank in ready
    }
    assert {rank: int(timeline.end_ns[node]) for rank, node in ready.items()} == expected


def test_one_launch_owns_many_kernels() -> None:
    build = GraphBuilder()
    launch = build.add(NodeKind.LAUNCH, takes_ns=40)
    kernels = [
        build.add(
            NodeKind.KERNEL,
            lane=f"stream {stream}",
            takes_ns=100,
            after=[Edge(launch, EdgeKind.LAUNCH, 6)],
        )
        for stream in range(5)
    ]

    timeline = simulate(build.graph())

    assert timeline.start_ns[kernels].tolist() == [46] * 5


def test_blocked_launch_is_not_work_that_faster_kernels_keep() -> None:
    def step_ns(kernel_ns: int) -> int:
        build, depth, kernels = GraphBuilder(), 4, list[int]()
        host: list[int | Edge] = []
        for index in range(50):
            slot = [Edge(kernels[-depth], EdgeKind.QUEUE)] if index >= depth else []
            launch = build.add(NodeKind.LAUNCH, takes_ns=1, after=[*host, *slot])
            before = [Edge(kernels[-1], EdgeKind.STREAM)] if kernels else []
            kernels.append(
                build.add(
                    NodeKind.KERNEL,
                    lane="stream 7",
                    takes_ns=kernel_ns,
                    after=[Edge(launch, EdgeKind.LAUNCH), *before],
                )
            )
            host = [launch]
        return int(simulate(build.graph()).end_ns.max())

    assert step_ns(100) == 1 + 50 * 100
    assert step_ns(80) == 1 + 50 * 80


def test_empty_graph_has_an_empty_timeline() -> None:
    assert simulate(GraphBuilder().graph()).end_ns.tolist() == []


def _two_kernels() -> ExecutionGraph:
    build = GraphBuilder()
    first = build.add(NodeKind.KERNEL, rank=3, lane="stream 7", name="gemm", takes_ns=5)
    build.add(NodeKind.KERNEL, rank=3, lane="stream 7", name="softmax", takes_ns=5, after=[first])
    return build.graph()


def test_negative_duration_is_refused_by_node_name_and_lane() -> None:
    with pytest.raises(SimulationError, match=r"node 1 \('softmax', KERNEL, rank 3 stream 7\)"):
        simulate(_two_kernels(), np.array([5, -1], dtype=np.int64))


def test_wrong_number_of_durations_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"expected shape \(2,\), got \(3,\)"):
        simulate(_two_kernels(), np.zeros(3, dtype=np.int64))


def test_durations_of_another_type_are_refused() -> None:
    with pytest.raises(SimulationError, match="int64 nanoseconds, got float64"):
        simulate(_two_kernels(), np.zeros(2, dtype=np.float64))


@pytest.mark.parametrize("predecessor", [1, 2, 99, -1])
def test_predecessor_that_does_not_stand_before_is_refused(predecessor: int) -> None:
    graph = replace(_two_kernels(), predecessor=np.array([predecessor], dtype=np.int32))

    with pytest.raises(SimulationError, match=r"not topological: node 1 \('softmax'"):
        simulate(graph)


@pytest.mark.parametrize("first_edge", [[0, 1, 0], [0, 5, 1], [1, 1, 1], [0, 1], [0, 0, 2]])
def test_edges_that_do_not_rise_are_refused(first_edge: list[int]) -> None:
    graph = replace(_two_kernels(), first_edge=np.array(first_edge, dtype=np.int64))

    with pytest.raises(SimulationError, match="first_edge must"):
        simulate(graph)


def test_lags_of_another_length_are_refused() -> None:
    graph = replace(_two_kernels(), lag_ns=np.zeros(7, dtype=np.int32))

    with pytest.raises(SimulationError, match="one number per edge: expected 1, got 7"):
        simulate(graph)


def test_times_beyond_any_clock_are_refused() -> None:
    huge = np.array([2**52, 2**62], dtype=np.int64)

    with pytest.raises(SimulationError, match=r"time overflow: node 1 \('softmax'"):
        simulate(_two_kernels(), huge)
