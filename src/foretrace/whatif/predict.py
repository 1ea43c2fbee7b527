"""`predict`: a recording and edits become a prediction.

1. The recording is cut into pieces, and its plan and sizes are read off it: the scenario before.
2. Edits make the scenario after. Where plan or layers differ, pieces are arranged anew; else the
   graph stays.
3. Every node's duration is measured, scaled from a measured one, or costed; then changes of
   durations are made.
4. The graph is simulated, kernels that communication newly runs beside (or no longer) are
   corrected, and it is simulated again.

What cannot be arranged from pieces is scaled by the ratio of two estimates, where model and
machine are stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.base import ScenarioError
from foretrace.cost import CostModel, Costs, step_costs
from foretrace.estimate import Run, interval
from foretrace.graph import Recording, Timeline
from foretrace.machine import Machine
from foretrace.simulate import Cores, alone_ns, simulate, simulate_shared
from foretrace.whatif.arrange.arrange import arranged
from foretrace.whatif.arrange.arranged import Arranged, unchanged
from foretrace.whatif.changes.changed import changed
from foretrace.whatif.changes.inflation import uninflated
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.memory import memory_of
from foretrace.whatif.prediction import EditEffect, Prediction
from foretrace.whatif.rearrange.legality import check
from foretrace.whatif.rearrange.rearrange import rearranged
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.recorded.read import program_of
from foretrace.whatif.resize.base import base_scenario
from foretrace.whatif.resize.resized import resized
from foretrace.whatif.resize.sizes import Sizes
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Model, PlanDraft


@dataclass(frozen=True)
class Ground:
    """What predictions about one recording start from; made once for many of them."""

    program: Program
    before: Scenario
    replayed: Timeline
    measured_step_ns: int
    replayed_step_ns: int
    costs: CostModel | None
    cores: Cores | None
    model: Model | None


@dataclass(frozen=True)
class Outcome:
    """One scenario, simulated."""

    arranged: Arranged
    costs: Costs
    timeline: Timeline
    step_ns: int
    notes: tuple[str, ...] = ()


def ground_of(
    recording: Recording,
    *,
    machine: Machine | None = None,
    model: Model | None = None,
    plan: PlanDraft | None = None,
    sizes: Sizes | None = None,
    costs: CostModel | None = None,
    cores: Cores | None = None,
) -> Ground:
    """What a recording's predictions start from.

    Args:
        recording: of any number of ranks of one job.
        machine: what it ran on.
        model: what was trained, for memory, and for what pieces cannot answer.
        plan: keys of its plan that the recording does not show, or shows wrongly.
        sizes: widths of the model, where its shapes do not tell.
        costs: what predicts durations at other sizes; the machine's, if that is stated, else what
            the recording itself shows.
        cores: processor cores that the recorded ranks shared, where the host is what computes.

    Raises:
        ScenarioError: if what is stated contradicts the recording.
    """
    measured_step_ns = step_of(recording.measured)
    replayed = simulate(recording.graph)
    if cores is not None:
        graph = replace(recording.graph, measured_ns=alone_ns(replayed, cores))
        recording = replace(recording, graph=graph)
        replayed = simulate_shared(graph, graph.measured_ns, cores)
    program = program_of(recording, stated=plan)
    return Ground(
        program=program,
        before=base_scenario(program, machine=machine, sizes=sizes),
        replayed=replayed,
        measured_step_ns=measured_step_ns,
        replayed_step_ns=step_of(replayed),
        costs=costs or (None if machine is None else step_costs(machine)),
        cores=cores,
        model=model,
    )


def predict(
    recording: Recording | Ground,
    edits: Sequence[Edit],
    *,
    name: str = "",
    machine: Machine | None = None,
    model: Model | None = None,
    plan: PlanDraft | None = None,
    sizes: Sizes | None = None,
    costs: CostModel | None = None,
    cores: Cores | None = None,
) -> Prediction:
    """The job of a recording with these edits.

    Args:
        recording: of any number of ranks of one job; or what `ground_of` made of it, and nothing
            else stated.
        edits: in any order; what they make is one scenario.
        name: of the scenario, for tables.
        machine: as in `ground_of`, as all that follow.
        model: so too.
        plan: so too.
        sizes: so too.
        costs: so too.
        cores: so too.

    Raises:
        ScenarioError: if an edit is illegal, or cannot be made to this recording.
    """
    ground = (
        recording
        if isinstance(recording, Ground)
        else ground_of(
            recording,
            machine=machine,
            model=model,
            plan=plan,
            sizes=sizes,
            costs=costs,
            cores=cores,
        )
    )
    scenarios = [ground.before]
    for edit in edits:
        scenarios.append(edit.applied(scenarios[-1]))
    last = outcome(ground, scenarios[-1])
    effects = _effects(ground, edits, scenarios, last)
    low_ns, high_ns = _ends(ground, last)
    return Prediction(
        name=name,
        before=ground.before,
        after=scenarios[-1],
        effects=effects,
        replayed=ground.replayed,
        timeline=last.timeline,
        costs=last.costs,
        measured_step_ns=ground.measured_step_ns,
        replayed_step_ns=ground.replayed_step_ns,
        step_ns=last.step_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        method="arranged",
        memory=memory_of(ground.model, ground.before, scenarios[-1]),
        notes=(*ground.program.notes, *last.notes),
    )


def outcome(ground: Ground, scenario: Scenario) -> Outcome:
    """A scenario's step, simulated.

    Raises:
        ScenarioError: if it is illegal, or cannot be made from this recording.
    """
    program, before = ground.program, ground.before
    check(program, before, scenario)
    job = rearranged(program, before, scenario)
    start = unchanged(program.graph) if job is None else arranged(program, job)
    costs = resized(start, program, before, scenario, costs=ground.costs)
    start, costs = changed(start, costs, scenario.changes)
    timeline = _simulated(ground, start, costs)
    if job is not None or scenario != before:
        costs = uninflated(start, costs, ground.replayed, timeline)
        timeline = _simulated(ground, start, costs)
    notes = () if job is None else job.notes
    return Outcome(start, costs, timeline, step_of(timeline), notes)


def step_of(timeline: Timeline) -> int:
    """Mean length of the job's steps, in ns; of a recording without marks, its whole length."""
    steps = windows(timeline)
    if not len(steps):
        return int(timeline.end_ns.max(initial=0) - timeline.start_ns.min(initial=0))
    return round(float(np.mean(steps.duration_ns)))


def _simulated(ground: Ground, start: Arranged, costs: Costs) -> Timeline:
    if ground.cores is None:
        return simulate(start.graph, costs.duration_ns)
    return simulate_shared(start.graph, costs.duration_ns, ground.cores)


def _effects(
    ground: Ground, edits: Sequence[Edit], scenarios: Sequence[Scenario], last: Outcome
) -> tuple[EditEffect, ...]:
    """What every edit adds to those before it.

    An edit that is legal only together with a later one is counted with that one.
    """
    found = []
    before_ns = ground.replayed_step_ns
    for edit, before, after in zip(edits, scenarios, scenarios[1:], strict=True):
        step_ns = before_ns
        if after == scenarios[-1]:
            step_ns = last.step_ns
        else:
            try:
                step_ns = outcome(ground, after).step_ns
            except ScenarioError:
                pass
        found.append(EditEffect(edit, edit.sentence(before), step_ns, step_ns - before_ns))
        before_ns = step_ns
    return tuple(found)


def _ends(ground: Ground, last: Outcome) -> tuple[int, int]:
    """Both ends of the interval of the mean step, in ns."""
    steps = windows(last.timeline)
    if not len(steps):
        return last.step_ns, last.step_ns
    row = int(np.argsort(steps.duration_ns, kind="stable")[len(steps) // 2])
    spread = interval(
        Run(last.timeline, last.costs, last.costs.duration_ns),
        unmodelled=_unmodelled(ground),
        row=row,
    )
    return (
        round(last.step_ns * spread.low_ns / spread.step_ns),
        round(last.step_ns * spread.high_ns / spread.step_ns),
    )


def _unmodelled(ground: Ground) -> float:
    """What the replay misses of the recording itself, on a logarithmic scale."""
    return abs(float(np.log(ground.replayed_step_ns / ground.measured_step_ns)))
