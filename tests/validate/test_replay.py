from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import COMPONENTS, Parts, breakdown
from foretrace.base import ModelError
from foretrace.graph import Ablation, EdgeKind, ExecutionGraph, NodeKind, Recording, Timeline
from foretrace.simulate import simulate
from foretrace.validate import ErrorDistribution, replay_report
from tests.graphs import Edge, GraphBuilder, recording_of
from tests.validate.strategies import noise_ns, training_graph, training_graphs

_STEPS = [{0: [40, 50], 1: [80, 60]}, {0: [41, 52], 1: [70, 60]}]


def _exact(graph: ExecutionGraph) -> Recording:
    """A recording that the replay meets exactly."""
    return recording_of(graph, simulate(graph))


@given(graph=training_graphs())
def test_replay_of_its_own_simulation_has_no_error(graph: ExecutionGraph) -> None:
    report = replay_report(_exact(graph), null_models=())

    assert report.summary.worst_step_error_percent == 0
    assert report.summary.worst_component_error_percent == 0
    assert report.summary.p95_kernel_start_error_percent == 0
    assert report.summary.worst_collective_error_percent in {0, None}
    for step in report.steps:
        for row in step.ranks:
            assert row.measured_parts == row.replayed_parts
            assert row.measured_parts.total_ns == row.measured_ns


@given(graph=training_graphs(), seed=st.integers(0, 10))
def test_parts_of_both_sides_sum_to_their_steps(graph: ExecutionGraph, seed: int) -> None:
    other = simulate(graph, graph.measured_ns + noise_ns(graph, seed, 20))

    report = replay_report(recording_of(graph, other), null_models=())

    for step in report.steps:
        for row in step.ranks:
            assert row.measured_parts.total_ns == row.measured_ns
            assert row.replayed_parts.total_ns == row.replayed_ns


def test_errors_are_those_of_a_replay_that_is_known_to_be_late() -> None:
    """Rank 1's second kernel of the first step takes 20 ns more in the replay."""
    graph = training_graph(_STEPS)
    recording = _exact(graph)
    slow = graph.measured_ns.copy()
    slow[_kernels(graph, rank=1)[1]] += 20

    report = replay_report(recording, simulated=simulate(graph, slow), null_models=())

    # the host runs ahead, so a step is: first launch at 7, lag 3, two kernels, transfer
    first = report.steps[0].ranks[1]
    assert (first.measured_ns, first.replayed_ns) == (7 + 3 + 140 + 7, 7 + 3 + 160 + 7)
    assert (first.host_measured_ns, first.host_replayed_ns) == (14, 14)
    assert report.steps[0].ranks[0].replayed_ns == first.replayed_ns  # rendezvous
    # starts of rank 1: two kernels as before, its arrival 20 ns late
    assert first.kernel_start_error == ErrorDistribution(median_ns=0, p95_ns=20, count=3)
    assert first.collective_measured_ns == first.collective_replayed_ns == 7
    waits = report.steps[0].ranks[0]
    assert waits.collective_replayed_ns - waits.collective_measured_ns == 20
    summary = report.summary
    assert summary.worst_step_error_percent == pytest.approx(100 * 20 / 157)
    assert summary.mean_step_error_percent == pytest.approx(100 * 20 / 157 / 2)  # the second: none
    assert summary.mean_host_error_percent == 0
    # rank 0's one wait in the first step: 150 - 100 ns and the transfer, 20 ns longer
    assert summary.worst_collective_error_percent == pytest.approx(100 * 20 / (50 + 7))
    # 20 ns more compute on rank 1, 20 ns more waiting on rank 0
    assert summary.component_error_percent["exposed_compute"] == pytest.approx(100 * 20 / 157)
    assert summary.component_error_percent["exposed_communication"] == pytest.approx(100 * 20 / 157)
    assert summary.component_error_percent["overlapped"] == 0
    assert summary.worst_component == "exposed_compute"
    assert summary.mean_step_bias_percent == summary.mean_step_error_percent
    moved_ns = summary.replayed_parts.total_ns - summary.measured_parts.total_ns
    assert moved_ns == 2 * 20
    assert summary.worst_component_error_percent == pytest.approx(100 * 20 / 157)


def test_starts_are_compared_from_each_steps_own_begin() -> None:
    graph = training_graph([{0: [40, 50]}])
    recording = _exact(graph)
    moved = Timeline(
        graph=graph,
        start_ns=recording.measured.start_ns + 1000,
        end_ns=recording.measured.end_ns + 1000,
        is_measured=False,
    )

    report = replay_report(recording, simulated=moved, null_models=())

    assert report.summary.p95_kernel_start_error_percent == 0


def test_without_a_device_operators_starts_are_compared() -> None:
    build = GraphBuilder()
    begin = build.add(NodeKind.STEP_BEGIN, step="a")
    first = build.add(NodeKind.OPERATOR, takes_ns=60, after=[begin], step="a")
    second = build.add(NodeKind.OPERATOR, takes_ns=40, after=[first], step="a")
    build.add(NodeKind.STEP_END, after=[second], step="a")
    graph = build.graph()
    slow = graph.measured_ns.copy()
    slow[first] += 8

    report = replay_report(_exact(graph), simulated=simulate(graph, slow), null_models=())

    row = report.steps[0].ranks[0]
    assert row.kernel_start_error == ErrorDistribution(median_ns=8, p95_ns=8, count=2)
    assert row.measured_parts == Parts(100, 0, 0, 0)
    assert report.summary.worst_collective_error_percent is None
    assert report.summary.mean_collective_error_percent is None


def test_json_has_what_a_reader_of_replay_expects() -> None:
    graph = training_graph(_STEPS)

    report = replay_report(replace(_exact(graph), unprofiled_step_ns={0: 150}), null_models=())

    content = json.loads(json.dumps(report.as_json()))
    assert [step["name"] for step in content["steps"]] == ["ProfilerStep#0", "ProfilerStep#1"]
    row = content["steps"][0]["ranks"][1]
    assert row["rank"] == 1
    assert {"measured_ns", "replayed_ns", "host_measured_ns"} <= set(row)
    assert set(row["components"]) == set(COMPONENTS)
    for part in row["components"].values():
        assert set(part) == {"measured_ns", "replayed_ns"}
    assert {"median", "p95"} <= set(row["kernel_start_error_ns"])
    assert content["constants"][0]["kind"] == "launch"
    assert content["unprofiled_step_ns"] == {"0": 150}
    assert sum(content["duration_mix"].values()) == pytest.approx(1)


def test_frame_has_one_row_per_step_and_rank() -> None:
    frame = replay_report(_exact(training_graph(_STEPS)), null_models=()).to_polars()

    assert frame["step"].to_list() == ["ProfilerStep#0"] * 2 + ["ProfilerStep#1"] * 2
    assert frame["rank"].to_list() == [0, 1, 0, 1]
    assert (frame["idle_measured_ns"] == frame["idle_replayed_ns"]).all()


def test_one_step_can_be_asked_for_and_the_whole_trace_is_replayed() -> None:
    recording = _exact(training_graph(_STEPS))

    one = replay_report(recording, step_names=["ProfilerStep#1"], null_models=())

    assert one.steps == replay_report(recording, null_models=()).steps[1:]


def test_step_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match=r"\['nine'\] asked for.*'ProfilerStep#0'"):
        replay_report(_exact(training_graph(_STEPS)), step_names=["nine"])


def test_replay_of_another_graph_is_refused() -> None:
    other = simulate(training_graph(_STEPS[:1]))

    with pytest.raises(ModelError, match="another graph"):
        replay_report(_exact(training_graph(_STEPS)), simulated=other)


def test_recording_without_steps_is_refused() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5)

    with pytest.raises(ModelError, match="the recording has 0"):
        replay_report(_exact(build.graph()))


def _kernels(graph: ExecutionGraph, *, rank: int) -> list[int]:
    chosen = (graph.kind == NodeKind.KERNEL) & (graph.rank == rank)
    return [int(node) for node in np.flatnonzero(chosen)]


def test_null_models_are_worse_where_their_dependency_matters() -> None:
    """Compute on rank 0 waits for its all-reduce on another stream, which waits for rank 1."""
    build = GraphBuilder()
    work, after = {0: 100, 1: 300}, dict[int, list[Edge]]()
    launched = {}
    for rank, takes_ns in work.items():
        begin = build.add(NodeKind.STEP_BEGIN, rank=rank, step="a")
        launch = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=2, after=[begin], step="a")
        kernel = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            takes_ns=takes_ns,
            after=[Edge(launch, EdgeKind.LAUNCH)],
            step="a",
        )
        after[rank], launched[rank] = [Edge(kernel, EdgeKind.INTER_STREAM)], launch
    finish = build.collective(after, transfer_ns=50, step="a")
    for rank, launch in launched.items():
        last = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            takes_ns=80,
            after=[
                Edge(launch, EdgeKind.LAUNCH),
                Edge(after[rank][0].node, EdgeKind.STREAM),
                Edge(finish[rank], EdgeKind.INTER_STREAM),
            ],
            step="a",
        )
        sync = build.add(
            NodeKind.SYNC,
            rank=rank,
            takes_ns=1,
            after=[Edge(launch), Edge(last, EdgeKind.WAKE)],
            step="a",
        )
        build.add(NodeKind.STEP_END, rank=rank, after=[sync], step="a")

    report = replay_report(_exact(build.graph()))

    assert report.summary.worst_step_error_percent == 0
    by_ablation = {null.ablation: null.summary for null in report.null_models}
    assert set(by_ablation) == set(Ablation)
    assert by_ablation[Ablation.DEVICE].worst_component_error_percent > 10
    assert by_ablation[Ablation.INTER_STREAM].worst_component_error_percent > 10
    assert by_ablation[Ablation.INTER_STREAM].worst_step_error_percent > 10


def test_report_and_breakdown_agree() -> None:
    recording = _exact(training_graph(_STEPS))

    report = replay_report(recording, null_models=())

    parts = [row.parts for row in breakdown(recording.measured).rows]
    assert [row.measured_parts for step in report.steps for row in step.ranks] == parts


def test_no_step_to_report_on_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing to compare: 0 steps"):
        replay_report(_exact(training_graph(_STEPS)), step_names=[], null_models=())
