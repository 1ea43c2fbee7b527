"""`step_of`: a step's time and interval by the estimate; a long step from two short ones.

From some number of microbatches on, every further one adds the same: a pipeline in its steady
state, or gradients that are accumulated. So a step of hundreds of microbatches is that of a few,
and as often as it takes the difference that some more of them make.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.cost import CostModel
from foretrace.estimate.compose import estimate
from foretrace.estimate.estimate import Estimate
from foretrace.machine import Machine
from foretrace.workload import Model, Plan

_MOST_MORE = 8  # microbatches in the longer of two steps beyond those of the shorter


@dataclass(frozen=True)
class StepTime:
    """One step, predicted; times in ns."""

    step_ns: float
    low_ns: float  # 10th percentile
    high_ns: float  # 90th
    peak_bytes: int | None  # of the fullest stage


def step_of(model: Model, plan: Plan, machine: Machine, costs: CostModel) -> StepTime:
    """One step of a model under a plan.

    Raises:
        ModelError: if the plan cannot be laid out or costed.
    """
    few, more = _microbatches(plan)
    if plan.num_microbatches <= more:
        return _time_of(estimate(model, plan, machine, costs=costs))
    short = _time_of(estimate(model, _with_microbatches(plan, few), machine, costs=costs))
    long = _time_of(estimate(model, _with_microbatches(plan, more), machine, costs=costs))
    times = (plan.num_microbatches - more) / (more - few)
    step_ns = long.step_ns + times * (long.step_ns - short.step_ns)
    grown = step_ns / long.step_ns
    return StepTime(step_ns, long.low_ns * grown, long.high_ns * grown, long.peak_bytes)


def _microbatches(plan: Plan) -> tuple[int, int]:
    """Microbatches of the shorter and the longer step, both in the steady state."""
    stages = plan.pipeline
    if stages == 1:
        return 2, 3
    if plan.num_chunks > 1:
        return stages, 2 * stages  # a group of microbatches is as long as the pipeline
    if plan.schedule == "dualpipe":
        return 2 * stages, 3 * stages
    return stages, stages + min(stages, _MOST_MORE)


def _with_microbatches(plan: Plan, count: int) -> Plan:
    return replace(plan, global_batch=count * plan.micro_batch * plan.data)


def _time_of(done: Estimate) -> StepTime:
    found = done.interval
    footprint = done.footprint
    return StepTime(
        found.step_ns,
        found.low_ns,
        found.high_ns,
        None if footprint is None else footprint.peak.total,
    )
