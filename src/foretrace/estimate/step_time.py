"""`simulated_step`: a laid-out graph with a cost model's durations, kernel by kernel or by units.

A cost model answers for a kernel alone. Kernels that communication runs beside are slower, and
only a simulation says which those are; so the graph is simulated with the durations alone, they
grow, and it is simulated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Float64s, Int32s, Int64s, MachineError
from foretrace.cost import (
    NO_TEXT,
    CollectiveRequests,
    CostModel,
    Costs,
    Inflation,
    KernelRequests,
    Source,
    graph_costs,
    inflated,
    slowed_throughout,
    step_costs,
)
from foretrace.estimate.interval import SimulatedStep
from foretrace.estimate.link_traffic import StepTraffic
from foretrace.graph import ExecutionGraph, Timeline, beside_communication
from foretrace.machine import Machine
from foretrace.operators import ModuleProgram, OperatorClass, operator_class
from foretrace.simulate import simulate, simulate_shared
from foretrace.software import Knowledge
from foretrace.workload import (
    ExchangeKind,
    Fragments,
    KeptSchedules,
    Kernel,
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

# What no cost model knows, as logarithmic widths each way: with them 80% of published runs lie
# inside their intervals, every source counting alike (docs/accuracy.md, `foretrace validate runs`).
# Intervals of chips without measurements of their own are wide already: Blackwell's need less.
_OF_EXPERTS = 0.22
# 49 runs with experts of eight sources, predicted before anything was known of them, need 0.71 for
# 80%, every source counting alike: this much beside the former where less than a release is known.
_OF_EXPERTS_FURTHER = 0.68
_OF_DENSE, _OF_DENSE_ON_NEWEST = 0.12, 0.02
_NEWEST = "Blackwell"
# Further widths: the same dense runs with the class of their software known alone need 0.21, those
# of one source under a name that means nothing 0.17; the less is known, the wider.
OF_KNOWLEDGE: Mapping[Knowledge, float] = {
    Knowledge.RELEASE: 0.0,
    Knowledge.CLASS: 0.165,
    Knowledge.UNKNOWN: 0.18,
}
_NEVER_FREE = (OperatorClass.GEMM, OperatorClass.ATTENTION, OperatorClass.CONVOLUTION)


def unmodelled_width(*, has_experts: bool, knowledge: Knowledge, architecture: str) -> float:
    """Logarithmic width each way of what no cost model knows, by what is known of the job."""
    own = _OF_DENSE_ON_NEWEST if architecture.startswith(_NEWEST) else _OF_DENSE
    if not has_experts:
        return math.hypot(own, OF_KNOWLEDGE[knowledge])
    is_known = knowledge is Knowledge.RELEASE
    return _OF_EXPERTS if is_known else math.hypot(_OF_EXPERTS, _OF_EXPERTS_FURTHER)


def simulated_step(
    graph: ExecutionGraph,
    model: CostModel,
    inflation: Inflation | None,
    *,
    sharing: Callable[[ExecutionGraph, Int64s], StepTraffic] | None = None,
) -> SimulatedStep:
    """Simulate a graph with predicted durations.

    Args:
        graph: laid out.
        model: what predicts durations.
        inflation: how much slower kernels are beside communication; `None`: no slower.
        sharing: what collectives of these durations ask of links; `None`: every collective finds
            its links empty.

    Raises:
        MachineError: for a collective, a product or attention that the model does not know.
    """
    return step_of_costs(graph, known_costs(graph, model), inflation, sharing=sharing)


def step_of_costs(
    graph: ExecutionGraph,
    costs: Costs,
    inflation: Inflation | None,
    *,
    sharing: Callable[[ExecutionGraph, Int64s], StepTraffic] | None = None,
) -> SimulatedStep:
    """Simulate a graph with known durations; arguments are as in `simulated_step`."""
    traffic = None if sharing is None else sharing(graph, costs.duration_ns)

    def run(duration_ns: Int64s) -> Timeline:
        if traffic is None:
            return simulate(graph, duration_ns)
        return simulate_shared(graph, duration_ns, traffic=traffic.traffic)

    alone = run(costs.duration_ns)
    if inflation is None:
        return SimulatedStep(alone, costs, costs.duration_ns, traffic)
    duration_ns = inflated(alone, costs.duration_ns, inflation)
    return SimulatedStep(run(duration_ns), costs, duration_ns, traffic)


def known_costs(graph: ExecutionGraph, model: CostModel) -> Costs:
    """Costs of every node of a graph, in which no arithmetic that matters is free.

    Raises:
        MachineError: for a collective, a product or attention that the model does not know.
    """
    costs = graph_costs(graph, model)
    _refuse_free(costs, graph.operator, graph.names)
    return costs


def _refuse_free(costs: Costs, operator: Int32s, names: tuple[str, ...]) -> None:
    """Refuse costs in which arithmetic that matters is free; `operator` is a place in `names`."""
    for at in np.unique(operator[costs.source == Source.UNKNOWN]).tolist():
        name = names[at] if at >= 0 else ""
        if operator_class("", name) in _NEVER_FREE:
            asked = np.unique(costs.family[operator == at]).tolist()
            families = ", ".join(costs.families[one] for one in asked)
            raise MachineError(
                f"no cost model knows the time of {name!r} ({families}) on this chip, and without "
                "it a step means nothing: choose another number format, or measure the chip with "
                "`foretrace measure`"
            )


def on_host(plan: Plan, machine: Machine) -> Plan:
    """The plan with launches as the machine's host takes them, unless it says so itself."""
    said, times = plan.implementation, machine.host.launch_times
    if said.launch_times is not None or times is None:
        return plan
    return replace(plan, implementation=replace(said, launch_times=times))


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


def unit_step(model: Model | ModuleProgram, plan: Plan, machine: Machine) -> UnitRun:
    """One step with one node per unit: what `estimate` says of the same to about 0.1 %.

    Raises:
        WorkloadError: if the plan is not legal for the model.
        MachineError: if the machine cannot be costed.
    """
    check_plan(plan, model)
    plan = on_host(plan, machine)
    layout = unit_layout(blocks_of_model(model, plan), plan)
    return run_units(layout, step_costs(machine), Inflation())


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

    def kernels(self, kernels: Sequence[Kernel]) -> tuple[Int64s, Float64s]:
        """How long each takes alone, int64[kernels], and what part of that communication adds."""
        (operator, operators), (signature, signatures) = (
            _positions([one.operator for one in kernels]),
            _positions([one.signature for one in kernels]),
        )
        unnamed = np.full(len(kernels), NO_TEXT, np.int32)
        costs = self.costs.kernel_costs(
            KernelRequests(operator, signature, unnamed, operators, signatures, kernels=())
        )
        _refuse_free(costs, operator, operators)
        slower = np.zeros(len(kernels))
        if self.inflation is not None:
            classes = (str(operator_class(one.label, one.operator)) for one in kernels)
            slower[:] = [self.inflation.factor(each) - 1 for each in classes]
        return costs.duration_ns, slower

    def exchanges_ns(
        self,
        exchanges: Sequence[ExchangeKind],
        groups: Sequence[tuple[int, ...]],
        group: Sequence[int],
    ) -> Int64s:
        """How long exchanges take, each in one of some groups of ranks; int64[exchanges]."""
        (name, names), (dtype, dtypes) = (
            _positions([one.name for one in exchanges]),
            _positions([one.dtype for one in exchanges]),
        )
        num_bytes = np.array([max(one.num_bytes, 0) for one in exchanges], np.int64)
        rows, texts = np.array(group, np.int32), (names, dtypes, tuple(groups))
        requests = CollectiveRequests(name, num_bytes, dtype, rows, *texts)
        return self.costs.collective_costs(requests).duration_ns


def _positions(texts: Sequence[str]) -> tuple[Int32s, tuple[str, ...]]:
    """Places among the distinct texts, and these; NO_TEXT for none."""
    place = {text: at for at, text in enumerate(dict.fromkeys(text for text in texts if text))}
    return np.array([place.get(text, NO_TEXT) for text in texts], np.int32), tuple(place)


def unit_programs(
    model: Model,
    costs: CostModel,
    inflation: Inflation | None,
    *,
    schedules: KeptSchedules | None = None,
) -> UnitPrograms:
    """What tells steps of many plans of a model, each as `run_units` does, without a graph."""
    return UnitPrograms(model, UnitTiming(costs, inflation), schedules or KeptSchedules())
