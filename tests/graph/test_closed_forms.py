"""Replays of small jobs, from their files, against answers that can be written down by hand.

That the replay equals the generator's step time to the nanosecond is one half; the other is what
happens when a duration changes, for which no recording helps.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import Int64s
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Recording
from foretrace.simulate import simulate
from tests.graph.recorded import (
    EXACT,
    edges_of,
    exact_job,
    nodes_of,
    recording_of,
    recording_of_files,
    replayed_step_ns,
)
from tests.truth import FileStyle, Job, Link, mutate, write
from tests.truth.small import (
    Depend,
    Exchange,
    Launch,
    LaunchGraph,
    Reduce,
    SwitchThread,
    Synchronize,
    Think,
)

US = 1_000
GAP_NS, HANDOVER_NS = EXACT.overheads.stream_gap_ns, EXACT.overheads.handover_ns
WITH_SYNC_EVENTS = replace(EXACT, style=FileStyle(sync_events=True))
kernel_times = st.integers(100 * US, 900 * US)  # well above a launch: the device is the bottleneck


def kernels_on(graph: ExecutionGraph, stream: int) -> list[int]:
    return [
        node
        for node in nodes_of(graph, NodeKind.KERNEL)
        if graph.lanes[graph.lane[node]].number == stream
    ]


def longer_ns(recording: Recording, nodes: int | list[int], by_ns: int) -> Int64s:
    changed = recording.graph.measured_ns.copy()
    changed[nodes] += by_ns
    return changed


def true_step_ns(job: Job) -> list[int]:
    listed: list[int] = job.step_ns.T.reshape(-1).tolist()
    return listed


@given(st.lists(kernel_times, min_size=1, max_size=12))
@settings(max_examples=10)
def test_a_chain_takes_the_sum(durations: list[int]) -> None:
    job = exact_job([Launch(each) for each in durations])

    recording = recording_of(job)

    (step_ns,) = replayed_step_ns(recording)
    assert [step_ns] == true_step_ns(job)
    kernels = kernels_on(recording.graph, 7)
    doubled_ns = longer_ns(recording, kernels, 0)
    doubled_ns[kernels] *= 2
    assert replayed_step_ns(recording, doubled_ns) == [step_ns + sum(durations)]


@given(kernel_times, st.lists(kernel_times, min_size=2, max_size=5))
@settings(max_examples=10)
def test_a_fork_and_join_take_the_longest_branch(first: int, branches: list[int]) -> None:
    program: list[Launch | Depend] = [Launch(first)]
    for index, each in enumerate(branches):
        program += [Depend(7, 50 + index), Launch(each, 50 + index)]
    program += [Depend(50 + index, 7) for index in range(len(branches))]
    job = exact_job([*program, Launch(10 * US)], config=WITH_SYNC_EVENTS)

    recording = recording_of(job)

    (step_ns,) = replayed_step_ns(recording)
    assert [step_ns] == true_step_ns(job)
    for index, each in enumerate(branches):
        (node,) = kernels_on(recording.graph, 50 + index)
        changed_ns = longer_ns(recording, node, 5_000 * US)
        grew_ns = each + 5_000 * US - max(branches)
        # A branch may also be late because its launch was: by some calls, no more.
        assert replayed_step_ns(recording, changed_ns)[0] == pytest.approx(
            step_ns + grew_ns, abs=40 * US * len(branches)
        )


def test_a_full_launch_queue_in_a_few_launches_is_simulated() -> None:
    depth, held = 200, 60
    job = exact_job([Launch(50 * US)] * (depth + held), config=replace(EXACT, queue_depth=depth))

    recording = recording_of(job)

    graph = recording.graph
    launches = nodes_of(graph, NodeKind.LAUNCH)
    step_ns = true_step_ns(job)[0]
    assert replayed_step_ns(recording) == [step_ns]
    assert graph.measured_ns[launches].max() <= 2 * US
    assert recording.recorded_ns[launches].max() > 40 * US
    faster_ns = longer_ns(recording, nodes_of(graph, NodeKind.KERNEL), -10 * US)
    assert replayed_step_ns(recording, faster_ns) == [step_ns - (depth + held) * 10 * US]
    before, after = simulate(graph), simulate(graph, faster_ns)
    assert before.end_ns[launches[-1]] - after.end_ns[launches[-1]] >= held * 9 * US


def test_forks_and_joins_are_inferred_where_events_are_not_recorded() -> None:
    # Side branches shorter and longer than the main one: some joins hold, some do not.
    side_us = [200 + 40 * index for index in range(8)]
    rounds = [
        each
        for us in side_us
        for each in (
            Launch(300 * US),
            Depend(7, 9),
            Launch(us * US, 9),
            Launch(350 * US),
            Depend(9, 7),
        )
    ]
    job = exact_job((*rounds, Launch(10 * US)))

    recording = recording_of(job)

    assert replayed_step_ns(recording) == true_step_ns(job)
    side = kernels_on(recording.graph, 9)
    short_ns, long_ns = recording.graph.measured_ns.copy(), recording.graph.measured_ns.copy()
    short_ns[side], long_ns[side] = 10 * US, 900 * US
    shortest, longest = (replayed_step_ns(recording, each)[0] for each in (short_ns, long_ns))
    # Short: 16 kernels of the main stream follow each other. Long: 8 rounds of 300 + 900 us.
    assert longest - shortest == 8 * (900 * US + 2 * HANDOVER_NS) - 8 * (350 * US + 2 * GAP_NS)


def test_members_of_a_collective_wait_for_the_last_and_leave_together() -> None:
    config = replace(EXACT, tp_link=Link(latency_ns=70 * US, bytes_per_ns=float("inf")))
    job = exact_job((Launch(100 * US), Reduce()), (Launch(300 * US), Reduce()), config=config)

    recording = recording_of(job)

    graph = recording.graph
    step_ns = replayed_step_ns(recording)
    assert step_ns == true_step_ns(job)
    finishes = nodes_of(graph, NodeKind.FINISH)
    assert graph.measured_ns[finishes].tolist() == [70 * US, 70 * US]
    assert sorted(recording.recorded_ns[finishes].tolist()) == [70 * US, 270 * US]
    fast = next(node for node in kernels_on(graph, 7) if graph.rank[node] == 0)
    changed_ns = longer_ns(recording, fast, 500 * US)
    assert replayed_step_ns(recording, changed_ns) == [each + 300 * US for each in step_ns]


def test_a_rank_that_starts_later_makes_the_others_wait() -> None:
    program = (Launch(100 * US), Reduce(), Launch(100 * US))
    recording = recording_of(exact_job(program, program))
    graph = recording.graph
    start = next(node for node in nodes_of(graph, NodeKind.RANK_START) if graph.rank[node] == 1)

    before = simulate(graph)
    after = simulate(graph, longer_ns(recording, start, 400 * US))

    moved_ns = (after.end_ns - before.end_ns)[nodes_of(graph, NodeKind.FINISH)]
    assert moved_ns.tolist() == [400 * US, 400 * US]


def test_a_longer_host_segment_moves_every_rank_by_what_exceeds_its_wait() -> None:
    def programs(extra_ns: int) -> list[tuple[Think | Launch | Reduce, ...]]:
        kernels_us, extras_ns = (100, 300, 500), (extra_ns, 0, 0)
        return [
            (Think(200 * US + extra), Launch(us * US), Reduce(), Launch(100 * US))
            for us, extra in zip(kernels_us, extras_ns, strict=True)
        ]

    # Rank 0 waits 400 us for rank 2, so 5 ms more of its host move everyone by 4.6 ms.
    expected_ns = 4_600 * US
    recording = recording_of(exact_job(*programs(0)))
    graph = recording.graph
    segment = next(
        node
        for node in nodes_of(graph, NodeKind.HOST_SEGMENT)
        if graph.rank[node] == 0 and graph.measured_ns[node] > 200 * US
    )

    before_ns = replayed_step_ns(recording)
    edited_ns = replayed_step_ns(recording, longer_ns(recording, segment, 5_000 * US))
    rewritten_ns = replayed_step_ns(recording_of(exact_job(*programs(5_000 * US))))

    assert edited_ns == [each + expected_ns for each in before_ns]
    assert rewritten_ns == edited_ns


def test_a_segment_stretched_in_the_file_moves_what_follows() -> None:
    job = exact_job((Launch(300 * US), Synchronize(), Think(100 * US), Launch(200 * US)))
    last = max(each.correlation for each in job.operations(0))
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write(job, Path(folder), compress=False)
        stretched = mutate.stretch_host_segment(mutate.read(path), last, 5_000 * US)

    recording = recording_of_files([mutate.dumped(stretched)])

    assert replayed_step_ns(recording) == [true_step_ns(job)[0] + 5_000 * US]


@pytest.mark.parametrize("start_skew_ns", [0, 2_000 * US])
def test_clocks_are_laid_on_each_other_whatever_their_offset(start_skew_ns: int) -> None:
    config = replace(EXACT, start_skew_ns=start_skew_ns, clock_offset_ns=7_200_000_000_000)
    programs = tuple((Launch((1 + rank) * 100 * US), Reduce()) for rank in range(3))
    job = exact_job(*programs, config=config)

    recording = recording_of(job)

    assert replayed_step_ns(recording) == true_step_ns(job)
    offsets = [clock.offset_ns - recording.clocks[0].offset_ns for clock in recording.clocks]
    assert offsets == [clock.offset_ns - job.clocks[0].offset_ns for clock in job.clocks]


@pytest.mark.parametrize("num_anchors", [1, 10])
def test_neighbour_exchanges_close_no_circle(num_anchors: int) -> None:
    rounds = 4
    programs = tuple(
        (
            *(Reduce() for _ in range(num_anchors)),
            *(each for _ in range(rounds) for each in (Launch((1 + rank) * 100 * US), Exchange())),
        )
        for rank in range(5)
    )
    job = exact_job(*programs)

    recording = recording_of(job)

    # Rank 4 waits for nobody.
    step_ns = replayed_step_ns(recording)
    assert len(recording.graph.collectives) == num_anchors + rounds
    assert step_ns == true_step_ns(job)
    slowest = [node for node in kernels_on(recording.graph, 7) if recording.graph.rank[node] == 4]
    grown_ns = replayed_step_ns(recording, longer_ns(recording, slowest, 1_000 * US))
    assert grown_ns[4] == step_ns[4] + rounds * 1_000 * US


def test_one_graph_launch_owns_all_its_kernels() -> None:
    durations = tuple((index + 30) * US for index in range(200))
    job = exact_job((LaunchGraph(durations),))

    recording = recording_of(job)

    graph = recording.graph
    launches = edges_of(graph, EdgeKind.LAUNCH)
    assert len(launches) == 200
    assert len({source for source, _ in launches}) == 1
    assert replayed_step_ns(recording) == true_step_ns(job)
    changed_ns = longer_ns(recording, nodes_of(graph, NodeKind.KERNEL)[17], 40 * US)
    assert replayed_step_ns(recording, changed_ns)[0] == true_step_ns(job)[0] + 40 * US


@pytest.mark.parametrize("has_sync_events", [True, False])
def test_a_stream_synchronisation_waits_for_its_stream_alone(has_sync_events: bool) -> None:
    program = (Launch(500 * US), Launch(90 * US, 9), Synchronize(9), Think(20 * US), Synchronize())
    job = exact_job(program, config=WITH_SYNC_EVENTS if has_sync_events else EXACT)

    recording = recording_of(job)

    graph = recording.graph
    before = simulate(graph)
    assert replayed_step_ns(recording) == true_step_ns(job)
    syncs = nodes_of(graph, NodeKind.SYNC)
    (side,), (main,) = kernels_on(graph, 9), kernels_on(graph, 7)
    # The second waits for both streams, and 400 us of the first one's lateness are hidden by it.
    after = simulate(graph, longer_ns(recording, side, 300 * US))
    assert (after.end_ns - before.end_ns)[syncs[:2]].tolist() == [300 * US, 0]
    after = simulate(graph, longer_ns(recording, main, 300 * US))
    assert (after.end_ns - before.end_ns)[syncs[:2]].tolist() == [0, 300 * US]


def test_a_synchronisations_recorded_time_is_no_work() -> None:
    job = exact_job((Launch(500 * US), Synchronize(), Launch(100 * US)))

    recording = recording_of(job)

    graph = recording.graph
    step_ns = true_step_ns(job)[0]
    assert replayed_step_ns(recording) == [step_ns]
    assert recording.recorded_ns[nodes_of(graph, NodeKind.SYNC)].max() > 490 * US
    faster_ns = longer_ns(recording, nodes_of(graph, NodeKind.KERNEL), 0)
    faster_ns[nodes_of(graph, NodeKind.KERNEL)] //= 2
    assert replayed_step_ns(recording, faster_ns) == [step_ns - 300 * US]


def test_threads_that_hand_over_wait_for_each_other() -> None:
    program = (
        *(Think(300 * US), Launch(US), SwitchThread()),
        *(Think(400 * US), Launch(US), SwitchThread()),
        *(Think(200 * US), Launch(US), Synchronize()),
    )
    job = exact_job(program)

    recording = recording_of(job)

    graph = recording.graph
    step_ns = true_step_ns(job)[0]
    assert replayed_step_ns(recording) == [step_ns]
    assert len(nodes_of(graph, NodeKind.THREAD_WAIT)) == 2
    for think_ns in (200 * US, 300 * US, 400 * US):
        segment = next(
            node
            for node in nodes_of(graph, NodeKind.HOST_SEGMENT)
            if think_ns <= graph.measured_ns[node] < think_ns + 50 * US
        )
        changed_ns = longer_ns(recording, segment, 5_000 * US)
        assert replayed_step_ns(recording, changed_ns) == [step_ns + 5_000 * US]


def test_a_full_launch_queue_holds_launches_and_is_simulated() -> None:
    depth, count = 40, 400
    job = exact_job([Launch(50 * US)] * count, config=replace(EXACT, queue_depth=depth))

    recording = recording_of(job)

    graph = recording.graph
    launches = nodes_of(graph, NodeKind.LAUNCH)
    step_ns = true_step_ns(job)[0]
    assert replayed_step_ns(recording) == [step_ns]
    assert graph.measured_ns[launches].max() <= 2 * US
    assert recording.recorded_ns[launches].max() > 40 * US
    assert len(edges_of(graph, EdgeKind.QUEUE)) == pytest.approx(count - depth, abs=2)
    faster_ns = longer_ns(recording, nodes_of(graph, NodeKind.KERNEL), -10 * US)
    assert replayed_step_ns(recording, faster_ns) == [step_ns - count * 10 * US]
