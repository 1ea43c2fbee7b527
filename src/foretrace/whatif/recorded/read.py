"""`program_of`: a recording becomes a `Program`, its plan stated or read off it."""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.base import ScenarioError
from foretrace.graph import Recording
from foretrace.whatif.recorded.exchanges import exchanges_of
from foretrace.whatif.recorded.grid import coordinates_of, grid_of
from foretrace.whatif.recorded.habits import Field, habits_of
from foretrace.whatif.recorded.membership import groups_of_collectives
from foretrace.whatif.recorded.passes import NO_SCHEDULE, RecordedPasses, passes_of
from foretrace.whatif.recorded.program import Program, pieces_of
from foretrace.whatif.recorded.stages import stages_of
from foretrace.workload import Plan, PlanDraft, Recompute, with_fields


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
