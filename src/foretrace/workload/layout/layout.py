"""`layout`: blocks under a plan become the graph of one step; a recommender's, rank by rank.

1. A schedule's chunks get the model's parts; each pass of a chunk becomes a template.
2. Every stage writes down which templates it launches, and what waits for what between them.
3. Templates are repeated into items, items become nodes and edges, for one rank per stage.
4. Unless folded, every rank gets its copy of its stage's nodes, and meets its own groups.

The graph is that of `layout`, all ranks of it; only which operators its kernels are, with which
shapes, differs from rank to rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import CircleError, Int64s, WorkloadError
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.workload.blocks.block import ModelBlocks, Operator
from foretrace.workload.blocks.recommender import blocks_of_recommender, table_operators
from foretrace.workload.layout.closing import Optimizer, close
from foretrace.workload.layout.drafted import Drafted, RankTable, drafted
from foretrace.workload.layout.folded import Folded, LaidOut, Role, folded_graph, host_ns_of
from foretrace.workload.layout.launch import Launch, launch_of
from foretrace.workload.layout.pieces import Pieces, SortedPieces
from foretrace.workload.layout.sharded import GatheredChunks, Gatherings
from foretrace.workload.layout.stage_units import Transfers, write_units
from foretrace.workload.layout.tables import Tables
from foretrace.workload.layout.unfolded import unfolded
from foretrace.workload.layout.unit_columns import UnitColumns
from foretrace.workload.layout.units import UnitTemplates, chunks_of
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.catalogue import schedule_of
from foretrace.workload.schedule.legality import check_schedule
from foretrace.workload.schedule.schedule import Schedule
from foretrace.workload.sharding.access import EVEN_IDS
from foretrace.workload.sharding.placed import PlacedTables
from foretrace.workload.sharding.placement import tables_of_plan


def layout(
    blocks: ModelBlocks,
    plan: Plan,
    schedule: Schedule | None = None,
    *,
    folded: bool = True,
    launch: Launch | None = None,
    optimizer: Optimizer | None = None,
    num_replicas: int | None = None,
) -> LaidOut:
    """The graph of one step of a model's blocks under a plan.

    Args:
        blocks: what a rank does for one microbatch, part by part.
        plan: how that is laid over ranks and time.
        schedule: the order of units on every stage; the plan's own if left out.
        folded: one rank of every stage instead of all; times are the same where ranks of a stage
            take the same time.
        launch: host times and lags; the rule that the plan's implementation names if left out.
        optimizer: makes the block that updates so many parameters; Adam's if left out.
        num_replicas: every rank of the first so many data-parallel copies of the model, where
            `folded` would keep one rank of every stage; collectives name all their ranks, and
            wait for those in the graph.

    Raises:
        ValueError: if there are not so many copies, or all ranks are asked for too.
        WorkloadError: if the plan, the schedule and the blocks do not fit each other.
    """
    if num_replicas is not None and not (folded and 1 <= num_replicas <= plan.data):
        raise ValueError(
            f"num_replicas must be 1 to dp {plan.data}, of a folded layout, got {num_replicas}"
        )
    step = written(blocks, plan, schedule, optimizer=optimizer, num_replicas=num_replicas)
    launch = launch or launch_of(plan)
    items = drafted(step.pieces)
    graph = graph_of_step(step, items, launch, host_ns_of(items.columns, launch)).graph
    keeps_one = folded and num_replicas is None
    graph = graph if keeps_one else unfolded(graph, step.ranks)
    return LaidOut(graph, plan, step.schedule, step.roles(is_one=keeps_one), is_folded=folded)


@dataclass(frozen=True)
class WrittenStep:
    """What every stage launches in a step, before it is a graph."""

    plan: Plan
    schedule: Schedule
    tables: Tables
    templates: UnitTemplates
    pieces: SortedPieces
    ranks: RankTable

    def roles(self, *, is_one: bool) -> tuple[Role, ...]:
        """The ranks in the graph: one of every stage, or those in the table."""
        num_kept = 1 if is_one else self.ranks.num_pipelines
        num_each = self.plan.num_ranks // self.plan.pipeline // num_kept
        roles = (
            Role(rank=rank, stage=stage, num_ranks=num_each)
            for stage, own in enumerate(self.ranks.rank.tolist())
            for rank in own[:num_kept]
        )
        return tuple(sorted(roles, key=lambda role: role.rank))


def written(
    blocks: ModelBlocks,
    plan: Plan,
    schedule: Schedule | None,
    *,
    optimizer: Optimizer | None,
    num_replicas: int | None = None,
    is_coarse: bool = False,
) -> WrittenStep:
    """All stages' units, transfers and what ends the step, kernel by kernel or at unit grain."""
    schedule = schedule_of(plan) if schedule is None else schedule
    _check(schedule, plan)
    tables, pieces = Tables(), Pieces()
    templates = UnitTemplates(plan, tables, is_coarse=is_coarse)
    units = UnitColumns(schedule, chunks_of(blocks, plan, schedule), plan)
    transfers = Transfers(tables, blocks)
    gatherings = Gatherings(units, gathered=GatheredChunks(templates), pieces=pieces)
    ends = write_units(units, templates, transfers, gatherings)
    close(ends, templates, gatherings, blocks=blocks, optimizer=optimizer)
    ranks = RankTable(plan, num_replicas=num_replicas)
    return WrittenStep(plan, schedule, tables, templates, pieces.sorted(), ranks)


def graph_of_step(step: WrittenStep, items: Drafted, launch: Launch, host_ns: Int64s) -> Folded:
    """The graph of one rank per stage.

    Raises:
        WorkloadError: if what is launched waits for itself.
    """
    try:
        return folded_graph(
            items, ranks=step.ranks, tables=step.tables, launch=launch, host_ns=host_ns
        )
    except CircleError as err:
        check_schedule(step.schedule)  # says which stages wait for each other
        raise WorkloadError(
            f"blocks under schedule {step.schedule.name!r} wait for each other in a circle: check "
            "what their items name in `after`"
        ) from err


def _check(schedule: Schedule, plan: Plan) -> None:
    """Refuse a schedule of other stages or microbatches than the plan's."""
    found = (schedule.num_stages, schedule.num_microbatches)
    stated = (plan.pipeline, plan.num_microbatches)
    if found != stated:
        raise WorkloadError(
            f"schedule {schedule.name!r} is for {found[0]} stages and {found[1]} microbatches, and "
            f"the plan has pp {stated[0]} and {stated[1]} microbatches: lay out with the schedule "
            "of the plan, foretrace.workload.schedule_of"
        )


def recommender_layout(
    model: Recommender, plan: Plan, placed: PlacedTables | None = None
) -> LaidOut:
    """The graph of all ranks, each with what it has to look up and update itself.

    Exchanges are as large as the most that any rank sends or gets, since none ends before.

    Args:
        model: tables and networks.
        plan: a legal plan for it.
        placed: where tables stand; as the plan says, if left out.
    """
    placed = placed or tables_of_plan(model, plan)
    blocks = blocks_of_recommender(model, plan, placed=placed, is_alike=True)
    whole = layout(blocks, plan, folded=False)
    own = [table_operators(model, plan, placed, rank) for rank in range(plan.data)]
    return replace(whole, graph=_with_operators(whole.graph, blocks, own))


def is_uneven(plan: Plan) -> bool:
    """Whether somebody stated how much the ranks of a recommender have to do each."""
    tables = plan.tables
    is_stated = tables is not None and (bool(tables.places) or tables.ids != EVEN_IDS)
    return is_stated and plan.data > 1


def _with_operators(
    graph: ExecutionGraph, blocks: ModelBlocks, own: Sequence[Sequence[Operator]]
) -> ExecutionGraph:
    """The graph whose kernels on tables are each rank's own operators."""
    (passes,) = blocks.layers
    items = (*passes.forward.items, *passes.backward.items)
    operators = [one for one in items if isinstance(one, Operator)]
    labels = {one.label for one in own[0]}
    on_tables = [at for at, one in enumerate(operators) if one.label in labels]
    nodes = np.flatnonzero(graph.kind == NodeKind.KERNEL)
    # Kernels of every rank in the order in which it launches them.
    by_rank = nodes[np.argsort(graph.rank[nodes], kind="stable")].reshape(len(own), -1)
    place = {name: at for at, name in enumerate(graph.names)}
    signature = graph.operator_signature.copy()
    for row, made in zip(by_rank, own, strict=True):
        texts = [one.signature for one in made]
        signature[row[on_tables]] = [place.setdefault(text, len(place)) for text in texts]
    return replace(graph, operator_signature=signature, names=tuple(place))
