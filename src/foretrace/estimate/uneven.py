"""`UnevenStep`: the step when every microbatch of every copy of the model is different.

The laid-out graph stays. Attention of a microbatch takes as long as its documents make it, the
rest of it as its tokens do; everything that belongs to no microbatch stays as it is. Copies of
the model wait for the last of them where the step ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze import windows
from foretrace.balance import check_fused
from foretrace.base import Float64s, Int32s, WorkloadError
from foretrace.cost import CostModel, Inflation, step_costs
from foretrace.estimate.step_time import simulated_step
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.machine import Machine
from foretrace.operators import OperatorClass, operator_class
from foretrace.simulate import NO_GOAL, Scaling, simulate_batch
from foretrace.workload import Plan, Transformer, blocks_of_model, check_plan, layout, schedule_of

_FIXED = 0  # label of what belongs to no microbatch


@dataclass(frozen=True, eq=False)
class UnevenStep:
    """A laid-out step whose microbatches can be made longer and shorter."""

    graph: ExecutionGraph
    duration_ns: Float64s  # float64[nodes], every microbatch one document as long as the window
    label: Int32s  # int32[nodes]: _FIXED, or 1 + 2 m of microbatch m, 2 + 2 m of its attention
    goal: Int32s  # int32[nodes], 0 of the nodes that end the step
    begin_ns: float
    num_microbatches: int  # of one copy of the model
    num_replicas: int
    attention_spread: tuple[float, float]  # 10th and 90th percentile of its cost, of the cost

    def step_ns(self, tokens: Float64s, attention: Float64s) -> Float64s:
        """Length of steps, float64[steps], in ns.

        Args:
            tokens: float64[steps, copies, microbatches], of the tokens of a whole window.
            attention: of the same shape, of the attention of one document as long as the window.

        Raises:
            ValueError: if the shapes are not these.
        """
        shape = (len(tokens), self.num_replicas, self.num_microbatches)
        if tokens.shape != shape or attention.shape != shape:
            raise ValueError(
                f"expected {shape} for steps, copies of the model and microbatches, got "
                f"{tokens.shape} and {attention.shape}"
            )
        factor = np.ones((shape[0] * shape[1], 1 + 2 * shape[2]))
        factor[:, 1::2] = tokens.reshape(-1, shape[2])
        factor[:, 2::2] = attention.reshape(-1, shape[2])
        ends = simulate_batch(
            self.graph, Scaling(label=self.label, factor=factor), self.goal,
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
) -> UnevenStep:
    """The step of an estimate, to be made uneven.

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
    check_fused(plan)
    graph = layout(blocks_of_model(model, plan), plan, schedule_of(plan)).graph
    done = simulated_step(graph, costs or step_costs(machine), inflation or Inflation())
    is_end = graph.kind == NodeKind.STEP_END
    count = plan.global_batch // (plan.data * plan.micro_batch)
    found = int(graph.microbatch.max(initial=-1)) + 1
    if found != count:
        raise WorkloadError(
            f"the step's graph shows {found} microbatches of a copy of the model, where the plan "
            f"has {count}: documents cannot be told apart in it"
        )
    label = mix_labels(graph)
    scores = (label != _FIXED) & (label % 2 == 0)
    costs_ns = done.costs.duration_ns[scores].sum()
    return UnevenStep(
        graph=graph,
        duration_ns=done.duration_ns.astype(np.float64),
        label=label,
        goal=np.where(is_end, 0, NO_GOAL).astype(np.int32),
        begin_ns=float(windows(done.timeline).begin_ns[0]),
        num_microbatches=count,
        num_replicas=plan.data,
        attention_spread=(
            float(done.costs.low_ns[scores].sum() / costs_ns),
            float(done.costs.high_ns[scores].sum() / costs_ns),
        ),
    )


def mix_labels(graph: ExecutionGraph) -> Int32s:
    """What each node's duration follows; int32[nodes].

    0 where it follows no microbatch: launches, gradients, the optimizer. 1 + 2 m for kernels and
    transfers of microbatch m, 2 + 2 m for its attention.
    """
    follows = graph.is_device | (graph.kind == NodeKind.FINISH)
    is_own = follows & (graph.microbatch >= 0)
    names = np.array(
        [operator_class("", name) is OperatorClass.ATTENTION for name in graph.names] + [False]
    )
    is_attention = graph.is_device & names[graph.operator]
    label = 1 + 2 * graph.microbatch.astype(np.int32) + is_attention
    return np.where(is_own, label, _FIXED).astype(np.int32)
