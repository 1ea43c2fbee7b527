"""A critical path's pieces are the step, and slack is what is not on it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import PieceKind, critical_path, slack_ns, steps, windows
from foretrace.base import GraphError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase, Timeline
from foretrace.simulate import NO_LIMIT_NS, simulate
from tests.analyze.step_graphs import step_graphs
from tests.graphs import Block, Edge, GraphBuilder, timeline_of

STEP = "ProfilerStep#0"


def _two_ranks() -> Timeline:
    """Rank 1's kernel is late for an all-reduce that rank 0 then waits for on its host."""
    build = GraphBuilder()
    begin = {rank: build.add(NodeKind.STEP_BEGIN, rank=rank, step=STEP) for rank in (0, 1)}
    launch = {
        rank: build.add(NodeKind.LAUNCH, rank=rank, takes_ns=10, after=[begin[rank]], step=STEP)
        for rank in begin
    }
    kernel = {
        rank: build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            name="sgemm",
            takes_ns=takes_ns,
            after=[Edge(launch[rank], EdgeKind.LAUNCH, lag_ns=5)],
            step=STEP,
            block=Block(Part.LAYER, Phase.FORWARD, 3, 0),
        )
        for rank, takes_ns in ((0, 50), (1, 80))
    }
    finish = build.collective(
        {rank: [kernel[rank]] for rank in begin}, transfer_ns=30, lane="stream 7", step=STEP
    )
    wait = build.add(
        NodeKind.SYNC,
        takes_ns=4,
        after=[launch[0], Edge(finish[0], EdgeKind.WAKE, lag_ns=7)],
        step=STEP,
    )
    for rank, last in ((0, wait), (1, launch[1])):
        build.add(NodeKind.STEP_END, rank=rank, after=[last], step=STEP)
    return simulate(build.graph())


def test_the_path_leads_through_ranks_streams_and_threads() -> None:
    path = critical_path(_two_ranks())

    assert path.step_ns == 10 + 5 + 80 + 30 + 7 + 4
    rows = path.to_polars().select("class", "rank", "piece", "begin_ns", "end_ns").rows()
    assert rows == [
        ("launch", 1, "work", 0, 10),
        ("launch latency", 1, "lag", 10, 15),
        ("gemm", 1, "work", 15, 95),
        ("allreduce", 0, "work", 95, 125),
        ("wake-up", 0, "lag", 125, 132),
        ("synchronisation", 0, "work", 132, 136),
    ]


def test_times_add_up_under_every_label() -> None:
    path = critical_path(_two_ranks())

    assert [(one.label, one.time_ns) for one in path.by_class()] == [
        ("gemm", 80),
        ("allreduce", 30),
        ("launch", 10),
        ("wake-up", 7),
        ("launch latency", 5),
        ("synchronisation", 4),
    ]
    assert [(one.label, one.time_ns) for one in path.by_rank()] == [("rank 1", 95), ("rank 0", 41)]
    lanes = [(one.label, one.time_ns, one.num_pieces) for one in path.by_lane_kind()]
    assert lanes == [("device", 115, 3), ("host", 21, 3)]
    blocks = [(one.label, one.time_ns) for one in path.by_block()]
    assert blocks == [("layer 3 forward", 85), ("no block", 51)]
    assert path.by_layer()[0].label == "layer 3"
    assert path.by_part()[0].label == "layer"
    assert path.by_phase()[0].label == "forward"
    assert path.by_name(top=1)[0].label == "sgemm"
    assert sum(one.share for one in path.by_class()) == pytest.approx(1)


def test_a_ranks_own_step_ends_with_its_own_last_operation() -> None:
    path = critical_path(_two_ranks(), rank=1)

    assert path.step_ns == 125
    assert {int(rank) for rank in path.timeline.graph.rank[path.node]} == {1}


def test_measured_time_that_no_edge_explains_is_its_own_piece() -> None:
    replayed = _two_ranks()
    later = replayed.start_ns + np.where(np.arange(replayed.graph.num_nodes) >= 4, 20, 0)
    measured = timeline_of(replayed.graph, later)

    path = critical_path(measured)

    found = [(kind, end) for kind, end in zip(path.kind, path.end_ns, strict=True)]
    assert (PieceKind.LAG, 15) in found
    assert (PieceKind.UNEXPLAINED, 35) in found
    assert [one.time_ns for one in path.by_class() if one.label == "unexplained"] == [20]


def test_a_step_begins_where_the_one_before_ended() -> None:
    build = GraphBuilder()
    host: list[int] = []
    kernels: list[Edge] = []
    for number, takes_ns in enumerate((100, 70)):
        step = f"ProfilerStep#{number}"
        host = [build.add(NodeKind.STEP_BEGIN, after=host, step=step)]
        host = [build.add(NodeKind.LAUNCH, takes_ns=10, after=host, step=step)]
        after = [Edge(host[0], EdgeKind.LAUNCH), *kernels]
        kernel = build.add(
            NodeKind.KERNEL, lane="stream 7", takes_ns=takes_ns, after=after, step=step
        )
        kernels = [Edge(kernel, EdgeKind.STREAM)]
        host = [build.add(NodeKind.STEP_END, after=host, step=step)]

    path = critical_path(simulate(build.graph()), step="ProfilerStep#1")

    # the device is behind the host: the second step lasts as long as its kernel
    assert path.span.begin_ns == 110
    assert [(one.label, one.time_ns) for one in path.by_class()] == [("other", 70)]


@given(graph=step_graphs(), data=st.data())
def test_pieces_tile_every_step_of_any_timeline(graph: ExecutionGraph, data: st.DataObject) -> None:
    timeline = simulate(graph)
    if data.draw(st.booleans()):
        moved = st.lists(st.integers(0, 30), min_size=graph.num_nodes, max_size=graph.num_nodes)
        timeline = timeline_of(graph, timeline.start_ns + np.array(data.draw(moved)))
    step = data.draw(st.sampled_from(graph.step_names))
    rank = data.draw(st.sampled_from((None, *graph.ranks)))

    path = critical_path(timeline, step=step, rank=rank)

    assert path.duration_ns.sum() == path.step_ns
    assert (path.duration_ns > 0).all()
    cuts = [path.span.begin_ns, *path.end_ns.tolist()]
    assert cuts == [*path.begin_ns.tolist(), path.span.end_ns]
    for shares in (path.by_class(), path.by_block(), path.by_rank(), path.by_lane_kind()):
        assert sum(one.time_ns for one in shares) == path.step_ns
    if not timeline.is_measured:
        assert PieceKind.UNEXPLAINED not in path.kind
        work = path.kind == PieceKind.WORK
        assert (path.begin_ns[work] >= timeline.start_ns[path.node[work]]).all()
        assert (path.end_ns[work] <= timeline.end_ns[path.node[work]]).all()


@given(graph=step_graphs(), data=st.data())
def test_windows_of_consecutive_steps_tile_the_run(
    graph: ExecutionGraph, data: st.DataObject
) -> None:
    timeline = simulate(graph)
    moved = st.lists(st.integers(0, 30), min_size=graph.num_nodes, max_size=graph.num_nodes)
    if data.draw(st.booleans()):
        timeline = timeline_of(graph, timeline.start_ns + np.array(data.draw(moved)))

    table = windows(timeline)

    assert table.begin_ns[1:].tolist() == table.end_ns[:-1].tolist()
    assert (table.duration_ns >= 0).all()
    assert table.end_ns[-1] == steps(timeline).end_ns.max()


@given(graph=step_graphs(), data=st.data())
def test_slack_is_nothing_on_the_path_and_growth_beyond_it_moves_the_end(
    graph: ExecutionGraph, data: st.DataObject
) -> None:
    timeline = simulate(graph)
    step = data.draw(st.sampled_from(graph.step_names))
    path = critical_path(timeline, step=step)

    slack = slack_ns(timeline, step=step)

    assert (slack[path.node] == 0).all()
    ends_ns = _end_ns(timeline, step)
    node = data.draw(st.integers(0, graph.num_nodes - 1))
    if slack[node] == NO_LIMIT_NS:
        return
    for more_ns, moves_ns in ((slack[node], 0), (slack[node] + 3, 3)):
        grown_ns = graph.measured_ns.copy()
        grown_ns[node] += more_ns
        assert _end_ns(simulate(graph, grown_ns), step) == ends_ns + moves_ns


def _end_ns(timeline: Timeline, step: str) -> int:
    """When the last rank's step ends, whatever the steps before it do."""
    table = steps(timeline)
    return int(table.end_ns[table.step == table.step_names.index(step)].max())


def test_a_step_that_is_not_there_is_refused() -> None:
    with pytest.raises(GraphError, match=r"no step 'ProfilerStep#9': the recording has Prof"):
        critical_path(_two_ranks(), step="ProfilerStep#9")


def test_a_rank_without_the_step_is_refused() -> None:
    with pytest.raises(GraphError, match=r"rank 5 has no step 'ProfilerStep#0': ranks.* are 0, 1"):
        critical_path(_two_ranks(), rank=5)


def test_the_path_can_be_written_as_json_and_as_a_table() -> None:
    path = critical_path(_two_ranks())

    written = path.as_json()
    pieces = written["pieces"]

    assert written["step_ns"] == 136
    assert isinstance(pieces, list)
    assert pl.DataFrame(pieces)["duration_ns"].sum() == 136
    assert "gemm" in str(path)
