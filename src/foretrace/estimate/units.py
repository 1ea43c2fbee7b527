"""A step at unit grain, simulated: fragments are timed once, and the step is made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Int64s
from foretrace.cost import (
    CostModel,
    Inflation,
    graph_costs,
    inflated,
    slowed_throughout,
    step_costs,
)
from foretrace.estimate.step_time import known_costs
from foretrace.graph import Timeline, beside_communication
from foretrace.machine import Machine
from foretrace.operators import ModuleProgram
from foretrace.simulate import simulate
from foretrace.workload import (
    LaidOut,
    Model,
    Plan,
    UnitLayout,
    blocks_of_model,
    check_plan,
    unit_layout,
)


@dataclass(frozen=True)
class UnitRun:
    """A step at unit grain, simulated."""

    laid_out: LaidOut
    timeline: Timeline
    duration_ns: Int64s  # int64[nodes]

    @property
    def step_ns(self) -> int:
        """Length of the step."""
        return int(windows(self.timeline).duration_ns[0])


def unit_step(
    model: Model | ModuleProgram,
    plan: Plan,
    machine: Machine,
    *,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
) -> UnitRun:
    """One step with one node per unit: what `estimate` says to about 0.1 %, for many plans in turn.

    Args:
        model: as in `estimate`, as all that follow.
        plan: so too.
        machine: so too.
        costs: so too.
        inflation: so too.

    Raises:
        WorkloadError: if the plan is not legal for the model.
        MachineError: if the machine cannot be costed.
    """
    check_plan(plan, model)
    layout = unit_layout(blocks_of_model(model, plan), plan)
    return run_units(layout, costs or step_costs(machine), inflation or Inflation())


def run_units(layout: UnitLayout, model: CostModel, inflation: Inflation | None) -> UnitRun:
    """Simulate a step whose units are timed on their fragments.

    Args:
        layout: of the step.
        model: what predicts durations.
        inflation: how much slower kernels are beside communication; `None`: no slower.

    Raises:
        MachineError: for a collective, a product or attention that the model does not know.
    """
    fragments = layout.fragments
    graph = fragments.graph

    def lengths_ns(duration_ns: Int64s) -> Int64s:
        return fragments.lengths_ns(simulate(graph, fragments.at_once(duration_ns)))

    alone_ns = known_costs(graph, model).duration_ns
    own_ns = alone_ns
    if inflation is not None:
        own_ns = inflated(simulate(graph, fragments.at_once(alone_ns)), alone_ns, inflation)
    own = lengths_ns(own_ns)
    leads_ns = fragments.leads_ns(simulate(graph, fragments.held_up(own_ns)), own)
    step = layout.step(own, leads_ns)
    duration_ns = graph_costs(step.laid_out.graph, model).duration_ns
    timeline = simulate(step.laid_out.graph, duration_ns)
    if inflation is None:
        return UnitRun(step.laid_out, timeline, duration_ns)
    # What runs beside communication that is not the unit's own grows as far as its kernels would.
    more_ns = lengths_ns(slowed_throughout(graph, alone_ns, inflation)) - own
    chosen = np.flatnonzero(step.segment >= 0)
    share = beside_communication(timeline)[chosen]
    duration_ns[chosen] += np.rint(share * more_ns[step.segment[chosen]]).astype(np.int64)
    return UnitRun(step.laid_out, simulate(step.laid_out.graph, duration_ns), duration_ns)
