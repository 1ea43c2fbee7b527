"""Effective time against the checkpoint interval, and against the number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.answer import Answer, Column, Table, Told, Unit
from foretrace.base import NS_PER_S, Float64s
from foretrace.risk.campaign.campaign import Campaign
from foretrace.risk.campaign.closed_form import (
    linear_ettr,
    renewal_ettr,
    with_hosts,
    with_interval,
)
from foretrace.risk.campaign.schemes import Scheme, with_scheme
from foretrace.risk.campaign.simulate import simulate_campaign


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
