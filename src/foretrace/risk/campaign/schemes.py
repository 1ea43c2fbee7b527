"""Ways to recover from a failure, beside each other on the same job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from foretrace.answer import Answer, Column, Sentences, Shown, Table, Told, Unit, cell_text
from foretrace.base import RiskError
from foretrace.risk.campaign.campaign import Campaign, WhileDown
from foretrace.risk.campaign.closed_form import renewal_ettr, replicas_ettr
from foretrace.risk.campaign.outcome import Account, Outcome, accounts_of
from foretrace.risk.campaign.simulate import simulate_campaign

_WHILE_DOWN = {
    WhileDown.NONE: "nothing fails while the job is down",
    WhileDown.AGAIN: "a failure during a restart or stall begins it again",
    WhileDown.ADD: "failures come by the wall clock, and each costs its stall in full",
}


class Scheme(StrEnum):
    """What happens after a failure."""

    FULL_RESTART = "full-restart"  # all stop, queue for hosts, restart from the last checkpoint
    HOT_SPARES = "hot-spares"  # the same without the queue, as long as there are spares
    # All restart from the last checkpoint with the replicas that have their hosts; and once more,
    # with nothing lost, when the lost one gets a host.
    ELASTIC = "elastic"
    FAULT_TOLERANT = "fault-tolerant"  # the others go on: FT-HSDP


@dataclass(frozen=True)
class SchemeResult:
    """One way to recover, simulated."""

    scheme: Scheme
    outcome: Outcome
    renewal: float | None  # `renewal_ettr`; `None` with replicas, for which there is none
    stalls_only: float | None  # `replicas_ettr`; `None` where it leaves out most

    @property
    def formula(self) -> float | None:
        """The formula that there is for it."""
        return self.stalls_only if self.renewal is None else self.renewal

    @property
    def per_paid_gpu(self) -> float:
        """Effective time over all GPUs that are paid for, spares among them."""
        campaign = self.outcome.campaign
        paid = campaign.num_hosts + campaign.fleet.num_spares
        return self.outcome.mean_effective * campaign.num_hosts / paid

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            "scheme": self.scheme.value,
            "renewal": self.renewal,
            "stalls_only": self.stalls_only,
            "per_paid_gpu": self.per_paid_gpu,
            **self.outcome.as_json(),
        }


@dataclass(frozen=True, repr=False)
class SchemeComparison(Answer):
    """Ways to recover, best first."""

    json_names: ClassVar = {"results": "schemes"}

    results: tuple[SchemeResult, ...]

    @property
    def headline(self) -> str:
        """The best way, and of what."""
        best = self.results[0]
        effective = cell_text(best.outcome.mean_effective, Unit.SHARE)
        return f"{effective} effective with {best.scheme.value}: {best.outcome.campaign.subject}"

    def parts(self) -> tuple[Told, ...]:
        """One row a scheme, and what to know."""
        return self._schemes(), Sentences.of("to know", self._notes())

    def _schemes(self) -> Table:
        """Effective time and its odds, what a failure costs, the batch."""
        # Without spares the last column says nothing new.
        has_spares = any(each.outcome.campaign.fleet.num_spares for each in self.results)
        last = Shown.EVERYWHERE if has_spares else Shown.FILES
        return Table.of(
            "schemes",
            self.results,
            Column("scheme", value="scheme.value"),
            Column("effective", unit=Unit.SHARE, value="outcome.mean_effective"),
            Column("standard_error", value="outcome.standard_error", shown=Shown.FILES),
            Column("p5", "5 %", Unit.SHARE, lambda one: one.outcome.odds()["p5"]),
            Column("p50", value=lambda one: one.outcome.odds()["p50"], shown=Shown.FILES),
            Column("p95", "95 %", Unit.SHARE, lambda one: one.outcome.odds()["p95"]),
            Column("formula", unit=Unit.SHARE),
            Column("renewal", shown=Shown.FILES),
            Column("stalls_only", shown=Shown.FILES),
            Column("stall_per_failure_ns", "stall", Unit.LONG_NS, "outcome.stall_per_failure_ns"),
            Column(
                "rework_per_failure_ns", "lost work", Unit.LONG_NS, "outcome.rework_per_failure_ns"
            ),
            *(_share_column(each) for each in accounts_of(self.results[0].outcome.campaign)),
            Column("batch_mean", value=lambda one: one.outcome.batch()["mean"], shown=Shown.FILES),
            Column(
                "batch_deviation",
                "batch +-",
                Unit.SHARE,
                lambda one: one.outcome.batch()["deviation"],
            ),
            Column("batch_full", value=lambda one: one.outcome.batch()["full"], shown=Shown.FILES),
            Column("per_paid_gpu", "paid", Unit.SHARE, shown=last),
        )

    def _notes(self) -> Iterator[str]:
        yield (
            "90% of campaigns lie between the columns 5 % and 95 %; stall and lost work are of one "
            "failure, batch is how much its size varies, paid is effective time with spares counted"
        )
        campaign = self.results[0].outcome.campaign
        yield f"{_WHILE_DOWN[campaign.while_down]} (--while-down)"
        if any(each.outcome.campaign.replicas is not None for each in self.results):
            yield (
                "the formula for replicas is (1 - S/M) (1 - D/(K M)): it leaves out checkpoints "
                "and lost work, and counts a lost replica's absence during the stall twice"
            )


def _share_column(account: Account) -> Column:
    return Column(
        f"share_{account}", value=lambda one: one.outcome.share(account), shown=Shown.FILES
    )


def with_scheme(campaign: Campaign, scheme: Scheme) -> Campaign:
    """The campaign with another way to recover.

    Full restarts take their hosts from the scheduler, which `queue_ns` pays for; the others from
    the campaign's spares. Elastic jobs divide into the replicas of the campaign; a lost one is
    away for as long as a host is queued for, or repaired if there is no spare.

    Raises:
        RiskError: if it needs replicas, and the campaign does not say which.
    """
    fleet = campaign.fleet
    if scheme is Scheme.FULL_RESTART:
        unlimited = replace(fleet, num_spares=0, repair_ns=0)
        return replace(campaign, replicas=None, fleet=unlimited)
    if scheme is Scheme.HOT_SPARES:
        return replace(campaign, replicas=None, queue_ns=0)
    if campaign.replicas is None:
        raise RiskError(
            f"{scheme.value} needs replicas: state how many there are, how long all stand still "
            "when one is lost, and how long it is away"
        )
    if scheme is Scheme.FAULT_TOLERANT:
        return campaign
    elastic = replace(
        campaign.replicas,
        stall_ns=campaign.detection_ns + campaign.restart_ns,
        away_ns=campaign.queue_ns,
        join_ns=campaign.checkpoint.blocking_ns + campaign.restart_ns,
        catch_up_ns=0,
        lost_step_ns=0,
        keeps_state=False,
        joins_in_stall=True,
    )
    return replace(campaign, replicas=elastic)


def compare_schemes(
    campaign: Campaign,
    *,
    duration_ns: int,
    schemes: tuple[Scheme, ...] | None = None,
    num_samples: int = 200,
    seed: int = 0,
) -> SchemeComparison:
    """The campaign with every way to recover, best first.

    Args:
        campaign: the job.
        duration_ns: wall time of each simulated campaign.
        schemes: which ones; those that the campaign says enough for, if left out.
        num_samples: simulated campaigns of each.
        seed: the same one gives the same result.

    Raises:
        RiskError: if a scheme needs what the campaign does not say.
    """
    chosen = schemes or tuple(
        each
        for each in Scheme
        if campaign.replicas is not None or each in {Scheme.FULL_RESTART, Scheme.HOT_SPARES}
    )
    results = [
        _result(
            each,
            simulate_campaign(
                with_scheme(campaign, each),
                duration_ns=duration_ns,
                num_samples=num_samples,
                seed=seed,
            ),
        )
        for each in chosen
    ]
    results.sort(key=lambda each: -each.outcome.mean_effective)
    return SchemeComparison(tuple(results))


def _result(scheme: Scheme, outcome: Outcome) -> SchemeResult:
    campaign = outcome.campaign
    return SchemeResult(
        scheme,
        outcome,
        renewal=None if campaign.replicas is not None else renewal_ettr(campaign),
        stalls_only=None if scheme is Scheme.ELASTIC else replicas_ettr(campaign),
    )
