"""Recovery on other jobs than the one it is judged on: layouts, older files, full queues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import Int64s
from foretrace.graph import verify
from tests.acceptance.recovery import Recovered, recording_of_job
from tests.truth import (
    Change,
    FileStyle,
    JobConfig,
    KernelFamily,
    SlowLink,
    SlowRank,
    make_job,
    transitive_closure_contains,
)

pytestmark = pytest.mark.slow

MAX_ERROR = 0.005
BASE = JobConfig(tp=2, dp=2, pp=2, num_layers=2, num_microbatches=3, num_steps=2)
CONFIGS = {
    "no metadata": replace(BASE, style=FileStyle(collective_arguments=False)),
    "no sequence numbers": replace(BASE, style=FileStyle(sequence_numbers=False)),
    "whole microseconds": replace(BASE, style=FileStyle(whole_microseconds=True)),
    "full queue": replace(BASE, queue_depth=64),
    "a slow rank": replace(BASE, slow_ranks=((3, 1.3),)),
    "pipeline": JobConfig(pp=4, num_layers=2, num_steps=2, num_microbatches=6),
    "ring of eight": JobConfig(dp=8, num_layers=2, num_steps=2, ring_exchange=True),
    "tensor parallel": JobConfig(tp=8, num_layers=2, num_steps=2),
    "host is slow": JobConfig(tp=2, dp=2, num_layers=2, num_steps=2, work_scale=0.02),
    "one rank": JobConfig(num_layers=3, num_steps=2),
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def recovered(request: pytest.FixtureRequest) -> Recovered:
    job = make_job(CONFIGS[request.param])
    return Recovered(job, recording_of_job(job))


def test_the_graph_is_legal_and_its_steps_are_the_true_ones(recovered: Recovered) -> None:
    measured_ns = recovered.step_ns(recovered.recording.measured)

    verify(recovered.graph)
    assert np.abs(measured_ns / recovered.job.step_ns - 1).max() < 5e-5
    assert np.abs(recovered.step_ns(recovered.replayed) / measured_ns - 1).max() < 2e-3


def test_edges_and_waits_are_recovered(recovered: Recovered) -> None:
    found, delaying = recovered.inter_stream_edges(), recovered.delaying_edges()

    assert len(found & delaying) >= 0.99 * len(delaying)
    assert np.mean(transitive_closure_contains(recovered.job, sorted(found))) >= 0.99
    if recovered.job.collectives:
        assert np.median(np.abs(recovered.wait_errors_ns())) <= recovered.job.config.jitter_ns


def test_hidden_interventions_are_predicted(recovered: Recovered) -> None:
    job, last = recovered.job, recovered.job.num_ranks - 1
    predictions: dict[Change, Int64s] = {
        KernelFamily("gemm", 0.7): recovered.scaled_ns(recovered.has_family("gemm"), 0.7),
        SlowRank(last, 1.1): recovered.scaled_ns(recovered.is_kernel_of(last), 1.1),
        **{
            SlowLink(link, 2.0): recovered.scaled_ns(recovered.has_link(link), 2.0)
            for link in sorted({each.link for each in job.collectives})
        },
    }

    error = {
        change: recovered.prediction_error(predicted_ns, job.after(change))
        for change, predicted_ns in predictions.items()
    }

    assert max(error.values()) <= MAX_ERROR, error
