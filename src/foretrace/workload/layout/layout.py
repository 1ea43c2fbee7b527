"""`layout`: blocks under a plan become the graph of one step.

1. A schedule's chunks get the model's parts; each pass of a chunk becomes a template.
2. Every stage writes down which templates it launches, and what waits for what between them.
3. Templates are repeated into items, items become nodes and edges, for one rank per stage.
4. Unless folded, every rank gets its copy of its stage's nodes, and meets its own groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import CircleError, Int64s, WorkloadError
from foretrace.workload.blocks.block import ModelBlocks
from foretrace.workload.layout.chunks import chunks_of
from foretrace.workload.layout.closing import Optimizer, close
from foretrace.workload.layout.drafted import Drafted, drafted
from foretrace.workload.layout.folded import Folded, folded_graph, host_ns_of
from foretrace.workload.layout.laid_out import LaidOut, Role
from foretrace.workload.layout.launch import Launch, launch_named
from foretrace.workload.layout.meetings import RankTable
from foretrace.workload.layout.pieces import Pieces, SortedPieces
from foretrace.workload.layout.sharded import GatheredChunks, Gatherings
from foretrace.workload.layout.stage_units import write_units
from foretrace.workload.layout.tables import Tables
from foretrace.workload.layout.transfers import Transfers
from foretrace.workload.layout.unfolded import unfolded
from foretrace.workload.layout.unit_columns import UnitColumns
from foretrace.workload.layout.units import UnitTemplates
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.catalogue import schedule_of
from foretrace.workload.schedule.legality import check_schedule
from foretrace.workload.schedule.schedule import Schedule


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
    launch = launch or launch_named(plan.implementation.launch)
    items = drafted(step.pieces)
    graph = graph_of_step(step, items, launch, host_ns_of(items, launch)).graph
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
