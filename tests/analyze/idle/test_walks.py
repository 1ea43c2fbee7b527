from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze.idle.walks import WalkPieces, Walks, binding_edges, walked_apart, walked_back
from foretrace.graph import ExecutionGraph, NodeKind, Timeline
from foretrace.simulate import simulate
from tests.graphs import Edge, GraphBuilder, timeline_of
from tests.oracles import walks as oracle
from tests.simulate.strategies import graphs


def rows_of(pieces: WalkPieces, walk: int) -> list[oracle.Piece]:
    columns = (pieces.node, pieces.edge, pieces.what, pieces.begin_ns, pieces.end_ns)
    chosen = pieces.walk == walk
    return [
        (node, edge, what, begin, end)
        for node, edge, what, begin, end in zip(
            *(column[chosen].tolist() for column in columns), strict=True
        )
    ]


@st.composite
def placed(draw: st.DrawFn) -> Timeline:
    """A simulated timeline, or one whose nodes start when they like."""
    graph: ExecutionGraph = draw(graphs())
    if draw(st.booleans()):
        return simulate(graph)
    starts = draw(st.lists(st.integers(0, 80), min_size=graph.num_nodes, max_size=graph.num_nodes))
    return timeline_of(graph, starts)


@given(timeline=placed())
def test_binding_edges_equal_the_oracle(timeline: Timeline) -> None:
    binding = binding_edges(timeline)

    expected = [oracle.binding_edge(timeline, node) for node in range(timeline.graph.num_nodes)]
    assert binding.tolist() == expected


@given(timeline=placed(), data=st.data())
def test_walks_equal_the_oracle_and_cover_their_time_once(
    timeline: Timeline, data: st.DataObject
) -> None:
    if timeline.graph.num_nodes == 0:
        return
    node = st.integers(0, timeline.graph.num_nodes - 1)
    nodes = data.draw(st.lists(node, min_size=1, max_size=4))
    until_ns = [int(timeline.start_ns[each]) for each in nodes]
    begin_ns = [data.draw(st.integers(0, until)) for until in until_ns]
    walks = Walks(*(np.array(each, np.int64) for each in (nodes, begin_ns, until_ns)))

    pieces = walked_back(timeline, walks, binding_edges(timeline))

    for walk, (each, begin, until) in enumerate(zip(nodes, begin_ns, until_ns, strict=True)):
        found = rows_of(pieces, walk)
        assert found == oracle.walk_back(timeline, each, begin, until)
        moments = [moment for *_, low, high in found for moment in range(low, high)]
        assert sorted(moments) == list(range(begin, until))


@given(graph=graphs(), data=st.data())
def test_two_ways_differ_by_what_stands_before_they_meet(
    graph: ExecutionGraph, data: st.DataObject
) -> None:
    if graph.num_nodes == 0:
        return
    timeline, ends = simulate(graph), st.integers(0, graph.num_nodes - 1)
    pair = np.array([data.draw(ends), data.draw(ends)], np.int64)
    binding = binding_edges(timeline)

    pieces = walked_apart(timeline, pair, binding[pair], timeline.start_ns[pair], binding)

    ways = oracle.ways_apart(timeline, *pair.tolist())
    for side, way in enumerate(ways):
        nodes = {node for node, _, what, *_ in rows_of(pieces, side) if what == oracle.OWN}
        worked = {node for node in way[1:] if timeline.end_ns[node] > timeline.start_ns[node]}
        assert nodes - {int(pair[side])} == worked
    on_ways = [set(oracle.way(timeline, int(end))) for end in pair]
    is_fork = bool(on_ways[0] & on_ways[1]) and all(
        int(end) in way for end, way in zip(pair, ways, strict=True)
    )
    if is_fork:
        signed_ns = np.where(pieces.walk == 0, pieces.duration_ns, -pieces.duration_ns)
        assert int(signed_ns.sum()) == timeline.start_ns[pair[0]] - timeline.start_ns[pair[1]]


def test_a_long_walk_outgrows_its_first_room() -> None:
    build = GraphBuilder()
    last = build.add(NodeKind.HOST_SEGMENT, takes_ns=2)
    for _ in range(6_000):
        last = build.add(NodeKind.HOST_SEGMENT, takes_ns=2, after=[Edge(last, lag_ns=1)])
    timeline = simulate(build.graph())
    end = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=1, after=[last])
    timeline = simulate(build.graph())
    walks = Walks(*(np.array([each]) for each in (end, 0, int(timeline.start_ns[end]))))

    pieces = walked_back(timeline, walks, binding_edges(timeline))

    assert len(pieces) == 2 * 6_000 + 1
    assert int(pieces.duration_ns.sum()) == int(timeline.start_ns[end])
