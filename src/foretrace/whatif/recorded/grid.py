"""The grid of ranks: degrees and order of a plan, read off groups or stated; both must agree.

Ranks that reduce activations inside layers divide the model's tensors; ranks that reduce
gradients hold the same parameters. Where one set of ranks does both (gradients of normalisations
are reduced over tensor ranks too, statistics of a batch over data-parallel ones), what it moves
most of decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from foretrace.base import ScenarioError
from foretrace.graph import ExecutionGraph, Part, Phase
from foretrace.whatif.recorded.program import Coordinates
from foretrace.whatif.recorded.stages import (
    BARRIER,
    GATHER,
    REDUCE,
    SCATTER,
    RecordedExchange,
    Stages,
)
from foretrace.workload import Axis, Group, Plan, PlanDraft, coordinates, groups_of, with_fields

# The last one: what stands outside the parts of a model, where its layers were not found.
_INSIDE = (Part.EMBEDDING, Part.LAYER, Part.HEAD, Part.LOSS, Part.UNKNOWN)
_OF_LAYERS = (Part.EMBEDDING, Part.LAYER, Part.UNKNOWN)
_GRADIENTS = (Part.BUCKET, Part.OPTIMIZER)
# Less than this share of what the largest groups of gradients move is not gradients: norms.
_SMALL = 1e-3

Ranks = tuple[int, ...]

_KEYS = {"tensor": "tp", "context": "cp", "data": "dp", "pipeline": "pp", "expert": "ep"}


@dataclass(frozen=True)
class Degrees:
    """Sizes of groups as recorded; 1 where nothing shows more."""

    num_ranks: int  # of the job, as far as its collectives name them
    tensor: int
    data: int  # ranks that hold the same parameters: data times context
    pipeline: int
    expert: int
    shard: int | None  # of `data`, ranks that divide parameters or states; `None`: all
    tensor_sets: tuple[Ranks, ...]
    data_sets: tuple[Ranks, ...]


def degrees_of(
    graph: ExecutionGraph,
    exchanges: Sequence[RecordedExchange],
    stages: Stages,
    *,
    context: int = 1,
) -> Degrees:
    """The degrees of a recording.

    Args:
        graph: of the recording.
        exchanges: its collectives.
        stages: its pipeline.
        context: ranks over which sequences are divided, which nobody can see.
    """
    has_layers = any(stages.layers)
    shared = [
        each
        for each in exchanges
        if len(each.ranks) > 1
        and not each.is_pair
        and each.name != BARRIER  # moves nothing
        # What stands outside the parts of a known model says nothing about it.
        and (each.part != Part.UNKNOWN or not has_layers)
    ]
    inside, gradients = _weights(shared, stages, context)
    tensor_sets = [ranks for ranks in inside if inside[ranks] > gradients.get(ranks, 0)]
    tensor, tensor_sets = _most(tensor_sets, inside)
    data_sets = [
        ranks
        for ranks in gradients
        if gradients[ranks] >= inside.get(ranks, 0)
        and all(len(set(ranks) & set(other)) <= 1 for other in tensor_sets)
    ]
    data, data_sets, shard = _data(data_sets, gradients, shared)
    members = {rank for each in exchanges for rank in each.ranks} | set(graph.ranks)
    return Degrees(
        num_ranks=max(members, default=0) + 1,
        tensor=tensor,
        data=data,
        pipeline=stages.count,
        expert=_expert(exchanges),
        shard=shard,
        tensor_sets=tuple(tensor_sets),
        data_sets=tuple(data_sets),
    )


def _weights(
    shared: Sequence[RecordedExchange], stages: Stages, context: int
) -> tuple[dict[Ranks, int], dict[Ranks, int]]:
    """What each set of ranks moves inside the model, and of gradients and parameters."""
    has_bytes = all(each.num_bytes > 0 for each in shared)
    sharded = _sharded_sets(shared) if context == 1 else set()
    inside: dict[Ranks, int] = {}
    gradients: dict[Ranks, int] = {}
    for each in shared:
        if each.is_shuffle or _spans_stages(each.ranks, stages):
            continue
        is_divided = context > 1 and len(each.ranks) == context and each.name != REDUCE
        is_model = each.part in _INSIDE and each.ranks not in sharded
        if is_model and is_divided:
            continue
        weight = each.num_bytes if has_bytes else each.transfer_ns
        if is_model:
            inside[each.ranks] = inside.get(each.ranks, 0) + weight
        elif each.part in _GRADIENTS or each.ranks in sharded:
            gradients[each.ranks] = gradients.get(each.ranks, 0) + weight
    return inside, gradients


def _sharded_sets(shared: Iterable[RecordedExchange]) -> set[Ranks]:
    """Ranks that gather in the forward pass and scatter only in the backward pass: parameters.

    Sequence-parallel tensor ranks scatter in both.
    """
    gathers, scatters, others = set(), set(), set()
    for each in shared:
        if each.part not in (*_INSIDE, Part.BUCKET):
            continue
        if each.name == GATHER:
            gathers.add(each.ranks)
        elif each.name == SCATTER and each.phase in {Phase.BACKWARD, Phase.OPTIMIZER}:
            scatters.add(each.ranks)
        elif each.part in _OF_LAYERS and each.name in {SCATTER, REDUCE}:
            others.add(each.ranks)
    return (gathers & scatters) - others


def _spans_stages(ranks: Ranks, stages: Stages) -> bool:
    return len({stages.stage_by_rank[rank] for rank in ranks if rank in stages.stage_by_rank}) > 1


def _most(sets: list[Ranks], weight: dict[Ranks, int]) -> tuple[int, list[Ranks]]:
    """The size of set that moves most, and the sets of that size."""
    by_size: dict[int, int] = {}
    for ranks in sets:
        by_size[len(ranks)] = by_size.get(len(ranks), 0) + weight[ranks]
    size = max(by_size, key=lambda each: (by_size[each], each), default=1)
    return size, [ranks for ranks in sets if len(ranks) == size]


def _data(
    sets: list[Ranks], weight: dict[Ranks, int], shared: Sequence[RecordedExchange]
) -> tuple[int, list[Ranks], int | None]:
    """Ranks that hold the same parameters, their sets, and how many of them divide states."""
    if not sets:
        return 1, [], None
    largest = max(weight[ranks] for ranks in sets)
    sets = [ranks for ranks in sets if weight[ranks] >= _SMALL * largest]
    size = max(map(len, sets))
    of_size = [ranks for ranks in sets if len(ranks) == size]
    scatters = {each.ranks for each in shared if each.name == SCATTER} & set(sets)
    reduces = {each.ranks for each in shared if each.name == REDUCE} & set(sets)
    crossing = [
        (one, other) for one in scatters for other in reduces if len(set(one) & set(other)) == 1
    ]
    if crossing and not any(
        set(one) | set(other) <= set(each) for one, other in crossing for each in of_size
    ):
        one, other = crossing[0]
        return len(one) * len(other), [*scatters, *reduces], len(one)
    inner = {len(ranks) for ranks in scatters}
    return size, of_size, min(inner) if inner and min(inner) < size else None


def _expert(exchanges: Sequence[RecordedExchange]) -> int:
    """Ranks that send tokens to each other in layers, forward and back."""
    sizes = [
        {
            len(each.ranks)
            for each in exchanges
            if each.is_shuffle and each.part == Part.LAYER and each.phase == phase
        }
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    ]
    has_backward = any(each.phase == Phase.BACKWARD for each in exchanges)
    both = sizes[0] & sizes[1] if has_backward else sizes[0]
    return max(both, default=1)


@dataclass(frozen=True)
class Grid:
    """Degrees and order, with what they rest on."""

    plan: Plan  # degrees and order; all else as stated, or by default
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """What is said about a grid while it is being found."""

    notes: list[str]
    doubts: list[str]


def grid_of(
    graph: ExecutionGraph,
    exchanges: Sequence[RecordedExchange],
    stages: Stages,
    stated: PlanDraft,
) -> Grid:
    """The grid in which the recorded ranks stand.

    Raises:
        ScenarioError: if what is stated contradicts the recorded groups.
    """
    draft = stated.plan()
    degrees = degrees_of(graph, exchanges, stages, context=draft.context)
    found = _Found([], list(stages.doubts))
    is_whole = graph.ranks == tuple(range(degrees.num_ranks))
    plan = with_fields(draft, _sizes(degrees, stated, draft))
    plan = _with_copies(plan, degrees, stated, found, is_whole=is_whole)
    if degrees.shard is not None and not stated.states("shard_ranks"):
        plan = replace(plan, shard_ranks=degrees.shard)
    _check_ranks(plan, degrees, stated, found, is_whole=is_whole)
    if plan.pipeline != stages.count:
        found.doubts.append(
            f"pp is stated as {plan.pipeline}, and no transfers between stages were found: which "
            "layers each stage runs is unknown"
        )
    order = _order(plan, degrees, stages, stated)
    if order is None:
        found.doubts.append(
            f"ranks of its groups stand in no order of {_degrees_text(plan)}: state the plan's "
            "degrees and order"
        )
        order = plan.order
    found.notes.append(f"{_degrees_text(plan)}, read off {_count(exchanges)} collectives' groups")
    return Grid(replace(plan, order=order), tuple(found.notes), tuple(found.doubts))


def coordinates_of(plan: Plan, ranks: Iterable[int]) -> dict[int, Coordinates]:
    """Where ranks stand; a rank that the plan has not stands at the beginning."""
    found = {}
    for rank in ranks:
        if rank >= plan.num_ranks:
            found[rank] = Coordinates()
            continue
        along = coordinates(plan, rank)
        found[rank] = Coordinates(
            tensor=along[Axis.TENSOR],
            context=along[Axis.CONTEXT],
            data=along[Axis.DATA],
            pipeline=along[Axis.PIPELINE],
        )
    return found


def _sizes(degrees: Degrees, stated: PlanDraft, draft: Plan) -> dict[str, int]:
    """Degrees, those stated first."""
    if degrees.data % draft.context:
        raise ScenarioError(
            f"cp is stated as {draft.context}, and the recorded ranks reduce gradients over "
            f"{degrees.data}, which it does not divide: leave it out, or state a divisor"
        )
    found = {
        "tensor": degrees.tensor,
        "data": degrees.data // draft.context,
        "pipeline": degrees.pipeline,
        "expert": degrees.expert,
    }
    for name, size in found.items():
        said = getattr(draft, name)
        if stated.states(name) and size > 1 and said != size:
            raise ScenarioError(
                f"{_KEYS[name]} is stated as {said}, and the recorded groups show {size}: leave it "
                "out, or load all ranks of the job"
            )
        if stated.states(name):
            found[name] = said
    return found


def _with_copies(
    plan: Plan, degrees: Degrees, stated: PlanDraft, found: _Found, *, is_whole: bool
) -> Plan:
    """Ranks that nothing else tells apart become data-parallel. Out: `found`."""
    others = plan.tensor * plan.pipeline * plan.context
    left, rest = divmod(degrees.num_ranks, others)
    if plan.data > 1 or stated.states("data") or rest or left == 1:
        return plan
    text = f"nothing shows gradients exchanged, so {left} ranks are taken for data-parallel copies"
    if is_whole:
        found.notes.append(text)
    else:
        found.doubts.append(f"{text}, of which not all were loaded: state the plan's degrees")
    return replace(plan, data=left)


def _check_ranks(
    plan: Plan, degrees: Degrees, stated: PlanDraft, found: _Found, *, is_whole: bool
) -> None:
    """Refuse, doubt or note degrees that do not make the ranks that communicate. Out: `found`."""
    if plan.num_ranks == degrees.num_ranks:
        return
    text = f"{_degrees_text(plan)} make {plan.num_ranks} ranks, and {degrees.num_ranks} take part"
    if plan.num_ranks > degrees.num_ranks and not is_whole:
        found.notes.append(f"{text} in what was loaded: the others are taken to do the same")
        return
    if any(stated.states(name) for name in _KEYS):
        raise ScenarioError(
            f"{text} in the recorded collectives: state degrees that make {degrees.num_ranks}"
        )
    found.doubts.append(f"{text} in the recorded collectives: state the plan's degrees")


def _order(
    plan: Plan, degrees: Degrees, stages: Stages, stated: PlanDraft
) -> tuple[Axis, ...] | None:
    """The order of axes in which the recorded sets of ranks are groups, the usual one first."""
    orders = [plan.order] if stated.states("order") else list(permutations(plan.order))
    for order in orders:
        tried = replace(plan, order=order)
        if (
            _are_groups(tried, Group.TENSOR, degrees.tensor_sets)
            and _are_within(tried, Group.DATA, degrees.data_sets)
            and _are_stages(tried, stages)
        ):
            return order
    return None


def _are_groups(plan: Plan, group: Group, sets: Sequence[Ranks]) -> bool:
    own = {tuple(each) for each in groups_of(plan, group).tolist()}
    return all(tuple(sorted(each)) in own for each in sets)


def _are_within(plan: Plan, group: Group, sets: Sequence[Ranks]) -> bool:
    row_of_rank = {
        rank: row for row, ranks in enumerate(groups_of(plan, group).tolist()) for rank in ranks
    }
    return all(len({row_of_rank.get(rank) for rank in each}) == 1 for each in sets)


def _are_stages(plan: Plan, stages: Stages) -> bool:
    return stages.count == 1 or all(
        rank < plan.num_ranks and coordinates(plan, rank)[Axis.PIPELINE] == stage
        for rank, stage in stages.stage_by_rank.items()
    )


def _degrees_text(plan: Plan) -> str:
    sizes = [
        f"{key} {getattr(plan, name)}"
        for name, key in _KEYS.items()
        if getattr(plan, name) > 1 or name in {"tensor", "data", "pipeline"}
    ]
    return ", ".join(sizes)


def _count(exchanges: Sequence[RecordedExchange]) -> int:
    return sum(len(each.collectives) for each in exchanges)
