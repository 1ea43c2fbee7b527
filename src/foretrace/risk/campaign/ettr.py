"""`ettr`: effective training time three ways; against the checkpoint interval, and the GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    cell_text,
    count_text,
    long_duration_text,
)
from foretrace.base import NS_PER_S, Float64s
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
    with_hosts,
    with_interval,
)
from foretrace.risk.campaign.outcome import Outcome
from foretrace.risk.campaign.schemes import Scheme, with_scheme
from foretrace.risk.campaign.simulate import simulate_campaign

# Failures, over all samples, that make the standard error about a thousandth: a run's loss
# varies about as much as it is long on average.
_FAILURES = 400_000
_FEWEST_OF_SAMPLE = 2_000  # so that the first and the last run of a campaign do not count
_NO_FAILURES_NS = 10**17  # three years: any time does where nothing fails


@dataclass(frozen=True, repr=False)
class Ettr(Answer):
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

    @property
    def headline(self) -> str:
        """Effective time, and of what."""
        effective = cell_text(self.simulated, Unit.SHARE)
        return f"{effective} of the time is effective: {self.campaign.subject}"

    def parts(self) -> tuple[Told, ...]:
        """Every form, then what is to say of the checkpoint interval."""
        return self._facts(), Sentences.of("checkpoints", self._interval_sentences())

    def tables(self) -> tuple[Table, ...]:
        """One row a form."""
        error = self.outcome.standard_error
        forms = Table.of_columns(
            "forms",
            (Column("form"), ["linear", "queued", "renewal", "simulated"]),
            (
                Column("effective", unit=Unit.NUMBER),
                [self.linear, self.queued, self.renewal, self.simulated],
            ),
            (Column("standard_error", unit=Unit.NUMBER), [None, None, None, error]),
        )
        return (replace(forms, shown=Shown.FILES),)

    def _facts(self) -> Facts:
        loss = f"N r (u0 + dt/2) = {self.linear_loss:.3f}"
        holds = f"holds: {loss}" if self.linear_holds else f"does not hold: {loss} is above 0.1"
        queued = Fact("queued", f"{self.queued:.4f}", "published, with queues; holds as linear")
        samples = count_text(self.outcome.wall_ns.size, "campaign")
        return Facts(
            (
                Fact("linear", f"{self.linear:.4f}", f"published; {holds}"),
                *((queued,) if self.campaign.queue_ns else ()),
                Fact("renewal", f"{self.renewal:.4f}", "exact, for hosts enough"),
                Fact(
                    "simulated",
                    f"{self.simulated:.4f}",
                    f"+- {self.outcome.standard_error:.4f}, {samples}",
                ),
            )
        )

    def _interval_sentences(self) -> Iterator[str]:
        checkpoint = self.campaign.checkpoint
        yield (
            f"every {long_duration_text(checkpoint.interval_ns)} now, "
            f"{long_duration_text(checkpoint.blocking_ns)} each"
        )
        if self.target is not None and self.longest_restart_ns is not None:
            longest = long_duration_text(self.longest_restart_ns)
            yield (
                f"{self.target:g} effective needs restarts of at most {longest}, all else as it is"
                if self.longest_restart_ns >= 0
                else f"{self.target:g} effective cannot be, however fast restarts are"
            )
        if self.best_renewal is None:
            yield (
                "they cost no time, so the more the better; say with --checkpoint-time what one "
                "costs"
            )
            return
        yield f"best by Young and Daly: every {long_duration_text(self.best_interval_ns)}"
        yield (
            f"best by search: every {long_duration_text(self.searched_interval_ns)}, which makes "
            f"{self.best_renewal:.4f} effective"
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


@dataclass(frozen=True, repr=False)
class CampaignSweep(Answer):
    """Effective time along one quantity."""

    quantity: str  # "checkpoint interval", "GPUs"
    unit: str  # "s", or ""
    values: Float64s  # float64[points]
    lines: Mapping[str, Float64s]  # effective time by what says so: float64[points]

    @property
    def headline(self) -> str:
        """What is against what."""
        return f"effective time against {self.quantity}"

    def parts(self) -> tuple[Told, ...]:
        """One row a point: the quantity, and every line."""
        title = " ".join(filter(None, (self.quantity, self.unit)))
        found = Table.of_columns(
            "points",
            (Column("value", title, Unit.COUNT), self.values),
            *((Column(name, unit=Unit.SHARE), line) for name, line in self.lines.items()),
            title=self.headline,
        )
        return (found,)


def by_interval(
    campaign: Campaign,
    intervals_ns: Sequence[int],
    *,
    duration_ns: int,
    num_samples: int = 100,
) -> CampaignSweep:
    """Effective time of full restarts against the checkpoint interval, three ways."""

    def simulated(one: Campaign) -> float:
        found = simulate_campaign(one, duration_ns=duration_ns, num_samples=num_samples, seed=0)
        return found.mean_effective

    single = replace(campaign, replicas=None)
    points = [with_interval(single, each) for each in intervals_ns]
    ways: Mapping[str, Callable[[Campaign], float]] = {
        "linear": linear_ettr,
        "renewal": renewal_ettr,
        "simulated": simulated,
    }
    return CampaignSweep(
        "checkpoint interval",
        "s",
        np.array(intervals_ns) / NS_PER_S,
        {name: np.array([way(each) for each in points]) for name, way in ways.items()},
    )


def by_scale(
    campaign: Campaign,
    num_hosts: Sequence[int],
    *,
    duration_ns: int,
    num_samples: int = 50,
    seed: int = 0,
) -> CampaignSweep:
    """Simulated effective time of every scheme against the number of GPUs.

    Replicas keep their size, so that a larger job has more of them, and spare hosts their share.
    Restarts and stalls keep their length, which real ones do not: see docs/risk.md.
    """
    replicas = campaign.replicas
    schemes = tuple(Scheme) if replicas is not None else (Scheme.FULL_RESTART, Scheme.HOT_SPARES)
    size = campaign.num_hosts // replicas.num_replicas if replicas is not None else 1
    rounded = sorted({max(size, round(each / size) * size) for each in num_hosts})
    lines = {
        scheme.value: np.array(
            [
                simulate_campaign(
                    with_scheme(_scaled(campaign, each), scheme),
                    duration_ns=duration_ns,
                    num_samples=num_samples,
                    seed=seed,
                ).mean_effective
                for each in rounded
            ]
        )
        for scheme in schemes
    }
    gpus = np.array(rounded, np.float64) * campaign.gpus_per_host
    return CampaignSweep("GPUs", "", gpus, lines)


def _scaled(campaign: Campaign, num_hosts: int) -> Campaign:
    factor = num_hosts / campaign.num_hosts
    fleet = replace(campaign.fleet, num_spares=round(campaign.fleet.num_spares * factor))
    found = replace(with_hosts(campaign, num_hosts), fleet=fleet)
    replicas = campaign.replicas
    if replicas is None:
        return found
    return replace(
        found, replicas=replace(replicas, num_replicas=round(replicas.num_replicas * factor))
    )
