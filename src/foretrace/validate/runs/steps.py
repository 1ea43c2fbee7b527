"""Steps by the estimate; a step of many microbatches from two of few.

From some number of microbatches on, every further one adds the same: a pipeline in its steady
state, or gradients that are accumulated. So a step of hundreds of microbatches is that of a few,
and as often as it takes the difference that some more of them make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from foretrace.cost import CostModel
from foretrace.estimate import Estimate, estimate
from foretrace.machine import Machine
from foretrace.software import PRODUCTS_BY_FORMAT
from foretrace.workload import Plan, Transformer

_FEW = 8  # microbatches of the shorter of two steps in a pipeline without chunks, at most
_SHALLOW_LAYERS = 4
_MICROBATCHES_OF_SHALLOW = 8


@dataclass(frozen=True)
class StepTime:
    """One step, predicted; times in ns."""

    step_ns: float
    low_ns: float  # 10th percentile
    high_ns: float  # 90th
    products_ns: Mapping[str, float]  # of its critical path: products, by their format


@dataclass(frozen=True)
class Steps:
    """Steps of one model on one machine; what was simulated is kept."""

    model: Transformer
    machine: Machine
    costs: CostModel
    # Of plans as simulated, with all layers or few.
    known: dict[tuple[bool, Plan], StepTime] = field(default_factory=dict)

    def of(self, plan: Plan) -> StepTime:
        """One step under a plan.

        Raises:
            ModelError: if the plan cannot be laid out or costed.
        """
        few, more = few_microbatches(plan)
        if plan.num_microbatches <= more:
            return self._simulated(plan)
        short = self._simulated(with_microbatches(plan, few))
        long = self._simulated(with_microbatches(plan, more))
        times = (plan.num_microbatches - more) / (more - few)
        step_ns = long.step_ns + times * (long.step_ns - short.step_ns)
        grown = step_ns / long.step_ns
        return StepTime(
            step_ns,
            low_ns=long.low_ns * grown,
            high_ns=long.high_ns * grown,
            products_ns={
                name: long_ns + times * (long_ns - short.products_ns[name])
                for name, long_ns in long.products_ns.items()
            },
        )

    def shallow_ns(self, plan: Plan) -> float:
        """Duration per sequence of a few layers without a pipeline: what plans are compared by.

        What one plan does to a layer it does to all; so the ratio of two plans' times shows.
        """
        flat = replace(
            plan,
            pipeline=1,
            schedule="none",
            num_chunks=1,
            layers_of_chunk=None,
            contiguous=None,
            recompute_of_layer=_shallow(plan.recompute_of_layer),
        )
        count = min(plan.num_microbatches, _MICROBATCHES_OF_SHALLOW)
        model = replace(self.model, num_layers=min(self.model.num_layers, _SHALLOW_LAYERS))
        found = self._simulated(with_microbatches(flat, count), model)
        return found.step_ns / (count * plan.micro_batch)

    def _simulated(self, plan: Plan, model: Transformer | None = None) -> StepTime:
        key = (model is None, replace(plan, name=""))
        found = self.known.get(key)
        if found is None:
            done = estimate(
                model or self.model, key[1], self.machine, costs=self.costs, unmodelled=0.0
            )
            found = self.known[key] = _time_of(done)
        return found


def _shallow(words: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """What a few layers compute again, spread as that of all is."""
    if words is None or len(words) <= _SHALLOW_LAYERS:
        return words
    return tuple(words[at * len(words) // _SHALLOW_LAYERS] for at in range(_SHALLOW_LAYERS))


def few_microbatches(plan: Plan) -> tuple[int, int]:
    """Microbatches of a shorter and a longer step between which every one adds the same."""
    stages = plan.pipeline
    if stages == 1:
        return 2, 3
    if plan.num_chunks > 1:
        return stages, 2 * stages  # a group of microbatches is as long as the pipeline
    if plan.schedule == "dualpipe":
        return 2 * stages, 3 * stages
    few = min(stages, _FEW)
    return few, 2 * few


def with_microbatches(plan: Plan, count: int) -> Plan:
    """The plan with a batch of so many microbatches on each rank."""
    return replace(plan, global_batch=count * plan.micro_batch * plan.data)


def _time_of(done: Estimate) -> StepTime:
    found = done.interval
    products = {
        name: sum(one.critical_ns for one in found.families if one.family.startswith(begins))
        for name, begins in PRODUCTS_BY_FORMAT.items()
    }
    return StepTime(
        found.step_ns,
        low_ns=found.low_ns,
        high_ns=found.high_ns,
        products_ns=products,
    )
