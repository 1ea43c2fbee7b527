"""The interval of a step: what every family of operations may be off by, carried to the end.

Operations of one family (products in bf16, all-reduces, ...) are predicted by one model, so they
err together; families err apart. The step moves with a family by what of it lies on the critical
path, to first order. What no cost model knows (launches that are held up, kernels not named,
contention) is one more part, relative to the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import windows
from foretrace.estimate.durations import Run
from foretrace.simulate import way_back

# What no cost model knows, as a logarithmic width each way: with it 80% of published runs lie
# inside their intervals, each source of runs given what the others need (docs/accuracy.md,
# `foretrace validate runs`).
UNMODELLED = 0.106
NOT_MODELLED = "not modelled"  # in place of a family


@dataclass(frozen=True)
class FamilySpread:
    """What one family's uncertainty does to the step."""

    family: str
    critical_ns: int  # of it on the critical path
    low_ns: int  # by how much the step is shorter at the 10th percentile, 0 or more
    high_ns: int  # by how much longer at the 90th

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            "family": self.family,
            "critical_ns": self.critical_ns,
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
        }


@dataclass(frozen=True)
class Interval:
    """The middle 80% of where a step's time is expected."""

    step_ns: int
    low_ns: int
    high_ns: int
    families: tuple[FamilySpread, ...]  # the widest first


def interval(run: Run, *, unmodelled: float = UNMODELLED, row: int = 0) -> Interval:
    """The interval of a simulated step.

    Args:
        run: one step, or several.
        unmodelled: spread of what no cost model knows, on a logarithmic scale, each way.
        row: which of the steps, in order of time.
    """
    steps = windows(run.timeline)
    step_ns = int(steps.duration_ns[row])
    begin_ns = int(steps.begin_ns[row])
    node = way_back(run.timeline, int(steps.end_node[row]), begin_ns=begin_ns).node
    costs = run.costs
    alone_ns = np.maximum(costs.duration_ns[node], 1)
    grown = run.duration_ns[node] / alone_ns
    below_ns = (costs.duration_ns - costs.low_ns)[node] * grown
    above_ns = (costs.high_ns - costs.duration_ns)[node] * grown
    count = len(costs.families)
    family = costs.family[node]
    critical, low, high = (
        np.bincount(family, weights, minlength=count)
        for weights in (run.duration_ns[node], below_ns, above_ns)
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
