"""`Variable`: what a search tries of a key of plans, or of several keys that go together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

from foretrace.base import WorkloadError
from foretrace.workload import (
    Group,
    Plan,
    PlanDraft,
    Recompute,
    Sharding,
    Transformer,
    chunk_layers,
    expert_tensor_size,
)

_MOST_TENSOR, _MOST_CONTEXT, _MOST_PIPELINE, _MOST_EXPERT = 16, 16, 64, 256
_MICRO_BATCHES = (1, 2, 4)
_MOST_CHUNKS = 16

_FEWER_AT_ENDS = "fewer_at_ends"  # in the place of `Plan.layers_of_chunk`, which follows from it
_SPREAD = "spread"  # in the place of `Plan.expert_stride`
_REDUCED = "reduced"  # in the place of `Plan.precision.reduced`
_FIELDS = {  # of `Plan`, by the variable's name
    "order": "order",
    "outer_dp": "outer_data",
    "experts": "expert_stride",
    "contiguous": "contiguous",
    "overlap": "overlap",
    "buckets": "bucket_bytes",
    "shard_ranks": "shard_ranks",
    "reduced": "precision",
    "channels": "channels",
    "first": "first",
    "local_steps": "local_steps",
    "precision": "precision",
    "layers": "layers_of_chunk",
}
MORE_VARIABLES = tuple(_FIELDS)
# What is chosen together, by column: the joint optimum stands beside that of each alone.
DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "degrees": (
        *("tp", "cp", "pp", "dp", "ep", "micro_batch", "microbatches", "sharding", "recompute"),
        *("precision", "layers", "gpus"),
    ),
    "placement": ("order", "outer_dp", "experts"),
    "schedule": ("schedule", "chunks", "contiguous", "overlap", "buckets"),
    "network": ("shard_ranks", "reduced", "channels"),
    "priority": ("first",),
    "algorithm": ("local_steps",),
}
_BUCKETS = (2**27, 2**29, 2**31)
_CHANNELS = (2, 4, 8, 16)
_LOCAL_STEPS = (10, 100, 500)
_FIRST = (Group.PIPELINE, Group.DATA, Group.SHARD, Group.REPLICA, Group.EXPERT)
_LARGEST = {"outer_dp": 64, "contiguous": 64, "shard_ranks": None}


@dataclass(frozen=True)
class Variable:
    """One key of a plan, or several that go together, and what they may be."""

    name: str  # as in tables and constraints
    choices: tuple[Mapping[str, Any], ...]  # fields of `Plan`


@dataclass(frozen=True, kw_only=True)
class SpaceLimits:
    """What of a job's model bounds the values of variables."""

    num_layers: int
    num_heads: int | None = None
    num_experts: int | None = None
    context: int | None = None  # tokens of a sequence, where nobody states them
    schedules: tuple[str, ...] = ("1f1b", "gpipe", "zb-h1", "dualpipe")  # of one chunk a stage

    @classmethod
    def of(cls, model: Transformer) -> SpaceLimits:
        """Those of a model."""
        return cls(
            num_layers=model.num_layers,
            num_heads=model.attention.num_heads,
            num_experts=None if model.experts is None else model.experts.count,
            context=model.context,
        )


def variables(draft: PlanDraft, limits: SpaceLimits, num_ranks: int) -> Iterator[Variable]:
    """Those that are always searched, but what a draft states."""

    def degrees(most: int) -> list[int]:
        return [one for one in range(1, most + 1) if num_ranks % one == 0]

    if not draft.states("tensor"):
        turn_on = not draft.states("sequence_parallel")
        yield Variable(
            "tp",
            tuple(
                {"tensor": one, **({"sequence_parallel": one > 1} if turn_on else {})}
                for one in degrees(_MOST_TENSOR)
                if limits.num_heads is None or limits.num_heads % one == 0
            ),
        )
    if not draft.states("context"):
        yield _of_field("cp", "context", degrees(_MOST_CONTEXT))
    if not draft.states("pipeline"):
        most = min(_MOST_PIPELINE, limits.num_layers + 2)
        yield _of_field("pp", "pipeline", degrees(most))
    if limits.num_experts is not None and not draft.states("expert"):
        most = min(_MOST_EXPERT, limits.num_experts)
        counts = [one for one in degrees(most) if limits.num_experts % one == 0]
        alone = {} if draft.states("expert_tensor") else {"expert_tensor": 1}
        yield Variable("ep", tuple({"expert": one, **alone} for one in counts))
    if not draft.states("micro_batch"):
        yield _of_field("micro_batch", "micro_batch", _MICRO_BATCHES)
    yield from _of_schedules(draft, limits)
    if not draft.states("sharding"):
        yield _of_field("sharding", "sharding", tuple(Sharding))
    if not draft.states("recompute"):
        yield _of_field("recompute", "recompute", tuple(Recompute))


def _of_schedules(draft: PlanDraft, limits: SpaceLimits) -> Iterator[Variable]:
    chunks = range(2, min(_MOST_CHUNKS, limits.num_layers) + 1)
    if not draft.states("schedule"):
        names = limits.schedules
        if draft.states("num_chunks"):
            is_one = draft.plan().num_chunks == 1
            names = names if is_one else ("interleaved",)
            yield _of_field("schedule", "schedule", names)
            return
        plain = [{"schedule": name, "num_chunks": 1} for name in names]
        several = [{"schedule": "interleaved", "num_chunks": one} for one in chunks]
        yield Variable("schedule", (*plain, *several))
    elif not draft.states("num_chunks") and draft.plan().schedule == "interleaved":
        yield _of_field("schedule", "num_chunks", list(chunks))


def named(name: str) -> tuple[str, ...]:
    """Variables that a name means: itself, or all of a dimension that are searched on request."""
    return tuple(one for one in DIMENSIONS.get(name, (name,)) if one in _FIELDS) or (name,)


def more_of(name: str, draft: PlanDraft, limits: SpaceLimits, num_ranks: int) -> Variable:
    """A variable that is searched where that is asked for."""
    if name not in _FIELDS:
        raise WorkloadError(
            f"no variable is called {name!r}: besides those that are always searched there are "
            f"{', '.join(_FIELDS)}"
        )
    field, plan = _FIELDS[name], draft.plan()
    if name == "reduced":
        field = "precision.reduced"
    if any(field in {one, one.partition(".")[0]} for one in draft.stated):
        raise WorkloadError(f"{name} is stated, and so there is nothing to search: leave one out")
    sizes = [2**at for at in range(1, num_ranks.bit_length()) if num_ranks % 2**at == 0]
    if name in _LARGEST:
        values = [None, *(size for size in sizes if size <= (_LARGEST[name] or size))]
        return _of_field(name, field, values)
    few = {"buckets": _BUCKETS, "local_steps": _LOCAL_STEPS, "first": _FIRST}
    if name in few:
        return _of_field(name, field, [None, *few[name]])
    return Variable(name, tuple(_CHOICES[name](plan, limits)))


def _orders(plan: Plan, _: SpaceLimits) -> Iterator[Mapping[str, Any]]:
    """Tensor ranks stay neighbours."""
    inner, *others = plan.order
    yield from ({"order": (inner, *rest)} for rest in permutations(others))


def _overlaps(plan: Plan, _: SpaceLimits) -> Iterator[Mapping[str, Any]]:
    flags = ("pipeline", "gradients", "parameters")
    for one in product((True, False), repeat=len(flags)):
        yield {"overlap": replace(plan.overlap, **dict(zip(flags, one, strict=True)))}


def _formats(plan: Plan, _: SpaceLimits) -> Iterator[Mapping[str, Any]]:
    for one in dict.fromkeys((plan.precision.products, "fp8")):
        yield {"precision": replace(plan.precision, products=one)}


def _reduced_formats(plan: Plan, _: SpaceLimits) -> Iterator[Mapping[str, Any]]:
    for one in dict.fromkeys((plan.precision.reduced, "bf16", "fp8")):
        yield {_REDUCED: one}


def _channels(plan: Plan, _: SpaceLimits) -> Iterator[Mapping[str, Any]]:
    """Of gradients and parameters, which run beside computation."""
    for one in (None, *_CHANNELS):
        yield {"channels": replace(plan.channels, data=one)}


def _spreads(_: Plan, __: SpaceLimits) -> Iterator[Mapping[str, Any]]:
    yield from ({_SPREAD: None}, {_SPREAD: True})


def _ends(_: Plan, limits: SpaceLimits) -> Iterator[Mapping[str, Any]]:
    yield {_FEWER_AT_ENDS: None}
    for one in product(range(3), repeat=2):
        if any(one):
            yield {_FEWER_AT_ENDS: (*one, limits.num_layers)}


_CHOICES: Mapping[str, Callable[[Plan, SpaceLimits], Iterator[Mapping[str, Any]]]] = {
    "order": _orders,
    "experts": _spreads,
    "overlap": _overlaps,
    "reduced": _reduced_formats,
    "channels": _channels,
    "precision": _formats,
    "layers": _ends,
}


def _with_fewer_at_ends(plan: Plan, fewer: tuple[int, int, int]) -> Plan | None:
    """The first and the last chunk have so many layers fewer; `None` where that is no split.

    What does not come out even the chunks between have, the first of them.
    """
    first, last, num_layers = fewer
    parts = plan.pipeline * plan.num_chunks
    most, rest = divmod(num_layers + first + last, parts)
    if most < max(first, last) or rest > parts - 2:
        return None
    found = [most + (0 < at <= rest) for at in range(parts)]
    found[0] -= first
    found[-1] -= last
    even = chunk_layers(replace(plan, layers_of_chunk=None), num_layers)
    return None if tuple(found) == even else replace(plan, layers_of_chunk=tuple(found))


def _with_spread_experts(plan: Plan, _: object) -> Plan | None:
    """Ranks with the same experts are neighbours, so that those of a group stand apart."""
    copies, rest = divmod(plan.ranks_of_stage, plan.expert * expert_tensor_size(plan))
    is_other = plan.expert > 1 and copies > 1 and rest == 0
    return replace(plan, expert_stride=copies) if is_other else None


def _with_reduced_in(plan: Plan, dtype: str) -> Plan:
    return replace(plan, precision=replace(plan.precision, reduced=dtype))


MADE: Mapping[str, Callable[[Plan, Any], Plan | None]] = {
    _FEWER_AT_ENDS: _with_fewer_at_ends,
    _SPREAD: _with_spread_experts,
    _REDUCED: _with_reduced_in,
}


def _of_field(name: str, field: str, values: Sequence[object]) -> Variable:
    return Variable(name, tuple({field: value} for value in values))
