"""An estimate in words: its subject, its figures, its parts and sources; computes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretrace.answer import (
    Fact,
    bytes_text,
    count_text,
    duration_text,
    per_second_text,
    rate_text,
)
from foretrace.base import NS_PER_S, key_text
from foretrace.workload import Assumption, Convention, Footprint

if TYPE_CHECKING:
    from foretrace.estimate.estimate import Estimate


_PARTS = {
    "compute": "compute alone",
    "overlapped": "compute beside communication",
    "waiting": "bubble: waiting for stages",
    "idle": "launches and hand-overs",
}
_GROUPS = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "pp": "between stages",
    "dp": "data parallel",
    "shard": "shards",
    "replica": "between shards' copies",
    "ep": "experts",
    "etp": "within experts",
    "edp": "experts' copies",
    "embedding": "tied embedding",
    "mirror": "mirrored stages",
    "all": "all ranks",
}
_CONVENTIONS = {
    Convention.CAUSAL: "causal",
    Convention.FULL: "full: all scores",
    Convention.PARAMETERS: "6 N",
    Convention.PARAMETERS_WITHOUT_EMBEDDINGS: "6 N, no embeddings",
}


def subject_text(found: Estimate) -> str:
    """What the estimate is of: machine, plan, batch."""
    plan = found.plan
    axes = {"tp": plan.tensor, "cp": plan.context, "pp": plan.pipeline, "dp": plan.data}
    sizes = [f"{name} {size}" for name, size in axes.items() if size > 1]
    if plan.expert > 1:
        sizes.append(f"ep {plan.expert}")
    batch = count_text(plan.global_batch, "sequence" if found.unit == "token" else "sample")
    if found.unit == "token":
        batch += f" of {plan.sequence:,} tokens"
    schedule = [f"schedule {plan.schedule}"] if plan.pipeline > 1 else []
    chunks = [f"{plan.num_chunks} chunks"] if plan.num_chunks > 1 else []
    settings = [
        f"{batch} in passes of {plan.micro_batch:,}",
        *schedule,
        *chunks,
        f"sharding {plan.sharding.value}",
        f"recompute {plan.recompute.value if plan.recompute_of_layer is None else 'by layer'}",
        plan.precision.products,
    ]
    name = f", plan {plan.name}" if plan.name else ""
    return (
        f"{plan.num_ranks:,} x {found.machine.chip.name} of {found.machine.name}{name}: "
        f"{' x '.join(sizes) or 'one rank'}; {', '.join(settings)}"
    )


def figures(found: Estimate) -> tuple[Fact, ...]:
    """The figures that matter, the answer first."""
    return tuple(_facts(found))


def _facts(found: Estimate) -> Iterator[Fact]:
    interval, unit = found.interval, found.unit
    yield Fact(
        "step" if found.assumed is None else "step, assumed",
        duration_text(interval.step_ns),
        f"middle 80 %: {duration_text(interval.low_ns)} to {duration_text(interval.high_ns)}",
        is_first=True,
    )
    per_rank = found.units_per_s / found.plan.num_ranks
    yield Fact(
        f"{unit}s per second",
        per_second_text(found.units_per_s),
        f"{per_second_text(per_rank)} of each chip",
    )
    yield _flops_fact(found)
    if found.footprint is not None:
        yield _memory_fact(found.footprint)
    if found.price_per_million is not None:
        yield Fact(
            "cost",
            f"{found.price_per_million:.4g}",
            f"per million {unit}s, at {found.price_per_hour:g} for a chip-hour"
            + ("" if found.links_per_million is None else " and its links"),
        )
    if found.links_per_million is not None:
        yield Fact(
            "links",
            f"{found.links_per_million:.4g}",
            f"per million {unit}s, {found.links_per_hour:,.4g} an hour for those behind its chips",
        )


def _flops_fact(found: Estimate) -> Fact:
    achieved = rate_text(found.flops_per_ns_per_rank * NS_PER_S, "FLOP/s")
    counted = _CONVENTIONS[found.convention] if found.unit == "token" else "of its operators"
    if found.mfu is None or found.peak_flops_per_ns is None:
        return Fact("model FLOPs of each chip", achieved, counted)
    peak = rate_text(found.peak_flops_per_ns * NS_PER_S, "FLOP/s")
    return Fact(
        "MFU",
        f"{100 * found.mfu:.1f} %",
        f"{achieved}; peak {peak} {found.plan.precision.products}; {counted}",
    )


def _memory_fact(memory: Footprint) -> Fact:
    peak = bytes_text(memory.peak.total)
    if memory.capacity is None or memory.margin is None:
        return Fact("memory, fullest rank", peak, "")
    capacity, left = bytes_text(memory.capacity), bytes_text(abs(memory.margin))
    says = f"fits, {left} to spare" if memory.fits else f"DOES NOT FIT, {left} too much"
    return Fact("memory, fullest rank", peak, f"of {capacity}: {says}")


def part_text(name: str) -> str:
    """A part of a step in words: "transfer tp" is "exposed: tensor parallel (tp)"."""
    if name.startswith("transfer "):
        group = name.removeprefix("transfer ")
        words = _GROUPS.get(group)
        return f"exposed: {words} ({group})" if words else f"exposed: {group}"
    return _PARTS[name]


def assumption_text(one: Assumption) -> str:
    """An open key in a sentence."""
    values = [key_text(value) for value in one.values]
    others = f", also tried {', '.join(values[1:])}" if len(values) > 1 else ""
    return f"{one.key} = {values[0]}{others}: {one.reason}"
