"""Ways to recover, sizes of replicas, sweeps, and days of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import RiskError
from foretrace.machine import load_chip
from foretrace.risk import (
    Account,
    Fleet,
    Preemption,
    Replicas,
    Scheme,
    by_interval,
    by_scale,
    compare_schemes,
    load_campaign,
    renewal_ettr,
    replica_sizes,
    simulate_campaign,
    training_time,
    with_scheme,
)
from foretrace.workload import Plan, Sharding, load_model
from tests.risk.campaigns import DAY_NS, campaign, minutes

REPLICAS = Replicas(num_replicas=8, stall_ns=minutes(3), away_ns=minutes(10))
JOB = campaign(1024, 20, 20, blocking=0.2, queue=15, detection=2, replicas=REPLICAS)


def test_schemes_come_best_first() -> None:
    found = compare_schemes(JOB, duration_ns=60 * DAY_NS, num_samples=20)

    effective = [each.outcome.mean_effective for each in found.results]
    assert effective == sorted(effective, reverse=True)
    assert found.results[0].scheme is Scheme.FAULT_TOLERANT
    assert {each.scheme for each in found.results} == set(Scheme)
    by_scheme = {each.scheme: each.outcome for each in found.results}
    # Spares save the queue, and fault tolerance the lost work.
    assert by_scheme[Scheme.HOT_SPARES].share(Account.QUEUE) == 0
    assert by_scheme[Scheme.FULL_RESTART].share(Account.QUEUE) > 0
    assert by_scheme[Scheme.FAULT_TOLERANT].share(Account.REWORK) < 0.001
    assert by_scheme[Scheme.ELASTIC].rework_per_failure_ns > minutes(5)
    assert by_scheme[Scheme.ELASTIC].batch()["deviation"] > 0
    assert found.to_polars().height == 4
    assert len(str(found.as_json())) > 100


def test_an_elastic_job_goes_on_where_others_wait_for_hosts() -> None:
    # Hosts are away for six hours each, and there are no spares.
    fleet = Fleet(repair_ns=6 * 60 * minutes(1))
    job = replace(JOB, queue_ns=0, fleet=fleet, failures_per_host_day=0.004)
    schemes = (Scheme.HOT_SPARES, Scheme.ELASTIC)

    found = compare_schemes(job, duration_ns=200 * DAY_NS, schemes=schemes, num_samples=10)

    assert [each.scheme for each in found.results] == [Scheme.ELASTIC, Scheme.HOT_SPARES]
    elastic, waiting = (each.outcome for each in found.results)
    assert waiting.share(Account.WAITING) > 0.4
    assert elastic.share(Account.ABSENT) > 0.05
    # With a host at once, it is a full restart of what is left: nobody is ever absent.
    at_once = with_scheme(replace(job, fleet=Fleet()), Scheme.ELASTIC)
    found_at_once = simulate_campaign(at_once, duration_ns=200 * DAY_NS, num_samples=10)
    assert found_at_once.share(Account.ABSENT) == 0
    full = with_scheme(replace(job, fleet=Fleet()), Scheme.HOT_SPARES)
    assert found_at_once.mean_effective == pytest.approx(renewal_ettr(full), rel=0.01)


def test_spares_are_paid_for() -> None:
    job = replace(JOB, replicas=None, fleet=Fleet(num_spares=128, repair_ns=DAY_NS))

    found = compare_schemes(
        job, duration_ns=30 * DAY_NS, schemes=(Scheme.HOT_SPARES,), num_samples=5
    ).results[0]

    assert found.per_paid_gpu == pytest.approx(found.outcome.mean_effective * 1024 / 1152)
    assert found.outcome.mean_effective == pytest.approx(found.renewal, rel=0.02)


def test_replicas_are_needed_where_they_are_the_point() -> None:
    job = replace(JOB, replicas=None)

    assert {each.scheme for each in compare_schemes(job, duration_ns=DAY_NS).results} == {
        Scheme.FULL_RESTART,
        Scheme.HOT_SPARES,
    }
    with pytest.raises(RiskError, match="elastic needs replicas"):
        with_scheme(job, Scheme.ELASTIC)
    with pytest.raises(RiskError, match="no replicas to choose"):
        replica_sizes(job, [64], duration_ns=DAY_NS)


def test_small_replicas_lose_less_until_they_do_not_fit() -> None:
    model, chip = load_model("llama3-405b"), load_chip("h100-sxm")

    found = replica_sizes(
        JOB, [128, 256, 1024, 4096], duration_ns=60 * DAY_NS, model=model, chip=chip, num_samples=10
    )

    effective = [each.outcome.mean_effective for each in found.sizes]
    assert effective == sorted(effective, reverse=True)
    # 18 bytes of 405.85 billion parameters are 53 GiB on 128 GPUs.
    assert found.sizes[0].num_bytes == pytest.approx(405.85e9 * 18 / 128, rel=1e-3)
    assert all(each.counts_states_only for each in found.sizes)
    small = replica_sizes(
        JOB, [64, 512], duration_ns=10 * DAY_NS, model=model, chip=chip, num_samples=5
    )
    assert [each.fits for each in small.sizes] == [False, True]
    assert small.best is not None
    assert small.best.gpus_per_replica == 512
    assert small.to_polars()["fits"].to_list() == [False, True]


def test_a_plan_says_what_a_replica_holds_with_its_activations() -> None:
    model, chip = load_model("llama3-405b"), load_chip("h100-sxm")
    plan = Plan(
        tensor=8, pipeline=16, data=64, global_batch=2048, sequence=8192,
        sequence_parallel=True, sharding=Sharding.ZERO2,
    )  # fmt: skip

    found = replica_sizes(
        JOB, [128, 1024, 8192], duration_ns=DAY_NS, model=model, plan=plan, chip=chip, num_samples=2
    )

    sizes = [each.num_bytes or 0 for each in found.sizes]
    assert sizes == sorted(sizes, reverse=True)
    assert not any(each.counts_states_only for each in found.sizes)
    # Optimizer's 12 bytes a parameter of 128 GPUs' share are divided over 64 times as many.
    saved = 12 * 405.85e9 / 128 * (1 - 1 / 64)
    assert sizes[0] - sizes[2] == pytest.approx(saved, rel=0.4)
    with pytest.raises(RiskError, match="whole pipelines"):
        replica_sizes(JOB, [64], duration_ns=DAY_NS, model=model, plan=plan)
    with pytest.raises(RiskError, match="they have to be the same"):
        replica_sizes(JOB, [128], duration_ns=DAY_NS, model=model, plan=replace(plan, data=32))
    with pytest.raises(RiskError, match="shards nothing"):
        replica_sizes(
            JOB, [128], duration_ns=DAY_NS, model=model, plan=replace(plan, sharding=Sharding.NONE)
        )


def test_a_size_has_to_divide_the_job() -> None:
    with pytest.raises(RiskError, match="whole hosts"):
        replica_sizes(JOB, [12], duration_ns=DAY_NS)


def test_sweeps_show_where_the_linear_form_ends() -> None:
    job = campaign(2000, 6.5, 30, blocking=0.5)

    found = by_interval(
        job, [minutes(value) for value in (1, 10, 100)], duration_ns=300 * DAY_NS, num_samples=20
    )

    assert found.lines["simulated"] == pytest.approx(found.lines["renewal"], rel=0.02)
    assert found.lines["linear"][2] < 0.9 * found.lines["renewal"][2]
    assert found.values.tolist() == [60, 600, 6000]
    assert found.to_polars().columns == ["value", "linear", "renewal", "simulated"]


def test_effective_time_falls_with_scale() -> None:
    found = by_scale(JOB, [128, 512, 1024], duration_ns=60 * DAY_NS, num_samples=5)

    assert found.values.tolist() == [1024, 4096, 8192]
    assert set(found.lines) == {each.value for each in Scheme}
    for line in found.lines.values():
        assert np.all(np.diff(line) < 0) or np.array_equal(line, found.lines["fault-tolerant"])
    assert found.lines["fault-tolerant"][-1] > found.lines["full-restart"][-1]
    assert len(by_scale(replace(JOB, replicas=None), [8, 16], duration_ns=DAY_NS).lines) == 2


def test_training_takes_its_work_over_its_effective_time() -> None:
    job = campaign(2000, 6.5, 20, blocking=0.5)

    found = training_time(
        job, num_tokens=1e12, tokens_per_second=1e6, price_per_gpu_hour=2.0, num_samples=50
    )

    assert found.outcome.is_finished.all()
    assert (found.outcome.spent_ns[:, 0] == found.work_ns).all()
    days = 1e12 / 1e6 / 86_400
    assert found.days.mean() == pytest.approx(days / renewal_ettr(job), rel=0.01)
    odds = found.cost_odds()
    assert odds is not None
    assert odds["mean"] == pytest.approx(found.days.mean() * 24 * 16_000 * 2, rel=1e-6)
    assert odds["p5"] < odds["p50"] < odds["p95"]
    assert found.as_json()["num_paid_gpus"] == 16_000
    assert found.to_polars().height == 50


def test_training_with_replicas_ends_when_all_work_is_done() -> None:
    job = replace(load_campaign("ft-hsdp-98k"), checkpoint=JOB.checkpoint)

    found = training_time(job, num_tokens=1e12, tokens_per_second=1e6, num_samples=5)

    assert found.outcome.is_finished.all()
    assert found.outcome.spent_ns[:, 0] == pytest.approx(found.work_ns, rel=1e-6)
    assert found.cost_odds() is None


def test_training_that_never_ends_is_given_up() -> None:
    job = campaign(12_500, 200, 60, restart=30)

    found = training_time(job, num_tokens=1e9, tokens_per_second=1e6, num_samples=3)

    assert not found.outcome.is_finished.any()
    with pytest.raises(RiskError, match="above zero"):
        training_time(job, num_tokens=0, tokens_per_second=1)


def test_a_preempted_job_may_be_compared_without_replicas() -> None:
    job = replace(JOB, replicas=None, preemption=Preemption(every_ns=DAY_NS, away_ns=minutes(30)))

    found = simulate_campaign(job, duration_ns=30 * DAY_NS, num_samples=5)

    assert found.share(Account.PREEMPTED) > 0
