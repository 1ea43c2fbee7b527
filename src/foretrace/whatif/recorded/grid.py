"""The grid of ranks: degrees and order of a plan, read off groups or stated; both must agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from foretrace.base import ScenarioError
from foretrace.graph import ExecutionGraph
from foretrace.whatif.recorded.degrees import Degrees, Ranks, degrees_of
from foretrace.whatif.recorded.exchanges import RecordedExchange
from foretrace.whatif.recorded.program import Coordinates
from foretrace.whatif.recorded.stages import Stages
from foretrace.workload import Axis, Group, Plan, PlanDraft, coordinates, groups_of, with_fields

_KEYS = {"tensor": "tp", "context": "cp", "data": "dp", "pipeline": "pp", "expert": "ep"}


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
