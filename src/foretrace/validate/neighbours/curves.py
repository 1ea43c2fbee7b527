"""Estimates of published runs, with all their launch times; what was simulated is kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretrace.cost import CostModel
from foretrace.estimate import estimate
from foretrace.machine import Machine
from foretrace.validate.runs.kernels import costs_of
from foretrace.validate.runs.machines import machine_of
from foretrace.validate.runs.models import model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.validate.runs.steps import few_microbatches, with_microbatches
from foretrace.validate.runs.table import PublishedRun
from foretrace.whatif import StepCurve, step_curve
from foretrace.workload import Plan, Transformer, flops

_NS_PER_S = 1e9


@dataclass(frozen=True)
class Estimated:
    """A run, estimated from its configuration alone."""

    curve: StepCurve
    step_s: float  # from scratch
    flops_per_rank: float  # of a step, recompute not counted


@dataclass(frozen=True)
class Estimates:
    """Estimates of runs; runs that differ in microbatches alone share two simulations."""

    known: dict[tuple[Transformer, Plan, str], tuple[StepCurve, float]] = field(
        default_factory=dict
    )
    models: dict[tuple[str, str, str], CostModel] = field(default_factory=dict)

    def of(self, run: PublishedRun) -> Estimated:
        """One run, under its likeliest plan.

        Raises:
            ModelError: if it cannot be laid out or costed.
            ValueError: so too.
        """
        model, machine = model_of(run), machine_of(run)
        plan = plans_of(run, model).plans[0]
        costs = self._costs(run, machine)
        few, more = few_microbatches(plan)
        if plan.num_microbatches <= more:
            curve, step_ns = self._simulated(model, plan, machine, costs)
        else:
            short = self._simulated(model, with_microbatches(plan, few), machine, costs)
            long = self._simulated(model, with_microbatches(plan, more), machine, costs)
            times = (plan.num_microbatches - more) / (more - few)
            curve = _extrapolated(short[0], long[0], times)
            step_ns = long[1] + times * (long[1] - short[1])
        tokens = plan.global_batch * plan.sequence
        work = flops(model, plan.sequence).training * tokens / plan.num_ranks
        return Estimated(curve, step_ns / _NS_PER_S, work)

    def _costs(self, run: PublishedRun, machine: Machine) -> CostModel:
        key = (machine.title, run.software, run.family)
        if key not in self.models:
            self.models[key] = costs_of(run, machine)
        return self.models[key]

    def _simulated(
        self, model: Transformer, plan: Plan, machine: Machine, costs: CostModel
    ) -> tuple[StepCurve, float]:
        key = (model, replace(plan, name=""), machine.title)
        if key not in self.known:
            done = estimate(model, key[1], machine, costs=costs, unmodelled=0.0)
            self.known[key] = step_curve(done), float(done.step_ns)
        return self.known[key]


def _extrapolated(short: StepCurve, long: StepCurve, times: float) -> StepCurve:
    """The longer step, and so many times what it has over the shorter."""
    families = {*short.critical_ns, *long.critical_ns}
    both = {
        one: (short.critical_ns.get(one, 0.0), long.critical_ns.get(one, 0.0)) for one in families
    }
    return StepCurve(
        long.step_ns + times * (long.step_ns - short.step_ns),
        {one: max(0.0, after + times * (after - before)) for one, (before, after) in both.items()},
    )
