"""`UnevenStep`: the step when microbatches differ; `expert_mixes`: when loads of experts do.

The graph stays. Attention of a microbatch takes as long as its documents make it, the rest of it
as its tokens do, and in a layer with experts what they do and exchange as the fullest rank's load
does; everything that belongs to no microbatch stays as it is. Copies of the model wait for the
last of them where the step ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.balance import ExpertLoad, ExpertPlacement, Routing
from foretrace.base import Bools, Float64s, Int32s, Int64s, WorkloadError
from foretrace.cost import CostModel, Inflation, step_costs
from foretrace.estimate.packings import ExpertMix
from foretrace.estimate.step_time import known_costs, simulated_step
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.machine import Machine
from foretrace.operators import OperatorClass, operator_class
from foretrace.simulate import NO_GOAL, Scaling, simulate_batch
from foretrace.workload import (
    Plan,
    Setting,
    Transformer,
    blocks_of_model,
    check_plan,
    layout,
    schedule_of,
)

_FIXED = 0  # label of what belongs to no microbatch

_NUM_STEPS = 64


@dataclass(frozen=True, eq=False)
class UnevenStep:
    """A laid-out step whose microbatches can be made longer and shorter."""

    graph: ExecutionGraph
    duration_ns: Float64s  # float64[nodes], every microbatch one document as long as the window
    follows: Follows
    goal: Int32s  # int32[nodes], 0 of the nodes that end the step
    begin_ns: float
    num_microbatches: int  # of one copy of the model
    num_replicas: int
    attention_spread: tuple[float, float]  # 10th and 90th percentile of its cost, of the cost

    def step_ns(
        self, tokens: Float64s, attention: Float64s, load: Float64s | None = None
    ) -> Float64s:
        """Length of steps, float64[steps], in ns.

        Args:
            tokens: float64[steps, copies, microbatches], of the tokens of a whole window.
            attention: of the same shape, of the attention of one document as long as the window.
            load: float64[steps, microbatches, layers], of the fullest rank over the mean, in
                layers with experts; even, if left out.

        Raises:
            ValueError: if the shapes are not these.
        """
        shape = (len(tokens), self.num_replicas, self.num_microbatches)
        if tokens.shape != shape or attention.shape != shape:
            raise ValueError(
                f"expected {shape} for steps, copies of the model and microbatches, got "
                f"{tokens.shape} and {attention.shape}"
            )
        factor = self.follows.factors(
            tokens.reshape(-1, shape[2]),
            attention.reshape(-1, shape[2]),
            None if load is None else np.repeat(load, shape[1], axis=0),
        )
        ends = simulate_batch(
            self.graph, Scaling(label=self.follows.label, factor=factor), self.goal,
            duration_ns=self.duration_ns,
        ).end_ns[:, 0]  # fmt: skip
        longest: Float64s = ends.reshape(shape[:2]).max(axis=1) - self.begin_ns
        return longest


def uneven_step(
    model: Transformer,
    plan: Plan,
    machine: Machine,
    *,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    has_experts: bool = False,
) -> UnevenStep:
    """The step of an estimate, to be made uneven.

    Args:
        model: that is trained.
        plan: complete.
        machine: with as many chips as the plan has ranks, or more.
        costs: what predicts durations; the fitted models of this version, if left out.
        inflation: how much slower kernels are beside communication; the published mean, if left
            out.
        has_experts: the load of experts is to be made uneven too.

    Raises:
        WorkloadError: if the plan is not legal for the model.
        MachineError: if the machine cannot be costed.
    """
    check_plan(plan, model)
    graph = layout(blocks_of_model(model, plan), plan, schedule_of(plan)).graph
    priced = costs or step_costs(machine)
    done = simulated_step(graph, priced, inflation or Inflation())
    is_end = graph.kind == NodeKind.STEP_END
    count = plan.global_batch // (plan.data * plan.micro_batch)
    found = int(graph.microbatch.max(initial=-1)) + 1
    if found != count:
        raise WorkloadError(
            f"the step's graph shows {found} microbatches of a copy of the model, where the plan "
            f"has {count}: documents cannot be told apart in it"
        )
    experts = None
    if has_experts:
        experts = expert_work(
            model, plan, graph, costs=priced,
            laid_out=lambda one: layout(blocks_of_model(model, one), one, schedule_of(one)).graph,
        )  # fmt: skip
    follows = Follows.of(graph, experts)
    scores = follows.is_attention
    costs_ns, low_ns, high_ns = (
        float(one[scores].sum())
        for one in (done.costs.duration_ns, done.costs.low_ns, done.costs.high_ns)
    )
    return UnevenStep(
        graph=graph,
        duration_ns=done.duration_ns.astype(np.float64),
        follows=follows,
        goal=np.where(is_end, 0, NO_GOAL).astype(np.int32),
        begin_ns=float(windows(done.timeline).begin_ns[0]),
        num_microbatches=count,
        num_replicas=plan.data,
        attention_spread=(low_ns / costs_ns, high_ns / costs_ns) if costs_ns else (1.0, 1.0),
    )


@dataclass(frozen=True, eq=False)
class ExpertWork:
    """What of a step goes by the load of experts, and how."""

    is_loaded: Bools  # bool[nodes]
    layers: Int64s  # int64[layers], that have experts
    level: Float64s  # float64[levels], rising, load of the fullest rank over the mean
    ratio: Float64s  # float64[2, levels], time over that at 1: of kernels, of exchanges

    def time_at(self, load: Float64s) -> Float64s:
        """Time over that of an even load, float64[2, ...]; linear between levels and beyond."""
        found = [np.interp(load, self.level, one) for one in self.ratio]
        below = np.minimum(load, self.level[0]) - self.level[0]
        slope = np.diff(self.ratio[:, :2], axis=1)[:, 0] / np.diff(self.level[:2])[0]
        return np.stack([one + own * below for one, own in zip(found, slope, strict=True)])


def expert_work(
    model: Transformer,
    plan: Plan,
    graph: ExecutionGraph,
    *,
    costs: CostModel,
    laid_out: Callable[[Plan], ExecutionGraph],
) -> ExpertWork:
    """How a laid-out step goes by the load of experts.

    The same step is laid out once more for each of a few loads of the fullest rank.

    Args:
        model: of the step.
        plan: of the step, with an even load.
        graph: of the step, or of some copies of the model.
        costs: what predicts durations.
        laid_out: makes the graph of a plan as that one was made.

    Raises:
        WorkloadError: if the model has no experts, no ranks divide them, or the plan says how
            they are loaded.
    """
    if model.experts is None:
        raise WorkloadError(f"{model.name} has no experts, so that no load of theirs is uneven")
    if plan.expert == 1:
        raise WorkloadError(
            f"ep is 1, so that every rank holds all {model.experts.count} experts and their load "
            "delays none: state an ep that divides them"
        )
    if plan.token_shares is not None:
        raise WorkloadError("the plan has token_shares, and a load of experts is given: leave one")
    level = sorted({1.0, 2.0, min(4.0, plan.expert), float(plan.expert)})
    even_ns = known_costs(graph, costs).duration_ns
    times = []
    for one in level[1:]:
        shares = fullest_shares(one, plan.expert, model.experts.count)
        made = laid_out(replace(plan, token_shares=shares))
        times.append(known_costs(made, costs).duration_ns)
    own = _goes_by_microbatch(graph) & (graph.layer >= 0)
    is_loaded = own & np.any([one != even_ns for one in times], axis=0)
    is_kernel = graph.is_device & (graph.collective < 0)
    sums = [
        [float(one[is_loaded & chosen].sum()) for one in (even_ns, *times)]
        for chosen in (is_kernel, ~is_kernel)
    ]
    ratio = np.array([np.array(one) / max(one[0], 1e-9) for one in sums])
    return ExpertWork(is_loaded, np.unique(graph.layer[is_loaded]), np.array(level), ratio)


def fullest_shares(load: float, num_ranks: int, num_experts: int) -> tuple[float, ...]:
    """Shares of experts in order, of which the first rank has so many times the mean."""
    held = num_experts // num_ranks
    first = load / num_ranks
    rest = (1 - first) / max(1, num_experts - held)
    return (first / held,) * held + (rest,) * (num_experts - held)


@dataclass(frozen=True, eq=False)
class Follows:
    """What each node's duration follows: a microbatch, its attention, its experts, or nothing."""

    label: Int32s  # int32[nodes]
    num_microbatches: int
    # int64[3, labels] of experts: microbatch, place of its layer, row of the ratios. Labels are
    # _FIXED, then 1 + 2 m of microbatch m, 2 + 2 m of its attention, then these.
    of_experts: Int64s
    experts: ExpertWork | None

    @classmethod
    def of(cls, graph: ExecutionGraph, experts: ExpertWork | None = None) -> Follows:
        """Launches, gradients and the optimizer follow nothing."""
        is_own = _goes_by_microbatch(graph)
        names = np.array(
            [operator_class("", name) is OperatorClass.ATTENTION for name in graph.names] + [False]
        )
        is_host = graph.kind == NodeKind.OPERATOR
        is_attention = (graph.is_device & names[graph.operator]) | (is_host & names[graph.name])
        label = np.where(is_own, 1 + 2 * graph.microbatch.astype(np.int32) + is_attention, _FIXED)
        count = int(graph.microbatch.max(initial=-1)) + 1
        keys = np.empty((3, 0), np.int64)
        if experts is not None:
            loaded = np.flatnonzero(experts.is_loaded)
            is_exchange = ~graph.is_device[loaded] | (graph.collective[loaded] >= 0)
            layer = np.searchsorted(experts.layers, graph.layer[loaded])
            columns = np.stack([graph.microbatch[loaded].astype(np.int64), layer, is_exchange])
            keys, place = np.unique(columns, axis=1, return_inverse=True)
            label[loaded] = 1 + 2 * count + place.reshape(-1)
        return cls(label.astype(np.int32), count, keys, experts)

    @property
    def is_attention(self) -> Bools:
        """Which nodes follow the attention of a microbatch; bool[nodes]."""
        label = self.label
        found: Bools = (label != _FIXED) & (label % 2 == 0) & (label <= 2 * self.num_microbatches)
        return found

    def factors(
        self, tokens: Float64s, attention: Float64s, load: Float64s | None = None
    ) -> Float64s:
        """Times the duration of what has each label; float64[rows, labels].

        Args:
            tokens: float64[rows, microbatches].
            attention: so too.
            load: float64[rows, microbatches, layers with experts]; even, if left out.
        """
        count = 1 + 2 * self.num_microbatches
        factor = np.ones((len(tokens), count + self.of_experts.shape[1]))
        factor[:, 1:count:2], factor[:, 2:count:2] = tokens, attention
        microbatch, layer, row = self.of_experts
        factor[:, count:] = tokens[:, microbatch]
        if load is not None and self.experts is not None:
            times = self.experts.time_at(load)
            factor[:, count:] *= times[row, :, microbatch, layer].T
        return factor


def _goes_by_microbatch(graph: ExecutionGraph) -> Bools:
    """Kernels and transfers of a microbatch, operators where the host computes; bool[nodes]."""
    follows = graph.is_device | (graph.kind == NodeKind.FINISH)
    if not graph.has_device:
        follows |= graph.kind == NodeKind.OPERATOR
    found: Bools = follows & (graph.microbatch >= 0)
    return found


def loaded_plan(plan: Plan, model: Transformer, load: float) -> Plan:
    """The plan whose fullest rank of EXPERT has so many times the mean, in every layer."""
    count = model.experts.count if model.experts else 1
    shares = fullest_shares(max(1.0, load), plan.expert, count)
    return replace(plan, token_shares=None if load <= 1 else shares)


def routing_of(model: Transformer, plan: Plan, num_layers: int) -> Routing:
    """What tokens of a microbatch are routed over.

    Raises:
        WorkloadError: if the model has no experts.
    """
    if model.experts is None:
        raise WorkloadError(f"{model.name} has no experts, so that no load of theirs is uneven")
    return Routing(
        tokens=Setting(model, plan).own_tokens * plan.expert,
        chosen=model.experts.num_active,
        experts=model.experts.count,
        ranks=plan.expert,
        layers=num_layers,
    )


def expert_mixes(
    model: Transformer,
    plan: Plan,
    machine: Machine,
    *,
    load: ExpertLoad,
    placements: Sequence[ExpertPlacement],
    costs: CostModel,
    inflation: Inflation | None = None,
    num_steps: int = _NUM_STEPS,
    seed: int = 0,
) -> tuple[ExpertMix, ...]:
    """How long steps take under a load of experts, placement by placement.

    Args:
        model: with experts.
        plan: whose ranks of EXPERT divide them, without shares of its own.
        machine: with as many chips as the plan has ranks, or more.
        load: of experts.
        placements: of experts.
        costs: what predicts durations.
        inflation: how much slower kernels are beside communication; the published mean, if left
            out.
        num_steps: to draw.
        seed: of the draws.

    Raises:
        WorkloadError: if the model or the plan has no experts to balance, or the load is another
            model's.
        MachineError: if the machine cannot be costed.
    """
    step = uneven_step(model, plan, machine, costs=costs, inflation=inflation, has_experts=True)
    experts = step.follows.experts
    assert experts is not None  # noqa: S101  asked for
    routing = routing_of(model, plan, len(experts.layers))
    even = np.ones((num_steps, step.num_replicas, step.num_microbatches))
    even_ns = float(step.step_ns(even[:1], even[:1])[0])
    found = []
    for placement in placements:
        drawn = load.drawn(
            routing, placement, num_steps=num_steps, num_microbatches=step.num_microbatches,
            seed=seed,
        )  # fmt: skip
        step_ns = step.step_ns(even, even, drawn.fullest)
        found.append(
            ExpertMix(
                load=load.name,
                placement=placement.name,
                num_steps=num_steps,
                imbalance=drawn.imbalance,
                worst_imbalance=float(drawn.fullest.mean(axis=(0, 1)).max()),
                dropped=drawn.dropped,
                mean_ns=float(step_ns.mean()),
                p50_ns=float(np.quantile(step_ns, 0.5)),
                p95_ns=float(np.quantile(step_ns, 0.95)),
                even_ns=even_ns,
            )
        )
    return tuple(found)
