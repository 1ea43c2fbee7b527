"""`estimate`: from a model, a plan and a machine to a simulated step."""

from __future__ import annotations

from foretrace.base import MachineError
from foretrace.cost import CostModel, FittedCosts, Inflation
from foretrace.estimate.durations import run
from foretrace.estimate.estimate import Estimate
from foretrace.estimate.interval import interval
from foretrace.machine import Chip, Machine
from foretrace.workload import (
    Convention,
    Footprint,
    Model,
    Plan,
    Recommender,
    Transformer,
    blocks_of_model,
    check_plan,
    flops,
    footprint,
    layout,
    recommender_footprint,
    schedule_of,
)


def estimate(
    model: Model,
    plan: Plan,
    machine: Machine,
    *,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    convention: Convention = Convention.CAUSAL,
    folded: bool = True,
    price_per_hour: float | None = None,
) -> Estimate:
    """One step of a model under a plan on a machine.

    Args:
        model: of any kind that has layers.
        plan: complete; rank r stands at place r of the machine.
        machine: with as many chips as the plan has ranks, or more.
        costs: what predicts durations; the fitted models of this version if left out.
        inflation: how much slower kernels are beside communication; the published mean, if left
            out; `Inflation(otherwise=1.0)` for no slower.
        convention: how FLOPs are counted.
        folded: simulate one rank of each role instead of all.
        price_per_hour: of one chip, in any currency.

    Raises:
        WorkloadError: if the plan is not legal for the model.
        MachineError: if the machine is too small, or cannot be costed.
    """
    check_plan(plan, model)
    if plan.num_ranks > machine.num_ranks:
        raise MachineError(
            f"the plan needs {plan.num_ranks:,} chips, and machine {machine.name!r} has "
            f"{machine.num_ranks:,}: take a larger machine or fewer ranks."
        )
    schedule = schedule_of(plan)
    laid_out = layout(blocks_of_model(model, plan), plan, schedule, folded=folded)
    done = run(laid_out.graph, costs or FittedCosts(machine), inflation or Inflation())
    chip = machine.chip
    return Estimate(
        model=model,
        plan=plan,
        machine=machine,
        laid_out=laid_out,
        timeline=done.timeline,
        costs=done.costs,
        interval=interval(done),
        footprint=_footprint(model, plan, chip),
        flops=flops(model, plan.sequence, convention=convention),
        convention=convention,
        peak_flops_per_ns=chip.peak_flops_per_ns(plan.precision.products),
        price_per_hour=price_per_hour,
    )


def _footprint(model: Model, plan: Plan, chip: Chip) -> Footprint | None:
    """Memory of models whose tensors are known one by one; a diffusion network's are not yet."""
    if isinstance(model, Transformer):
        return footprint(model, plan, schedule_of(plan), capacity=chip.memory_bytes)
    if isinstance(model, Recommender):
        return recommender_footprint(model, plan, capacity=chip.memory_bytes)
    return None
