"""`Campaign`: a job, its failures, and what it does about them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from foretrace.answer import count_text, long_duration_text
from foretrace.base import NS_PER_DAY, NS_PER_HOUR, RiskError
from foretrace.risk.failures.rates import mttf_ns


class WhileDown(StrEnum):
    """What failures do while the job stands still.

    With 18 minutes between failures and stalls of 10, these are 0.64, 0.57 and 0.44 of effective
    time: it has to be said which one is meant.
    """

    NONE = "none"  # nothing fails: the exact form of arXiv:2410.21680's model
    AGAIN = "again"  # hosts fail on, and a restart begins anew: Daly 2006
    ADD = "add"  # failures come by the wall clock, and each costs its stall in full


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When the state is saved, and what it costs."""

    interval_ns: int  # of training between two checkpoints
    blocking_ns: int = 0  # training stands still for each
    background_ns: int = 0  # after that, while training goes on, until it can be restarted from


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Hosts beside those that train, and what becomes of those that fail."""

    num_spares: int = 0
    repair_ns: int = 0  # until a host that was taken away can train again
    repaired_share: float = 1.0  # of failures that take the host away; others restart on it
    lemon_share: float = 0.0  # of hosts that fail more often than the others
    lemon_factor: float = 1.0  # how much more often
    excluded_after: int = 0  # failures after which another machine takes a host's place; 0: never


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """Another job takes the hosts for a while."""

    every_ns: int  # on average, while training
    away_ns: int
    has_notice: bool = False  # long enough to save a checkpoint


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The job is made of data-parallel replicas that fail one by one.

    Source:
        FT-HSDP, arXiv:2602.00277: the others go on while a replica restarts; it comes back by
        taking part with gradients of zero while it fetches a healthy replica's state.
    """

    num_replicas: int
    stall_ns: int  # all stand still when one is lost: it is noticed, members agree on who is left
    # Until the lost one is back: its restart. The last one that is lost starts from a checkpoint.
    away_ns: int
    catch_up_ns: int = 0  # more, in which it takes part with gradients of zero
    join_ns: int = 0  # all stand still when one comes back
    lost_step_ns: int = 0  # of work that is discarded and done again at each loss
    min_replicas: int = 1  # fewer do not train
    # Those who are left hold all state. Else a loss costs the work since the last checkpoint.
    keeps_state: bool = True
    # One that is back when the others end to stand still starts with them; it costs no `join_ns`.
    joins_in_stall: bool = False


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """Faults that make results wrong, and the check that finds some of them while the job trains.

    The step that a find is in is computed again.
    """

    upsets_per_host_day: float
    vulnerability: float = 1.0  # share of upsets that make a result wrong
    coverage: float = 0.0  # share of wrong results that the check finds
    overhead: float = 0.0  # of a step, for the check
    step_ns: int = 0  # without the check
    restarts: bool = False  # instead: a find is a failure, after which the job restarts

    @property
    def found_per_host_day(self) -> float:
        """Wrong results that the check finds."""
        return self.upsets_per_host_day * self.vulnerability * self.coverage

    @property
    def silent_per_host_day(self) -> float:
        """Those that it misses: exactly 0 where it covers all, or nothing is vulnerable."""
        return self.upsets_per_host_day * self.vulnerability * (1 - self.coverage)


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A job on `num_hosts` hosts, all of which it needs unless it has `replicas`."""

    num_hosts: int
    failures_per_host_day: float  # the mean over all hosts, lemons among them
    checkpoint: Checkpoint
    restart_ns: int  # from a restart's begin to the first step: processes, libraries, state
    detection_ns: int = 0  # from a failure until it is noticed
    queue_ns: int = 0  # until the job is scheduled again
    while_down: WhileDown = WhileDown.NONE
    gpus_per_host: int = 8
    fleet: Fleet = field(default_factory=Fleet)
    preemption: Preemption | None = None
    replicas: Replicas | None = None
    corruption: Corruption | None = None  # `None`: results are right
    name: str = ""

    @property
    def num_gpus(self) -> int:
        """GPUs that train; spare hosts are not counted."""
        return self.num_hosts * self.gpus_per_host

    @property
    def failures_per_ns(self) -> float:
        """Failures of the whole job."""
        return self.num_hosts * self.failures_per_host_day / NS_PER_DAY

    @property
    def mttf_ns(self) -> float:
        """Mean time to failure of the whole job; infinite if none fails."""
        return mttf_ns(self.num_hosts, self.failures_per_host_day)

    @property
    def down_ns(self) -> int:
        """From a failure to the first step after it, without waiting for a repaired host."""
        return self.detection_ns + self.queue_ns + self.restart_ns

    @property
    def subject(self) -> str:
        """What it is, in a line."""
        hosts = f"{self.num_gpus:,} GPUs on {count_text(self.num_hosts, 'host')}"
        if math.isinf(self.mttf_ns):
            return f"{hosts}, which never fail"
        rate = f"{1000 * self.failures_per_host_day:.3g} failures per 1000 host-days"
        return f"{hosts}, {rate}: one every {long_duration_text(self.mttf_ns)}"

    def as_json(self) -> dict[str, object]:
        """The numbers that matter most, as plain values; times in ns."""
        return {
            "name": self.name,
            "num_hosts": self.num_hosts,
            "num_gpus": self.num_gpus,
            "failures_per_host_day": self.failures_per_host_day,
            "mttf_hours": self.mttf_ns / NS_PER_HOUR if math.isfinite(self.mttf_ns) else None,
            "checkpoint_interval_ns": self.checkpoint.interval_ns,
            "checkpoint_blocking_ns": self.checkpoint.blocking_ns,
            "checkpoint_background_ns": self.checkpoint.background_ns,
            "detection_ns": self.detection_ns,
            "queue_ns": self.queue_ns,
            "restart_ns": self.restart_ns,
            "while_down": self.while_down.value,
            "num_spares": self.fleet.num_spares,
            "repair_ns": self.fleet.repair_ns,
            "num_replicas": self.replicas.num_replicas if self.replicas else None,
        }


def check_campaign(campaign: Campaign) -> None:
    """Refuse what cannot be.

    Raises:
        RiskError: naming the number and what it may be.
    """
    for wrong in _wrong(campaign):
        raise RiskError(f"campaign {campaign.name or 'without a name'!r}: {wrong}")


def _wrong(campaign: Campaign) -> Iterator[str]:
    checkpoint, fleet = campaign.checkpoint, campaign.fleet
    if campaign.num_hosts < 1 or campaign.gpus_per_host < 1:
        yield f"{campaign.num_hosts} hosts with {campaign.gpus_per_host} GPUs cannot train"
    if not 0 <= campaign.failures_per_host_day < math.inf:
        yield f"{campaign.failures_per_host_day} failures per host and day: zero or more"
    if checkpoint.interval_ns <= 0:
        yield "the checkpoint interval has to be above zero"
    if checkpoint.background_ns > checkpoint.interval_ns:
        yield (
            "writing a checkpoint takes longer than the time between two of them: take a longer "
            "interval"
        )
    times = (campaign.restart_ns, campaign.detection_ns, campaign.queue_ns, fleet.repair_ns)
    if min(*times, checkpoint.blocking_ns, checkpoint.background_ns) < 0:
        yield "a duration is below zero"
    if not 0 <= fleet.lemon_share <= 1 or not 0 <= fleet.repaired_share <= 1:
        yield "a share of hosts or failures is not between 0 and 1"
    if fleet.lemon_factor < 1 or fleet.num_spares < 0 or fleet.excluded_after < 0:
        yield "lemons fail at least as often as others, and counts are not below zero"
    if campaign.preemption is not None and campaign.preemption.every_ns <= 0:
        yield "the time between preemptions has to be above zero"
    yield from _wrong_corruption(campaign.corruption)
    if campaign.replicas is not None:
        yield from _wrong_replicas(campaign, campaign.replicas)


def _wrong_corruption(corruption: Corruption | None) -> Iterator[str]:
    if corruption is None:
        return
    if not all(0 <= each <= 1 for each in (corruption.vulnerability, corruption.coverage)):
        yield "vulnerability and coverage are shares: give them between 0 and 1"
    sizes = (corruption.upsets_per_host_day, corruption.overhead)
    if not all(0 <= each < math.inf for each in sizes) or corruption.step_ns < 0:
        yield (
            f"a step of {corruption.step_ns} ns and {corruption.upsets_per_host_day:g} upsets with "
            f"an overhead of {corruption.overhead:g}: they have to be zero or more"
        )
    if corruption.found_per_host_day and not corruption.step_ns and not corruption.restarts:
        yield "how long a step takes is not stated: it is computed again after a find"


def _wrong_replicas(campaign: Campaign, replicas: Replicas) -> Iterator[str]:
    if replicas.num_replicas < 1 or campaign.num_hosts % replicas.num_replicas:
        yield (
            f"{campaign.num_hosts} hosts do not divide into {replicas.num_replicas} replicas: "
            "take a number of replicas that divides them"
        )
    if not 1 <= replicas.min_replicas <= replicas.num_replicas:
        yield f"at least {replicas.min_replicas} of {replicas.num_replicas} replicas cannot be"
    if campaign.preemption is not None or campaign.fleet.lemon_share > 0:
        yield "preemption and lemons are simulated without replicas only: leave one of them out"
    times = (replicas.stall_ns, replicas.away_ns, replicas.catch_up_ns, replicas.join_ns)
    if min(*times, replicas.lost_step_ns) < 0:
        yield "a duration of [replicas] is below zero"
