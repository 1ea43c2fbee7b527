"""Simulated campaigns against exact forms, and where their time goes."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest

from foretrace.base import RiskError
from foretrace.risk import (
    Account,
    Campaign,
    Corruption,
    Fleet,
    Outcome,
    Preemption,
    Replicas,
    WhileDown,
    ettr,
    linear_ettr,
    linear_holds,
    renewal_ettr,
    replicas_ettr,
    simulate_campaign,
    with_interval,
)
from tests.risk.campaigns import DAY_NS, HOUR_NS, campaign, minutes

WRONG = Corruption(
    upsets_per_host_day=0.1, vulnerability=0.5, coverage=0.9, overhead=0.05, step_ns=minutes(1)
)
FAILURES = 400_000  # over all samples, so that the error is far below a percent


def simulated(job: Campaign, *, failures: int = FAILURES, seed: int = 1) -> Outcome:
    each_ns = failures / 20 * (job.mttf_ns + job.down_ns)
    return simulate_campaign(
        job, duration_ns=round(min(each_ns, 90_000 * DAY_NS)), num_samples=20, seed=seed
    )


@pytest.mark.parametrize("while_down", list(WhileDown))
@pytest.mark.parametrize(
    ("num_hosts", "interval", "blocking", "background", "restart", "queue"),
    [
        (16, 60, 0, 0, 5, 0),
        (2000, 60, 0, 0, 5, 0),
        (2000, 5, 1, 0, 5, 0),
        (2000, 30, 0.5, 20, 10, 3),
        (12_500, 7, 0, 0, 5, 0),
        (12_500, 20, 1, 5, 5, 1),
        (12_500, 7, 0.2, 0, 12, 1),
    ],
)
def test_the_simulation_is_within_a_percent_of_the_exact_form(
    while_down: WhileDown,
    num_hosts: int,
    interval: float,
    blocking: float,
    background: float,
    restart: float,
    queue: float,
) -> None:
    job = campaign(
        num_hosts, 6.5, interval, blocking=blocking, background=background, restart=restart,
        queue=queue, detection=1, while_down=while_down,
    )  # fmt: skip

    found = simulated(job)

    assert found.mean_effective == pytest.approx(renewal_ettr(job), rel=0.01)
    assert (found.spent_ns.sum(axis=1) == found.wall_ns).all()


@pytest.mark.parametrize(("num_hosts", "interval"), [(16, 60), (256, 60), (2000, 10), (600, 30)])
def test_the_simulation_is_near_the_linear_form_where_that_holds(
    num_hosts: int, interval: float
) -> None:
    job = campaign(num_hosts, 6.5, interval, blocking=0.5)

    assert linear_holds(job)
    assert simulated(job).mean_effective == pytest.approx(linear_ettr(job), rel=0.05)


def test_the_best_interval_by_simulation_is_within_a_tenth_of_the_formula() -> None:
    job = campaign(1500, 6.5, 7, blocking=10 / 60)
    found = ettr(job, num_samples=20)
    factors = np.geomspace(0.6, 1.7, 13)

    # The same seed draws the same failures for every interval; a parabola through the noise.
    effective = [
        simulated(with_interval(job, round(found.best_interval_ns * factor))).mean_effective
        for factor in factors
    ]
    second, first, _ = np.polyfit(np.log(factors), effective, 2)

    assert np.exp(-first / (2 * second)) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_threads_change_nothing(num_workers: int) -> None:
    job = campaign(2000, 6.5, 30, blocking=1)

    one = simulate_campaign(job, duration_ns=30 * DAY_NS, num_samples=7, num_workers=2)
    two = simulate_campaign(job, duration_ns=30 * DAY_NS, num_samples=7, num_workers=num_workers)

    assert (one.spent_ns == two.spent_ns).all()
    assert len(set(one.num_failures.tolist())) > 1


@pytest.mark.parametrize("while_down", list(WhileDown))
def test_time_is_conserved_with_everything_that_can_happen(while_down: WhileDown) -> None:
    job = campaign(
        500, 40, 30, restart=8, blocking=1, background=3, queue=4, detection=2,
        while_down=while_down,
        fleet=Fleet(
            num_spares=10, repair_ns=3 * DAY_NS, repaired_share=0.8, lemon_share=0.02,
            lemon_factor=20, excluded_after=3,
        ),
        preemption=Preemption(every_ns=50 * HOUR_NS, away_ns=2 * HOUR_NS, has_notice=True),
    )  # fmt: skip

    job = replace(job, corruption=WRONG)

    found = simulate_campaign(job, duration_ns=60 * DAY_NS, num_samples=50)

    assert (found.spent_ns.sum(axis=1) == found.wall_ns).all()
    assert (found.wall_ns == 60 * DAY_NS).all()
    unused = {Account.STALL, Account.ABSENT}
    assert all((found.share(each) > 0) == (each not in unused) for each in Account)
    assert found.num_excluded.sum() > 0
    assert found.num_waits.sum() > 0
    assert found.num_preemptions.sum() > 0
    assert "wall_ns" in found.to_polars().columns
    assert found.to_polars().height == 50


@pytest.mark.parametrize("while_down", list(WhileDown))
def test_time_of_replicas_is_conserved(while_down: WhileDown) -> None:
    job = campaign(
        600, 60, 20, restart=10, blocking=1, while_down=while_down,
        fleet=Fleet(num_spares=3, repair_ns=5 * HOUR_NS, repaired_share=0.7),
        replicas=Replicas(
            num_replicas=6, stall_ns=minutes(2), away_ns=minutes(30), catch_up_ns=minutes(2),
            join_ns=minutes(1), lost_step_ns=minutes(0.3), min_replicas=3,
        ),
    )  # fmt: skip

    found = simulate_campaign(job, duration_ns=60 * DAY_NS, num_samples=20)

    assert (found.spent_ns.sum(axis=1) == found.wall_ns).all()
    used = {
        Account.PRODUCTIVE, Account.REWORK, Account.CHECKPOINT, Account.WAITING, Account.STALL,
        Account.ABSENT,
    }  # fmt: skip
    assert all((found.share(each) > 0) == (each in used) for each in Account)
    batch = found.batch()
    assert 0.5 < batch["mean"] < 1
    assert batch["deviation"] > 0


def test_ft_hsdp_at_98304_gpus_is_simulated_as_stated() -> None:
    # Checkpoints so often that no work is lost, as 44% and 80% leave it out.
    job = campaign(12_288, 6.51, 0.1, restart=10, while_down=WhileDown.ADD)
    replicas = Replicas(num_replicas=12, stall_ns=minutes(3), away_ns=minutes(10))

    full = simulate_campaign(job, duration_ns=300 * DAY_NS, num_samples=20)
    tolerant = simulate_campaign(
        replace(with_interval(job, HOUR_NS), replicas=replicas),
        duration_ns=300 * DAY_NS,
        num_samples=20,
    )

    assert full.mean_effective == pytest.approx(0.44, abs=0.01)
    assert tolerant.mean_effective == pytest.approx(0.80, abs=0.02)
    assert full.stall_per_failure_ns == pytest.approx(minutes(10), rel=0.01)
    assert tolerant.stall_per_failure_ns == pytest.approx(minutes(3), rel=0.01)


def test_one_replica_is_a_full_restart() -> None:
    replicas = Replicas(num_replicas=1, stall_ns=0, away_ns=minutes(10))
    job = campaign(2000, 6.5, 30, restart=10, blocking=1)

    found = simulated(replace(job, replicas=replicas))

    assert found.mean_effective == pytest.approx(renewal_ettr(job), rel=0.01)
    assert found.share(Account.WAITING) == pytest.approx(
        simulated(job).share(Account.RESTART), rel=0.02
    )


def test_very_many_replicas_leave_only_the_stall() -> None:
    replicas = Replicas(num_replicas=12_288, stall_ns=minutes(3), away_ns=minutes(10))
    job = campaign(12_288, 6.51, 1e5, while_down=WhileDown.ADD, replicas=replicas)

    found = simulate_campaign(job, duration_ns=60 * DAY_NS, num_samples=10)

    assert found.mean_effective == pytest.approx(1 - minutes(3) / job.mttf_ns, abs=0.005)
    assert replicas_ettr(job) == pytest.approx(found.mean_effective, abs=0.005)


def test_spares_are_waited_for_when_there_are_too_few() -> None:
    def found(num_spares: int) -> Outcome:
        fleet = Fleet(num_spares=num_spares, repair_ns=5 * DAY_NS)
        job = campaign(1000, 6.5, 30, fleet=fleet)
        return simulate_campaign(job, duration_ns=200 * DAY_NS, num_samples=20)

    # 6.5 failures a day and five days of repair: 32 hosts are away on average.
    few, some, many = found(10), found(35), found(80)

    assert many.share(Account.WAITING) == 0
    assert few.mean_effective < some.mean_effective < many.mean_effective
    assert few.share(Account.WAITING) > 0.5


def test_lemons_take_the_failures_until_they_are_excluded() -> None:
    # 1% of hosts fail thirty times as often: 23% of failures are theirs.
    lemons = Fleet(lemon_share=0.01, lemon_factor=30.0)

    def failures(fleet: Fleet) -> float:
        job = campaign(2000, 6.5, 30, fleet=fleet)
        found = simulate_campaign(job, duration_ns=200 * DAY_NS, num_samples=50)
        return float(found.num_failures.mean())

    before, after = failures(lemons), failures(replace(lemons, excluded_after=3))

    # The stated rate is the mean over hosts, so that lemons do not add to it.
    assert before == pytest.approx(failures(Fleet()), rel=0.02)
    assert 0.75 * before < after < 0.87 * before
    # Those that fail are exchanged for spares, among which lemons gather.
    assert failures(replace(lemons, num_spares=40)) < 0.95 * before


def test_preemption_with_notice_loses_nothing() -> None:
    stopped = Preemption(every_ns=5 * HOUR_NS, away_ns=HOUR_NS)
    job = campaign(100, 0.0, 60, blocking=1, preemption=stopped)

    hard = simulate_campaign(job, duration_ns=100 * DAY_NS, num_samples=20)
    warned = simulate_campaign(
        replace(job, preemption=replace(stopped, has_notice=True)),
        duration_ns=100 * DAY_NS,
        num_samples=20,
    )

    assert hard.num_failures.sum() == 0
    assert hard.share(Account.REWORK) > 0.05
    assert warned.share(Account.REWORK) == 0
    # Five hours, then an hour away and five minutes to restart.
    assert hard.share(Account.PREEMPTED) == pytest.approx(60 / 365, rel=0.03)


def test_nothing_failing_is_all_productive() -> None:
    found = ettr(campaign(10, 0.0, 30), num_samples=3)

    assert found.simulated == found.linear == found.renewal == 1.0
    assert found.outcome.stall_per_failure_ns == 0.0
    assert found.as_json()["best_interval_ns"] is None


def test_llama_3_is_interrupted_419_times_in_54_days() -> None:
    job = campaign(2048, 3.789, 8, restart=10, blocking=10 / 60, while_down=WhileDown.AGAIN)

    found = simulate_campaign(job, duration_ns=54 * DAY_NS, num_samples=400)

    assert found.num_failures.mean() == pytest.approx(419, abs=3)
    assert 2 * found.num_failures.std() == pytest.approx(41, abs=4)
    assert found.mean_effective > 0.9


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (campaign(0, 1, 5), "0 hosts"),
        (campaign(8, -1, 5), "zero or more"),
        (campaign(8, 1, 0), "interval has to be above zero"),
        (campaign(8, 1, 5, background=6), "longer interval"),
        (campaign(8, 1, 5, restart=-1), "below zero"),
        (campaign(8, 1, 5, fleet=Fleet(lemon_share=2)), "between 0 and 1"),
        (campaign(8, 1, 5, fleet=Fleet(lemon_factor=0.5)), "lemons"),
        (campaign(8, 1, 5, preemption=Preemption(every_ns=0, away_ns=1)), "preemptions"),
        (campaign(8, 1, 5, replicas=Replicas(num_replicas=3, stall_ns=0, away_ns=0)), "divide"),
        (
            campaign(
                8, 1, 5, replicas=Replicas(num_replicas=2, stall_ns=0, away_ns=0, min_replicas=3)
            ),
            "at least 3",
        ),
        (
            campaign(
                8, 1, 5, fleet=Fleet(lemon_share=0.1),
                replicas=Replicas(num_replicas=2, stall_ns=0, away_ns=0),
            ),
            "without replicas",
        ),
        (
            campaign(8, 1, 5, replicas=Replicas(num_replicas=2, stall_ns=-1, away_ns=0)),
            "replicas",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(job: Campaign, words: str) -> None:
    with pytest.raises(RiskError, match=words):
        simulate_campaign(job, duration_ns=DAY_NS)


def test_no_time_and_no_samples_are_refused() -> None:
    job = campaign(8, 1, 5)

    with pytest.raises(RiskError, match="take at least one"):
        simulate_campaign(job, duration_ns=0)
    with pytest.raises(RiskError, match="take at least one"):
        simulate_campaign(job, duration_ns=DAY_NS, num_samples=0)
    with pytest.raises(RiskError, match="work"):
        simulate_campaign(job, duration_ns=DAY_NS, work_ns=0)


@pytest.mark.slow
def test_a_thousand_years_of_a_hundred_thousand_gpus_take_less_than_a_minute() -> None:
    job = campaign(12_500, 6.5, 7, blocking=0.2)
    simulate_campaign(job, duration_ns=DAY_NS, num_samples=1)  # compiles

    begin = perf_counter()
    found = simulate_campaign(job, duration_ns=365 * DAY_NS, num_samples=1000)

    assert perf_counter() - begin < 60
    assert found.wall_ns.size == 1000


@pytest.mark.parametrize(
    ("job", "days", "num_samples"),
    [
        (campaign(2048, 3.8, 30), 5, 1_000_000),
        (campaign(2048, 1e12, 30, while_down=WhileDown.AGAIN), 90, 10),
        (campaign(2048, 1e15, 30, while_down=WhileDown.ADD), 90, 1),
        (campaign(16, 3.8, 30, preemption=Preemption(every_ns=1, away_ns=0)), 90, 1),
    ],
)
def test_a_campaign_that_would_take_hours_is_refused_at_once(
    job: Campaign, days: int, num_samples: int
) -> None:
    began = perf_counter()

    with pytest.raises(RiskError, match="take fewer samples or days, or check how often"):
        simulate_campaign(job, duration_ns=days * DAY_NS, num_samples=num_samples)

    assert perf_counter() - began < 5


def test_wrong_steps_are_found_or_not_and_found_ones_computed_again() -> None:
    job = campaign(500, 6.5, 30, restart=8)
    plain = simulate_campaign(job, duration_ns=30 * DAY_NS, num_samples=40)
    found = simulate_campaign(
        replace(job, corruption=WRONG), duration_ns=30 * DAY_NS, num_samples=40
    )
    assert found.num_silent is not None
    assert found.num_found is not None
    # Failures come as they did; what was productive is divided.
    assert (found.num_failures == plain.num_failures).all()
    divided = (Account.PRODUCTIVE, Account.CHECK, Account.RECOMPUTED)
    assert sum(map(found.share, divided)) == pytest.approx(plain.share(Account.PRODUCTIVE))
    assert found.share(Account.CHECK) == pytest.approx(0.05 * found.share(Account.PRODUCTIVE))
    trained_days = plain.share(Account.PRODUCTIVE) * 30
    expected = 500 * 0.05 * trained_days
    error = 4 / np.sqrt(40 * expected * 0.1)
    assert found.num_found.mean() == pytest.approx(0.9 * expected, rel=error)
    assert found.num_silent.mean() == pytest.approx(0.1 * expected, rel=error)
    again_ns = found.num_found * round(minutes(1) * 1.05)
    recomputed_ns = found.spent_ns[:, list(Account).index(Account.RECOMPUTED)]
    assert (recomputed_ns == again_ns).all()


@pytest.mark.parametrize("change", [{"vulnerability": 0.0}, {"coverage": 1.0}])
def test_nothing_is_silent_where_nothing_can_be(change: dict[str, float]) -> None:
    job = replace(campaign(500, 6.5, 30), corruption=replace(WRONG, **change))  # type: ignore[arg-type]
    found = simulate_campaign(job, duration_ns=30 * DAY_NS, num_samples=20)
    assert found.num_silent is not None
    assert not found.num_silent.any()


def test_work_takes_longer_by_its_checks_and_a_restart_costs_more_than_a_step() -> None:
    job = replace(campaign(500, 6.5, 30, restart=8), corruption=WRONG)
    again = simulate_campaign(job, duration_ns=300 * DAY_NS, work_ns=10 * DAY_NS, num_samples=20)
    restarts = simulate_campaign(
        replace(job, corruption=replace(WRONG, restarts=True)),
        duration_ns=300 * DAY_NS, work_ns=10 * DAY_NS, num_samples=20,
    )  # fmt: skip
    for found in (again, restarts):
        assert found.is_finished.all()
        assert (found.spent_ns.sum(axis=1) == found.wall_ns).all()
        assert (abs(found.spent_ns[:, 0] - 10 * DAY_NS) <= 1).all()
    assert restarts.wall_ns.mean() > again.wall_ns.mean()
