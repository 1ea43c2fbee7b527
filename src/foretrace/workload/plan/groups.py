"""Which ranks communicate under a plan, and which tiers of a machine's network they do it over.

Rank numbers count along `plan.order`, then over the parts of DATA that stand outermost. Experts
look at the ranks of one stage anew: in the order
of their numbers, the innermost `expert_tensor` divide one expert, the next `expert_stride` of those
hold the same ones, the next `expert` different ones, and what remains the same ones again.

Source:
    `RankGenerator` of Megatron-LM's `parallel_state`; for SHARD within DATA its distributed
    optimizer with several instances, and PyTorch's hybrid sharding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit
from foretrace.base import MOST_RANKS, Int64s, MachineError, WorkloadError
from foretrace.workload.plan.plan import Axis, Group, Plan

if TYPE_CHECKING:  # what groups of ranks without a machine need not load
    from foretrace.machine import Chip, Machine

_AXES = {
    Group.TENSOR: (Axis.TENSOR,),
    Group.CONTEXT: (Axis.CONTEXT,),
    Group.PIPELINE: (Axis.PIPELINE,),
    Group.DATA: (Axis.DATA, Axis.CONTEXT),
    Group.ALL: tuple(Axis),
}


def axis_sizes(plan: Plan) -> Mapping[Axis, int]:
    """Ranks along every axis."""
    return {
        Axis.TENSOR: plan.tensor,
        Axis.CONTEXT: plan.context,
        Axis.DATA: plan.data,
        Axis.PIPELINE: plan.pipeline,
    }


def expert_tensor_size(plan: Plan) -> int:
    """Ranks that divide one expert: as many as `tensor`, unless stated."""
    return plan.tensor if plan.expert_tensor is None else plan.expert_tensor


def shard_size(plan: Plan) -> int:
    """Ranks of DATA that divide states or parameters: all of them, unless stated."""
    return plan.data * plan.context if plan.shard_ranks is None else plan.shard_ranks


def group_size(plan: Plan, group: Group) -> int:
    """Ranks of every group of that kind.

    Raises:
        WorkloadError: as `groups_of`.
    """
    _check_ranks(plan)
    sizes = axis_sizes(plan)
    if group in _AXES:
        return math.prod(sizes[axis] for axis in _AXES[group])
    if group is Group.EMBEDDING:
        return min(plan.pipeline, 2)
    if group is Group.MIRROR:
        return 2 if _is_mirrored(plan) else 1
    if group in {Group.SHARD, Group.REPLICA}:
        size = _checked_shards(plan)
        return size if group is Group.SHARD else plan.data * plan.context // size
    tensor = _checked_experts(plan)
    copies = plan.ranks_of_stage // (tensor * plan.expert)
    by_group = {Group.EXPERT_TENSOR: tensor, Group.EXPERT: plan.expert}
    return by_group.get(group, copies)


def groups_of(plan: Plan, group: Group) -> Int64s:
    """All groups of one kind; int64[groups, ranks of each], the latter ascending.

    Every rank is in one of them, but for EMBEDDING with stages in the middle, which are in none.

    Raises:
        WorkloadError: if the sizes of experts or shards do not divide the ranks they share.
    """
    if group in _AXES:
        return _along(plan, _AXES[group])
    if group is Group.EMBEDDING:
        return _along(plan, (Axis.PIPELINE,))[:, [0, -1] if plan.pipeline > 1 else [0]]
    if group is Group.MIRROR:
        return _mirrors(plan)
    if group in {Group.SHARD, Group.REPLICA}:
        return _shards(plan, group)
    return _experts(plan, group)


def ranks_of(plan: Plan, group: Group, rank: int) -> tuple[int, ...]:
    """The ranks of the group of that kind that a rank is in, ascending, itself among them.

    None, if it is in none: a stage in the middle knows no EMBEDDING.

    Raises:
        ValueError: if there is no such rank.
        WorkloadError: as `groups_of`.
    """
    _check_rank(plan, rank)
    groups = groups_of(plan, group)
    (rows,) = np.nonzero((groups == rank).any(axis=1))
    return tuple(groups[rows[0]].tolist()) if rows.size else ()


def coordinates(plan: Plan, rank: int) -> Mapping[Axis, int]:
    """Where a rank stands along every axis.

    Raises:
        ValueError: if there is no such rank.
    """
    _check_rank(plan, rank)
    found = dict.fromkeys(Axis, 0)
    strides = dict.fromkeys(Axis, 1)
    for axis, size in innermost_first(plan):
        rank, along = divmod(rank, size)
        found[axis] += along * strides[axis]
        strides[axis] *= size
    return found


def rank_at(plan: Plan, along: Mapping[Axis, int]) -> int:
    """The rank that stands there along every axis: `coordinates` backwards."""
    left, rank, stride = dict(along), 0, 1
    for axis, size in innermost_first(plan):
        left[axis], here = divmod(left[axis], size)
        rank += stride * here
        stride *= size
    return rank


def replica_of_rank(plan: Plan) -> Int64s:
    """Which data-parallel copy of the model every rank belongs to; int64[ranks], from 0."""
    along_data = _along(plan, (Axis.DATA,))
    found = np.empty(plan.num_ranks, np.int64)
    found[along_data] = np.arange(plan.data)
    return found


def stage_of(plan: Plan, rank: int) -> int:
    """The pipeline stage of a rank.

    Raises:
        ValueError: if there is no such rank.
    """
    return coordinates(plan, rank)[Axis.PIPELINE]


def _check_rank(plan: Plan, rank: int) -> None:
    if not 0 <= rank < plan.num_ranks:
        raise ValueError(f"rank must be 0 to {plan.num_ranks - 1} under this plan, got {rank}")


def innermost_first(plan: Plan) -> list[tuple[Axis, int]]:
    """Axes with their sizes, as rank numbers count along them; DATA twice if some is outermost.

    Raises:
        WorkloadError: if what is to be outermost does not divide DATA.
    """
    outer = plan.outer_data or 1
    if plan.data % outer:
        raise WorkloadError(
            f"outer_dp {outer} does not divide dp {plan.data}: "
            f"{nearest_divisor(plan.data, outer)} would"
        )
    sizes = {**axis_sizes(plan), Axis.DATA: plan.data // outer}
    own = [(axis, sizes[axis]) for axis in plan.order]
    return [*own, (Axis.DATA, outer)] if outer > 1 else own


def _check_ranks(plan: Plan) -> None:
    if plan.num_ranks > MOST_RANKS:
        raise WorkloadError(
            f"the plan divides the work over {plan.num_ranks:,} ranks, and groups of more than "
            f"{MOST_RANKS:,} would not fit in memory: take smaller tp, cp, pp or dp"
        )


def _along(plan: Plan, axes: tuple[Axis, ...]) -> Int64s:
    """Groups whose ranks differ along these axes alone."""
    _check_ranks(plan)
    outermost_first = innermost_first(plan)[::-1]
    inside = [place for place, (axis, _) in enumerate(outermost_first) if axis in axes]
    outside = [place for place, (axis, _) in enumerate(outermost_first) if axis not in axes]
    grid = np.arange(plan.num_ranks, dtype=np.int64).reshape([size for _, size in outermost_first])
    size = math.prod(outermost_first[place][1] for place in inside)
    return grid.transpose(outside + inside).reshape(-1, size)


def _mirrors(plan: Plan) -> Int64s:
    stages = _along(plan, (Axis.PIPELINE,))
    if not _is_mirrored(plan):
        return stages.reshape(-1, 1)
    half = plan.pipeline // 2
    return np.stack([stages[:, :half], stages[:, ::-1][:, :half]], axis=2).reshape(-1, 2)


def _is_mirrored(plan: Plan) -> bool:
    return plan.schedule == "dualpipe" and plan.pipeline > 1


def _checked_shards(plan: Plan) -> int:
    """Ranks of SHARD."""
    size, data = shard_size(plan), plan.data * plan.context
    if size < 1 or data % size:
        raise WorkloadError(
            f"shards over {size} ranks do not divide dp {plan.data} x cp {plan.context} = "
            f"{data} ranks: {nearest_divisor(data, size)} would"
        )
    return size


def _shards(plan: Plan, group: Group) -> Int64s:
    size = _checked_shards(plan)
    data = _along(plan, (Axis.DATA, Axis.CONTEXT))
    split = data.reshape(len(data), -1, size)
    if group is Group.SHARD:
        return split.reshape(-1, size)
    return split.transpose(0, 2, 1).reshape(-1, data.shape[1] // size)


def _checked_experts(plan: Plan) -> int:
    """Ranks of EXPERT_TENSOR."""
    tensor = expert_tensor_size(plan)
    size, ranks = tensor * plan.expert, plan.ranks_of_stage
    if tensor < 1 or plan.expert < 1 or ranks % size:
        raise WorkloadError(
            f"etp {tensor} x ep {plan.expert} = {size} does not divide the ranks of a stage, "
            f"tp {plan.tensor} x cp {plan.context} x dp {plan.data} = {ranks}: with "
            f"etp {tensor}, ep {nearest_divisor(ranks // max(tensor, 1), plan.expert)} "
            "would"
        )
    stride, copies = plan.expert_stride or 1, ranks // size
    if copies % stride:
        raise WorkloadError(
            f"expert_stride {stride} does not divide the {copies} ranks with the same experts: "
            f"{nearest_divisor(copies, stride)} would"
        )
    return tensor


def _experts(plan: Plan, group: Group) -> Int64s:
    tensor = _checked_experts(plan)
    stages = _along(plan, (Axis.TENSOR, Axis.CONTEXT, Axis.DATA))
    stride = plan.expert_stride or 1
    # Axes: stage, copies of the same experts, different experts, copies again, parts of one.
    split = stages.reshape(len(stages), -1, plan.expert, stride, tensor)
    if group is Group.EXPERT_DATA:
        return np.moveaxis(split, (1, 3), (3, 4)).reshape(-1, split.shape[1] * stride)
    inside = {Group.EXPERT_TENSOR: 4, Group.EXPERT: 2}[group]
    return np.moveaxis(split, inside, 4).reshape(-1, split.shape[inside])


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of a number that is nearest to another; the smaller one if two are."""
    divisors = [each for each in range(1, max(number, 1) + 1) if number % each == 0] or [1]
    return min(divisors, key=lambda each: (abs(each - wanted), each))


@dataclass(frozen=True)
class Span(Plain):
    """Groups of one kind, and the tiers of network between their ranks."""

    group: Group
    size: int  # ranks of each
    num_groups: int
    tiers: tuple[str, ...]  # that any of them uses, innermost first
    num_by_outermost: Mapping[str, int]  # how many groups reach a tier and no further


@dataclass(frozen=True, repr=False)
class Placement(Answer):
    """What a plan's groups use of a machine's network; rank r stands at place r."""

    machine: str
    spans: tuple[Span, ...]  # of groups of more than one rank

    @property
    def headline(self) -> str:
        """On which machine."""
        return f"groups on {self.machine}"

    def parts(self) -> tuple[Told, ...]:
        """A row per kind of group."""
        return (
            Table.of(
                "spans",
                self.spans,
                Column("group", unit=Unit.WORD, value="group.value"),
                Column("size", unit=Unit.COUNT),
                Column("num_groups"),
                Column("tiers", value=lambda span: ", ".join(span.tiers)),
                Column("outermost", value=_outermost),
            ),
        )


def _outermost(span: Span) -> str:
    return ", ".join(f"{count} {name}" for name, count in span.num_by_outermost.items())


def describe_placement(plan: Plan, machine: Machine) -> Placement:
    """For each kind of group, the tiers that its ranks have between them.

    A tier is used where two ranks share an instance of it but of none inside it.

    Raises:
        WorkloadError: if the machine has fewer ranks than the plan, or the sizes of experts or
            shards do not divide the ranks they share.
    """
    if plan.num_ranks > machine.num_ranks:
        raise WorkloadError(
            f"the plan has {plan.num_ranks:,} ranks, and machine {machine.name!r} "
            f"{machine.num_ranks:,}: take a larger machine, or fewer ranks"
        )
    spans = (_span(plan, machine, group) for group in Group)
    return Placement(machine.name, tuple(span for span in spans if span.size > 1))


def _span(plan: Plan, machine: Machine, group: Group) -> Span:
    groups = groups_of(plan, group)
    names = [tier.name for tier in machine.tiers]
    places = machine.places(groups)
    counts = [np.full(len(groups), groups.shape[1])]
    counts += [_num_instances(places, tier.num_ranks) for tier in machine.tiers]
    # bool[tiers, groups]: some ranks that were apart inside the tier are together in it.
    uses = np.array([inside > here for inside, here in pairwise(counts)])
    num_from_here_out = np.cumsum(uses[::-1], axis=0)[::-1]
    is_outermost = uses & (num_from_here_out == 1)
    reached = [int(count) for count in is_outermost.sum(axis=1)]
    return Span(
        group,
        size=groups.shape[1],
        num_groups=len(groups),
        tiers=tuple(name for name, used in zip(names, uses, strict=True) if used.any()),
        num_by_outermost={name: count for name, count in zip(names, reached, strict=True) if count},
    )


def _num_instances(groups: Int64s, num_ranks: int) -> Int64s:
    """How many instances of so many ranks each group touches; its ranks ascend."""
    instances = groups // num_ranks
    changes: Int64s = (np.diff(instances, axis=1) > 0).sum(axis=1) + 1
    return changes


def peak_flops_per_ns(plan: Plan, chip: Chip) -> float:
    """Of the fastest number format that the plan multiplies in; one that the chip lacks is refused.

    Attention multiplies what activations are kept as, which may be faster than other products.
    """
    precision = plan.precision
    peaks = []
    for wanted in (precision.products, precision.wide_products, precision.made):
        peak = chip.peak_flops_per_ns(wanted)
        if peak is None:
            has = dict.fromkeys(each.removesuffix("_matrix") for each in chip.peak_by_dtype)
            raise MachineError(
                f"{chip.name} has no products in {wanted}: it has {', '.join(has)}; choose one of "
                "these (precision.products, precision.activations), or a chip that has it"
            )
        peaks.append(peak)
    return max(peaks)
