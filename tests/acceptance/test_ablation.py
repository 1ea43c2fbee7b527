"""Each class of dependency matters on a generated job with overlap, in the direction it must."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph import Ablation, without
from foretrace.simulate import simulate
from foretrace.validate import ReplayReport, ReplaySummary, replay_report
from tests.acceptance.recovery import Recovered, recording_of_job
from tests.truth import FileStyle, SlowRank, acceptance_config, make_job

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[True, False], ids=["sync events", "no sync events"])
def recovered(request: pytest.FixtureRequest) -> Recovered:
    job = make_job(acceptance_config(8, seed=5, style=FileStyle(sync_events=request.param)))
    return Recovered(job, recording_of_job(job))


@pytest.fixture(scope="module")
def report(recovered: Recovered) -> ReplayReport:
    return replay_report(recovered.recording)


def null_model(report: ReplayReport, ablation: Ablation) -> ReplaySummary:
    return next(each.summary for each in report.null_models if each.ablation is ablation)


def test_the_replay_itself_is_right_in_every_part(report: ReplayReport) -> None:
    assert report.summary.worst_step_error_percent < 0.05
    assert report.summary.worst_component_error_percent < 0.4
    assert report.summary.p95_kernel_start_error_percent < 0.05


def test_without_inter_stream_edges_overlap_rises_and_the_step_shortens(
    report: ReplayReport,
) -> None:
    null = null_model(report, Ablation.INTER_STREAM)

    assert null.replayed_parts.overlapped_ns > 1.5 * report.summary.replayed_parts.overlapped_ns
    assert null.mean_step_bias_percent < -5
    assert null.worst_component_error_percent > 5


def test_without_rendezvous_a_slower_rank_slows_nobody_else(recovered: Recovered) -> None:
    rank = recovered.job.num_ranks - 1
    changed = recovered.job.after(SlowRank(rank, 1.1))
    graph, duration_ns = without(recovered.recording, Ablation.RENDEZVOUS)
    slower_ns = np.where(recovered.is_kernel_of(rank), duration_ns * 11 // 10, duration_ns)

    # Recorded waits replay the recording itself well, and predict nothing.
    itself_ns = recovered.step_ns(simulate(graph, duration_ns))
    predicted_ns = recovered.step_ns(simulate(graph, slower_ns))

    assert np.abs(itself_ns / recovered.job.step_ns - 1).max() < 0.001
    others = np.arange(recovered.job.num_ranks) != rank
    assert (predicted_ns[others] == itself_ns[others]).all()
    assert np.abs(predicted_ns / changed.step_ns - 1).max() > 0.01


def test_without_the_device_the_parts_are_wrong(report: ReplayReport) -> None:
    null = null_model(report, Ablation.DEVICE)

    assert null.worst_component_error_percent > 5
