"""`Estimate`: one step of a model under a plan on a machine, with nothing run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from foretrace.analyze import Breakdown, breakdown
from foretrace.answer import Answer, Facts, Json, Plain, Table, Told, duration_text, plain
from foretrace.base import NS_PER_HOUR, NS_PER_S, NetworkUse
from foretrace.cost import Costs, Source
from foretrace.estimate.interval import Interval
from foretrace.estimate.nearest import NearestPlan, nearest_table
from foretrace.estimate.packings import DocumentMix, ExpertMix, expert_table
from foretrace.estimate.parts import (
    certainty_parts,
    memory_parts,
    plan_parts,
    ranks_table,
    step_parts,
)
from foretrace.estimate.shared_links import (
    DegradedLink,
    OneMoreRail,
    SharedLinks,
    rails_table,
    slow_table,
)
from foretrace.estimate.where import Where, where
from foretrace.estimate.words import figures, subject_text
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.machine import Machine
from foretrace.operators import ModuleProgram
from foretrace.software import TrainingSoftware
from foretrace.workload import (
    Assumption,
    Convention,
    Flops,
    Footprint,
    LaidOut,
    Model,
    Plan,
    Transformer,
    plan_flops,
    plan_table,
)


@dataclass(frozen=True, repr=False)
class Estimate(Answer):
    """What one step takes, and what it is made of."""

    model: Model | ModuleProgram
    plan: Plan
    machine: Machine
    laid_out: LaidOut
    timeline: Timeline  # simulated
    costs: Costs  # of every node, alone
    interval: Interval
    footprint: Footprint | None  # `None`: of a model whose memory is not known
    flops: Flops  # of one token or sample, by `convention`
    convention: Convention
    peak_flops_per_ns: float | None  # of one chip in the format of the plan's products
    price_per_hour: float | None = None  # of one chip
    assumed: Assumed | None = None  # `None`: the plan was complete
    software: TrainingSoftware | None = None  # `None`: nobody said
    notes: tuple[str, ...] = ()
    mix: DocumentMix | None = None  # steps of a dataset's documents, where one is named
    experts: tuple[ExpertMix, ...] = ()  # steps under a load of experts, where one is named
    nearest: tuple[NearestPlan, ...] | None = None  # that fit; `None`: this one does
    links: SharedLinks | None = None  # `None`: every collective found its links empty
    slow_links: tuple[DegradedLink, ...] = ()  # the worst of each level, where one is asked for
    more_rails: tuple[OneMoreRail, ...] = ()  # of each level, where that is asked for

    @property
    def step_ns(self) -> int:
        """Length of the step."""
        return self.interval.step_ns

    @property
    def graph(self) -> ExecutionGraph:
        """Who waits for whom."""
        return self.laid_out.graph

    @cached_property
    def breakdown(self) -> Breakdown:
        """The step in the four components, a row for each rank in the graph."""
        return breakdown(self.timeline)

    @cached_property
    def where(self) -> Where:
        """What the step is spent on, a row for each rank in the graph; with its mean."""
        return where(self.timeline, self.laid_out.roles)

    @property
    def samples_per_step(self) -> int:
        """Sequences, or samples, of one step."""
        return self.plan.global_batch

    @property
    def network(self) -> NetworkUse:
        """Whether collectives that meet on a link divide it."""
        return NetworkUse.PRIVATE if self.links is None else NetworkUse.SHARED

    @property
    def units_per_step(self) -> int:
        """Tokens of one step; samples, where a model has no tokens."""
        return self.samples_per_step * (self.plan.sequence if self.unit == "token" else 1)

    @property
    def units_per_s(self) -> float:
        """Tokens, or samples, per second of the whole job."""
        return self.units_per_step * NS_PER_S / self.step_ns

    @property
    def flops_per_ns_per_rank(self) -> float:
        """Model FLOPs by the convention, per chip: GFLOP/s."""
        return self.flops.training * self.units_per_step / self.step_ns / self.plan.num_ranks

    @property
    def mfu(self) -> float | None:
        """Model FLOPs over the chips' peak in the format of the products."""
        if not self.peak_flops_per_ns:
            return None
        return self.flops_per_ns_per_rank / self.peak_flops_per_ns

    @property
    def least_ns(self) -> float:
        """What the step's FLOPs take at the peak of all its chips; 0: no peak is known.

        Scores behind a mask are not counted, as no kernel need compute them.
        """
        if not self.peak_flops_per_ns:
            return 0.0
        counted = plan_flops(self.model, self.plan).training
        return counted * self.units_per_step / self.plan.num_ranks / self.peak_flops_per_ns

    @property
    def price_per_million(self) -> float | None:
        """Price of a million tokens, or samples, with the links behind the chips if priced."""
        if self.price_per_hour is None:
            return None
        return self._per_million(self.price_per_hour + (self.machine.links_per_chip_hour or 0.0))

    @property
    def links_per_million(self) -> float | None:
        """What of it is for links; `None`: no tier of the machine says what they cost."""
        price = self.machine.links_per_chip_hour
        return None if price is None else self._per_million(price)

    @property
    def links_per_hour(self) -> float | None:
        """What the links behind the job's chips cost in an hour."""
        price = self.machine.links_per_chip_hour
        return None if price is None else price * self.plan.num_ranks

    def _per_million(self, per_chip_hour: float) -> float:
        per_step = per_chip_hour * self.plan.num_ranks * self.step_ns / NS_PER_HOUR
        return per_step / self.units_per_step * 1e6

    @property
    def share_by_source(self) -> Mapping[str, float]:
        """Share of all device time by where its durations come from."""
        is_device = self.costs.family > 0
        total = float(self.costs.duration_ns[is_device].sum()) or 1.0
        shares = {}
        for source in Source:
            chosen = is_device & (self.costs.source == source)
            share = float(self.costs.duration_ns[chosen].sum()) / total
            if share > 0:
                shares[source.name.lower()] = share
        return shares

    @property
    def unit(self) -> str:
        """What throughput counts: "token" or "sample"."""
        if isinstance(self.model, ModuleProgram):
            return "sample" if self.model.sequence is None else "token"
        return "token" if isinstance(self.model, Transformer) else "sample"

    @property
    def headline(self) -> str:
        """What, under which plan, how long, how sure."""
        low, high = duration_text(self.interval.low_ns), duration_text(self.interval.high_ns)
        return (
            f"{self.model.name} on {subject_text(self)}: {duration_text(self.step_ns)}, {low} to "
            f"{high}"
        )

    def parts(self) -> tuple[Told, ...]:
        """The figures that matter, where the time goes, memory, how sure it is, the plan."""
        return (
            Facts(figures(self)),
            *step_parts(self),
            *(() if self.links is None else (self.links.table(),)),
            *((slow_table(self.slow_links),) if self.slow_links else ()),
            *((rails_table(self.more_rails),) if self.more_rails else ()),
            *self.uneven,
            *(() if self.nearest is None else (nearest_table(self.nearest),)),
            *memory_parts(self.footprint),
            *certainty_parts(self),
            *plan_parts(self),
        )

    @property
    def uneven(self) -> tuple[Table, ...]:
        """Steps of documents, and under a load of experts, where such are named."""
        return (
            *(() if self.mix is None else (self.mix.table(),)),
            *((expert_table(self.experts),) if self.experts else ()),
        )

    def tables(self) -> tuple[Table, ...]:
        """Every rank of the graph in parts, then what else is told."""
        own = ranks_table(self.where)
        return own, *(one for one in super().tables() if one.key != own.key)

    def as_json(self) -> Json:
        """Everything but the timeline, times in ns, memory in bytes, the plan as its file."""
        found = self.interval
        return {
            "model": self.model.name,
            "machine": self.machine.name,
            "chip": self.machine.chip.name,
            "num_ranks": self.plan.num_ranks,
            "software": None if self.software is None else self.software.name,
            "status": "predicted" if self.assumed is None else "assumed",
            "step_ns": self.step_ns,
            "low_ns": found.low_ns,
            "high_ns": found.high_ns,
            "parts": self.where.mean.as_json(),
            "ranks": self.where.as_json(),
            "breakdown": self.breakdown.as_json()["rows"],
            "memory": None if self.footprint is None else self.footprint.as_json(),
            **self._throughput(),
            **({} if self.mix is None else {"documents": self.mix.as_json()}),
            **({} if self.nearest is None else {"nearest": plain(self.nearest)}),
            **({} if self.links is None else {"links": plain(self.links)}),
            **({"slow_links": plain(self.slow_links)} if self.slow_links else {}),
            **({"more_rails": plain(self.more_rails)} if self.more_rails else {}),
            **({"expert_load": plain(self.experts)} if self.experts else {}),
            "uncertainty": plain(found.families),
            "sources": dict(self.share_by_source),
            "plan": plan_table(self.plan),
            "is_folded": self.laid_out.is_folded,
            "assumed": None if self.assumed is None else self.assumed.as_json(),
            "notes": list(self.notes),
        }

    def _links_price(self) -> dict[str, object]:
        if self.links_per_hour is None:
            return {}
        return {
            "links_per_hour": self.links_per_hour,
            f"links_per_million_{self.unit}s": self.links_per_million,
        }

    def _throughput(self) -> dict[str, object]:
        unit = self.unit
        return {
            f"{unit}s_per_step": self.units_per_step,
            f"{unit}s_per_s": self.units_per_s,
            f"{unit}s_per_s_per_rank": self.units_per_s / self.plan.num_ranks,
            f"flops_per_{unit}": self.flops.training,
            "flops_per_s_per_rank": self.flops_per_ns_per_rank * NS_PER_S,
            "peak_flops_per_s": None
            if self.peak_flops_per_ns is None
            else self.peak_flops_per_ns * NS_PER_S,
            "mfu": self.mfu,
            "convention": self.convention.value,
            f"price_per_million_{unit}s": self.price_per_million,
            **self._links_price(),
        }


@dataclass(frozen=True)
class Alternative(Plain):
    """One legal plan that agrees with what was stated."""

    values: Mapping[str, object]  # of the keys that were left open: "memory.recompute"
    step_ns: int
    low_ns: int  # 10th percentile
    high_ns: int  # 90th
    peak_bytes: int | None  # of the fullest stage; `None`: not known
    fits: bool | None


@dataclass(frozen=True)
class Assumed(Plain):
    """Keys that were left open, and every plan that was tried."""

    json_names: ClassVar = {"alternatives": "plans"}
    json_also: ClassVar = ("low_ns", "high_ns")

    assumptions: tuple[Assumption, ...]
    alternatives: tuple[Alternative, ...]  # the answer first

    @property
    def low_ns(self) -> int:
        """The shortest step of all plans."""
        return min(one.step_ns for one in self.alternatives)

    @property
    def high_ns(self) -> int:
        """The longest step of all plans."""
        return max(one.step_ns for one in self.alternatives)
