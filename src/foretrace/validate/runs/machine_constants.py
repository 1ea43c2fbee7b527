"""A handful of constants of one site, fitted to a few of its runs, for predicting its others.

What a benchmark of kernels elsewhere cannot know of a site: how fast its hosts launch, how long a
stage stands still for each layer and microbatch, and how its products, memory and networks compare
with those measured. Each run is simulated with the constants; the sum of squared logarithms of
predicted over measured times is the least, far outliers counting less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Float64s
from foretrace.cost import FittedCosts, Slower, shipped_constants, under_lasting_load
from foretrace.estimate import run as simulated
from foretrace.machine import Machine
from foretrace.validate.runs.machines import machine_of
from foretrace.validate.runs.models import model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.validate.runs.steps import few_microbatches, with_microbatches
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import (
    Blocks,
    Plan,
    Recompute,
    Transformer,
    blocks_of_model,
    launch_named,
    layout,
    schedule_of,
)

_NS_PER_S = 1e9
_OUTLIER = 0.05  # logarithm from which on a run counts less
_MOST_EVALUATIONS = 20
_DIFFERENCE = 0.05  # of a constant's logarithm, for derivatives


@dataclass(frozen=True)
class SiteConstants:
    """Factors on what is known elsewhere, and one time."""

    host: float = 1.0  # time of a launch
    products: float = 1.0
    movements: float = 1.0
    collectives: float = 1.0
    gap_ns: float = 0.0  # that a stage stands still for each of its layers and microbatches


_START = SiteConstants(gap_ns=5e5)


@dataclass(frozen=True)
class SiteRun:
    """A run, laid out as far as constants do not matter."""

    run: PublishedRun
    model: Transformer
    plan: Plan
    machine: Machine
    blocks: Blocks


def site_run(run: PublishedRun, recompute: Recompute | None = None) -> SiteRun:
    """A run with its likeliest plan.

    Args:
        run: published.
        recompute: what the table leaves open; what the software does unless told otherwise, if
            left out.

    Raises:
        ModelError: if it cannot be laid out.
    """
    model = model_of(run)
    plan = plans_of(run, model).plans[0]
    if recompute is not None:
        plan = replace(plan, recompute=recompute)
    return SiteRun(run, model, plan, machine_of(run), blocks_of_model(model, plan))


def site_step_s(one: SiteRun, constants: SiteConstants) -> float:
    """Seconds of a run's step by a site's constants."""
    plan = one.plan
    few, more = few_microbatches(plan)
    count = plan.num_microbatches
    layers = one.model.num_layers / plan.pipeline
    gaps_ns = constants.gap_ns * layers * (count + (plan.pipeline - 1) / plan.num_chunks)
    if count <= more:
        return (_simulated_ns(one, count, constants) + gaps_ns) / _NS_PER_S
    short, long = (_simulated_ns(one, each, constants) for each in (few, more))
    step_ns = long + (count - more) * (long - short) / (more - few)
    return (step_ns + gaps_ns) / _NS_PER_S


def fitted_constants(runs: Sequence[SiteRun]) -> SiteConstants:
    """The constants that fit a few runs best."""
    from scipy.optimize import least_squares  # on demand: it takes longer to import than most

    names = [field.name for field in fields(SiteConstants)]
    start = np.array([getattr(_START, name) for name in names])

    def constants(turned: Float64s) -> SiteConstants:
        # Logarithms of what the start is multiplied by, beside 1: steps are relative to them.
        return SiteConstants(*(start * np.exp(turned - 1)).tolist())

    def off(turned: Float64s) -> Float64s:
        site = constants(turned)
        return np.array(
            [np.log(site_step_s(one, site) / (one.run.measured_s or 1.0)) for one in runs]
        )

    found = least_squares(
        off,
        np.ones(len(names)),
        diff_step=_DIFFERENCE,
        loss="soft_l1",
        f_scale=_OUTLIER,
        max_nfev=_MOST_EVALUATIONS,
    )
    return constants(found.x)


def _simulated_ns(one: SiteRun, count: int, constants: SiteConstants) -> float:
    plan = with_microbatches(one.plan, count)
    known = launch_named(plan.implementation.launch)
    launch = replace(
        known,
        **{
            name: round(getattr(known, name) * constants.host)
            for name in ("forward_ns", "backward_ns", "optimizer_ns", "exchange_ns")
        },
    )
    costs = Slower(
        FittedCosts(one.machine, under_lasting_load(shipped_constants())),
        {"gemm": constants.products, "movement": constants.movements},
        {"": constants.collectives},
    )
    graph = layout(one.blocks, plan, schedule_of(plan), launch=launch).graph
    return float(windows(simulated(graph, costs, None).timeline).duration_ns[0])
