"""Distributions: what averages out over many steps, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import Float64s
from foretrace.risk import StepDistribution


def distribution(step_ns: Float64s) -> StepDistribution:
    return StepDistribution(
        title="a job", fixed_ns=1e6, step_ns=step_ns, num_ranks=8, method="every rank", sources={}
    )


def test_what_jobs_keep_grows_with_the_number_of_steps_and_the_rest_with_its_root() -> None:
    generator = np.random.default_rng(1)
    lasting = generator.normal(0, 30, (4, 5000, 1))
    found = distribution(1000 + lasting + generator.normal(0, 40, (4, 5000, 3)))

    one, many = found.training(1), found.training(10_000)

    assert one.deviation_ns == pytest.approx(50, rel=0.02)
    assert many.averaging_ns == pytest.approx(40 * 100, rel=0.02)
    assert many.lasting_ns == pytest.approx(30 * 10_000, rel=0.03)
    assert many.mean_ns == pytest.approx(1000 * 10_000, rel=0.001)


def test_confidence_holds_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    truth = 1000 + 10 * 1.6449
    hits = 0
    for _ in range(300):
        found = distribution(generator.normal(1000, 10, (4, 500, 1))).quantile(0.95)
        hits += found.low_ns <= truth <= found.high_ns

    assert 0.90 <= hits / 300 <= 0.99


def test_training_needs_a_step() -> None:
    with pytest.raises(ValueError, match="num_steps must be 1 or more"):
        distribution(np.ones((2, 4, 2))).training(0)
