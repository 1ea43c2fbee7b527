"""Which group of the plan each recorded collective is one of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Int8s, WorkloadError
from foretrace.graph import ExecutionGraph, Part
from foretrace.whatif.recorded.exchanges import GATHER, SCATTER, RecordedExchange
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP
from foretrace.workload import Axis, Group, Plan, Sharding, coordinates, groups_of

# Groups that a collective may be of, by what it is part of; the first with its ranks is taken.
_INSIDE = (
    Group.TENSOR,
    Group.CONTEXT,
    Group.EXPERT_TENSOR,
    Group.DATA,
    Group.EMBEDDING,
    Group.PIPELINE,
    Group.ALL,
)
_OF_GRADIENTS = (
    Group.DATA,
    Group.EXPERT_DATA,
    Group.REPLICA,
    Group.SHARD,
    Group.EMBEDDING,
    Group.TENSOR,
    Group.CONTEXT,
    Group.ALL,
    Group.PIPELINE,
)
# Of norms, losses and other numbers that all ranks share, too.
_OF_OPTIMIZER = (
    Group.ALL,
    Group.DATA,
    Group.TENSOR,
    Group.CONTEXT,
    Group.PIPELINE,
    Group.EXPERT_DATA,
    Group.EMBEDDING,
)
_OF_TOKENS = (Group.EXPERT, Group.CONTEXT, Group.TENSOR, Group.DATA, Group.ALL)
_GROUP_OF_AXIS = {
    Axis.TENSOR: Group.TENSOR,
    Axis.CONTEXT: Group.CONTEXT,
    Axis.DATA: Group.DATA,
    Axis.PIPELINE: Group.PIPELINE,
}


def groups_of_collectives(
    graph: ExecutionGraph, exchanges: Sequence[RecordedExchange], plan: Plan
) -> Int8s:
    """The group of every collective; int8[collectives], position in GROUPS, or NO_GROUP."""
    known = {group: _members(plan, group) for group in GROUPS}
    has_layers = bool((graph.part == Part.LAYER).any())
    found = np.full(len(graph.collectives), NO_GROUP, np.int8)
    for each in exchanges:
        is_outside = each.part == Part.UNKNOWN and has_layers and not each.is_shuffle
        group = _group(each, plan, known, is_outside=is_outside)
        if group is not None:
            found[each.collectives] = GROUPS.index(group)
    return found


def _members(plan: Plan, group: Group) -> frozenset[tuple[int, ...]]:
    try:
        return frozenset(tuple(ranks) for ranks in groups_of(plan, group).tolist())
    except WorkloadError:  # experts or shards that do not divide: then it is none of their groups
        return frozenset()


def _group(
    exchange: RecordedExchange,
    plan: Plan,
    known: dict[Group, frozenset[tuple[int, ...]]],
    *,
    is_outside: bool,
) -> Group | None:
    if exchange.part == Part.TRANSFER:
        return Group.PIPELINE
    ranks = tuple(sorted(exchange.ranks))
    if exchange.is_pair:
        return _group_of_pair(ranks, plan)
    for group in _OF_OPTIMIZER if is_outside else _candidates(exchange, plan):
        if ranks in known[group]:
            return group
    return None


def _candidates(exchange: RecordedExchange, plan: Plan) -> tuple[Group, ...]:
    if exchange.is_shuffle:
        return _OF_TOKENS if plan.expert > 1 else _OF_TOKENS[1:]
    is_sharded = plan.sharding is not Sharding.NONE and exchange.name in {GATHER, SCATTER}
    by_part = {Part.BUCKET: _OF_GRADIENTS, Part.OPTIMIZER: _OF_OPTIMIZER}
    usual = by_part.get(exchange.part, _INSIDE)
    if not is_sharded:
        return usual
    if usual is not _INSIDE:
        return (Group.SHARD, *usual)
    context = (Group.CONTEXT,) if plan.context > 1 else ()
    return (Group.TENSOR, *context, Group.SHARD, *usual)


def _group_of_pair(ranks: tuple[int, ...], plan: Plan) -> Group | None:
    """Of two ranks that stand apart along one axis, what lies along it."""
    places = [coordinates(plan, rank) for rank in ranks if rank < plan.num_ranks]
    apart = {axis for axis in Axis if len({place[axis] for place in places}) > 1}
    return _GROUP_OF_AXIS[apart.pop()] if len(apart) == 1 else None
