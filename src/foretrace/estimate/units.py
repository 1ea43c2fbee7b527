"""A step at unit grain, simulated: fragments are timed once, and the step is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Int64s
from foretrace.cost import (
    CollectiveRequests,
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
    ExchangeKind,
    Fragments,
    KeptSchedules,
    LaidOut,
    Model,
    Plan,
    SegmentTimes,
    UnitLayout,
    UnitPrograms,
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
    times = segment_times(layout.fragments, model, inflation)
    step = layout.step(times.lengths_ns, times.leads_ns)
    duration_ns = graph_costs(step.laid_out.graph, model).duration_ns
    timeline = simulate(step.laid_out.graph, duration_ns)
    # What runs beside communication that is not the unit's own grows as far as its kernels would.
    chosen = np.flatnonzero(step.segment >= 0)
    share = beside_communication(timeline)[chosen]
    duration_ns[chosen] += np.rint(share * times.more_ns[step.segment[chosen]]).astype(np.int64)
    return UnitRun(step.laid_out, simulate(step.laid_out.graph, duration_ns), duration_ns)


def segment_times(
    fragments: Fragments, model: CostModel, inflation: Inflation | None
) -> SegmentTimes:
    """How long each segment of some stretches takes.

    Args:
        fragments: the stretches.
        model: as in `run_units`, as all that follow.
        inflation: so too.

    Raises:
        MachineError: so too.
    """
    graph = fragments.graph

    def lengths_ns(duration_ns: Int64s) -> Int64s:
        return fragments.lengths_ns(simulate(graph, fragments.at_once(duration_ns)))

    own_ns = alone_ns = known_costs(graph, model).duration_ns
    if inflation is not None:
        own_ns = inflated(simulate(graph, fragments.at_once(alone_ns)), alone_ns, inflation)
    own = lengths_ns(own_ns)
    leads_ns = fragments.leads_ns(simulate(graph, fragments.held_up(own_ns)), own)
    more_ns = np.zeros_like(own)
    if inflation is not None:
        more_ns = lengths_ns(slowed_throughout(graph, alone_ns, inflation)) - own
    return SegmentTimes(own, leads_ns, fragments.host_ns, more_ns)


@dataclass(frozen=True)
class UnitTiming:
    """How long what steps are made of takes, by cost models."""

    costs: CostModel
    inflation: Inflation | None  # how much slower kernels are beside communication; `None`: not

    def segments(self, fragments: Fragments) -> SegmentTimes:
        """How long each segment of some stretches takes."""
        return segment_times(fragments, self.costs, self.inflation)

    def exchanges_ns(self, exchange: ExchangeKind, groups: Sequence[tuple[int, ...]]) -> Int64s:
        """How long an exchange takes each of some groups of ranks; int64[groups]."""
        rows = np.arange(len(groups), dtype=np.int32)
        alike = np.zeros_like(rows)
        num_bytes = np.full(len(groups), max(exchange.num_bytes, 0), np.int64)
        names = (exchange.name,), (exchange.dtype,), tuple(groups)
        requests = CollectiveRequests(alike, num_bytes, alike, rows, *names)
        return self.costs.collective_costs(requests).duration_ns


def unit_programs(
    model: Model,
    costs: CostModel,
    inflation: Inflation | None,
    *,
    schedules: KeptSchedules | None = None,
) -> UnitPrograms:
    """What tells steps of many plans of a model, each as `run_units` does, without a graph."""
    return UnitPrograms(model, UnitTiming(costs, inflation), schedules or KeptSchedules())
