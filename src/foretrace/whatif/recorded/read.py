"""`program_of`: a recording becomes a `Program`, its plan stated or read off it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foretrace.base import Int8s, ScenarioError, WorkloadError
from foretrace.graph import ExecutionGraph, Part, Recording
from foretrace.whatif.recorded.grid import coordinates_of, grid_of
from foretrace.whatif.recorded.habits import Field, habits_of
from foretrace.whatif.recorded.passes import NO_SCHEDULE, RecordedPasses, passes_of
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP, Program, pieces_of
from foretrace.whatif.recorded.stages import (
    GATHER,
    SCATTER,
    RecordedExchange,
    exchanges_of,
    stages_of,
)
from foretrace.workload import (
    Axis,
    Group,
    Plan,
    PlanDraft,
    Recompute,
    Sharding,
    coordinates,
    groups_of,
    with_fields,
)

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


def program_of(recording: Recording, *, stated: PlanDraft | None = None) -> Program:
    """A recording as what can be arranged anew.

    Sequence and microbatch, which only shapes of operators show, stay as stated or by default.

    Args:
        recording: of any number of ranks of one job.
        stated: keys of its plan that win over what the recording shows.

    Raises:
        ScenarioError: if what is stated contradicts the recording.
    """
    graph = recording.graph
    stated = stated or PlanDraft()
    exchanges = exchanges_of(graph)
    stages = stages_of(graph, exchanges)
    grid = grid_of(graph, exchanges, stages, stated)
    pieces = pieces_of(recording)
    passes = passes_of(pieces, stages, grid.plan, is_stated=stated.states("schedule"))
    habits, habit_notes = habits_of(graph, pieces, exchanges, grid.plan)
    shown = {**habits, **_shown_by(passes)}
    _check_stated(stated, shown, grid.plan)
    open_fields = {
        name: each for name, each in shown.items() if each is not None and not stated.states(name)
    }
    plan = _with_batch(with_fields(grid.plan, open_fields), stated, passes)
    return Program(
        recording=recording,
        graph=graph,
        plan=plan,
        layers_of_stage=stages.layers,
        pieces_by_rank=pieces,
        coordinates_by_rank=coordinates_of(plan, graph.ranks),
        group_of_collective=groups_of_collectives(graph, exchanges, plan),
        notes=(*grid.notes, *passes.notes, *habit_notes),
        doubts=grid.doubts,
    )


def _shown_by(passes: RecordedPasses) -> dict[str, Field]:
    return {
        "num_chunks": passes.num_chunks,
        "layers_of_chunk": passes.layers_of_chunk,
        "schedule": passes.schedule,
        "contiguous": passes.contiguous,
    }


def _check_stated(stated: PlanDraft, shown: Mapping[str, Field], plan: Plan) -> None:
    """Refuse what the recording contradicts for certain; of what it only suggests, what is stated.

    Raises:
        ScenarioError: names the key, what is stated and what was recorded.
    """
    certain = []
    if Recompute.NONE in {shown.get("recompute"), stated.stated.get("recompute")}:
        certain.append("recompute")
    if plan.tensor > 1:
        certain.append("sequence_parallel")
    if plan.pipeline > 1:
        certain.append("num_chunks")
        certain += ["schedule"] if shown["schedule"] != NO_SCHEDULE else []
    for name in certain:
        found = shown.get(name)
        if stated.states(name) and found is not None and stated.stated[name] != found:
            raise ScenarioError(
                f"{name} is stated as {stated.stated[name]}, and the recording shows {found}: "
                "leave it out; an edit changes it"
            )


def _with_batch(plan: Plan, stated: PlanDraft, passes: RecordedPasses) -> Plan:
    """The plan with as many microbatches as were recorded.

    Raises:
        ScenarioError: if the stated batch makes another number of them.
    """
    count = passes.num_microbatches
    together = count * plan.data
    if not stated.states("global_batch"):
        return with_fields(plan, {"global_batch": together * plan.micro_batch})
    if not stated.states("micro_batch"):
        if plan.global_batch % together:
            raise ScenarioError(
                f"a global batch of {plan.global_batch} is not whole in the recorded {count} "
                f"microbatches of each of dp {plan.data} ranks: state a multiple of {together}"
            )
        return with_fields(plan, {"micro_batch": plan.global_batch // together})
    if plan.num_microbatches != count:
        raise ScenarioError(
            f"a global batch of {plan.global_batch} in microbatches of {plan.micro_batch} over dp "
            f"{plan.data} makes {plan.num_microbatches} microbatches, and {count} were recorded: "
            "leave one of the two out"
        )
    return plan
