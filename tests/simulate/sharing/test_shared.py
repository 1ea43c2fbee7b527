"""Hosts that share cores: the oracle's moments, the static engine's, closed forms, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import SimulationError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.simulate import Cores, alone_ns, simulate, simulate_shared
from tests.graphs import Edge, GraphBuilder
from tests.oracles.sharing import SharingOracle
from tests.simulate.strategies import graphs

MANY = Cores.of(64)  # more than any of these graphs has nodes
BINARY = st.sampled_from((0.25, 0.5, 0.75, 1.0, 1.5))


@st.composite
def host_graphs(draw: st.DrawFn, *, least_lag_ns: int = -20) -> ExecutionGraph:
    """Random graphs of host work, kernels and transfers, with lags below zero too."""
    graph = draw(graphs(max_nodes=14))
    is_transfer = draw(st.lists(st.booleans(), min_size=graph.num_nodes, max_size=graph.num_nodes))
    on_thread = graph.kind == NodeKind.HOST_SEGMENT
    kind = np.where(on_thread & np.array(is_transfer, np.bool_), NodeKind.FINISH, graph.kind)
    lag = st.integers(least_lag_ns, 30)
    lags = draw(st.lists(lag, min_size=graph.num_edges, max_size=graph.num_edges))
    return replace(graph, kind=kind.astype(np.uint8), lag_ns=np.array(lags, np.int32))


all_cores = st.builds(
    Cores,
    speed=st.lists(BINARY, min_size=1, max_size=4).map(tuple),
    transfers=st.sampled_from((0.0, 0.25, 1.0)),
)
all_hosts = st.sampled_from(({0: 0, 1: 0}, {0: 0, 1: 1}, {0: 5, 1: 2}))


def chains(
    lengths_ns: Sequence[Sequence[int]], *, kind: NodeKind = NodeKind.OPERATOR
) -> ExecutionGraph:
    """One rank for each chain, its work in a row on one thread."""
    build = GraphBuilder()
    for rank, chain in enumerate(lengths_ns):
        last: list[int] = []
        for takes_ns in chain:
            last = [build.add(kind, rank=rank, takes_ns=takes_ns, after=last)]
    return build.graph()


@given(graph=host_graphs(), cores=all_cores, hosts=all_hosts)
def test_moments_are_the_oracles_to_half_a_nanosecond(
    graph: ExecutionGraph, cores: Cores, hosts: dict[int, int]
) -> None:
    oracle = SharingOracle(graph, graph.measured_ns, cores, hosts)

    timeline = simulate_shared(graph, None, cores, hosts=hosts)

    for node in range(graph.num_nodes):
        assert abs(timeline.start_ns[node] - oracle.starts[node]) <= 0.5 + 1e-6
        assert abs(timeline.end_ns[node] - oracle.ends[node]) <= 0.5 + 1e-6


@given(graph=host_graphs(), hosts=all_hosts, transfers=st.floats(0, 1), times=st.integers(1, 10**9))
def test_with_speed_one_it_is_the_static_engine_to_the_nanosecond(
    graph: ExecutionGraph, hosts: dict[int, int], transfers: float, times: int
) -> None:
    duration_ns = graph.measured_ns * times
    cores = replace(MANY, transfers=transfers)

    shared = simulate_shared(graph, duration_ns, cores, hosts=hosts)

    static = simulate(graph, duration_ns)
    assert shared.start_ns.tolist() == static.start_ns.tolist()
    assert shared.end_ns.tolist() == static.end_ns.tolist()


@given(graph=host_graphs(least_lag_ns=0), cores=all_cores, hosts=all_hosts)
def test_a_node_starts_when_the_last_it_waits_for_has_ended(
    graph: ExecutionGraph, cores: Cores, hosts: dict[int, int]
) -> None:
    timeline = simulate_shared(graph, None, cores, hosts=hosts)

    for node in range(graph.num_nodes):
        edges = slice(graph.first_edge[node], graph.first_edge[node + 1])
        ready_ns = timeline.end_ns[graph.predecessor[edges]] + graph.lag_ns[edges]
        assert timeline.start_ns[node] == max([0, *ready_ns.tolist()])


@given(graph=host_graphs(least_lag_ns=0), cores=all_cores, hosts=all_hosts)
def test_work_alone_is_found_again_in_what_was_simulated(
    graph: ExecutionGraph, cores: Cores, hosts: dict[int, int]
) -> None:
    duration_ns = graph.measured_ns * 1000
    timeline = simulate_shared(graph, duration_ns, cores, hosts=hosts)

    found_ns = alone_ns(timeline, cores, hosts=hosts)

    # every event in a node's time was rounded by half a nanosecond, at speeds up to 1.5
    assert np.abs(found_ns - duration_ns).max(initial=0) <= 2 * graph.num_nodes


@pytest.mark.parametrize(("count", "factor"), [(1, 4.0), (2, 2.0), (3, 4 / 3), (4, 1.0), (8, 1.0)])
def test_four_equal_chains_share_their_cores(count: int, factor: float) -> None:
    graph = chains([[300, 600, 900]] * 4)

    timeline = simulate_shared(graph, None, Cores.of(count))

    assert int(timeline.end_ns.max()) == round(1800 * factor)


def test_who_works_longer_has_the_core_alone_at_the_end() -> None:
    timeline = simulate_shared(chains([[100], [250]]), None, Cores.of(1))

    assert timeline.end_ns.tolist() == [200, 350]


def test_listed_speeds_count_and_more_share_the_last() -> None:
    cores = Cores(speed=(1.0, 0.8))  # two threads of one core, or clocks that fall

    ends = [simulate_shared(chains([[800]] * n), None, cores).end_ns.max() for n in (1, 2, 4)]

    assert ends == [800, 1000, 2000]


def test_ranks_on_other_hosts_take_nothing_away() -> None:
    graph = chains([[100, 100]] * 4)

    timeline = simulate_shared(graph, None, Cores.of(1), hosts={0: 7, 1: 7, 2: 9, 3: 11})

    assert timeline.end_ns[1::2].tolist() == [400, 400, 200, 200]


def test_kernels_and_waiting_need_no_core() -> None:
    build = GraphBuilder()
    for rank in range(3):
        launch = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=10)
        kernel = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            takes_ns=1000,
            after=[Edge(launch, EdgeKind.LAUNCH, 5)],
        )
        build.add(NodeKind.SYNC, rank=rank, takes_ns=20, after=[kernel, launch])

    timeline = simulate_shared(build.graph(), None, Cores.of(1))

    assert timeline.end_ns[1::3].tolist() == [1035] * 3
    assert timeline.end_ns[2::3].tolist() == [1095] * 3


@pytest.mark.parametrize(("transfers", "end_ns"), [(0.0, 1000), (1.0, 2000), (0.5, 1000)])
def test_transfers_take_the_stated_share_of_a_core(transfers: float, end_ns: int) -> None:
    build = GraphBuilder()
    build.collective({0: [], 1: []}, transfer_ns=1000, lane="thread 2")

    timeline = simulate_shared(build.graph(), None, Cores(speed=(1.0,), transfers=transfers))

    assert timeline.end_ns.max() == end_ns


def test_a_transfer_slows_what_works_beside_it() -> None:
    build = GraphBuilder()
    build.add(NodeKind.OPERATOR, takes_ns=900)
    build.collective({0: []}, transfer_ns=2000, lane="thread 2")

    timeline = simulate_shared(build.graph(), None, Cores(speed=(1.0,), transfers=0.5))

    # 1.5 threads on one core: each at 2/3; half of the transfer goes on at full speed
    assert timeline.end_ns[0] == 1350
    assert timeline.end_ns[-1] == 1350 + (2000 - 1350 * (1 - 0.5 / 3))


def test_measured_times_of_a_crowd_are_less_work() -> None:
    graph = chains([[100], [100], [100]])
    crowd = simulate_shared(graph, None, Cores.of(2))

    assert crowd.end_ns.tolist() == [150, 150, 150]
    assert alone_ns(crowd, Cores.of(2)).tolist() == [100, 100, 100]
    assert alone_ns(crowd, Cores.of(3)).tolist() == [150, 150, 150]


def test_a_graph_without_nodes_takes_no_time() -> None:
    timeline = simulate_shared(GraphBuilder().graph(), None, Cores.of(1))

    assert len(timeline.end_ns) == 0
    assert len(alone_ns(timeline, Cores.of(1))) == 0


@pytest.mark.parametrize(
    ("speed", "transfers", "words"),
    [
        ((), 0.0, r"one speed above 0 .* got \(\)"),
        ((1.0, 0.0), 0.0, "one speed above 0"),
        ((float("nan"),), 0.0, "one speed above 0"),
        ((1.0,), 1.5, "must be 0 to 1, got 1.5"),
    ],
)
def test_cores_that_cannot_be_are_refused(
    speed: tuple[float, ...], transfers: float, words: str
) -> None:
    with pytest.raises(SimulationError, match=words):
        Cores(speed=speed, transfers=transfers)


def test_a_host_without_cores_is_refused() -> None:
    with pytest.raises(SimulationError, match="1 core or more, got 0"):
        Cores.of(0)


def test_a_rank_without_a_host_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"nothing is said of \[1\] \(1 of 2 ranks\)"):
        simulate_shared(chains([[1], [1]]), None, Cores.of(1), hosts={0: 0})


def test_durations_that_cannot_be_are_refused() -> None:
    graph = chains([[1, 2]])
    one = Cores.of(1)

    with pytest.raises(SimulationError, match=r"node 1 .* takes -5"):
        simulate_shared(graph, np.array([1, -5]), one)
    with pytest.raises(SimulationError, match="int64 nanoseconds, got float64"):
        simulate_shared(graph, np.array([1.0, 2.0]), one)
    with pytest.raises(SimulationError, match="104 days"):
        simulate_shared(graph, np.array([2**53, 1]), one)


def test_columns_that_the_loop_would_misread_are_refused() -> None:
    graph = chains([[1, 2, 3]])
    backward = replace(graph, predecessor=np.array([1, 1], np.int32))
    falling = replace(graph, first_edge=np.array([0, 0, 3, 2]))

    with pytest.raises(SimulationError, match="not topological"):
        simulate_shared(backward, None, Cores.of(1))
    with pytest.raises(SimulationError, match="first_edge must rise"):
        simulate_shared(falling, None, Cores.of(1))


def test_a_rank_that_stands_for_two_takes_as_long_as_the_two() -> None:
    cores = Cores(speed=(1.0, 0.9, 0.6, 0.4))
    both = simulate_shared(chains([[1000], [1000]]), None, cores)

    one = simulate_shared(chains([[1000]]), None, cores.of_copies(2))

    assert one.end_ns.tolist() == both.end_ns[:1].tolist()
    assert cores.of_copies(1) == cores
    assert cores.of_copies(2).speed == (0.9, 0.4, 0.4 * 4 / 6, 0.4 * 4 / 8)
    with pytest.raises(SimulationError, match="got 0 copies"):
        cores.of_copies(0)
