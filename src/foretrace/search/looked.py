"""`Looked`: what is known of one plan that was simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import Plain
from foretrace.base import NS_PER_S
from foretrace.estimate import Estimate, FamilySpread, StepParts
from foretrace.search.objectives import Recovery
from foretrace.search.space import columns_of
from foretrace.workload import Plan, plan_table


@dataclass(frozen=True)
class Looked(Plain):
    """One plan that was simulated."""

    json_only: ClassVar = (
        *("plan_keys", "step_ns", "low_ns", "high_ns", "unit_ns", "peak_bytes", "fits"),
        *("tokens_per_s", "p95_ns", "figures", "recovery", "parts", "sources", "notes"),
    )
    json_names: ClassVar = {"plan_keys": "plan", "figures": "objectives"}

    number: int  # in the order of the space; below 0: it is not of the space
    plan: Plan
    step_ns: int
    low_ns: int | None  # 10th percentile; `None`: it was not simulated kernel by kernel
    high_ns: int | None
    unit_ns: int | None  # the step simulated unit by unit; `None`: it was not
    peak_bytes: int | None
    capacity: int | None  # bytes of a chip's memory; `None`: nobody said which
    step_parts: StepParts | None = None
    sources: Mapping[str, float] | None = None  # shares of all time by where it is known from
    notes: tuple[str, ...] = ()  # what was taken to be so
    p95_ns: int | None = None  # that 95 % of steps are not longer than; `None`: not sampled
    figures: Mapping[str, float] | None = None  # what stated objectives say, where not in ns
    recovery: Recovery | None = None  # from failures; `None`: nobody said what fails
    spreads: tuple[FamilySpread, ...] = ()  # of the interval, by kind of work

    @classmethod
    def of(cls, found: Estimate, *, number: int, unit_ns: int | None) -> Looked:
        """What an estimate says."""
        memory = found.footprint
        return cls(
            number=number,
            plan=found.plan,
            step_ns=found.step_ns,
            low_ns=found.interval.low_ns,
            high_ns=found.interval.high_ns,
            unit_ns=unit_ns,
            peak_bytes=None if memory is None else memory.peak.total,
            capacity=None if memory is None else memory.capacity,
            step_parts=found.where.mean,
            sources=dict(found.share_by_source),
            notes=found.notes,
            spreads=found.interval.families,
        )

    @classmethod
    def by_units(
        cls,
        plan: Plan,
        step_ns: int,
        *,
        number: int,
        peak_bytes: int | None,
        p95_ns: int | None,
        capacity: int | None,
    ) -> Looked:
        """What a step simulated unit by unit says."""
        return cls(
            number=number,
            plan=plan,
            step_ns=step_ns,
            low_ns=None,
            high_ns=None,
            unit_ns=step_ns,
            peak_bytes=peak_bytes,
            capacity=capacity,
            p95_ns=p95_ns,
        )

    @property
    def fits(self) -> bool | None:
        """Whether the fullest stage does; `None`: its memory is not known, or nobody said which."""
        if self.peak_bytes is None or self.capacity is None:
            return None
        return self.peak_bytes <= self.capacity

    @property
    def plan_keys(self) -> dict[str, dict[str, object]]:
        """The plan as its file has it."""
        return plan_table(self.plan)

    @property
    def parts(self) -> Mapping[str, int] | None:
        """What its step is spent on, in the mean over ranks."""
        return None if self.step_parts is None else self.step_parts.by_name()

    @property
    def tokens_per_s(self) -> float:
        """Of the whole job."""
        return self.plan.global_batch * self.plan.sequence * NS_PER_S / self.step_ns

    @property
    def placement_words(self) -> list[str]:
        """What of its columns says where ranks stand and how they exchange, if not as usual."""
        own = columns_of(self.plan)
        usual = {
            "outer_dp": 1,
            "experts": 1,
            "contiguous": "pp",
            "buckets": "rule",
            "first": "",
            "local_steps": 1,
        }
        found = [f"order {own['order']}"]
        found += [f"{name} {own[name]}" for name, value in usual.items() if own[name] != value]
        return [*found, f"shards over {own['shard_ranks'] or 'all'}", f"reduced {own['reduced']}"]

    @property
    def summary(self) -> str:
        """The plan in a line: "tp 8, pp 16, ..."."""
        own = columns_of(self.plan)
        degrees = [f"{key} {own[key]}" for key in ("tp", "cp", "pp", "ep", "dp") if own[key] != 1]
        chunks = f" x {own['chunks']}" if own["chunks"] != 1 else ""
        words = [*degrees, f"microbatch {own['micro_batch']}", f"{own['schedule']}{chunks}"]
        return ", ".join([*words, f"sharding {own['sharding']}", f"recompute {own['recompute']}"])


def unbeaten(figures: Mapping[int, tuple[float, ...]]) -> list[int]:
    """Numbers of those that no other one is as good as in all figures; the smaller the better."""
    kept: list[int] = []
    for number in sorted(figures, key=lambda one: (figures[one], one)):
        own = figures[number]
        if not any(all(a <= b for a, b in zip(figures[one], own, strict=True)) for one in kept):
            kept.append(number)
    return kept
