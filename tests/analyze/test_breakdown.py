from __future__ import annotations

import pytest
from hypothesis import given

from foretrace.analyze import Parts, RankBreakdown, breakdown, steps
from foretrace.base import GraphError
from foretrace.graph import NodeKind, Timeline
from foretrace.simulate import simulate
from tests.analyze.strategies import timelines
from tests.graphs import GraphBuilder, timeline_of
from tests.oracles import intervals as oracle


def _overlapped_step() -> Timeline:
    """Step 0..100: compute 10..60, communication 40..80 on rank 0."""
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=50, step="a")
    build.collective({0: ()}, transfer_ns=15, step="a")
    build.add(NodeKind.STEP_END, step="a")
    return timeline_of(build.graph(), [0, 10, 40, 65, 65, 100])


def test_overlap_and_waiting_are_told_apart() -> None:
    parts = breakdown(_overlapped_step()).rows[0].parts

    assert parts == Parts(
        exposed_compute_ns=30,
        overlapped_ns=20,
        exposed_communication_ns=20,
        idle_ns=30,
        waiting_for_ranks_ns=5,
    )
    assert parts.shown() == {
        "exposed_compute": 30,
        "overlapped": 20,
        "waiting_for_ranks": 5,
        "exposed_transfer": 15,
        "idle": 30,
    }


def test_backlog_of_the_step_before_is_that_steps() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=130, step="a")
    build.add(NodeKind.STEP_END, step="a")
    build.add(NodeKind.STEP_BEGIN, step="b")
    build.add(NodeKind.STEP_END, step="b")
    timeline = timeline_of(build.graph(), [0, 20, 100, 100, 200])

    rows = breakdown(timeline).rows

    assert [row.step_ns for row in rows] == [150, 50]
    assert [row.parts.exposed_compute_ns for row in rows] == [130, 0]
    assert [row.parts.idle_ns for row in rows] == [20, 50]


def test_concurrent_streams_count_once() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=60, step="a")
    build.add(NodeKind.MEMCPY, lane="stream 8", takes_ns=60, step="a")
    build.add(NodeKind.STEP_END, step="a")

    parts = breakdown(timeline_of(build.graph(), [0, 0, 30, 100])).rows[0].parts

    assert parts.exposed_compute_ns == 90


def test_host_operators_are_compute_only_where_there_is_no_device() -> None:
    build = GraphBuilder()
    for rank in (0, 1):
        build.add(NodeKind.STEP_BEGIN, rank=rank, step="a")
        build.add(NodeKind.OPERATOR, rank=rank, takes_ns=70, step="a")
        build.add(NodeKind.STEP_END, rank=rank, step="a")
    build.add(NodeKind.KERNEL, rank=1, lane="stream 7", takes_ns=5, step="a")

    rows = breakdown(timeline_of(build.graph(), [0, 10, 100, 0, 10, 100, 20])).rows

    assert [row.parts.exposed_compute_ns for row in rows] == [70, 5]


def test_totals_add_up_over_ranks_and_steps() -> None:
    result = breakdown(_overlapped_step())

    assert result.overall == result.of_rank(0)
    assert result.overall.total_ns == 100
    assert result.of_rank(9) == Parts(0, 0, 0, 0)
    assert result.to_polars()["overlapped_ns"].to_list() == [20]
    assert result.as_json()["step_time_ns"] == 100
    assert result.as_json()["rows"] == [
        {
            "step": "a",
            "rank": 0,
            "step_ns": 100,
            "components": {
                "exposed_compute": 30,
                "overlapped": 20,
                "exposed_communication": 20,
                "idle": 30,
            },
            "waiting_for_ranks_ns": 5,
        }
    ]


@given(timeline=timelines())
def test_parts_equal_sets_of_moments_and_sum_to_the_step(timeline: Timeline) -> None:
    graph, table = timeline.graph, steps(timeline)
    spans = list(zip(timeline.start_ns.tolist(), timeline.end_ns.tolist(), strict=True))

    rows = breakdown(timeline).rows

    for index, row in enumerate(rows):
        of_rank = [node for node in range(graph.num_nodes) if graph.rank[node] == row.rank]
        has_device = any(lane.is_device and lane.rank == row.rank for lane in graph.lanes)
        window = set(range(int(table.begin_ns[index]), int(table.end_ns[index])))
        kind = NodeKind.KERNEL if has_device else NodeKind.OPERATOR
        compute = window & oracle.moments(
            spans[node] for node in of_rank if graph.kind[node] == kind
        )
        communication = window & oracle.moments(
            (spans[arrive][0], spans[finish][1])
            for arrive in of_rank
            for finish in of_rank
            if graph.kind[arrive] == NodeKind.ARRIVE
            and graph.kind[finish] == NodeKind.FINISH
            and graph.collective[arrive] == graph.collective[finish]
        )
        assert row.parts.as_json() == {
            "exposed_compute": len(compute - communication),
            "overlapped": len(compute & communication),
            "exposed_communication": len(communication - compute),
            "idle": len(window - compute - communication),
        }
        assert row.parts.total_ns == row.step_ns == len(window)
    assert len(rows) == len(table)


def test_parts_that_do_not_sum_to_the_step_are_refused() -> None:
    with pytest.raises(ValueError, match="must sum to 11 ns"):
        RankBreakdown(step=0, step_name="a", rank=0, step_ns=11, parts=Parts(1, 2, 3, 4))


def test_arrival_without_finish_is_named() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.collective({0: (), 1: ()}, transfer_ns=5, group="tensor", step="a")
    build.add(NodeKind.ARRIVE, rank=1, lane="stream 20", collective=0, step="a")
    timeline = timeline_of(build.graph(), range(7))

    with pytest.raises(GraphError, match="3 arrive and 2 finish"):
        breakdown(timeline)


def test_a_breakdown_prints_as_a_table() -> None:
    build = GraphBuilder()
    begin = build.add(NodeKind.STEP_BEGIN, step="ProfilerStep#7")
    work = build.add(NodeKind.OPERATOR, takes_ns=1_500_000, after=[begin], step="ProfilerStep#7")
    build.add(NodeKind.STEP_END, after=[work], step="ProfilerStep#7")

    text = str(breakdown(simulate(build.graph())))

    assert text.startswith("1 step on 1 rank: 100 % exposed compute, ")
    *_, row = text.split("\n\n")[2].splitlines()
    assert row.split() == ["ProfilerStep#7", "0", "1.500", "1.500", *4 * ["0.000"]]
