"""Campaigns event by event, many at once: one seed a sample, so that threads change nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import NS_PER_DAY, Int64s, RiskError
from foretrace.risk.campaign._compiled import (
    EXCLUDED,
    FAILURES,
    FINISHED,
    PREEMPTIONS,
    RETURNED_LATE,
    _replicas,
    _restarts,
)
from foretrace.risk.campaign.campaign import (
    Campaign,
    Corruption,
    Replicas,
    WhileDown,
    check_campaign,
)
from foretrace.risk.campaign.outcome import Account, Outcome

_ACCOUNTS = list(Account)
_MODES = list(WhileDown)  # their positions are the compiled loops' numbers
_NUM_COUNTS = 5
_ABSENT = _ACCOUNTS.index(Account.ABSENT)
# Sums of times are int64: 290 years, and work is counted in times of all replicas.
_LONGEST_DAYS = 100_000
# Failures, preemptions and checkpoints of all campaigns together: about a minute on one core.
_MOST_EVENTS = 2e9
_EVENTS_OF_BEGIN = 2_000  # take as long as a campaign's random numbers take to be set up


@dataclass(frozen=True)
class _Sample:
    wall_ns: int
    spent_ns: Int64s
    counts: Int64s
    kept_ns: Int64s | None
    num_silent: int = 0
    num_found: int = 0


def simulate_campaign(
    campaign: Campaign,
    *,
    duration_ns: int,
    work_ns: int | None = None,
    num_samples: int = 1000,
    seed: int = 0,
    num_workers: int | None = None,
) -> Outcome:
    """Where the time goes in so many campaigns.

    Args:
        campaign: the job.
        duration_ns: wall time after which a campaign is over.
        work_ns: training time, without any loss, after which it is over before.
        num_samples: campaigns.
        seed: the same one gives the same campaigns, on any number of threads.
        num_workers: threads; as many as there are cores, if left out.

    Raises:
        RiskError: if the campaign cannot be.
    """
    check_campaign(campaign)
    if not 0 < duration_ns <= _LONGEST_DAYS * NS_PER_DAY or num_samples < 1:
        raise RiskError(
            f"{num_samples} campaigns of {duration_ns / NS_PER_DAY:.4g} days cannot be simulated: "
            f"take at least one, of more than nothing and at most {_LONGEST_DAYS:,} days"
        )
    if work_ns is not None and work_ns <= 0:
        raise RiskError("the work of a campaign has to be above zero")
    num_events = num_samples * _likely_events(campaign, duration_ns)
    if num_events > _MOST_EVENTS:
        raise RiskError(
            f"{num_samples:,} campaigns of {duration_ns / NS_PER_DAY:.4g} days would take about "
            f"{num_events:.2g} events (failures, preemptions, checkpoints, hosts), of which at "
            f"most {_MOST_EVENTS:.0g} are simulated: take fewer samples or days, or check how "
            f"often it fails and saves ({campaign.subject})"
        )
    seeds = np.random.SeedSequence(seed).spawn(num_samples)

    def one(child: np.random.SeedSequence) -> _Sample:
        random = np.random.Generator(np.random.PCG64(child))
        if campaign.corruption is None:
            # Without a goal, more than there is time for.
            goal_ns = duration_ns + 1 if work_ns is None else work_ns
            return _sampled(campaign, random, (duration_ns, goal_ns))
        of_checks = np.random.Generator(np.random.PCG64(child.spawn(1)[0]))
        return _checked(campaign, campaign.corruption, (random, of_checks), (duration_ns, work_ns))

    with ThreadPoolExecutor(num_workers or os.cpu_count() or 1) as pool:
        samples = list(pool.map(one, seeds))
    counts = np.array([each.counts for each in samples])
    kept = [each.kept_ns for each in samples if each.kept_ns is not None]
    return Outcome(
        campaign=campaign,
        spent_ns=np.array([each.spent_ns for each in samples]),
        wall_ns=np.array([each.wall_ns for each in samples]),
        num_failures=counts[:, FAILURES],
        num_waits=counts[:, RETURNED_LATE],
        num_excluded=counts[:, EXCLUDED],
        num_preemptions=counts[:, PREEMPTIONS],
        is_finished=counts[:, FINISHED] > 0,
        replicas_ns=np.array(kept) if kept else None,
        **_corruptions(campaign, samples),
    )


def _corruptions(campaign: Campaign, samples: Sequence[_Sample]) -> dict[str, Int64s]:
    if campaign.corruption is None:
        return {}
    return {
        "num_silent": np.array([each.num_silent for each in samples], np.int64),
        "num_found": np.array([each.num_found for each in samples], np.int64),
    }


def _sampled(campaign: Campaign, random: np.random.Generator, times_ns: tuple[int, int]) -> _Sample:
    """One campaign, of this wall time or until this much work is done."""
    if campaign.replicas is None:
        return _restarted(campaign, random, times_ns[0], goal_ns=times_ns[1])
    return _with_replicas(campaign, campaign.replicas, random, times_ns=times_ns)


def _checked(
    campaign: Campaign,
    corruption: Corruption,
    randoms: tuple[np.random.Generator, np.random.Generator],
    times_ns: tuple[int, int | None],
) -> _Sample:
    """One campaign whose time of training is divided into work, checks and steps done again.

    Failures come as they would without; a find that restarts the job is one of them.
    """
    (random, of_checks), (wall_ns, work_ns) = randoms, times_ns
    longer, per_ns = 1 + corruption.overhead, campaign.num_hosts / NS_PER_DAY
    found_per_ns = per_ns * corruption.found_per_host_day
    step_ns = 0 if corruption.restarts else round(corruption.step_ns * longer)
    goal_ns, found_in_goal = wall_ns + 1, 0
    if work_ns is not None:
        kept_ns = math.ceil(work_ns * longer)
        found_in_goal = int(of_checks.poisson(found_per_ns * kept_ns))
        goal_ns = kept_ns + found_in_goal * step_ns
    failures = campaign.failures_per_host_day
    if corruption.restarts:
        failures += corruption.found_per_host_day
    sample = _sampled(replace(campaign, failures_per_host_day=failures), random, (wall_ns, goal_ns))
    spent, trained_ns = sample.spent_ns, int(sample.spent_ns[0])
    if corruption.restarts:
        share = corruption.found_per_host_day / failures if failures else 0.0
        found = int(of_checks.binomial(int(sample.counts[FAILURES]), share))
    elif sample.counts[FINISHED]:
        found = found_in_goal
    else:
        found = int(of_checks.poisson(found_per_ns * trained_ns))
    again_ns = min(found * step_ns, trained_ns)
    spent[0] = round((trained_ns - again_ns) / longer)
    spent[_ACCOUNTS.index(Account.CHECK)] = trained_ns - again_ns - spent[0]
    spent[_ACCOUNTS.index(Account.RECOMPUTED)] = again_ns
    silent = of_checks.poisson(per_ns * corruption.silent_per_host_day * trained_ns)
    return replace(sample, num_silent=int(silent), num_found=found)


def _likely_events(campaign: Campaign, duration_ns: int) -> float:
    """What one campaign walks through one by one, at most, and the hosts that it is told of."""
    hosts, preemption = campaign.num_hosts + campaign.fleet.num_spares, campaign.preemption
    between_ns, stands_ns = max(campaign.mttf_ns, 1.0), campaign.down_ns
    events = float(_EVENTS_OF_BEGIN + hosts)
    if campaign.replicas is not None:
        events += duration_ns / campaign.checkpoint.interval_ns
        stands_ns = campaign.replicas.stall_ns + campaign.replicas.join_ns
    if campaign.while_down is WhileDown.NONE and campaign.replicas is None:
        events += duration_ns / (between_ns + stands_ns)
    else:
        events += (duration_ns + stands_ns) / between_ns
    if preemption is not None:
        events += duration_ns / (preemption.every_ns + preemption.away_ns)
    return events


def _restarted(
    campaign: Campaign, random: np.random.Generator, wall_ns: int, *, goal_ns: int
) -> _Sample:
    fleet, checkpoint, preemption = campaign.fleet, campaign.checkpoint, campaign.preemption
    is_lemon = np.zeros(campaign.num_hosts + fleet.num_spares, np.uint8)
    num_lemons = round(fleet.lemon_share * is_lemon.size)
    if num_lemons:
        is_lemon[random.permutation(is_lemon.size)[:num_lemons]] = 1
    # The given rate is the mean over all hosts.
    mean_factor = 1 + (fleet.lemon_factor - 1) * num_lemons / is_lemon.size
    spent, counts = np.zeros(len(_ACCOUNTS), np.int64), np.zeros(_NUM_COUNTS, np.int64)
    lasted_ns = _restarts(
        random,
        campaign.failures_per_host_day / NS_PER_DAY / mean_factor,
        float(fleet.lemon_factor),
        float(fleet.repaired_share),
        fleet.repair_ns,
        fleet.excluded_after,
        0.0 if preemption is None else 1 / preemption.every_ns,
        0 if preemption is None else preemption.away_ns,
        preemption is not None and preemption.has_notice,
        checkpoint.interval_ns,
        checkpoint.blocking_ns,
        checkpoint.background_ns,
        campaign.detection_ns,
        campaign.queue_ns,
        campaign.restart_ns,
        _MODES.index(campaign.while_down),
        wall_ns,
        goal_ns,
        campaign.num_hosts,
        is_lemon,
        spent,
        counts,
    )
    return _Sample(int(lasted_ns), spent, counts, None)


def _with_replicas(
    campaign: Campaign,
    replicas: Replicas,
    random: np.random.Generator,
    *,
    times_ns: tuple[int, int],
) -> _Sample:
    fleet, checkpoint = campaign.fleet, campaign.checkpoint
    wall_ns, goal_ns = times_ns
    spent, counts = np.zeros(len(_ACCOUNTS), np.int64), np.zeros(_NUM_COUNTS, np.int64)
    kept = np.zeros(replicas.num_replicas + 1, np.int64)
    lasted_ns = _replicas(
        random,
        campaign.failures_per_ns / replicas.num_replicas,
        replicas.num_replicas,
        replicas.min_replicas,
        replicas.keeps_state,
        replicas.joins_in_stall,
        replicas.stall_ns,
        replicas.away_ns + replicas.catch_up_ns,
        replicas.join_ns,
        replicas.lost_step_ns,
        fleet.num_spares,
        float(fleet.repaired_share),
        fleet.repair_ns,
        checkpoint.interval_ns,
        checkpoint.blocking_ns,
        _MODES.index(campaign.while_down),
        wall_ns,
        float(goal_ns),
        spent,
        counts,
        kept,
    )
    trained_ns = int(kept.sum())
    # Whole times of all replicas; the rest of the time is that of those that were away.
    weighted = sum(int(time) * count for count, time in enumerate(kept.tolist()))
    spent[0] = weighted // replicas.num_replicas
    spent[_ABSENT] = trained_ns - spent[0]
    return _Sample(int(lasted_ns), spent, counts, kept)
