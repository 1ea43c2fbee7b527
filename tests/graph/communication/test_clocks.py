"""Clocks of ranks are laid on each other by the ends of what they did together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph import NodeKind
from tests.graph.recorded import (
    EXACT,
    exact_job,
    file_text,
    kernel,
    launch,
    nodes_of,
    recording_of,
    recording_of_files,
    replayed_step_ns,
    step,
)
from tests.truth import FileStyle, Job, JobConfig, make_job
from tests.truth.small import Launch, Reduce, Think

US = 1_000
SECOND = 1_000_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def job_with(*, seed: int, offset_ns: int, drift_ppm: float = 0.0, rounds: int = 40) -> Job:
    """Three ranks that reduce often."""
    config = replace(EXACT, seed=seed, clock_offset_ns=offset_ns, clock_drift_ppm=drift_ppm)
    programs = [
        [
            each
            for index in range(rounds)
            for each in (Think(400 * US), Launch((100 + 30 * (index + rank) % 90) * US), Reduce())
        ]
        for rank in range(3)
    ]
    return exact_job(*programs, config=config)


@given(st.integers(0, 1_000), st.sampled_from([0, 1, SECOND, 10**14]))
@settings(max_examples=8)
def test_offsets_are_found_to_the_nanosecond(seed: int, offset_ns: int) -> None:
    job = job_with(seed=seed, offset_ns=offset_ns, rounds=3)

    recording = recording_of(job)

    found = [clock.offset_ns - recording.clocks[0].offset_ns for clock in recording.clocks]
    assert found == [clock.offset_ns - job.clocks[0].offset_ns for clock in job.clocks]
    assert [clock.spread_ns for clock in recording.clocks] == [0, 0, 0]
    assert [clock.num_matches for clock in recording.clocks] == [3, 3, 3]


def test_a_drift_beyond_the_jitter_is_found_and_removed() -> None:
    job = job_with(seed=4, offset_ns=SECOND, drift_ppm=150.0)

    recording = recording_of(job)

    first = job.clocks[0]
    for clock, true in zip(recording.clocks[1:], job.clocks[1:], strict=True):
        assert clock.drift_ppb == pytest.approx(true.drift_ppb - first.drift_ppb, abs=2_000)
    finishes = nodes_of(recording.graph, NodeKind.FINISH)
    ends: dict[int, list[int]] = {}
    for node in finishes:
        collective = int(recording.graph.collective[node])
        ends.setdefault(collective, []).append(int(recording.measured.end_ns[node]))
    assert max(max(own) - min(own) for own in ends.values()) < 200


def test_one_collective_that_ends_apart_moves_no_clock() -> None:
    spans = [(100, 150), (200, 260), (300, 340), (400, 455), (500, 530)]
    texts = []
    for rank, late_ns in enumerate((0, 40)):
        events = [step(1, 0, 2_000)]
        for index, (begin, end) in enumerate(spans, start=1):
            stays = late_ns if index == 3 else 0  # rank 1 leaves the third 40 us after rank 0
            takes = end - begin + stays
            events.append(launch(begin - 20, 5, correlation=index))
            events.append(kernel(ALL_REDUCE, begin, takes, correlation=index, stream=20))
        texts.append(file_text(events, rank=rank, world_size=2))

    recording = recording_of_files(texts)

    assert [clock.offset_ns for clock in recording.clocks] == [0, 0]
    assert len(recording.graph.collectives) == len(spans)


def test_ranks_that_share_nothing_start_together_and_say_so() -> None:
    texts = [
        file_text(
            [
                *(step(1, base, 500), launch(base + 10, 5, correlation=1)),
                kernel("work", base + 20, 300, correlation=1),
            ],
            rank=rank,
            world_size=2,
        )
        for rank, base in ((0, 1_000), (1, 9_000_000))
    ]

    recording = recording_of_files(texts)

    assert [clock.num_matches for clock in recording.clocks] == [0, 0]
    assert recording.clocks[1].offset_ns == 8_999_000 * US
    assert replayed_step_ns(recording) == [500 * US, 500 * US]
    assert recording.measured.start_ns.min() == 0


def test_groups_guessed_wrong_are_no_sign_of_different_runs() -> None:
    style = FileStyle(collective_arguments=False)
    sizes = JobConfig(num_steps=2, num_layers=3, tp=1, dp=2, pp=2, num_microbatches=2)
    config = replace(sizes, noise=False, style=style)

    recording = recording_of(make_job(config))

    assert any("could not be told" in one.text for one in recording.findings)
