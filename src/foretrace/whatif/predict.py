"""`predict`: a recording and edits become a prediction.

1. The recording is cut into pieces, and its plan and sizes are read off it: the scenario before
   (`baseline`).
2. Edits make the scenario after. Where plan or layers differ, pieces are arranged anew; else the
   graph stays (`outcome`).
3. Every node's duration is measured, scaled from a measured one, or costed; then changes of
   durations are made.
4. The graph is simulated, kernels that communication newly runs beside (or no longer) are
   corrected, and it is simulated again.

What cannot be arranged from pieces is scaled by the ratio of two estimates, where model and
machine are stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from foretrace import workload
from foretrace.base import ScenarioError, WorkloadError
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.edits.changed import held_bytes
from foretrace.whatif.edits.checking import check_notes
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.outcome import outcome
from foretrace.whatif.prediction import EditEffect, Memory, Prediction
from foretrace.whatif.recorded_links import shared_links_of
from foretrace.whatif.resize.of_model import differences, model_with
from foretrace.whatif.scenario import Scenario
from foretrace.whatif.unprofiled import profiler_cost

if TYPE_CHECKING:  # what recordings of which no model is stated need not load
    from foretrace.workload import Footprint, Transformer


def predict(baseline: Baseline, edits: Sequence[Edit], *, name: str = "") -> Prediction:
    """The job of a recording with these edits.

    Args:
        baseline: what `baseline_of` made of the recording.
        edits: in any order; what they make is one scenario.
        name: of the scenario, for tables.

    Raises:
        ScenarioError: if an edit is illegal, or cannot be made to this recording; or if the model
            that was stated cannot be what was recorded.
    """
    different = _of_model(baseline)
    scenarios = [baseline.before]
    for edit in edits:
        scenarios.append(edit.applied(scenarios[-1]))
    last = outcome(baseline, scenarios[-1])
    effects = effects_of(
        edits,
        scenarios,
        (baseline.replayed_step_ns, last.step_ns),
        lambda one: outcome(baseline, one).step_ns,
    )
    return Prediction(
        name=name,
        before=baseline.before,
        after=scenarios[-1],
        effects=effects,
        replayed=baseline.replayed,
        timeline=last.timeline,
        costs=last.costs,
        measured_step_ns=baseline.measured_step_ns,
        replayed_step_ns=baseline.replayed_step_ns,
        step_ns=last.step_ns,
        low_ns=last.low_ns,
        high_ns=last.high_ns,
        method=last.method,
        memory=_memory(baseline, scenarios[-1]),
        links=shared_links_of(last),
        notes=(
            *baseline.program.notes,
            *different,
            *last.notes,
            *check_notes([(one.edit, one.change_ns) for one in effects], last.timeline),
            *_profiler_notes(baseline),
        ),
    )


def _profiler_notes(baseline: Baseline) -> tuple[str, ...]:
    """That the recorded step is longer for being recorded, where it is."""
    found = profiler_cost(baseline.program.recording, baseline.measured_step_ns)
    if found is None:
        return ()
    return (f"profiler: {found.sentence}; --without-profiler predicts steps that nobody records",)


def effects_of(
    edits: Sequence[Edit],
    scenarios: Sequence[Scenario],
    ends_ns: tuple[int, int],
    step_ns_of: Callable[[Scenario], int],
) -> tuple[EditEffect, ...]:
    """What every edit adds to those before it.

    An edit that is legal only together with a later one is counted with that one.

    Args:
        edits: in the order in which they were given.
        scenarios: before all, and after each.
        ends_ns: the step before all, and after all.
        step_ns_of: the step of a scenario between them.
    """
    found = []
    before_ns, last_ns = ends_ns
    for edit, before, after in zip(edits, scenarios[:-1], scenarios[1:], strict=True):
        step_ns = before_ns
        if after == scenarios[-1]:
            step_ns = last_ns
        else:
            with suppress(ScenarioError):
                step_ns = step_ns_of(after)
        found.append(EditEffect(edit, edit.sentence(before), step_ns, step_ns - before_ns))
        before_ns = step_ns
    return tuple(found)


def _of_model(baseline: Baseline) -> tuple[str, ...]:
    """Where the stated model is not what was recorded, as a cut one has fewer layers.

    Raises:
        ScenarioError: if its width is another, so that it is another model.
    """
    model = baseline.transformer
    if model is None:
        return ()
    hidden = baseline.before.sizes.hidden
    if hidden not in {None, model.hidden}:
        raise ScenarioError(
            f"the recording is of a model with a hidden size of {hidden:,}, and "
            f"{model.name} has {model.hidden:,}: state the model that ran, as a "
            "name or a TOML file (--model), or leave it out"
        )
    found = differences(model, baseline.before.sizes)
    if not found:
        return ()
    return (f"recorded: {'; '.join(found)}: what was recorded is taken",)


def _memory(baseline: Baseline, after: Scenario) -> Memory | None:
    """What the worst rank holds, before and after; `None` where no transformer was stated."""
    model = baseline.transformer
    if model is None:
        return None
    chip = baseline.chip if after.machine is None else after.machine.chip
    held = held_bytes(after.changes, baseline.program.graph, chip)
    try:
        edited = _footprint(model, after).with_buffer(held)
        return Memory(_footprint(model, baseline.before), edited)
    except WorkloadError:
        return None


def _footprint(model: Transformer, scenario: Scenario) -> Footprint:
    chip = None if scenario.machine is None else scenario.machine.chip
    edited = model_with(model, scenario.sizes)
    schedule = workload.schedule_of(scenario.plan)
    return workload.footprint(edited, scenario.plan, schedule, chip=chip)
