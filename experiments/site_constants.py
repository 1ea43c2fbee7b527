"""A handful of constants of one site, fitted to a few of its runs, for predicting its others.

What a benchmark of kernels elsewhere cannot know of a site: how fast its hosts launch, how its
products, memory and networks compare with those measured, and what its software does to attention
scores and to a vocabulary of odd size. Each run is simulated with the constants; the sum of squared
logarithms of predicted over measured times is the least, far outliers counting less.

A host that launches slowly does not run ahead: in what vTrain published, times of layers and of the
head add up even where most kernels are far shorter than a launch. So no operation takes less than
its launch, rather than the host launching beside the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.base import NS_PER_S, Float64s
from foretrace.cost import (
    CollectiveRequests,
    CostModel,
    Costs,
    FittedCosts,
    KernelRequests,
    Slower,
    shipped_constants,
    under_lasting_load,
)
from foretrace.estimate import simulated_step
from foretrace.machine import Machine
from foretrace.validate import PublishedRun
from foretrace.validate.runs.configuration import machine_of, model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.validate.runs.steps import few_microbatches, with_microbatches
from foretrace.workload import (
    AT_ONCE,
    Launch,
    ModelBlocks,
    Operator,
    Plan,
    Recompute,
    Transformer,
    blocks_of_model,
    launch_named,
    layout,
    schedule_of,
)

_OUTLIER = 0.05  # logarithm from which on a run counts less
_MOST_EVALUATIONS = 20
_DIFFERENCE = 0.05  # of a constant's logarithm, for derivatives


_PRODUCTS = ("aten::mm", "aten::addmm")
_SCORES = ("ScaledUpperTriangMaskedSoftmax", "aten::_softmax_backward_data")


@dataclass(frozen=True)
class SiteConstants:
    """Factors, without a unit, on what is known elsewhere."""

    host: float = 1.0  # time of a launch, which no kernel and no collective undercuts
    products: float = 1.0
    movements: float = 1.0
    collectives: float = 1.0
    vocabulary: float = 1.0  # products over an odd number of tokens, besides `products`
    scores: float = 1.0  # softmax of attention scores, instead of `movements`: mask, dropout


# Launches of traces with Python stacks take 30 to 100 us, several times the usual.
_START = SiteConstants(host=4.0, vocabulary=3.0, scores=1.5)


@dataclass(frozen=True)
class SiteRun:
    """A run, laid out as far as constants do not matter."""

    run: PublishedRun
    model: Transformer
    plan: Plan
    machine: Machine
    blocks: ModelBlocks


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
    if count <= more:
        return _simulated_ns(one, count, constants) / NS_PER_S
    short, long = (_simulated_ns(one, each, constants) for each in (few, more))
    step_ns = long + (count - more) * (long - short) / (more - few)
    return step_ns / NS_PER_S


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


@dataclass(frozen=True)
class _AtSite:
    """Another model's answers by a site's constants that go by operator."""

    model: CostModel
    constants: SiteConstants
    launch: Launch
    odd: frozenset[str]  # signatures of products over an odd number of tokens

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Slower over odd vocabularies and of scores; never shorter than a launch."""
        site = self.constants
        # Last in line, and so at position NO_TEXT: what nothing is known of.
        by_signature = [site.vocabulary if one in self.odd else 1.0 for one in requests.signatures]
        of_scores = site.scores / site.movements
        by_operator = [of_scores if one in _SCORES else 1.0 for one in requests.operators]
        factor = (
            np.array([*by_signature, 1.0])[requests.signature]
            * np.array([*by_operator, 1.0])[requests.operator]
        )
        # Backward passes have most of the kernels.
        return _at_least(
            self.model.kernel_costs(requests), factor, site.host * self.launch.backward_ns
        )

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """Never shorter than a launch."""
        costs = self.model.collective_costs(requests)
        return _at_least(costs, np.ones(len(costs)), self.constants.host * self.launch.exchange_ns)


def _at_least(costs: Costs, factor: Float64s, least_ns: float) -> Costs:
    low_ns, duration_ns, high_ns = (
        np.rint(np.maximum(each * factor, least_ns)).astype(np.int64)
        for each in (costs.low_ns, costs.duration_ns, costs.high_ns)
    )
    return replace(costs, low_ns=low_ns, duration_ns=duration_ns, high_ns=high_ns)


def _odd_products(one: SiteRun) -> frozenset[str]:
    head = one.blocks.head
    # Rows of 16-bit numbers then begin where no wide load may.
    tokens = one.run.described_software.vocabulary or one.model.vocabulary
    if head is None or tokens // one.plan.tensor % 2 == 0:
        return frozenset()
    return frozenset(
        item.signature
        for item in (*head.forward.items, *head.backward.items)
        if isinstance(item, Operator) and item.name in _PRODUCTS
    )


def _simulated_ns(one: SiteRun, count: int, constants: SiteConstants) -> float:
    plan = with_microbatches(one.plan, count)
    costs = Slower(
        FittedCosts(one.machine, under_lasting_load(shipped_constants())),
        {"gemm": constants.products, "movement": constants.movements},
        {"": constants.collectives},
    )
    launch = launch_named(plan.implementation.launch)
    at_site = _AtSite(costs, constants, launch, _odd_products(one))
    graph = layout(one.blocks, plan, schedule_of(plan), launch=AT_ONCE).graph
    return float(windows(simulated_step(graph, at_site, None).timeline).duration_ns[0])
