"""Steps of recorded programs: replay, prediction from another recording, variance, many steps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from foretrace.analyze import windows
from foretrace.base import RiskError
from foretrace.risk import Sampling, distance_between, fit_models, recorded_steps
from foretrace.simulate import simulate
from tests.risk.steps.jobs import recorded


def test_nothing_varying_is_the_replay_to_the_nanosecond() -> None:
    graph = recorded(rank_spread=0)

    found = recorded_steps(graph, sampling=Sampling(num_samples=100))

    replayed = windows(simulate(graph)).duration_ns
    assert set(found.step_ns.ravel().tolist()) == set(replayed.tolist())
    assert found.deviation_ns == 0


def test_one_configuration_tells_the_steps_of_another() -> None:
    known = recorded(layers=4, steps=300, step_spread=0.03, kernel_spread=0.05, seed=1)
    other = recorded(layers=7, steps=300, step_spread=0.03, kernel_spread=0.05, seed=2)

    found = recorded_steps(other, fit_models([known]), Sampling(num_samples=6000))

    measured = windows(simulate(other)).duration_ns.astype(float)
    # 300 steps of each know their mean to 0.2%.
    assert found.mean_ns == pytest.approx(measured.mean(), rel=0.01)
    assert found.quantile(0.95).step_ns == pytest.approx(np.quantile(measured, 0.95), rel=0.015)
    # Two samples of 300 are 0.11 apart in one case of twenty (1.36 sqrt(2 / n)).
    assert distance_between(found.step_ns.ravel(), measured) < 0.15
    assert found.notes == ()


def test_steps_that_vary_together_spread_more_than_apart() -> None:
    graph = recorded(steps=200, step_spread=0.05, kernel_spread=0.02)

    found = recorded_steps(graph, sampling=Sampling(num_samples=4000, has_shares=False))

    kernels = 9  # of a step, one after the other on each rank
    apart = 0.02 / np.sqrt(kernels)
    assert found.deviation_ns / found.mean_ns == pytest.approx(0.05, rel=0.15)
    assert found.deviation_ns / found.mean_ns > 3 * apart


def test_operations_that_the_other_recording_lacks_are_named() -> None:
    graph = recorded()
    known = fit_models([recorded(ranks=2)])  # its collective is one of two ranks

    found = recorded_steps(graph, known, Sampling(num_samples=10))

    assert "allreduce" in found.notes[0]
    assert "keep what was recorded" in found.notes[0]


def test_shares_of_operations_add_up_and_name_what_varies() -> None:
    graph = recorded(steps=20, kernel_spread=0.1)

    found = recorded_steps(graph, sampling=Sampling(num_samples=2000)).shares

    assert sum(one.share for one in found.operations) == pytest.approx(1, abs=1e-6)
    assert found.operations[0].name == "aten::gemm"
    assert found.operations[0].tail_ns > found.operations[0].path_ns
    assert found.num_tail >= 1


def test_few_steps_leave_the_host_as_it_was() -> None:
    found = recorded_steps(recorded(steps=3, kernel_spread=0.1), sampling=Sampling(num_samples=10))

    assert "3 recorded steps say too little" in found.notes[0]


def test_a_budget_ends_sampling_after_two_batches() -> None:
    found = recorded_steps(
        recorded(kernel_spread=0.1),
        sampling=Sampling(num_samples=400, budget_s=1e-9, has_shares=False),
    )

    assert len(found.step_ns) == 2
    assert len(found.convergence) == 2


def test_more_samples_narrow_the_confidence() -> None:
    graph = recorded(kernel_spread=0.1)

    few, many = (
        recorded_steps(graph, sampling=Sampling(num_samples=count, has_shares=False, seed=5))
        for count in (200, 20_000)
    )

    widths = [one.mean_interval_ns()[1] - one.mean_interval_ns()[0] for one in (few, many)]
    assert widths[1] < widths[0] / 3


def test_the_result_is_plain_json_and_a_table_of_samples() -> None:
    found = recorded_steps(recorded(kernel_spread=0.1), sampling=Sampling(num_samples=100))

    assert json.loads(json.dumps(found.as_json()))["num_samples"] == found.num_samples
    assert found.to_polars()["step_ns"].mean() == pytest.approx(found.mean_ns)
    assert "90% from" in repr(found)


@pytest.mark.parametrize(("change", "message"), [
    ({"num_samples": 0}, "samples must be"),
    ({"budget_s": 0.0}, "budget must be"),
])  # fmt: skip
def test_what_cannot_be_sampled_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RiskError, match=message):
        Sampling(**change)
