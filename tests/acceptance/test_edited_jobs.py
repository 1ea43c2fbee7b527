"""Edits of generated jobs: predicted from the files of one, held against the other's truth."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from foretrace.analyze import windows
from foretrace.graph import verify
from foretrace.whatif import Baseline, baseline_of, predict
from tests.acceptance.edited_jobs import EDITED_JOBS, BelievedCosts, EditedJob
from tests.acceptance.recovery import recording_of_job
from tests.truth import Job, JobConfig, make_job

pytestmark = pytest.mark.slow


@cache
def ground_under(config: JobConfig) -> Baseline:
    """What is known of a job from its files."""
    return baseline_of(recording_of_job(make_job(config)), costs=BelievedCosts())


def true_step_ns(job: Job) -> float:
    """From the end of the first step on all ranks to that of the last, by step."""
    num_steps = job.config.num_steps
    first, last = (
        max(job.step_end_ns(rank, step) for rank in range(job.num_ranks))
        for step in (0, num_steps - 1)
    )
    return (last - first) / (num_steps - 1)


@pytest.mark.parametrize("pair", EDITED_JOBS, ids=[pair.name for pair in EDITED_JOBS])
def test_an_edit_is_predicted(pair: EditedJob) -> None:
    baseline = ground_under(pair.recorded)
    true_ns = true_step_ns(make_job(pair.true))
    before_ns = float(np.mean(windows(baseline.replayed).duration_ns[1:]))

    found = predict(baseline, pair.edits)

    verify(found.timeline.graph)
    error = float(np.mean(windows(found.timeline).duration_ns[1:])) / true_ns - 1
    assert abs(error) <= pair.max_error
    # The edit matters: what was recorded is no answer.
    assert abs(before_ns / true_ns - 1) > 2 * pair.max_error
