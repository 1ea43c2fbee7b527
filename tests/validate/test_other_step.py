from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import ModelError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Recording
from foretrace.simulate import simulate
from foretrace.validate import other_step_report
from tests.graphs import Edge, GraphBuilder, recording_of
from tests.validate.strategies import noise_ns, training_graph, training_graphs


def _exact(graph: ExecutionGraph) -> Recording:
    return recording_of(graph, simulate(graph))


def test_equal_steps_predict_each_other_exactly() -> None:
    report = other_step_report(_exact(_serial([[40, 60]] * 4)))

    assert report.worst_error_percent == 0
    assert report.worst_naive_error_percent == 0
    assert report.matched_time_share == 1
    assert report.num_same_name == report.num_same_kind == 0
    assert report.num_matched == 4 * 2


def _serial(durations: list[list[int]], *, kind: NodeKind = NodeKind.OPERATOR) -> ExecutionGraph:
    """Steps of work of one kind, one after the other: a step takes their sum."""
    build = GraphBuilder()
    at: list[int] = []
    for index, of_step in enumerate(durations):
        step = f"ProfilerStep#{index}"
        at = [build.add(NodeKind.STEP_BEGIN, name=step, after=at, step=step)]
        for position, takes_ns in enumerate(of_step):
            name = f"operator {position}"
            at = [build.add(kind, name=name, takes_ns=takes_ns, after=at, step=step)]
        at = [build.add(NodeKind.STEP_END, name=step, after=at, step=step)]
    return build.graph()


@pytest.mark.parametrize(
    ("kind", "expected_ns"),
    [
        # medians of the other three steps, node by node
        (NodeKind.KERNEL, [30 + 300, 30 + 200, 20 + 300, 20 + 200]),
        # means, rounded down: host work is interrupted now here, now there
        (NodeKind.OPERATOR, [30 + 300, 26 + 200, 23 + 266, 20 + 233]),
    ],
)
def test_each_node_takes_what_its_counterparts_took(kind: NodeKind, expected_ns: list[int]) -> None:
    durations = [[10, 100], [20, 400], [30, 200], [40, 300]]

    report = other_step_report(_exact(_serial(durations, kind=kind)))

    assert [row.predicted_ns for row in report.rows] == expected_ns
    sums = [sum(each) for each in durations]
    naive = [int(median(sums[:at] + sums[at + 1 :])) for at in range(4)]
    assert [row.naive_ns for row in report.rows] == naive
    assert [row.measured_ns for row in report.rows] == sums


def test_median_of_two_is_rounded_down() -> None:
    report = other_step_report(_exact(_serial([[1], [10], [13]])))

    assert [row.predicted_ns for row in report.rows] == [11, 7, 5]


def test_unmatched_nodes_take_their_names_then_their_kinds_median_and_are_counted() -> None:
    # the third step has operator 0 twice more often than the others, and an operator 7
    build = GraphBuilder()
    rows = [["a"], ["a"], ["a", "a", "new"]]
    takes = {0: [10], 1: [20], 2: [500, 600, 700]}
    at: list[int] = []
    for index, names in enumerate(rows):
        step = f"step {index}"
        at = [build.add(NodeKind.STEP_BEGIN, after=at, step=step)]
        for name, takes_ns in zip(names, takes[index], strict=True):
            at = [build.add(NodeKind.OPERATOR, name=name, takes_ns=takes_ns, after=at, step=step)]
        at = [build.add(NodeKind.STEP_END, after=at, step=step)]

    report = other_step_report(_exact(build.graph()), step_names=["step 2"])

    assert [row.predicted_ns for row in report.rows] == [15 + 15 + 15]
    assert (report.num_matched, report.num_same_name, report.num_same_kind) == (1, 1, 1)
    assert report.matched_time_share == pytest.approx(500 / 1800)


def test_host_time_goes_by_the_call_that_follows_it() -> None:
    """An extra call in one step must not shift every later gap's counterpart."""
    build = GraphBuilder()
    gap_ns = {"a": 100, "b": 200, "extra": 50, "c": 300}
    at: list[int] = []
    for index, names in enumerate([["a", "b", "c"], ["a", "extra", "b", "c"], ["a", "b", "c"]]):
        step = f"step {index}"
        at = [build.add(NodeKind.STEP_BEGIN, name=f"mark {index}", after=at, step=step)]
        for name in names:
            takes_ns = gap_ns[name]
            at = [build.add(NodeKind.HOST_SEGMENT, takes_ns=takes_ns, after=at, step=step)]
            at = [build.add(NodeKind.CALL, name=name, after=at, step=step)]
        at = [build.add(NodeKind.STEP_END, name=f"mark {index}", after=at, step=step)]

    report = other_step_report(_exact(build.graph()), step_names=["step 0", "step 2"])

    assert [row.error_percent for row in report.rows] == [0, 0]
    assert report.matched_time_share == 1


def test_missing_ranks_time_goes_by_its_collectives_place_in_the_step() -> None:
    """The third step has no ghost before its first collective; its second has one as always."""
    build = GraphBuilder()
    at: list[int] = []
    ghost_ns: dict[str, list[int | None]] = {"first": [20, 30, None], "second": [500, 700, 0]}
    for index in range(3):
        step = f"step {index}"
        at = [build.add(NodeKind.STEP_BEGIN, lane="thread 1", after=at, step=step)]
        for of_collective in ghost_ns.values():
            takes_ns = of_collective[index]
            ghosts = [
                build.add(NodeKind.GHOST, lane=None, takes_ns=each, after=at, step=step)
                for each in (takes_ns,)
                if each is not None
            ]
            at = [
                build.collective(
                    {0: at},
                    transfer_ns=10,
                    step=step,
                    also_after=[Edge(ghost, EdgeKind.GHOST) for ghost in ghosts],
                    is_transfer_estimated=True,
                )[0]
            ]
        build.add(NodeKind.STEP_END, after=at, step=step)

    report = other_step_report(_exact(build.graph()), step_names=["step 2"])

    assert [row.predicted_ns for row in report.rows] == [10 + 600 + 10]
    assert (report.num_same_name, report.num_same_kind) == (0, 0)


@given(graph=training_graphs(min_steps=3), seed=st.integers(0, 5), data=st.data())
def test_no_duration_of_the_predicted_step_is_read(
    graph: ExecutionGraph, seed: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, len(graph.step_names) - 1))
    names = [graph.step_names[step]]
    takes_time = graph.is_of(NodeKind.HOST_SEGMENT, NodeKind.KERNEL, NodeKind.FINISH)
    of_step = (graph.step == step) & takes_time
    changed_ns = graph.measured_ns + np.where(of_step, noise_ns(graph, seed, 50), 0)
    changed = replace(graph, measured_ns=changed_ns)
    measured = simulate(graph)

    before = other_step_report(recording_of(graph, measured), step_names=names)
    after = other_step_report(recording_of(changed, measured), step_names=names)

    assert [row.predicted_ns for row in before.rows] == [row.predicted_ns for row in after.rows]


def test_two_steps_are_too_few() -> None:
    with pytest.raises(ModelError, match="2 recorded, expected at least 3"):
        other_step_report(_exact(_serial([[1], [2]])))


def test_step_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match=r"\['nine'\] asked for"):
        other_step_report(_exact(_serial([[1], [2], [3]])), step_names=["nine"])


def test_json_holds_rows_and_errors() -> None:
    content = other_step_report(_exact(_serial([[10], [20], [30]]))).as_json()

    rows = content["rows"]
    assert isinstance(rows, list)
    assert rows[0] == {
        "step": "ProfilerStep#0",
        "rank": 0,
        "measured_ns": 10,
        "predicted_ns": 25,
        "naive_ns": 25,
        "error_percent": 150.0,
    }
    assert content["num_matched"] == 3


def test_ranks_are_predicted_together() -> None:
    steps = [{0: [40, 50], 1: [80, 60]}] * 3

    report = other_step_report(_exact(training_graph(steps)))

    assert [(row.step_name, row.rank) for row in report.rows] == [
        (f"ProfilerStep#{step}", rank) for step in range(3) for rank in range(2)
    ]
    assert report.matched_time_share == 1
