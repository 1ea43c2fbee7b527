"""`predict_estimate`: an estimated step with something different about it.

Other sizes, another plan or machine are another estimate. Edits of work then change its graph and
the durations of its kernels alone; communication slows what newly runs beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.base import NetworkUse, ScenarioError
from foretrace.cost import CostModel, Inflation
from foretrace.estimate import (
    Estimate,
    estimate,
    interval,
    sharing_of,
    software_costs,
    step_of_costs,
    unmodelled_of,
)
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.edits.changed import changed, held_bytes
from foretrace.whatif.edits.checking import check_notes
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.edits.loading import UnevenDocuments
from foretrace.whatif.outcome import ScenarioOutcome
from foretrace.whatif.predict import effects_of
from foretrace.whatif.prediction import Memory, Prediction
from foretrace.whatif.recorded_links import shared_links_of
from foretrace.whatif.resize.named import Sizes
from foretrace.whatif.resize.of_model import model_with, sizes_of
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Footprint, Transformer

ESTIMATED = "estimated"


def predict_estimate(
    before: Estimate,
    edits: Sequence[Edit],
    *,
    name: str = "",
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
) -> Prediction:
    """The estimated step with these edits, beside what it was.

    Args:
        before: what edits begin with.
        edits: in any order; what they make is one scenario.
        name: of the scenario, for tables.
        costs: what predicts durations, as `before` was estimated; the machine's if left out.
        inflation: how much slower kernels are beside communication, likewise.

    Raises:
        ScenarioError: if an edit is illegal, or an estimate has nothing that it could change.
        WorkloadError: if the edited plan is not legal for the model.
        MachineError: if the machine is too small for it.
    """
    base = Scenario(sizes=_sizes(before), plan=before.plan, machine=before.machine)
    scenarios = [base]
    for edit in edits:
        scenarios.append(edit.applied(scenarios[-1]))

    def made(scenario: Scenario) -> tuple[Estimate, ScenarioOutcome]:
        estimated = _estimated(before, base, scenario, costs)
        return estimated, _outcome(estimated, scenario, costs, inflation)

    estimated, last = made(scenarios[-1])
    effects = effects_of(
        edits, scenarios, (before.step_ns, last.step_ns), lambda one: made(one)[1].step_ns
    )
    return Prediction(
        name=name,
        before=base,
        after=scenarios[-1],
        effects=effects,
        replayed=before.timeline,
        timeline=last.timeline,
        costs=last.costs,
        measured_step_ns=0,
        replayed_step_ns=before.step_ns,
        step_ns=last.step_ns,
        low_ns=last.low_ns,
        high_ns=last.high_ns,
        method=ESTIMATED,
        memory=_memory(before.footprint, _with_workspace(estimated, scenarios[-1])),
        links=shared_links_of(last) if scenarios[-1].changes else estimated.links,
        notes=(
            *estimated.notes,
            *check_notes([(one.edit, one.change_ns) for one in effects], last.timeline),
        ),
    )


def _sizes(before: Estimate) -> Sizes:
    return sizes_of(before.model) if isinstance(before.model, Transformer) else Sizes()


def _estimated(
    before: Estimate, base: Scenario, scenario: Scenario, costs: CostModel | None
) -> Estimate:
    """The estimate of a scenario's sizes, plan and machine."""
    model, machine = before.model, scenario.machine or before.machine
    # Copies of the model have documents of their own.
    is_uneven = any(isinstance(one, UnevenDocuments) for one in scenario.changes)
    folded = before.laid_out.is_folded and not (is_uneven and scenario.plan.data > 1)
    is_same = (scenario.sizes, scenario.plan, machine) == (base.sizes, base.plan, base.machine)
    if is_same and folded == before.laid_out.is_folded:
        return before
    if scenario.sizes != base.sizes:
        if not isinstance(model, Transformer):
            raise ScenarioError(
                f"sizes of {model.name} cannot be edited, as it is no transformer: estimate "
                "another model"
            )
        model = model_with(model, scenario.sizes)
    return estimate(
        model,
        scenario.plan,
        machine,
        software=before.software,
        costs=costs if machine == base.machine else None,
        convention=before.convention,
        folded=folded,
        price_per_hour=before.price_per_hour,
        network=before.network,
    )


def _outcome(
    estimated: Estimate, scenario: Scenario, costs: CostModel | None, inflation: Inflation | None
) -> ScenarioOutcome:
    """An estimate with a scenario's edits of work."""
    if not scenario.changes:
        spread = estimated.interval
        return ScenarioOutcome(
            estimated.costs,
            estimated.timeline,
            spread.step_ns,
            spread.low_ns,
            spread.high_ns,
            ESTIMATED,
        )
    machine, is_shared = estimated.machine, estimated.network is NetworkUse.SHARED
    model = costs or software_costs(
        machine.unshared() if is_shared else machine,
        estimated.software,
        num_ranks=estimated.plan.num_ranks,
    )
    job, alone = changed(
        unchanged(estimated.graph),
        estimated.costs,
        scenario.changes,
        plan=scenario.plan,
        transformer=estimated.model if isinstance(estimated.model, Transformer) else None,
        model=model,
        chip=estimated.machine.chip,
    )
    sharing = sharing_of(estimated.laid_out, model, machine) if is_shared else None
    done = step_of_costs(job.graph, alone, inflation or Inflation(), sharing=sharing)
    unmodelled = unmodelled_of(estimated.model, estimated.software, estimated.machine)
    knows_host = estimated.plan.implementation.launch_times is not None
    spread = interval(done, unmodelled=unmodelled, knows_host=knows_host)
    return ScenarioOutcome(
        alone,
        done.timeline,
        spread.step_ns,
        spread.low_ns,
        spread.high_ns,
        ESTIMATED,
        shared=done if is_shared else None,
    )


def _with_workspace(estimated: Estimate, scenario: Scenario) -> Footprint | None:
    """What the estimate holds, and what other kernels need besides."""
    found, chip = estimated.footprint, estimated.machine.chip
    if found is None:
        return None
    return found.with_buffer(held_bytes(scenario.changes, estimated.graph, chip))


def _memory(before: Footprint | None, after: Footprint | None) -> Memory | None:
    return None if before is None or after is None else Memory(before, after)
