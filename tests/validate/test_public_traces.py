"""The replay of a public 8-rank trace, held to the errors that the project states."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.graph import Ablation, build_recording
from foretrace.trace import load_traces
from foretrace.validate import ReplayReport, ReplaySummary, replay_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def megatron(data_dir: Path) -> ReplayReport:
    paths = sorted((data_dir / "traces" / "megatron-tp8").glob("kineto_rank*.json.gz"))
    return replay_report(build_recording(load_traces(paths)))


def _null(report: ReplayReport, ablation: Ablation) -> ReplaySummary:
    return next(null.summary for null in report.null_models if null.ablation is ablation)


def test_replay_of_megatron_is_within_its_stated_errors(megatron: ReplayReport) -> None:
    summary = megatron.summary

    assert [len(step.ranks) for step in megatron.steps] == [8]
    assert summary.mean_step_error_percent <= 0.05
    assert summary.worst_component_error_percent <= 0.4
    assert summary.p95_kernel_start_error_percent <= 0.05
    assert summary.worst_collective_error_percent is not None
    assert summary.worst_collective_error_percent <= 1


def test_host_chain_alone_misses_where_the_time_goes(megatron: ReplayReport) -> None:
    without_device = _null(megatron, Ablation.DEVICE)

    assert without_device.mean_step_error_percent > 1
    assert without_device.worst_component_error_percent > 10


def test_recorded_collective_times_alone_misplace_kernels(megatron: ReplayReport) -> None:
    without_rendezvous = _null(megatron, Ablation.RENDEZVOUS)

    own = megatron.summary.p95_kernel_start_error_percent
    assert without_rendezvous.p95_kernel_start_error_percent > 10 * own


def test_without_inter_stream_edges_overlap_rises_and_the_step_shortens(
    megatron: ReplayReport,
) -> None:
    without_streams = _null(megatron, Ablation.INTER_STREAM)

    assert megatron.summary.replayed_parts.overlapped_ns == 0
    assert without_streams.replayed_parts.overlapped_ns > 0.1 * (
        without_streams.replayed_parts.total_ns
    )
    assert without_streams.mean_step_bias_percent < megatron.summary.mean_step_bias_percent
    assert without_streams.worst_component_error_percent > 10
