from __future__ import annotations

from hypothesis import given

from foretrace.analyze import of_no_step_ns, steps
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
    timeline = timeline_of(build.graph(), [10, 20, 100, 100, 200])

    table = steps(timeline)

    assert table.begin_ns.tolist() == [10, 100]
    assert table.host_end_ns.tolist() == [100, 200]
    assert table.end_ns.tolist() == [420, 200]
    assert table.duration_ns.tolist() == [410, 100]
    assert table.host_duration_ns.tolist() == [90, 100]
    assert table.end_node.tolist() == [1, 4]


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
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=20)
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10, step="a")
    build.add(NodeKind.STEP_END, step="a")
    timeline = timeline_of(build.graph(), [0, 50, 60, 80, 100])

    assert of_no_step_ns(timeline).tolist() == [10 + 20]


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


@given(timeline=timelines())
def test_table_equals_a_search_of_every_step_and_rank(timeline: Timeline) -> None:
    graph = timeline.graph
    expected = []
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
            expected.append(
                (
                    step,
                    rank,
                    min(int(timeline.start_ns[node]) for node in begins),
                    max(int(timeline.end_ns[node]) for node in host_ends),
                    max(int(timeline.end_ns[node]) for node in last),
                )
            )

    table = steps(timeline)

    columns = (table.step, table.rank, table.begin_ns, table.host_end_ns, table.end_ns)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert (timeline.end_ns[table.end_node] == table.end_ns).all()
    assert (graph.rank[table.end_node] == table.rank).all()
