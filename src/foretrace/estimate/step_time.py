"""`simulated_step`: a laid-out graph with a cost model's durations, kernel by kernel or by units.

A cost model answers for a kernel alone. Kernels that communication runs beside are slower, and
only a simulation says which those are; so the graph is simulated with the durations alone, they
grow, and it is simulated again.

Operations of one family (products in bf16, all-reduces, ...) are predicted by one model, so they
err together; families err apart. The step moves with a family by what of it lies on the critical
path, to first order. What no cost model knows (launches that are held up, kernels not named,
contention) is one more part, relative to the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.answer import Plain
from foretrace.base import Float64s, Int32s, Int64s, MachineError
from foretrace.cost import (
    NO_TEXT,
    STATED,
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
from foretrace.estimate.link_traffic import StepTraffic
from foretrace.graph import ExecutionGraph, Timeline, beside_communication
from foretrace.machine import Machine
from foretrace.operators import ModuleProgram, OperatorClass, operator_class
from foretrace.simulate import simulate, simulate_shared, way_back
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
# 27 runs with experts of five sources, predicted before anything was known of them, need 0.38 for
# 80%, every source counting alike: this much beside the former where less than a release is known.
_OF_EXPERTS_FURTHER = 0.31
_OF_DENSE, _OF_DENSE_ON_NEWEST = 0.12, 0.02
_NEWEST = "Blackwell"
# Further widths: the same dense runs with the class of their software known alone need 0.21, those
# of one source under a name that means nothing 0.17; the less is known, the wider.
OF_KNOWLEDGE: Mapping[Knowledge, float] = {
    Knowledge.RELEASE: 0.0,
    Knowledge.CLASS: 0.165,
    Knowledge.UNKNOWN: 0.18,
}
# Of a step that was recorded, whose software is in the recording: as wide as runs need that are
# predicted from their neighbours.
UNMODELLED = 0.106
# Logarithmic width each way of launches on a host of which nothing is known: traces have 0.5 to 2
# times the usual where no Python stacks are recorded (those behind `workload.layout.launch`), which
# is taken for one standard deviation; 1.2816 of them are the 90th percentile.
UNKNOWN_HOST: float = 1.2816 * math.log(2)
NOT_MODELLED = "not modelled"  # in place of a family
_NEVER_FREE = (OperatorClass.GEMM, OperatorClass.ATTENTION, OperatorClass.CONVOLUTION)


def unmodelled_width(*, has_experts: bool, knowledge: Knowledge, architecture: str) -> float:
    """Logarithmic width each way of what no cost model knows, by what is known of the job."""
    own = _OF_DENSE_ON_NEWEST if architecture.startswith(_NEWEST) else _OF_DENSE
    if not has_experts:
        return math.hypot(own, OF_KNOWLEDGE[knowledge])
    is_known = knowledge is Knowledge.RELEASE
    return _OF_EXPERTS if is_known else math.hypot(_OF_EXPERTS, _OF_EXPERTS_FURTHER)


@dataclass(frozen=True)
class SimulatedStep:
    """A simulation, and the durations it was made with."""

    timeline: Timeline
    costs: Costs  # of every node alone
    duration_ns: Int64s  # int64[nodes], with what communication adds, on links of their own
    traffic: StepTraffic | None = None  # `None`: no link was shared


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


@dataclass(frozen=True)
class FamilySpread(Plain):
    """What one family's uncertainty does to the step."""

    family: str
    critical_ns: int  # of it on the critical path
    low_ns: int  # by how much the step is shorter at the 10th percentile, 0 or more
    high_ns: int  # by how much longer at the 90th


@dataclass(frozen=True)
class Interval:
    """The middle 80% of where a step's time is expected."""

    step_ns: int
    low_ns: int
    high_ns: int
    families: tuple[FamilySpread, ...]  # the widest first


def interval(
    step: SimulatedStep,
    *,
    unmodelled: float = UNMODELLED,
    row: int = 0,
    knows_host: bool = True,
) -> Interval:
    """The interval of a simulated step.

    Args:
        step: one step, or several.
        unmodelled: spread of what no cost model knows, on a logarithmic scale, each way.
        row: which of the steps, in order of time.
        knows_host: whether launches take as long as stated; else they may take half or twice that.
    """
    steps = windows(step.timeline)
    step_ns = int(steps.duration_ns[row])
    begin_ns = int(steps.begin_ns[row])
    node = way_back(step.timeline, int(steps.end_node[row]), begin_ns=begin_ns).node
    costs = step.costs
    alone_ns = np.maximum(costs.duration_ns[node], 1)
    grown = step.duration_ns[node] / alone_ns
    below_ns = (costs.duration_ns - costs.low_ns)[node] * grown
    above_ns = (costs.high_ns - costs.duration_ns)[node] * grown
    count = len(costs.families)
    family = costs.family[node]
    if not knows_host and STATED in costs.families:
        is_launch = family == costs.families.index(STATED)
        more = math.exp(UNKNOWN_HOST)
        below_ns[is_launch] = step.duration_ns[node][is_launch] * (1 - 1 / more)
        above_ns[is_launch] = step.duration_ns[node][is_launch] * (more - 1)
    critical, low, high = (
        np.bincount(family, weights, minlength=count)
        for weights in (step.duration_ns[node], below_ns, above_ns)
    )
    found = tuple(
        FamilySpread(name, round(critical[at]), round(low[at]), round(high[at]))
        for at, name in enumerate(costs.families)
        if critical[at] > 0
    )
    if unmodelled > 0:
        shorter, longer = (step_ns * (1 - math.exp(-unmodelled)), step_ns * math.expm1(unmodelled))
        found = (*found, FamilySpread(NOT_MODELLED, step_ns, round(shorter), round(longer)))
    low_ns, high_ns = _ends(step_ns, found[: len(found) - (unmodelled > 0)], unmodelled)
    return Interval(
        step_ns=step_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        families=tuple(sorted(found, key=lambda one: -(one.low_ns + one.high_ns))),
    )


def _ends(step_ns: int, families: tuple[FamilySpread, ...], unmodelled: float) -> tuple[int, int]:
    """Both ends: families add up in squares, what is not modelled on a logarithmic scale."""
    shorter_ns = min(math.hypot(*(one.low_ns for one in families)), step_ns - 1)
    longer_ns = math.hypot(*(one.high_ns for one in families))
    below = math.hypot(math.log(step_ns / (step_ns - shorter_ns)), unmodelled)
    above = math.hypot(math.log((step_ns + longer_ns) / step_ns), unmodelled)
    return round(step_ns * math.exp(-below)), round(step_ns * math.exp(above))


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
