"""`Target`: what makes one plan better than another, never falling as its step grows longer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from foretrace.answer import Plain, long_duration_text
from foretrace.base import NS_PER_DAY, NS_PER_HOUR, NS_PER_S, WorkloadError
from foretrace.risk import (
    Campaign,
    Scheme,
    renewal_ettr,
    replicas_ettr,
    searched_interval_ns,
    with_interval,
    with_scheme,
)
from foretrace.workload import Plan


class Objective(StrEnum):
    """What is best."""

    STEP = "step"  # the shortest step
    THROUGHPUT = "throughput"  # the most tokens in a second
    COST = "cost"  # the cheapest token
    GPUS = "gpus"  # the fewest GPUs; of these the shortest step
    HEADROOM = "headroom"  # the most memory left; of these the shortest step
    P95 = "p95"  # the step that 95 % of steps are not longer than, as `risk steps` samples them
    EFFECTIVE = "effective"  # the most tokens kept in a second of a campaign, failures included
    DAYS = "days"  # the fewest days to so many tokens


@dataclass(frozen=True)
class Recovery(Plain):
    """How a campaign on a plan's hosts recovers from failures with the least loss."""

    scheme: Scheme
    checkpoint_interval_ns: int
    effective: float  # share of wall time in which work is done that is kept
    num_hosts: int  # that train
    num_spares: int

    @property
    def words(self) -> str:
        """How often checkpoints are, and what is left of the time."""
        every = long_duration_text(self.checkpoint_interval_ns)
        return f"a checkpoint every {every}; {100 * self.effective:.1f} % of the time is kept"


def best_recovery(campaign: Campaign, plan: Plan) -> Recovery:
    """The way to recover, with its best interval of checkpoints, that loses least, by formulas.

    Spares are the campaign's. Copies of the model that fill whole hosts can fail alone, where the
    campaign says how long the others stand still for that.

    Args:
        campaign: of any size: its hosts become the plan's.
        plan: with all degrees.
    """
    hosts = max(-(-plan.num_ranks // campaign.gpus_per_host), 1)
    sized = replace(campaign, num_hosts=hosts)
    interval_ns = searched_interval_ns(replace(sized, replicas=None))
    if 0 < interval_ns < math.inf:
        sized = with_interval(sized, round(interval_ns))
    restarted = with_scheme(sized, Scheme.FULL_RESTART)
    found = [(renewal_ettr(restarted), Scheme.FULL_RESTART)]
    if sized.fleet.num_spares:
        found.append((renewal_ettr(with_scheme(sized, Scheme.HOT_SPARES)), Scheme.HOT_SPARES))
    fills_hosts = plan.ranks_of_replica % sized.gpus_per_host == 0
    if sized.replicas is not None and plan.data > 1 and fills_hosts:
        replicas = replace(sized.replicas, num_replicas=plan.data)
        found.append((replicas_ettr(replace(sized, replicas=replicas)), Scheme.FAULT_TOLERANT))
    effective, scheme = max(found, key=lambda one: one[0])
    spares = 0 if scheme is Scheme.FULL_RESTART else sized.fleet.num_spares
    return Recovery(scheme, sized.checkpoint.interval_ns, effective, hosts, spares)


@dataclass(frozen=True)
class Promise:
    """That an objective's figure is on the better side of a limit."""

    text: str  # as it was asked for: "days <= 60"
    objective: Objective
    limit: float  # in the figure's own unit
    is_kept: Callable[[float, float], bool] = field(compare=False)  # by a figure, and the limit


class Simulated(Protocol):
    """What decides between plans, of one that was simulated."""

    @property
    def plan(self) -> Plan:
        """With all degrees."""

    @property
    def step_ns(self) -> int:
        """Simulated unit by unit."""

    @property
    def peak_bytes(self) -> int | None:
        """Of the fullest stage; `None`: not known."""

    @property
    def p95_ns(self) -> int | None:
        """That 95 % of steps are not longer than; `None`: not sampled."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An objective, others that the front of best plans is about, and what they need to know."""

    objective: Objective = Objective.STEP
    also: tuple[Objective, ...] = ()
    price_per_hour: float | None = None  # of one chip
    links_per_hour: float = 0.0  # behind one chip
    campaign: Campaign | None = None
    num_tokens: float | None = None  # of the whole training
    promises: tuple[Promise, ...] = ()  # of every plan
    recoveries: dict[tuple[int, int], Recovery] = field(  # that were found, by GPUs and copies
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse what cannot be told without being stated."""
        asked = self.asked
        if Objective.COST in asked and self.price_per_hour is None:
            raise WorkloadError(
                "the cheapest token needs to know what a GPU costs: state a price for an hour "
                "(--price 2.50)"
            )
        if Objective.EFFECTIVE in asked and self.campaign is None:
            raise WorkloadError(
                "effective tokens need to know what fails and how it is mended: name a campaign "
                "(--campaign llama3-405b), as in `foretrace risk campaign`"
            )
        if Objective.DAYS in asked and not (self.num_tokens and self.num_tokens > 0):
            raise WorkloadError(
                "days to the end of a training need to know how many tokens it has: state them "
                "(--tokens 15e12)"
            )

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The first, which decides, and the others."""
        return (self.objective, *self.also)

    @property
    def asked(self) -> tuple[Objective, ...]:
        """All that is asked about, promises too."""
        return tuple(dict.fromkeys((*self.objectives, *(one.objective for one in self.promises))))

    @property
    def around(self) -> tuple[Objective, ...]:
        """What the front is about where one objective is stated."""
        is_time = self.objective in {Objective.GPUS, Objective.HEADROOM}
        own = Objective.STEP if is_time else self.objective
        return (own, Objective.HEADROOM, Objective.GPUS)

    def first(self, objective: Objective) -> Target:
        """The same with another objective alone."""
        return replace(self, objective=objective, also=())

    def recovery(self, plan: Plan) -> Recovery | None:
        """How failures are recovered from; `None`: nothing fails, as nobody said what does."""
        if self.campaign is None:
            return None
        key = (plan.num_ranks, plan.data)
        if key not in self.recoveries:
            self.recoveries[key] = best_recovery(self.campaign, plan)
        return self.recoveries[key]

    def broken(self, plan: Plan, step_ns: int) -> str:
        """Which promise is not kept; by a bound of the step: which cannot be kept; "": all are."""
        for one in self.promises:
            figure = self.figure(one.objective, plan, step_ns)
            if not one.is_kept(figure, one.limit):
                is_step = one.objective is Objective.STEP
                words = f"{figure / NS_PER_S:.4g}" if is_step else f"{figure:.4g}"
                return f"it is out of reach: {one.text} (at best {words})"
        return ""

    def value(self, plan: Plan, step_ns: int) -> float:
        """The smaller, the better; never falling with the step."""
        if self.objective in {Objective.THROUGHPUT, Objective.EFFECTIVE}:
            return 1 / max(self.figure(self.objective, plan, step_ns), 1e-300)
        if self.objective in {Objective.COST, Objective.DAYS}:
            return self.figure(self.objective, plan, step_ns)
        return float(step_ns)

    def figure(self, objective: Objective, plan: Plan, step_ns: int) -> float:
        """What a user reads: tokens in a second, the price of a million tokens, days, ns.

        A step of which nothing is known yet has a bound of 0, and the best figure that there is.
        """
        tokens_per_s = plan.global_batch * plan.sequence * NS_PER_S / max(step_ns, 1)
        recovery = self.recovery(plan)
        kept = 1.0 if recovery is None else max(recovery.effective, 1e-12)
        if objective is Objective.THROUGHPUT:
            return tokens_per_s
        if objective is Objective.EFFECTIVE:
            return tokens_per_s * kept
        if objective is Objective.DAYS:
            return (self.num_tokens or 0.0) / (tokens_per_s * kept) * NS_PER_S / NS_PER_DAY
        if objective is Objective.COST:
            per_host = 0 if self.campaign is None else self.campaign.gpus_per_host
            chips = plan.num_ranks + (0 if recovery is None else recovery.num_spares * per_host)
            hours = 1e6 / (tokens_per_s * kept) * NS_PER_S / NS_PER_HOUR
            return ((self.price_per_hour or 0.0) + self.links_per_hour) * hours * chips
        if objective is Objective.GPUS:
            return float(plan.num_ranks)
        return float(step_ns)

    def front(self, one: Simulated) -> tuple[float, ...]:
        """What the front is about, of a plan that was simulated; the smaller, the better."""
        by = {
            Objective.GPUS: one.plan.num_ranks,
            Objective.HEADROOM: one.peak_bytes or 0,
            Objective.P95: math.inf if one.p95_ns is None else one.p95_ns,
        }
        return tuple(
            float(by[each]) if each in by else self.first(each).value(one.plan, one.step_ns)
            for each in (self.objectives if self.also else self.around)
        )

    def groups(
        self, plans: Sequence[Plan], peak_bytes: Sequence[int | None]
    ) -> tuple[tuple[int, ...], ...]:
        """Places of plans among which the step decides, the better ones first."""
        if self.objective is Objective.GPUS:
            return _alike([plan.num_ranks for plan in plans])
        if self.objective is Objective.HEADROOM:
            known = [peak for peak in peak_bytes if peak is not None]
            if len(known) < len(peak_bytes):
                raise WorkloadError(
                    "memory is not known of a recording alone: state its model and machine "
                    "(--model, --machine), or another objective"
                )
            return _alike(known)
        return (tuple(range(len(plans))),)


def _alike(values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Places of equal values, the least first."""
    places: dict[int, list[int]] = {}
    for at, value in enumerate(values):
        places.setdefault(value, []).append(at)
    return tuple(tuple(places[value]) for value in sorted(places))
