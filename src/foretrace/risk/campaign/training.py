"""Days and cost of training on so many tokens, failures included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.answer import Answer, Fact, Facts, Table, Told, Unit, cell_text
from foretrace.base import NS_PER_DAY, NS_PER_HOUR, NS_PER_S, Float64s, RiskError
from foretrace.risk.campaign.campaign import Campaign
from foretrace.risk.campaign.outcome import Outcome
from foretrace.risk.campaign.simulate import simulate_campaign

_LONGEST = 50  # times as long as without failures: beyond it, the campaign is given up
_LONGEST_S = 1e12  # of work; what is simulated ends far earlier, and more would be no whole ns
_QUANTILES = (0.05, 0.5, 0.95)
_NO_DIGITS = 1_000  # from here on a decimal says nothing


@dataclass(frozen=True, repr=False)
class TrainingTime(Answer):
    """How long the training takes."""

    outcome: Outcome
    work_ns: int  # without any loss
    price_per_gpu_hour: float | None = None

    @property
    def days(self) -> Float64s:
        """Wall time of every campaign: float64[samples]."""
        return np.asarray(self.outcome.wall_ns / NS_PER_DAY, dtype=np.float64)

    @property
    def num_paid_gpus(self) -> int:
        """GPUs that are paid for, spares among them."""
        campaign = self.outcome.campaign
        return campaign.gpus_per_host * (campaign.num_hosts + campaign.fleet.num_spares)

    @property
    def costs(self) -> Float64s | None:
        """Cost of every campaign in the price's currency; `None` without a price."""
        if self.price_per_gpu_hour is None:
            return None
        hours = self.outcome.wall_ns / NS_PER_HOUR
        return np.asarray(hours * self.num_paid_gpus * self.price_per_gpu_hour, dtype=np.float64)

    def days_odds(self) -> dict[str, float]:
        """Mean, 5%, half and 95% of `days`."""
        return _odds(self.days)

    def cost_odds(self) -> dict[str, float] | None:
        """The same of `costs`."""
        return None if self.costs is None else _odds(self.costs)

    @property
    def headline(self) -> str:
        """Days, and of what."""
        return f"{_odds_text(self.days_odds())} days: {self.outcome.campaign.subject}"

    def parts(self) -> tuple[Told, ...]:
        """Days and cost, then where the time goes."""
        return Facts(tuple(Fact(*figure) for figure in self._figures())), *self.outcome.parts()

    def tables(self) -> tuple[Table, ...]:
        """Those of the campaigns."""
        return self.outcome.tables()

    def _figures(self) -> Iterator[tuple[str, str]]:
        yield "days without loss", f"{self.work_ns / NS_PER_DAY:,.1f}"
        if not self.outcome.is_finished.all():
            yield "finished at all", cell_text(float(self.outcome.is_finished.mean()), Unit.SHARE)
        yield "days", _odds_text(self.days_odds())
        costs = self.cost_odds()
        if costs is not None:
            yield "cost", _odds_text(costs)

    def as_json(self) -> dict[str, object]:
        """Days and cost with the interval that 90% of campaigns lie in."""
        return {
            **self.outcome.as_json(),
            "days_without_loss": self.work_ns / NS_PER_DAY,
            "days_odds": self.days_odds(),
            "cost_odds": self.cost_odds(),
            "num_paid_gpus": self.num_paid_gpus,
        }


def training_time(
    campaign: Campaign,
    *,
    num_tokens: float,
    tokens_per_second: float,
    price_per_gpu_hour: float | None = None,
    num_samples: int = 1000,
    seed: int = 0,
) -> TrainingTime:
    """How long it takes to train on so many tokens at a speed that failures interrupt.

    Args:
        campaign: the job.
        num_tokens: of the whole training.
        tokens_per_second: of the whole job while it trains, as `foretrace estimate` says.
        price_per_gpu_hour: of one GPU, spares included, in any currency.
        num_samples: simulated campaigns.
        seed: the same one gives the same result.

    Raises:
        RiskError: if the campaign cannot be, or a number is not above zero.
    """
    if num_tokens <= 0 or tokens_per_second <= 0:
        raise RiskError(
            f"{num_tokens:g} tokens at {tokens_per_second:g} per second: both have to be above zero"
        )
    seconds = num_tokens / tokens_per_second
    if seconds > _LONGEST_S:
        raise RiskError(
            f"{num_tokens:g} tokens at {tokens_per_second:g} per second take {seconds:.3g} s: at "
            f"most {_LONGEST_S:.3g} s can be simulated"
        )
    work_ns = max(1, round(seconds * NS_PER_S))
    outcome = simulate_campaign(
        campaign,
        duration_ns=_LONGEST * work_ns,
        work_ns=work_ns,
        num_samples=num_samples,
        seed=seed,
    )
    return TrainingTime(outcome, work_ns, price_per_gpu_hour)


def _odds(samples: Float64s) -> dict[str, float]:
    return {
        "mean": float(samples.mean()),
        **{f"p{100 * each:.0f}": float(np.quantile(samples, each)) for each in _QUANTILES},
    }


def _odds_text(odds: Mapping[str, float]) -> str:
    digits = 0 if odds["p50"] >= _NO_DIGITS else 1
    low, middle, high = (f"{odds[each]:,.{digits}f}" for each in ("p5", "p50", "p95"))
    return f"{middle} ({low} to {high})"
