"""`expert_mixes`: steps whose experts are loaded unevenly, for some placements of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.balance import ExpertLoad, ExpertPlacement, Routing
from foretrace.base import WorkloadError
from foretrace.cost import CostModel, Inflation
from foretrace.estimate.packings import ExpertMix
from foretrace.estimate.uneven import fullest_shares, uneven_step
from foretrace.machine import Machine
from foretrace.workload import Plan, Setting, Transformer

_NUM_STEPS = 64


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
        machine: as in `estimate`.
        load: of experts.
        placements: of experts.
        costs: as in `estimate`.
        inflation: so too.
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
