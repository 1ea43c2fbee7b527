"""What holds for every generated job: a legal graph, and a measured timeline that is true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretrace.analyze import steps
from foretrace.graph import DEVICE_KINDS, Ablation, NodeKind, Recording, without
from foretrace.simulate import simulate
from tests import strategies
from tests.graph.recorded import EXACT, recording_of, replayed_step_ns
from tests.truth import FileStyle, Job, JobConfig, make_job
from tests.truth.small import Instruction, Launch, Synchronize, Think, small_job

MICROSECOND = 1_000


def device_spans(recording: Recording) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Begin and end of every operation, by rank and stream, in order."""
    graph, measured = recording.graph, recording.measured
    enter = graph.nodes_of(*DEVICE_KINDS, NodeKind.ARRIVE)
    leave = graph.nodes_of(*DEVICE_KINDS, NodeKind.FINISH)
    begins: dict[tuple[int, int], list[int]] = {}
    ends: dict[tuple[int, int], list[int]] = {}
    for nodes, moments, found in (
        (enter, measured.start_ns, begins),
        (leave, measured.end_ns, ends),
    ):
        for node in nodes.tolist():
            lane = graph.lanes[graph.lane[node]]
            found.setdefault((lane.rank, lane.number), []).append(int(moments[node]))
    return {
        lane: list(zip(sorted(begins[lane]), sorted(ends[lane]), strict=True)) for lane in begins
    }


def true_spans(job: Job) -> dict[tuple[int, int], list[tuple[int, int]]]:
    found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for rank in range(job.num_ranks):
        for each in job.operations(rank):
            begins, ends = found.setdefault((rank, each.stream), ([], []))
            begins.append(each.start_ns)
            ends.append(each.end_ns)
    return {
        lane: list(zip(sorted(begins), sorted(ends), strict=True))
        for lane, (begins, ends) in found.items()
    }


def relative(spans: dict[tuple[int, int], list[tuple[int, int]]]) -> dict[tuple[int, int], object]:
    """Spans from the begin of the first on the rank: what clocks cannot change."""
    first = {
        rank: min(own[0][0] for lane, own in spans.items() if lane[0] == rank)
        for rank in {lane[0] for lane in spans}
    }
    return {
        lane: [(begin - first[lane[0]], end - first[lane[0]]) for begin, end in own]
        for lane, own in spans.items()
    }


def assume_operations(job: Job) -> None:
    """Every rank has something to replay: a file without is refused."""
    assume(all(any(True for _ in job.operations(rank)) for rank in range(job.num_ranks)))


@given(strategies.job_configs())
@settings(max_examples=10)
def test_training_jobs_build_and_replay(config: JobConfig) -> None:
    job = make_job(replace(config, num_layers=1, num_steps=1))

    recording = recording_of(job)

    graph = recording.graph
    replay = simulate(graph)
    assert graph.ranks == tuple(range(job.num_ranks))
    assert (replay.end_ns >= replay.start_ns).all()
    for ablation in Ablation:
        simulate(*without(recording, ablation))
    measured_ns = steps(recording.measured).duration_ns
    rounding_ns = 2 * MICROSECOND if config.style.whole_microseconds else 0
    # Ten ppm of drift inside a step, and the file's own rounding.
    assert np.abs(measured_ns - job.step_ns.T.reshape(-1)).max() <= (
        rounding_ns + 2e-5 * job.step_ns.max() + 10
    )


@given(strategies.small_jobs(is_quiet=True), st.booleans())
@settings(max_examples=25)
def test_the_measured_timeline_is_the_true_one(job: Job, has_sync_events: bool) -> None:
    style = replace(job.config.style, whole_microseconds=False, sync_events=has_sync_events)
    job = replace(job, config=replace(job.config, style=style))
    assume_operations(job)

    recording = recording_of(job)

    assert relative(device_spans(recording)) == relative(true_spans(job))


_instructions = st.lists(
    st.one_of(
        st.builds(Launch, st.integers(1, 2_000).map(lambda us: us * MICROSECOND)),
        st.builds(Think, st.integers(1, 2_000).map(lambda us: us * MICROSECOND)),
    ),
    min_size=1,
    max_size=12,
)


@given(strategies.small_programs(max_ranks=2))
@settings(max_examples=25)
def test_programs_with_sync_events_replay_to_within_their_wakes(
    programs: tuple[tuple[Instruction, ...], ...],
) -> None:
    config = replace(EXACT, tp=len(programs), style=FileStyle(sync_events=True))
    job = small_job(programs, config)
    assume_operations(job)

    recording = recording_of(job)

    true_ns = job.step_ns.T.reshape(-1)
    # A synchronisation that just misses the end it waits for may or may not wake up for it.
    num_syncs = max(sum(isinstance(each, Synchronize) for each in program) for program in programs)
    wakes_ns = (1 + num_syncs) * EXACT.overheads.wake_ns
    assert np.abs(np.array(replayed_step_ns(recording)) - true_ns).max() <= wakes_ns


@given(st.lists(_instructions, min_size=1, max_size=2))
@settings(max_examples=20)
def test_one_stream_programs_replay_exactly(programs: list[list[Instruction]]) -> None:
    job = small_job(programs, replace(EXACT, tp=len(programs)))
    assume_operations(job)

    recording = recording_of(job)

    assert replayed_step_ns(recording) == job.step_ns.T.reshape(-1).tolist()
