"""`changed`: a graph and its durations after edits of work.

Edits act turn by turn, whatever the order in which they were given: attention kernels, kernels
in others' place, stated lengths, factors (which multiply), delays (which add up), fusions, graphs,
waits, data loading. So edits commute, but for two that state the same: there the one given last
wins. Durations are rounded once, after the last edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretrace.cost import CostModel, Costs
from foretrace.graph import ExecutionGraph
from foretrace.machine import Chip
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import EditTurn, WorkEdit
from foretrace.whatif.recorded.program import Program
from foretrace.workload import Plan

if TYPE_CHECKING:  # what jobs whose model nobody stated need not load
    from foretrace.workload import Transformer


def changed(
    arranged: Arranged,
    costs: Costs,
    edits: Sequence[WorkEdit],
    *,
    program: Program | None = None,
    model: CostModel | None = None,
    plan: Plan | None = None,
    transformer: Transformer | None = None,
    chip: Chip | None = None,
) -> tuple[Arranged, Costs]:
    """The job and its costs with all edits made.

    Args:
        arranged: the job.
        costs: of its nodes.
        edits: in any order.
        program: says which transfers belong to a group of the plan; without it, names of
            process groups alone do.
        model: costs attention kernels of the other kind.
        plan: of the scenario, which says what a microbatch is.
        transformer: what is trained, where that is stated.
        chip: what kernels run on, where that is known.

    Raises:
        ScenarioError: if an edit names nothing in this job, or needs what is not stated.
    """
    job = CostedJob.of(
        arranged,
        costs,
        program=program,
        model=model,
        plan=plan,
        transformer=transformer,
        chip=chip,
    )
    for edit in edits:
        edit.check(job)
    effective = [edit for edit in edits if not edit.changes_nothing]
    if not effective:
        return arranged, costs
    for turn in EditTurn:
        ordered = sorted((one for one in effective if turn in one.TURNS), key=_order)
        for edit in ordered:
            job = edit.made(job, turn)
        if ordered:
            job = job.after_turn()
    return job.arranged, job.costs()


def held_bytes(edits: Sequence[WorkEdit], graph: ExecutionGraph, chip: Chip | None) -> int:
    """What edits' kernels hold besides at most: one after the other, in one buffer of a stream."""
    return max((edit.workspace_bytes(graph, chip) for edit in edits), default=0)


def _order(edit: WorkEdit) -> str:
    return edit.order
