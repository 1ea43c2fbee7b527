"""Models from repeats: factors of ranks and steps, and what is left, are found apart."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import RiskError
from foretrace.risk import Family, fit_models
from foretrace.risk.steps.fit import DEVICE
from tests.graphs import GraphBuilder
from tests.risk.steps.jobs import KERNEL_NS, recorded


def test_nothing_varies_where_nothing_varied() -> None:
    found = fit_models([recorded()])

    assert {one.model.family for one in found.operations} == {Family.FIXED}
    assert (found.rank_factor == 1).all()
    assert (found.step_factor == 1).all()
    gemm = next(one for one in found.operations if one.label == "aten::gemm")
    assert gemm.mean_ns == KERNEL_NS["gemm"]


def test_ranks_steps_and_the_rest_are_told_apart() -> None:
    graph = recorded(
        ranks=8, steps=200, layers=2, rank_spread=0.05, step_spread=0.03, kernel_spread=0.02
    )

    found = fit_models([graph])

    generator = np.random.default_rng(0)
    of_rank = 1 + 0.05 * generator.standard_normal(8)
    assert found.rank_factor[:, DEVICE] == pytest.approx(of_rank / of_rank.mean(), rel=3e-3)
    assert found.step_variation[DEVICE] == pytest.approx(0.03, rel=0.15)
    assert found.temporal_variation(DEVICE) == pytest.approx(0.02, rel=0.1)


def test_the_noise_of_short_steps_is_no_regime() -> None:
    graph = recorded(ranks=2, steps=200, layers=1, kernel_spread=0.1)

    found = fit_models([graph])

    # Six kernels of a step, of which two take most: single draws alone spread steps by 5%.
    assert found.step_variation[DEVICE] < 0.025


def test_several_recordings_count_as_one_after_the_other() -> None:
    parts = [recorded(steps=5, kernel_spread=0.05, seed=seed) for seed in (1, 2)]

    found = fit_models(parts)

    assert found.num_steps == 10
    gemm = next(one for one in found.operations if one.label == "aten::gemm")
    assert gemm.model.num_samples == 2 * 4 * 5 * 3


def test_collectives_are_told_apart_by_what_they_send_and_vary_without_waits() -> None:
    graph = recorded(kernel_spread=0.3)

    found = fit_models([graph])

    meeting = next(one for one in found.operations if one.key[0] == "communication")
    assert meeting.key[1:] == ("FINISH", "allreduce", "allreduce of world", "-1 bytes, 4 ranks")
    assert meeting.model.family is Family.FIXED


def test_a_recording_without_steps_says_what_to_do() -> None:
    with pytest.raises(RiskError, match="no step with durations"):
        fit_models([GraphBuilder().graph()])
