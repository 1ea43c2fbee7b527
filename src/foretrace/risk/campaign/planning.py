"""Before a training: its days and cost, failures included, and how large a replica should be.

A replica holds all states of the model, divided over its own GPUs (hybrid sharding), so that a
small one may not fit; and the more replicas there are, the less the loss of one takes away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
)
from foretrace.base import NS_PER_DAY, NS_PER_HOUR, NS_PER_S, Float64s, RiskError
from foretrace.machine import Chip
from foretrace.risk.campaign.campaign import Campaign, Replicas
from foretrace.risk.campaign.closed_form import replicas_ettr
from foretrace.risk.campaign.outcome import Outcome
from foretrace.risk.campaign.simulate import simulate_campaign
from foretrace.workload import (
    Model,
    Plan,
    Sharding,
    Transformer,
    check_plan,
    footprint,
    parameters,
    schedule_of,
)

_LONGEST = 50  # times as long as without failures: beyond it, the campaign is given up
_LONGEST_S = 1e12  # of work; what is simulated ends far earlier, and more would be no whole ns
_QUANTILES = (0.05, 0.5, 0.95)
_NO_DIGITS = 1_000  # from here on a decimal says nothing

# bf16 parameters, fp32 gradients, and fp32 copy and two moments of Adam.
# Source: ZeRO, arXiv:1910.02054, section 3.1, with gradients summed in fp32 as Llama 3 does.
_STATE_BYTES = 2 + 4 + 12


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


@dataclass(frozen=True)
class ReplicaSize:
    """One size of replica."""

    gpus_per_replica: int
    num_replicas: int
    outcome: Outcome
    stalls_only: float  # `replicas_ettr`
    num_bytes: int | None  # on the fullest GPU; `None`: no model was given
    capacity: int | None  # bytes of a GPU; `None`: not known
    counts_states_only: bool  # `num_bytes` has parameters, gradients and optimizer only

    @property
    def fits(self) -> bool | None:
        """Whether the fullest GPU holds it; `None`: not known."""
        if self.num_bytes is None or self.capacity is None:
            return None
        return self.num_bytes <= self.capacity


@dataclass(frozen=True, repr=False)
class ReplicaSizes(Answer):
    """Sizes of replica, smallest first."""

    sizes: tuple[ReplicaSize, ...]

    @property
    def best(self) -> ReplicaSize | None:
        """The one with most effective time among those that are not known not to fit."""
        fitting = [each for each in self.sizes if each.fits is not False]
        return max(fitting, key=lambda each: each.outcome.mean_effective, default=None)

    @property
    def headline(self) -> str:
        """Which size is best."""
        if self.best is None:
            return "none of these fits: take larger replicas, or more tensor or pipeline ranks"
        size = count_text(self.best.gpus_per_replica, "GPU")
        return f"best of those that fit: {size}; all are taken to stall and to be away equally long"

    def parts(self) -> tuple[Told, ...]:
        """One row a size, and what to know."""
        return self._sizes(), Sentences.of("", (self.headline, *self._notes()))

    def _sizes(self) -> Table:
        """Replicas, effective time, batch, bytes, whether they fit."""
        return Table.of(
            "sizes",
            self.sizes,
            Column("gpus_per_replica", "GPUs", Unit.COUNT),
            Column("num_replicas"),
            Column("effective", unit=Unit.SHARE, value="outcome.mean_effective"),
            Column("standard_error", value="outcome.standard_error", shown=Shown.FILES),
            Column("stalls_only", "formula", Unit.SHARE),
            Column(
                "batch_deviation",
                "batch +-",
                Unit.SHARE,
                lambda one: one.outcome.batch()["deviation"],
            ),
            Column("bytes", "memory", value="num_bytes"),
            Column("capacity", unit=Unit.BYTES, shown=Shown.FILES),
            Column("fits"),
            Column("counts_states_only", shown=Shown.FILES),
            title="size of a replica",
        )

    def _notes(self) -> Iterator[str]:
        if any(each.counts_states_only and each.num_bytes is not None for each in self.sizes):
            yield "memory is parameters, gradients and Adam's states: 18 bytes a parameter"

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        best = self.best
        return {
            "sizes": self.table().as_json(),
            "best_gpus_per_replica": best.gpus_per_replica if best is not None else None,
        }


def replica_sizes(
    campaign: Campaign,
    gpus_per_replica: Sequence[int],
    *,
    duration_ns: int,
    model: Model | None = None,
    plan: Plan | None = None,
    chip: Chip | None = None,
    num_samples: int = 100,
) -> ReplicaSizes:
    """The campaign with replicas of every size, and whether they fit into memory.

    Stalls and absences are taken to be the same for every size, and communication between
    replicas to stay hidden; the first is kind to small replicas, the second to many.

    Args:
        campaign: a job with replicas.
        gpus_per_replica: sizes; each divides the job's GPUs, and into whole hosts.
        duration_ns: wall time of each simulated campaign.
        model: what is trained; without, memory is not looked at.
        plan: of the whole job; its sharding is done within a replica. Without, only states
            are counted, divided over the whole replica.
        chip: whose memory has to do.
        num_samples: simulated campaigns of each size.

    Raises:
        RiskError: if the campaign has no replicas, or a size does not divide the job.
        WorkloadError: if the plan is not one for the model.
    """
    replicas = campaign.replicas
    if replicas is None:
        raise RiskError("there are no replicas to choose the size of: state how many there are")
    if plan is not None and plan.num_ranks != campaign.num_gpus:
        raise RiskError(
            f"the plan is for {plan.num_ranks:,} ranks, the campaign has {campaign.num_gpus:,} "
            "GPUs: they have to be the same"
        )
    found = []
    for size in sorted(set(gpus_per_replica)):
        sized = _sized(campaign, replicas, size)
        num_bytes = None if model is None else _bytes(model, plan, chip, size=size)
        found.append(
            ReplicaSize(
                size,
                campaign.num_gpus // size,
                simulate_campaign(sized, duration_ns=duration_ns, num_samples=num_samples, seed=0),
                replicas_ettr(sized),
                num_bytes,
                None if chip is None else chip.memory_bytes,
                counts_states_only=plan is None or not isinstance(model, Transformer),
            )
        )
    return ReplicaSizes(tuple(found))


def _sized(campaign: Campaign, replicas: Replicas, size: int) -> Campaign:
    if size < 1 or campaign.num_gpus % size or size % campaign.gpus_per_host:
        raise RiskError(
            f"replicas of {size} GPUs: the size has to divide {campaign.num_gpus:,} GPUs and be "
            f"whole hosts of {campaign.gpus_per_host}"
        )
    count = campaign.num_gpus // size
    least = min(count, max(1, replicas.min_replicas * count // replicas.num_replicas))
    return replace(campaign, replicas=replace(replicas, num_replicas=count, min_replicas=least))


def _bytes(model: Model, plan: Plan | None, chip: Chip | None, *, size: int) -> int:
    """Bytes of the fullest GPU of a replica."""
    if plan is None or not isinstance(model, Transformer):
        return -(-parameters(model).total * _STATE_BYTES // size)
    sharing, rest = divmod(size, plan.tensor * plan.pipeline)
    if rest:
        raise RiskError(
            f"replicas of {size} GPUs do not hold whole pipelines of {plan.tensor} x "
            f"{plan.pipeline} ranks: take a multiple"
        )
    if plan.sharding is Sharding.NONE:
        raise RiskError(
            "the plan shards nothing, so that memory does not depend on the replica's size: "
            "give it a sharding"
        )
    sized = replace(plan, shard_ranks=sharing)
    check_plan(sized, model)
    return footprint(model, sized, schedule_of(sized), chip=chip).peak.total
