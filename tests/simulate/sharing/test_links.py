"""Links that flows share: the oracle's moments, the static engine's, closed forms, refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import SimulationError
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import NO_FLOW, Traffic, simulate, simulate_links, simulate_shared
from tests.graphs import GraphBuilder
from tests.oracles.links import LinksOracle
from tests.simulate.strategies import graphs

NUM_LINKS = 4


def traffic_of(
    flows: Sequence[int],
    patterns: Sequence[Mapping[int, float]],
    *,
    pattern: Sequence[int] | None = None,
    pace: Sequence[float] | None = None,
    delay_ns: Sequence[int] | None = None,
) -> Traffic:
    """Flow of each node; shares of links of each pattern."""
    counts = [len(one) for one in patterns]
    num_flows = max(flows, default=-1) + 1
    own = range(num_flows) if pattern is None else pattern
    return Traffic(
        flow=np.array(flows, np.int32),
        delay_ns=np.array(delay_ns or [0] * len(flows), np.int64),
        pattern=np.array(own, np.int32),
        first_use=np.append(0, np.cumsum(counts)).astype(np.int64),
        link=np.array([link for one in patterns for link in one], np.int32),
        share=np.array([share for one in patterns for share in one.values()], np.float64),
        pace=np.array(pace or [1.0] * len(patterns), np.float64),
        num_links=NUM_LINKS,
    )


def apart(*lengths_ns: int) -> ExecutionGraph:
    """Transfers that wait for nothing."""
    build = GraphBuilder()
    for rank, takes_ns in enumerate(lengths_ns):
        build.add(NodeKind.FINISH, rank=rank, lane="stream 20", takes_ns=takes_ns)
    return build.graph()


@st.composite
def networks(draw: st.DrawFn) -> tuple[ExecutionGraph, Traffic]:
    """Any graph of a few nodes, some of which are parts of flows over a few links."""
    graph = draw(graphs(max_nodes=12))
    share = st.sampled_from((0.125, 0.25, 0.5, 0.75, 1.0, 2.0))
    pattern = st.dictionaries(st.integers(0, NUM_LINKS - 1), share, max_size=3)
    patterns = draw(st.lists(pattern, min_size=1, max_size=4))
    own = draw(st.lists(st.integers(0, len(patterns) - 1), min_size=1, max_size=6))
    count = graph.num_nodes
    flow = st.integers(NO_FLOW, len(own) - 1)
    flows = draw(st.lists(flow, min_size=count, max_size=count))
    pace = draw(st.lists(st.sampled_from((0.25, 0.5, 1.0, 2.0)), min_size=4, max_size=4))
    delay_ns = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count))
    traffic = traffic_of(
        flows, patterns, pattern=own, pace=pace[: len(patterns)], delay_ns=delay_ns
    )
    return graph, traffic


@settings(max_examples=20)
@given(network=networks())
def test_what_flows_put_on_a_link_is_carried(network: tuple[ExecutionGraph, Traffic]) -> None:
    graph, traffic = network
    nodes = np.flatnonzero(traffic.flow != NO_FLOW)
    flow = np.full(graph.num_nodes, NO_FLOW, np.int32)
    flow[nodes] = np.arange(len(nodes))
    traffic = replace(traffic, flow=flow, pattern=traffic.pattern[traffic.flow[nodes]])
    oracle = LinksOracle(graph, graph.measured_ns, traffic)

    timeline = simulate_shared(graph, None, traffic=traffic)

    asked = np.zeros(NUM_LINKS)
    for node, own in zip(nodes.tolist(), traffic.pattern.tolist(), strict=True):
        uses = slice(traffic.first_use[own], traffic.first_use[own + 1])
        work_ns = max(0, graph.measured_ns[node] - traffic.delay_ns[node])
        asked[traffic.link[uses]] += traffic.share[uses] * work_ns
    assert [float(oracle.carried[link]) for link in range(NUM_LINKS)] == pytest.approx(asked)
    assert int(timeline.end_ns.max(initial=0)) + 1 >= asked.max()


@settings(max_examples=60)
@given(network=networks())
def test_moments_are_the_oracles_and_no_link_carries_more_than_it_can(
    network: tuple[ExecutionGraph, Traffic],
) -> None:
    graph, traffic = network
    oracle = LinksOracle(graph, graph.measured_ns, traffic)

    timeline = simulate_shared(graph, None, traffic=traffic)

    for node in range(graph.num_nodes):
        assert abs(timeline.start_ns[node] - oracle.starts[node]) <= 0.5 + 1e-6
        assert abs(timeline.end_ns[node] - oracle.ends[node]) <= 0.5 + 1e-6
    assert oracle.most <= 1


@settings(max_examples=40)
@given(network=networks(), times=st.integers(1, 10**9))
def test_where_no_link_can_be_full_it_is_the_static_engine_to_the_nanosecond(
    network: tuple[ExecutionGraph, Traffic], times: int
) -> None:
    graph, traffic = network
    wide = replace(traffic, share=traffic.share / 1024)
    duration_ns = graph.measured_ns * times

    shared, links = simulate_links(graph, duration_ns, wide)

    static = simulate(graph, duration_ns)
    assert shared.start_ns.tolist() == static.start_ns.tolist()
    assert shared.end_ns.tolist() == static.end_ns.tolist()
    assert not links.crowded_ns.any()


def test_two_flows_on_one_link_take_twice_as_long_and_the_longer_ends_alone() -> None:
    link = {0: 1.0}

    equal = simulate_shared(apart(1000, 1000), None, traffic=traffic_of([0, 1], [link, link]))
    unequal = simulate_shared(apart(1000, 400), None, traffic=traffic_of([0, 1], [link, link]))

    assert equal.end_ns.tolist() == [2000, 2000]
    assert unequal.end_ns.tolist() == [1400, 800]


@pytest.mark.parametrize("senders", [2, 3, 8])
def test_incast_of_n_flows_into_one_link_takes_n_times_as_long(senders: int) -> None:
    into = {3: 1.0}
    graph = apart(*[5000] * senders)

    timeline, links = simulate_links(
        graph,
        None,
        traffic_of(range(senders), [into] * senders),
        watched=np.ones(senders, np.uint8),
    )

    assert set(timeline.end_ns.tolist()) == {5000 * senders}
    assert links.crowded_ns.tolist() == [0, 0, 0, 5000 * senders]
    assert links.held_ns[3] == 5000 * senders * senders
    assert links.num_events == 2 * senders


def test_a_flow_that_another_link_holds_leaves_the_rest_to_others() -> None:
    # the first is held to a third of link 0 by two others there, so link 1 leaves the fourth 2/3
    flows = [{0: 1.0, 1: 1.0}, {0: 1.0}, {0: 1.0}, {1: 1.0}]

    timeline = simulate_shared(
        apart(100, 10_000, 10_000, 200), None, traffic=traffic_of(range(4), flows)
    )

    assert timeline.end_ns[0] == timeline.end_ns[3] == 300


def test_more_channels_take_more_of_a_link() -> None:
    link = {0: 1.0}

    timeline = simulate_shared(
        apart(3000, 1000), None, traffic=traffic_of([0, 1], [link, link], pace=[3.0, 1.0])
    )

    assert timeline.end_ns.tolist() == [4000, 4000]


def test_latency_passes_before_a_link_is_asked_for() -> None:
    link = {0: 1.0}

    timeline = simulate_shared(
        apart(1300, 1300), None, traffic=traffic_of([0, 1], [link, link], delay_ns=[300, 300])
    )

    assert timeline.end_ns.tolist() == [2300, 2300]


def test_all_members_of_a_flow_are_slowed_alike() -> None:
    graph = apart(1000, 1000, 1000)

    timeline = simulate_shared(graph, None, traffic=traffic_of([0, 0, 1], [{0: 1.0}, {0: 1.0}]))

    assert timeline.end_ns.tolist() == [2000, 2000, 2000]


def test_broken_traffic_is_refused() -> None:
    graph, right = apart(10, 10), traffic_of([0, 1], [{0: 1.0}, {0: 1.0}])

    with pytest.raises(SimulationError, match="a link without bandwidth carries nothing"):
        simulate_shared(graph, None, traffic=replace(right, share=np.array([1.0, np.inf])))
    with pytest.raises(SimulationError, match="names a link that there is not, of 4"):
        simulate_shared(graph, None, traffic=replace(right, link=np.array([0, 4], np.int32)))
    with pytest.raises(SimulationError, match="for 1 nodes"):
        simulate_shared(apart(10), None, traffic=right)
