"""`interval`: where the time of a simulated step is expected, from the intervals of its operations.

Operations of one family (products in bf16, all-reduces, ...) are predicted by one model, so they
err together; families err apart. The step moves with a family by what of it lies on the critical
path, to first order. What no cost model knows (launches that are held up, kernels not named,
contention) is one more part, relative to the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import windows
from foretrace.answer import Plain
from foretrace.base import Int64s
from foretrace.cost import STATED, Costs
from foretrace.graph import Timeline
from foretrace.simulate import way_back

if TYPE_CHECKING:  # what steps whose transfers share no link need not load
    from foretrace.estimate.link_traffic import StepTraffic

# Of a step that was recorded, whose software is in the recording: as wide as runs need that are
# predicted from their neighbours.
UNMODELLED = 0.106
# Logarithmic width each way of launches on a host of which nothing is known: traces have 0.5 to 2
# times the usual where no Python stacks are recorded (those behind `workload.layout.launch`), which
# is taken for one standard deviation; 1.2816 of them are the 90th percentile.
UNKNOWN_HOST: float = 1.2816 * math.log(2)
NOT_MODELLED = "not modelled"  # in place of a family


@dataclass(frozen=True)
class SimulatedStep:
    """A simulation, and the durations it was made with."""

    timeline: Timeline
    costs: Costs  # of every node alone
    duration_ns: Int64s  # int64[nodes], with what communication adds, on links of their own
    traffic: StepTraffic | None = None  # `None`: no link was shared


@dataclass(frozen=True)
class FamilySpread(Plain):
    """What one family's uncertainty does to the step."""

    family: str
    critical_ns: int  # of it on the critical path
    low_ns: int  # by how much the step is shorter at the 10th percentile, 0 or more
    high_ns: int  # by how much longer at the 90th


@dataclass(frozen=True)
class Interval:
    """The middle 80% of where a step's time is expected."""

    step_ns: int
    low_ns: int
    high_ns: int
    families: tuple[FamilySpread, ...]  # the widest first


def interval(
    step: SimulatedStep,
    *,
    unmodelled: float = UNMODELLED,
    row: int = 0,
    knows_host: bool = True,
) -> Interval:
    """The interval of a simulated step.

    Args:
        step: one step, or several.
        unmodelled: spread of what no cost model knows, on a logarithmic scale, each way.
        row: which of the steps, in order of time.
        knows_host: whether launches take as long as stated; else they may take half or twice that.
    """
    steps = windows(step.timeline)
    step_ns = int(steps.duration_ns[row])
    begin_ns = int(steps.begin_ns[row])
    node = way_back(step.timeline, int(steps.end_node[row]), begin_ns=begin_ns).node
    costs = step.costs
    alone_ns = np.maximum(costs.duration_ns[node], 1)
    grown = step.duration_ns[node] / alone_ns
    below_ns = (costs.duration_ns - costs.low_ns)[node] * grown
    above_ns = (costs.high_ns - costs.duration_ns)[node] * grown
    count = len(costs.families)
    family = costs.family[node]
    if not knows_host and STATED in costs.families:
        is_launch = family == costs.families.index(STATED)
        more = math.exp(UNKNOWN_HOST)
        below_ns[is_launch] = step.duration_ns[node][is_launch] * (1 - 1 / more)
        above_ns[is_launch] = step.duration_ns[node][is_launch] * (more - 1)
    critical, low, high = (
        np.bincount(family, weights, minlength=count)
        for weights in (step.duration_ns[node], below_ns, above_ns)
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
