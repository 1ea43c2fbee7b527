"""One cell for a whole job against every rank one by one, on 512 ranks."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import ModelError
from foretrace.risk import Sampling, Variation, estimated_steps, stated_model
from foretrace.risk.steps.varying import cell_replicas, gpu_factors
from tests.risk.steps.plans import MACHINE, plan_of, small_model

NOISE = Variation(
    gpu=stated_model("normal", 0.05),
    kernel=stated_model("normal", 0.03),
    collective=stated_model("normal", 0.03),
)
PLANS: dict[str, dict[str, object]] = {
    "tensor": {"tp": 8, "dp": 64, "global_batch": 64},
    "pipeline": {"pp": 4, "dp": 128, "global_batch": 512},
    "all three": {"tp": 4, "pp": 4, "dp": 32, "global_batch": 128},
    "buckets": {"tp": 8, "dp": 64, "global_batch": 64, "sharding__bucket_bytes": 8_000_000},
    "shards": {"dp": 512, "global_batch": 512, "sharding__level": "zero3"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PLANS))
def test_one_cell_tells_what_all_ranks_tell(name: str) -> None:
    model = small_model()
    plan = plan_of(model, **PLANS[name])
    assert plan.num_ranks == 512

    whole, cell = (
        estimated_steps(
            model, plan, MACHINE, variation=NOISE, folded=folded,
            sampling=Sampling(num_samples=count, seed=seed, has_shares=False),
        )
        for folded, count, seed in ((False, 1200, 1), (True, 16_000, 2))
    )  # fmt: skip

    assert whole.method == "every rank"
    assert cell.method != "every rank"
    assert cell.fixed_ns == pytest.approx(whole.fixed_ns, rel=1e-6)
    # Both are sampled: 1,200 steps of every rank know their mean to 0.04% and p95 to 0.1%.
    assert cell.mean_ns == pytest.approx(whole.mean_ns, rel=0.003)
    p95 = whole.quantile(0.95).step_ns
    assert cell.quantile(0.95).step_ns == pytest.approx(p95, rel=0.005)
    assert cell.deviation_ns == pytest.approx(whole.deviation_ns, rel=0.15)


def test_a_plan_that_does_not_vary_takes_what_the_estimate_says() -> None:
    model = small_model(2)
    plan = plan_of(model, tp=2, pp=2, dp=4, global_batch=16)

    found = estimated_steps(
        model, plan, MACHINE, variation=Variation(), sampling=Sampling(num_samples=16)
    )

    assert found.deviation_ns == 0
    assert found.mean_ns == found.fixed_ns


def test_cells_hold_what_experts_and_shards_exchange_among_copies() -> None:
    model = small_model()

    plain = plan_of(model, tp=2, dp=16, global_batch=16)
    halves = plan_of(
        model, dp=16, global_batch=16, sharding__level="zero3", sharding__ranks=8
    )  # fmt: skip

    assert cell_replicas(plain) == 1
    assert cell_replicas(halves) == 8


def test_more_copies_wait_longer() -> None:
    model = small_model(2)
    plan = plan_of(model, tp=2, dp=16, global_batch=16)

    found = estimated_steps(
        model, plan, MACHINE, variation=NOISE,
        sampling=Sampling(num_samples=500, has_scales=True, has_shares=False),
    )  # fmt: skip

    means = [one.mean_ns for one in found.scales]
    assert [one.num_ranks for one in found.scales] == [2, 4, 8, 16, 32]
    assert means == sorted(means)
    assert means[-1] == pytest.approx(found.mean_ns, rel=0.005)


def test_each_gpu_s_speeds_cover_the_distribution_evenly() -> None:
    found = gpu_factors(stated_model("normal", 0.05), 3, num_samples=1000, seed=1)

    for speeds in found.T:
        assert speeds.mean() == pytest.approx(1, abs=1e-4)
        assert (np.sort(speeds)[[49, 949]] < stated_quantiles([0.05, 0.95])).all()
        assert (np.sort(speeds)[[50, 950]] > stated_quantiles([0.05, 0.95])).all()
    assert abs(np.asarray(np.corrcoef(found.T))[~np.eye(3, dtype=bool)]).max() < 0.15


def stated_quantiles(shares: list[float]) -> np.ndarray:
    return stated_model("normal", 0.05).quantile(np.array(shares))


def test_factors_that_would_not_fit_are_refused_before_they_are_drawn() -> None:
    with pytest.raises(ModelError, match=r"1,000,000,000,000 samples would take 3\.84e\+05 GB"):
        gpu_factors(stated_model("normal", 0.05), 8, num_samples=10**12, seed=1)
