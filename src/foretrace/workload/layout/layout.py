"""`layout`: blocks under a plan become the graph of one step.

1. A schedule's chunks get the model's parts; each pass of a chunk becomes a template.
2. Every stage writes down which templates it launches, and what waits for what between them.
3. Templates are repeated into items, items become nodes and edges, for one rank per stage.
4. Unless folded, every rank gets its copy of its stage's nodes, and meets its own groups.
"""

from __future__ import annotations

from foretrace.base import CircleError, WorkloadError
from foretrace.workload.blocks.block import Blocks
from foretrace.workload.layout.chunks import chunks_of
from foretrace.workload.layout.closing import Optimizer, close
from foretrace.workload.layout.drafted import drafted
from foretrace.workload.layout.folded import folded_graph
from foretrace.workload.layout.laid_out import LaidOut, Role
from foretrace.workload.layout.launch import Launch, launch_named
from foretrace.workload.layout.meetings import RankTable, meetings_of
from foretrace.workload.layout.pieces import Pieces
from foretrace.workload.layout.sharded import GatheredChunks
from foretrace.workload.layout.stage import StageProgram
from foretrace.workload.layout.tables import Tables
from foretrace.workload.layout.transfers import Transfers
from foretrace.workload.layout.unfolded import unfolded
from foretrace.workload.layout.units import UnitTemplates
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.catalogue import schedule_of
from foretrace.workload.schedule.legality import check_schedule
from foretrace.workload.schedule.unit import Schedule


def layout(
    blocks: Blocks,
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
    schedule = schedule_of(plan) if schedule is None else schedule
    _check(schedule, plan)
    tables, pieces = Tables(), Pieces()
    templates = UnitTemplates(plan, tables)
    chunks = chunks_of(blocks, plan, schedule)
    transfers = Transfers(templates, blocks.transfer_bytes, blocks.transfer_dtype)
    gathered = GatheredChunks(templates)
    for stage in range(schedule.num_stages):
        program = StageProgram(
            stage,
            schedule=schedule,
            chunks=chunks,
            templates=templates,
            transfers=transfers,
            gathered=gathered,
            pieces=pieces,
        )
        program.write_units()
        close(program, blocks, optimizer)
    transfers.connect(pieces)
    ranks = RankTable(plan, num_replicas=num_replicas)
    items = drafted(pieces)
    try:
        graph = folded_graph(
            items,
            meetings_of(items, ranks),
            ranks=ranks,
            tables=tables,
            launch=launch or launch_named(plan.implementation.launch),
        )
    except CircleError as err:
        check_schedule(schedule)  # says which stages wait for each other
        raise WorkloadError(
            f"blocks under schedule {schedule.name!r} wait for each other in a circle: check what "
            "their items name in `after`"
        ) from err
    keeps_one = folded and num_replicas is None
    num_kept = 1 if keeps_one else ranks.num_pipelines
    num_each = plan.num_ranks // plan.pipeline // num_kept
    roles = sorted(
        (
            Role(rank=rank, stage=stage, num_ranks=num_each)
            for stage, own in enumerate(ranks.rank.tolist())
            for rank in own[:num_kept]
        ),
        key=lambda role: role.rank,
    )
    graph = graph if keeps_one else unfolded(graph, ranks)
    return LaidOut(graph, plan, schedule, tuple(roles), is_folded=folded)


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
