from __future__ import annotations

from hypothesis import given

from foretrace.analyze import of_no_step_ns, step_time_ns, steps, windows
from foretrace.graph import NodeKind, Timeline
from tests.analyze.strategies import timelines
from tests.graphs import GraphBuilder, timeline_of

_ENDS_A_STEP = {
    NodeKind.STEP_BEGIN,
    NodeKind.STEP_END,
    NodeKind.KERNEL,
    NodeKind.MEMCPY,
    NodeKind.MEMSET,
    NodeKind.FINISH,
}


def test_step_ends_with_the_last_device_operation_launched_in_it() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=400, step="a")
    build.add(NodeKind.STEP_END, step="a")
    build.add(NodeKind.STEP_BEGIN, step="b")
    build.add(NodeKind.STEP_END, step="b")
    timeline = timeline_of(build.graph(), [10, 20, 100, 100, 500])

    table = steps(timeline)

    assert table.mark_ns.tolist() == [10, 100]
    assert table.host_end_ns.tolist() == [100, 500]
    assert table.end_ns.tolist() == [420, 500]
    assert table.host_duration_ns.tolist() == [90, 400]
    assert table.end_node.tolist() == [1, 4]


def test_steps_of_a_rank_share_no_moment_where_the_device_lags_behind() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=60)
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=100, step="a")
    build.add(NodeKind.STEP_END, step="a")
    build.add(NodeKind.STEP_BEGIN, step="b")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=100, step="b")
    build.add(NodeKind.STEP_END, step="b")
    timeline = timeline_of(build.graph(), [0, 10, 60, 30, 30, 160, 50])

    table = steps(timeline)

    assert table.mark_ns.tolist() == [10, 30]
    assert table.begin_ns.tolist() == [60, 160]
    assert table.begin_node.tolist() == [0, 2]
    assert table.duration_ns.tolist() == [100, 100]
    assert windows(timeline).begin_ns.tolist() == [60, 160]
    assert step_time_ns(timeline) == 100


def test_a_step_that_is_over_before_the_one_before_it_has_no_length() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=400, step="a")
    build.add(NodeKind.STEP_END, step="a")
    build.add(NodeKind.STEP_BEGIN, step="b")
    build.add(NodeKind.STEP_END, step="b")

    table = steps(timeline_of(build.graph(), [10, 20, 100, 100, 200]))

    assert table.end_ns.tolist() == [420, 200]
    assert table.duration_ns.tolist() == [410, 0]


def test_host_operators_do_not_prolong_a_step() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.OPERATOR, lane="thread 2", takes_ns=900, step="a")
    build.add(NodeKind.STEP_END, step="a")

    table = steps(timeline_of(build.graph(), [0, 0, 50]))

    assert table.end_ns.tolist() == [50]


def test_device_work_of_no_step_counts_as_far_as_it_lies_in_one() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=60)
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=20)
    build.add(NodeKind.STEP_END, step="a")
    timeline = timeline_of(build.graph(), [0, 50, 60, 85, 100])

    assert of_no_step_ns(timeline).tolist() == [15]


def test_step_without_an_end_mark_ends_with_its_device_work() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.MEMCPY, lane="stream 7", takes_ns=30, step="a")

    table = steps(timeline_of(build.graph(), [5, 10]))

    assert table.host_end_ns.tolist() == [40]
    assert table.end_ns.tolist() == [40]


def test_rank_that_lacks_a_step_has_no_row_for_it() -> None:
    build = GraphBuilder()
    for rank, step in ((0, "a"), (0, "b"), (3, "b")):
        build.add(NodeKind.STEP_BEGIN, rank=rank, step=step)
        build.add(NodeKind.STEP_END, rank=rank, step=step)

    table = steps(timeline_of(build.graph(), range(6)))

    assert table.to_polars().select("step", "rank").rows() == [("a", 0), ("b", 0), ("b", 3)]


def _carried_until_ns(timeline: Timeline, rank: int) -> int:
    """The end of a rank's last device work of no step that stands before work of one."""
    graph, until_ns = timeline.graph, -1
    for lane, one in enumerate(graph.lanes):
        if one.rank != rank or not one.is_device:
            continue
        ahead: list[int] = []
        for node in range(graph.num_nodes):
            if graph.lane[node] != lane:
                continue
            if graph.step[node] >= 0:
                until_ns = max([until_ns, *ahead])
                break
            ahead.append(int(timeline.end_ns[node]))
    return until_ns


@given(timeline=timelines())
def test_table_equals_a_search_of_every_step_and_rank(timeline: Timeline) -> None:
    graph = timeline.graph
    expected = []
    over_ns = {rank: _carried_until_ns(timeline, rank) for rank in graph.ranks}
    for step in range(len(graph.step_names)):
        for rank in graph.ranks:
            nodes = [
                node
                for node in range(graph.num_nodes)
                if graph.step[node] == step and graph.rank[node] == rank
            ]
            begins = [node for node in nodes if graph.kind[node] == NodeKind.STEP_BEGIN]
            host_ends = [node for node in nodes if graph.kind[node] == NodeKind.STEP_END]
            last = [node for node in nodes if NodeKind(graph.kind[node]) in _ENDS_A_STEP]
            mark_ns = min(int(timeline.start_ns[node]) for node in begins)
            end_ns = max(int(timeline.end_ns[node]) for node in last)
            begin_ns = min(max(mark_ns, over_ns[rank]), end_ns)
            host_end_ns = max(int(timeline.end_ns[node]) for node in host_ends)
            over_ns[rank] = max(over_ns[rank], end_ns)
            expected.append((step, rank, mark_ns, begin_ns, host_end_ns, end_ns))

    table = steps(timeline)

    columns = (
        table.step,
        table.rank,
        table.mark_ns,
        table.begin_ns,
        table.host_end_ns,
        table.end_ns,
    )
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert (timeline.end_ns[table.end_node] == table.end_ns).all()
    assert (graph.rank[table.end_node] == table.rank).all()
