"""Ways to recover from a failure, beside each other on the same job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from foretrace.base import RiskError
from foretrace.risk.campaign.campaign import Campaign
from foretrace.risk.campaign.closed_form import renewal_ettr, replicas_ettr
from foretrace.risk.campaign.outcome import Account, Outcome
from foretrace.risk.campaign.simulate import simulate_campaign

if TYPE_CHECKING:
    import polars as pl


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


@dataclass(frozen=True)
class SchemeComparison:
    """Ways to recover, best first."""

    results: tuple[SchemeResult, ...]

    def to_frame(self) -> pl.DataFrame:
        """One row a scheme: effective time and its odds, what a failure costs, the batch."""
        import polars as pl  # slow to import, wanted in tables only

        return pl.DataFrame(
            [
                {
                    "scheme": each.scheme.value,
                    "effective": each.outcome.mean_effective,
                    "standard_error": each.outcome.standard_error,
                    **each.outcome.odds(),
                    "renewal": each.renewal,
                    "stalls_only": each.stalls_only,
                    "per_paid_gpu": each.per_paid_gpu,
                    "stall_per_failure_ns": each.outcome.stall_per_failure_ns,
                    "rework_per_failure_ns": each.outcome.rework_per_failure_ns,
                    **{f"share_{one}": each.outcome.share(one) for one in Account},
                    **{f"batch_{key}": value for key, value in each.outcome.batch().items()},
                }
                for each in self.results
            ]
        )

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {"schemes": [each.as_json() for each in self.results]}


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
