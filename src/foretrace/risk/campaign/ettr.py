"""`ettr`: effective training time three ways, and the checkpoint interval that is best."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrace.risk.campaign.campaign import Campaign
from foretrace.risk.campaign.closed_form import (
    best_interval_ns,
    linear_ettr,
    linear_holds,
    linear_loss,
    longest_restart_ns,
    queued_ettr,
    renewal_ettr,
    searched_interval_ns,
    with_interval,
)
from foretrace.risk.campaign.outcome import Outcome
from foretrace.risk.campaign.simulate import simulate_campaign

if TYPE_CHECKING:
    import polars as pl

# Failures, over all samples, that make the standard error about a thousandth: a run's loss
# varies about as much as it is long on average.
_FAILURES = 400_000
_FEWEST_OF_SAMPLE = 2_000  # so that the first and the last run of a campaign do not count
_NO_FAILURES_NS = 10**17  # three years: any time does where nothing fails


@dataclass(frozen=True)
class Ettr:
    """Effective training time of full restarts."""

    campaign: Campaign
    linear: float  # as published; without queues
    queued: float  # the same with queues
    linear_loss: float
    linear_holds: bool
    renewal: float
    outcome: Outcome
    best_interval_ns: float  # Young and Daly; 0 if checkpoints are free, infinite without failures
    searched_interval_ns: float
    best_renewal: float | None  # at the searched interval; `None` where there is none
    target: float | None = None  # effective time that is wished for
    # With which the target is just met; negative: not at all. `None` without a target.
    longest_restart_ns: float | None = None

    @property
    def simulated(self) -> float:
        """Mean over the simulated campaigns."""
        return self.outcome.mean_effective

    def to_frame(self) -> pl.DataFrame:
        """One row a way of telling: `form`, `effective`, `standard_error`."""
        import polars as pl  # slow to import, wanted in tables only

        error = self.outcome.standard_error
        return pl.DataFrame(
            {
                "form": ["linear", "queued", "renewal", "simulated"],
                "effective": [self.linear, self.queued, self.renewal, self.simulated],
                "standard_error": [None, None, None, error],
            }
        )

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values; times in ns."""
        has_best = 0 < self.best_interval_ns < math.inf
        return {
            "linear": self.linear,
            "queued": self.queued,
            "renewal": self.renewal,
            "simulated": self.simulated,
            "standard_error": self.outcome.standard_error,
            "linear_loss": self.linear_loss,
            "linear_holds": self.linear_holds,
            "best_interval_ns": self.best_interval_ns if has_best else None,
            "searched_interval_ns": self.searched_interval_ns if has_best else None,
            "best_renewal": self.best_renewal,
            "target": self.target,
            "longest_restart_ns": self._longest(),
            "campaign": self.campaign.as_json(),
        }

    def _longest(self) -> float | None:
        """What JSON has a number for: nothing where no restart, or any, will do."""
        longest_ns = self.longest_restart_ns
        return None if longest_ns is None or not 0 <= longest_ns < math.inf else longest_ns


def ettr(
    campaign: Campaign, *, target: float | None = None, num_samples: int = 100, seed: int = 0
) -> Ettr:
    """Effective training time of full restarts: formulas, and a simulation long enough for them.

    Args:
        campaign: the job; replicas are left out.
        target: effective time that is wished for.
        num_samples: simulated campaigns.
        seed: the same one gives the same result.

    Raises:
        RiskError: if the campaign cannot be.
    """
    single = replace(campaign, replicas=None)
    found_ns = searched_interval_ns(single)
    outcome = simulate_campaign(
        single, duration_ns=_long_enough_ns(single, num_samples), num_samples=num_samples, seed=seed
    )
    has_best = 0 < found_ns < math.inf
    return Ettr(
        campaign=single,
        linear=linear_ettr(single),
        queued=queued_ettr(single),
        linear_loss=linear_loss(single),
        linear_holds=linear_holds(single),
        renewal=renewal_ettr(single),
        outcome=outcome,
        best_interval_ns=best_interval_ns(single),
        searched_interval_ns=found_ns,
        best_renewal=renewal_ettr(with_interval(single, round(found_ns))) if has_best else None,
        target=target,
        longest_restart_ns=None if target is None else longest_restart_ns(single, target),
    )


def _long_enough_ns(campaign: Campaign, num_samples: int) -> int:
    if math.isinf(campaign.mttf_ns):
        return _NO_FAILURES_NS
    failures = max(_FEWEST_OF_SAMPLE, _FAILURES // num_samples)
    return min(round(failures * (campaign.mttf_ns + campaign.down_ns)), 40 * _NO_FAILURES_NS)
