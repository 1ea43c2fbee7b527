"""Device work that no event shows: from before the recording, of CUDA graphs, of sampled files."""

from __future__ import annotations

import numpy as np

from foretrace.analyze.labels import class_labels
from foretrace.graph import (
    BEFORE,
    DEVICE_WORK,
    GRAPH_KERNELS,
    LOST_KERNELS,
    LOST_WORK,
    NodeKind,
    Phase,
    Recording,
)
from foretrace.simulate import simulate
from tests.graph.recorded import (
    Event,
    call,
    file_text,
    kernel,
    launch,
    nodes_of,
    recording_of_files,
    replayed_step_ns,
    step,
)

HELD, GRAPH = "work from before the recording", "unrecorded kernels of a CUDA graph"


def recorded(*events: Event) -> Recording:
    return recording_of_files([file_text(events)])


def replay_is_exact(recording: Recording) -> bool:
    kernels = nodes_of(recording.graph, NodeKind.KERNEL, NodeKind.MEMCPY)
    replayed = simulate(recording.graph)
    error_ns = replayed.start_ns[kernels] - recording.measured.start_ns[kernels]
    return bool((np.abs(error_ns) <= 2_000).all())


def test_a_blocking_copy_that_waited_for_work_from_before_the_recording_still_waits() -> None:
    recording = recorded(
        step(1, 0, 10_000),
        launch(100, 5, correlation=1),
        kernel("first", 9_000, 10, correlation=1),
        call("cudaMemcpy", 120, 8_910, correlation=2),
        kernel("Memcpy DtoH", 9_012, 5, correlation=2, category="gpu_memcpy"),
    )

    assert replay_is_exact(recording)
    assert abs(replayed_step_ns(recording)[0] - 10_000_000) < 20_000
    assert len(nodes_of(recording.graph, NodeKind.GHOST, name=HELD)) == 1
    (said,) = [one for one in recording.findings if one.topic == BEFORE]
    assert "9.00 ms" in said.text


def test_a_first_operation_that_began_soon_waited_for_nothing() -> None:
    recording = recorded(
        step(1, 0, 1_000), launch(100, 5, correlation=1), kernel("first", 500, 10, correlation=1)
    )

    assert not nodes_of(recording.graph, NodeKind.GHOST)


def test_a_first_operation_behind_other_recorded_work_waited_for_that() -> None:
    recording = recorded(
        step(1, 0, 10_000),
        *(launch(10, 5, correlation=1), kernel("long", 20, 8_980, correlation=1)),
        *(launch(30, 5, correlation=2), kernel("side", 9_002, 10, correlation=2, stream=8)),
    )

    assert not nodes_of(recording.graph, NodeKind.GHOST, name=HELD)


def graph_of(*starts: int, behind: int) -> list[Event]:
    """Two kernels of one graph, and one that was launched at once behind it."""
    return [
        step(1, 0, 10_000),
        call("cudaGraphLaunch", 100, 10, correlation=1),
        *(kernel(f"k{at}", at, 20, correlation=1) for at in starts),
        launch(120, 5, correlation=2),
        kernel("behind", behind, 10, correlation=2),
    ]


def test_gaps_in_and_behind_a_graph_are_its_unrecorded_work() -> None:
    recording = recorded(*graph_of(112, 3_000, behind=7_000))

    assert len(nodes_of(recording.graph, NodeKind.GHOST, name=GRAPH)) == 2
    assert replay_is_exact(recording)
    (said,) = [one for one in recording.findings if one.topic == GRAPH_KERNELS]
    assert "1 of 1 launched CUDA graphs lack kernels" in said.text


def test_unrecorded_work_of_a_graph_moves_with_its_launch() -> None:
    recording = recorded(*graph_of(112, 3_000, behind=7_000))
    graph = recording.graph
    later_ns = graph.measured_ns.copy()
    later_ns[nodes_of(graph, NodeKind.LAUNCH, name="cudaGraphLaunch")] += 500_000

    (behind,) = nodes_of(graph, NodeKind.KERNEL, name="behind")

    moved_ns = simulate(graph, later_ns).start_ns[behind] - simulate(graph).start_ns[behind]
    assert moved_ns == 500_000


def test_a_graph_whose_kernels_follow_each_other_lacks_none() -> None:
    recording = recorded(*graph_of(112, 133, behind=154))

    assert not nodes_of(recording.graph, NodeKind.GHOST)
    assert any("none seems to lack a kernel" in one.text for one in recording.findings)


def sampled(*, stream: int, begin: int) -> list[Event]:
    """Two kernels launched at once; the second begins long after the first, on its own stream."""
    return [
        step(1, 0, 10_000),
        *(launch(10, 5, correlation=1), kernel("first", 20, 80, correlation=1)),
        *(launch(30, 5, correlation=2), kernel("next", 102, 40, correlation=2)),
        *(launch(50, 5, correlation=3), kernel("late", begin, 40, correlation=3, stream=stream)),
        *(launch(70, 5, correlation=4), kernel("last", begin + 42, 40, correlation=4, stream=7)),
    ]


def test_long_gaps_that_nothing_explains_are_unrecorded_work_of_the_device() -> None:
    recording = recorded(*sampled(stream=7, begin=2_000))

    assert len(nodes_of(recording.graph, NodeKind.GHOST, name=DEVICE_WORK)) == 1
    assert replay_is_exact(recording)
    (said,) = [one for one in recording.findings if one.topic == LOST_WORK]
    assert "for 1.86 ms over all streams" in said.text
    assert "unrecorded work" in class_labels(recording.graph).labels


def test_gaps_that_are_little_of_a_rank_s_time_are_hand_overs_that_came_late() -> None:
    recording = recorded(
        *sampled(stream=7, begin=200),
        *(launch(9_800, 5, correlation=9), kernel("end", 9_850, 40, correlation=9)),
    )

    assert not nodes_of(recording.graph, NodeKind.GHOST)


def captured(launches: int) -> list[Event]:
    """Kernels of a graph that is being captured are launched and do not run; then a copy does."""
    copy = "Memcpy HtoD (Pageable -> Device)"
    return [
        step(1, 0, 1_000),
        *(launch(100 + 10 * at, 5, correlation=at) for at in range(1, 1 + launches)),
        call("cudaMemcpyAsync", 500, 5, correlation=900),
        kernel(copy, 510, 5, correlation=900, category="gpu_memcpy"),
    ]


def test_launches_whose_kernels_were_not_recorded_are_told_and_load_no_data() -> None:
    recording = recorded(*captured(20))

    (told,) = [one for one in recording.findings if one.topic == LOST_KERNELS]
    assert "20 of 21 launches" in told.text
    graph = recording.graph
    launches = nodes_of(graph, NodeKind.CALL, name="cudaLaunchKernel")
    assert set(graph.phase[launches].tolist()) == {Phase.FORWARD}
    before_the_copy = graph.phase[nodes_of(graph, NodeKind.LAUNCH, name="cudaMemcpyAsync")]
    assert before_the_copy.tolist() == [Phase.DATA]


def test_a_recording_whose_kernels_are_there_lacks_none() -> None:
    assert not [one for one in recorded(*captured(0)).findings if one.topic == LOST_KERNELS]
