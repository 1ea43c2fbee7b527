"""Edges, waits and hidden interventions of generated jobs, recovered from their files."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from foretrace.graph import verify
from tests.acceptance.recovery import Recovered, recording_of_job
from tests.truth import (
    Change,
    Job,
    KernelFamily,
    MergedBuckets,
    SlowLink,
    SlowRank,
    acceptance_config,
    make_job,
    transitive_closure_contains,
)

pytestmark = pytest.mark.slow

MAX_ERROR = 0.005  # of a step, for every hidden intervention
LINKS = ("tp", "dp", "pp", "ring", "world")


@cache
def job_of(num_ranks: int, *changes: Change) -> Job:
    """The job, or the same job changed; how files are written does not change what is true."""
    if changes:
        return job_of(num_ranks).after(*changes)
    return make_job(replace(acceptance_config(num_ranks), num_steps=3 if num_ranks == 8 else 2))


@pytest.fixture(
    scope="module",
    params=[(8, True), (8, False), (64, True), (64, False)],
    ids=["8 ranks, sync events", "8 ranks", "64 ranks, sync events", "64 ranks"],
)
def recovered(request: pytest.FixtureRequest) -> Recovered:
    num_ranks, has_sync_events = request.param
    job = job_of(num_ranks)
    style = replace(job.config.style, sync_events=has_sync_events)
    job = replace(job, config=replace(job.config, style=style))
    return Recovered(job, recording_of_job(job))


def test_the_job_has_what_makes_recovery_hard(recovered: Recovered) -> None:
    config = recovered.job.config

    assert config.jitter_ns == 5_000
    assert config.clock_offset_ns >= 1_000_000_000
    assert config.clock_drift_ppm == 10
    assert min(config.tp, config.dp, config.pp) > 1
    assert config.ring_exchange
    assert config.copy_stream


def test_the_graph_obeys_its_spec_and_everything_matched(recovered: Recovered) -> None:
    verify(recovered.graph)

    # That waits are inferred is said; nothing else is amiss.
    assert {finding.topic for finding in recovered.recording.findings} <= {"streams"}
    assert len(recovered.graph.collectives) == len(recovered.job.collectives)


def test_the_measured_timeline_is_the_true_one(recovered: Recovered) -> None:
    measured_ns = recovered.step_ns(recovered.recording.measured)

    # What remains is drift within a step: ten ppm of a clock, read on that clock.
    assert np.abs(measured_ns / recovered.job.step_ns - 1).max() < 2e-5


def test_the_replay_is_the_recording(recovered: Recovered) -> None:
    measured_ns = recovered.step_ns(recovered.recording.measured)

    assert np.abs(recovered.step_ns(recovered.replayed) / measured_ns - 1).max() < 5e-4


def test_edges_that_delay_are_found_and_those_found_are_true(recovered: Recovered) -> None:
    found, delaying = recovered.inter_stream_edges(), recovered.delaying_edges()

    recall = len(found & delaying) / len(delaying)
    precision = np.mean(transitive_closure_contains(recovered.job, sorted(found)))

    least = 1.0 if recovered.job.config.style.sync_events else 0.99
    assert len(delaying) > 100
    assert recall >= least
    assert precision >= least


def test_waits_are_recovered_within_the_jitter(recovered: Recovered) -> None:
    error_ns = np.abs(recovered.wait_errors_ns())

    assert np.median(error_ns) <= recovered.job.config.jitter_ns


def test_a_faster_kernel_family_is_predicted(recovered: Recovered) -> None:
    changed = job_of(recovered.job.num_ranks, KernelFamily("gemm", 0.7))

    predicted_ns = recovered.scaled_ns(recovered.has_family("gemm"), 0.7)

    assert np.abs(changed.step_ns / recovered.job.step_ns - 1).min() > 10 * MAX_ERROR
    assert recovered.prediction_error(predicted_ns, changed) <= MAX_ERROR


def test_a_slower_rank_is_predicted(recovered: Recovered) -> None:
    rank = recovered.job.num_ranks - 1  # in the last stage, whose lateness no bubble hides
    changed = job_of(recovered.job.num_ranks, SlowRank(rank, 1.1))

    predicted_ns = recovered.scaled_ns(recovered.is_kernel_of(rank), 1.1)

    assert np.abs(changed.step_ns / recovered.job.step_ns - 1).min() > 2 * MAX_ERROR
    assert recovered.prediction_error(predicted_ns, changed) <= MAX_ERROR


@pytest.mark.parametrize("link", LINKS)
def test_a_link_of_half_the_speed_is_predicted(recovered: Recovered, link: str) -> None:
    changed = job_of(recovered.job.num_ranks, SlowLink(link, 2.0))

    predicted_ns = recovered.scaled_ns(recovered.has_link(link), 2.0)

    assert recovered.prediction_error(predicted_ns, changed) <= MAX_ERROR


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 2)])
def test_merged_buckets_are_predicted(recovered: Recovered, first: int, second: int) -> None:
    changed = job_of(recovered.job.num_ranks, MergedBuckets(first, second))

    predicted_ns = recovered.merged_buckets_ns(first, second)

    assert np.abs(changed.step_ns / recovered.job.step_ns - 1).max() > 2 * MAX_ERROR
    assert recovered.prediction_error(predicted_ns, changed) <= MAX_ERROR
