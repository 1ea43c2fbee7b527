"""Effective training time as formulas: as published, and exact where failures have no memory.

Effective training time (ETTR) is the share of wall time in which work is done that is kept.
"""

from __future__ import annotations

import math
from dataclasses import replace

from foretrace.risk.campaign.campaign import Campaign, WhileDown

# Up to this loss the published form is within 5% of the exact one.
# Source: arXiv:2410.21680 states that against its Monte Carlo; tests here confirm it.
_LINEAR_UP_TO = 0.1
_LARGEST_EXPONENT = 700.0  # of what float64 holds
_LONGEST_RESTART_NS = 10**17  # three years
_RATIO = (math.sqrt(5) - 1) / 2
_SEARCH_STEPS = 60  # each leaves 0.618 of the span: 3e-13 of it in the end


def linear_loss(campaign: Campaign) -> float:
    """Share of time that one failure after the other costs, if they are rare: N r (u0 + dt/2)."""
    lost_ns = campaign.detection_ns + campaign.restart_ns + campaign.checkpoint.interval_ns / 2
    return campaign.failures_per_ns * lost_ns


def linear_holds(campaign: Campaign) -> bool:
    """Whether failures are rare enough for the published form."""
    return linear_loss(campaign) <= _LINEAR_UP_TO


def linear_ettr(campaign: Campaign) -> float:
    """ETTR as published in version 2: (1 - N r (u0 + dt/2)) / (1 + w/dt); not below zero.

    Time in queues is left out, and so are failures while something is lost already.

    Source:
        arXiv:2410.21680, version 2.
    """
    checkpoint = campaign.checkpoint
    writing = 1 + checkpoint.blocking_ns / checkpoint.interval_ns
    return max(0.0, 1 - linear_loss(campaign)) / writing


def queued_ettr(campaign: Campaign, *, scheduled_ns: float = math.inf) -> float:
    """ETTR with queues: version 2's form over 1 + N r q + q/T, after version 1; not below zero.

    Version 1 counts the queue before every submission, the first among them. Written so that it
    is version 2's form where nobody queues.

    Args:
        campaign: the job.
        scheduled_ns: T: time that the whole run holds its hosts.
    """
    queue_ns = campaign.queue_ns
    return linear_ettr(campaign) / (
        1 + campaign.failures_per_ns * queue_ns + queue_ns / scheduled_ns
    )


def renewal_ettr(campaign: Campaign) -> float:
    """Exact ETTR of a long run whose hosts fail at a constant rate and have spares enough.

    A run from one restart to the next failure keeps floor((x - b) / (dt + w)) intervals of dt,
    where x is exponential with rate L and b the time that a checkpoint is written for in the
    background: dt exp(-L b) / (exp(L (dt + w)) - 1) on average. It lasts 1 / L, and what
    follows depends on `while_down`: u (nothing fails), exp(L R) (1 / L + u - R) - 1 / L (a restart
    R begins anew), u / (1 - L u) (every failure costs u).

    Source:
        The form without failures in restarts is the renewal form of arXiv:2410.21680's model;
        with them J. Daly, Future Generation Computer Systems 22 (2006), 303-312.
    """
    checkpoint = campaign.checkpoint
    rate = campaign.failures_per_ns
    segment_ns = checkpoint.interval_ns + checkpoint.blocking_ns
    if not rate:
        return checkpoint.interval_ns / segment_ns
    if rate * segment_ns > _LARGEST_EXPONENT:
        return 0.0
    kept_ns = (
        checkpoint.interval_ns
        * math.exp(-rate * checkpoint.background_ns)
        / math.expm1(rate * segment_ns)
    )
    return kept_ns / (1 / rate + recovery_ns(campaign))


def recovery_ns(campaign: Campaign) -> float:
    """Mean time from a failure to the next step; infinite if the job never gets there."""
    rate, down_ns = campaign.failures_per_ns, campaign.down_ns
    if campaign.while_down is WhileDown.NONE or not rate:
        return down_ns
    if campaign.while_down is WhileDown.ADD:
        return down_ns / (1 - rate * down_ns) if rate * down_ns < 1 else math.inf
    exponent = rate * campaign.restart_ns
    if exponent > _LARGEST_EXPONENT:
        return math.inf
    return math.exp(exponent) * (1 / rate + down_ns - campaign.restart_ns) - 1 / rate


def longest_restart_ns(campaign: Campaign, effective: float) -> float:
    """Restart with which `renewal_ettr` is still `effective`, all else as it is, by bisection.

    Below zero if even a restart in no time is too slow; infinite if restarts do not matter.
    """
    low, high = 0.0, float(_LONGEST_RESTART_NS)

    def found(restart_ns: float) -> float:
        return renewal_ettr(replace(campaign, restart_ns=round(restart_ns)))

    if found(low) < effective:
        return -1.0
    if found(high) >= effective:
        return math.inf
    for _ in range(_SEARCH_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle) >= effective else (low, middle)
    return low


def best_interval_ns(campaign: Campaign) -> float:
    """Checkpoint interval that loses least, to first order: sqrt(2 w / L).

    Zero if a checkpoint costs nothing; infinite if nothing fails.

    Source:
        J. Young, Communications of the ACM 17 (1974), 530-531; Daly 2006.
    """
    rate = campaign.failures_per_ns
    return math.sqrt(2 * campaign.checkpoint.blocking_ns / rate) if rate else math.inf


def searched_interval_ns(campaign: Campaign) -> float:
    """Checkpoint interval with the highest `renewal_ettr`, by golden section.

    As `best_interval_ns` where the first order is the whole truth; shorter where a checkpoint
    is a good part of the time between failures.
    """
    rough_ns = best_interval_ns(campaign)
    if not 0 < rough_ns < math.inf:
        return rough_ns
    low, high = math.log(rough_ns / 20), math.log(rough_ns * 20)

    def found(at: float) -> float:
        return renewal_ettr(with_interval(campaign, round(math.exp(at))))

    for _ in range(_SEARCH_STEPS):
        left, right = high - _RATIO * (high - low), low + _RATIO * (high - low)
        if found(left) < found(right):
            low = left
        else:
            high = right
    return math.exp((low + high) / 2)


def replicas_ettr(campaign: Campaign) -> float:
    """Effective time with replicas: (1 - S/M) (1 - D / (K M)); not below zero.

    M is the time between failures of the whole job, S what all stand still for at each, D how
    long one of K replicas is away. Without replicas it is 1 - S/M with the whole restart as S:
    the same as one replica and no stall.

    Source:
        Derived to fit the stated 44% and 80% of arXiv:2602.00277 at 98,304 GPUs.
    """
    rate, replicas = campaign.failures_per_ns, campaign.replicas
    if replicas is None:
        return max(0.0, 1 - rate * campaign.down_ns)
    stall_ns = replicas.stall_ns + replicas.join_ns + replicas.lost_step_ns
    away_ns = replicas.away_ns + replicas.catch_up_ns
    present = 1 - rate * away_ns / replicas.num_replicas
    return max(0.0, 1 - rate * stall_ns) * max(0.0, present)


def with_interval(campaign: Campaign, interval_ns: int) -> Campaign:
    """The campaign with another time between checkpoints."""
    return replace(
        campaign, checkpoint=replace(campaign.checkpoint, interval_ns=max(1, interval_ns))
    )


def with_hosts(campaign: Campaign, num_hosts: int) -> Campaign:
    """The campaign with another number of hosts."""
    return replace(campaign, num_hosts=num_hosts)
