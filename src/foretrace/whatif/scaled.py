"""`scaled_step`: a measured step, times the ratio of two estimates of a stated model.

What an estimate does not know of a job (its software, its chips, its hosts) is in the measurement;
what a change does to the step is in the estimates. One measured time cannot say which of two
things makes a step slower than its estimate, and they scale otherwise: whether all work takes
longer, which the new step does too; or whether the host launches slowly, which only short kernels
feel. So both are taken as they are likeliest together: launches within a factor of two of what is
usual, all else within what estimates are off by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Float64s, Int64s, ScenarioError
from foretrace.estimate import UNKNOWN_HOST, UNMODELLED, Estimate
from foretrace.graph import EdgeKind
from foretrace.simulate import simulate

# Of the usual time of a launch, which is 20 us: recorded ones take 5 us without a framework between
# them and up to 100 us with Python stacks. In steps of the square root of 2.
LAUNCH_FACTORS = tuple(2.0 ** (at / 2) for at in range(-4, 6))
_WIDTH_80 = 1.2816  # of a normal distribution: its 90th percentile, in standard deviations
_LOG_FINE = np.linspace(math.log(LAUNCH_FACTORS[0]), math.log(LAUNCH_FACTORS[-1]), 241)
# Standard deviations of logarithms.
_OF_LAUNCHES = UNKNOWN_HOST / _WIDTH_80
_OF_ALL_ELSE = UNMODELLED / _WIDTH_80
# Logarithmic width each way of a step all of whose critical path is new. What it is made of errs
# apart, so that a share of it counts by its root. As wide as 80% of vTrain's runs need, predicted
# from neighbours, each thing that neighbours differ in counting alike (docs/accuracy.md).
_CHANGED = 0.25


@dataclass(frozen=True)
class StepCurve:
    """A configuration's estimated step, by how long launches take."""

    step_ns: Float64s  # float64[factors], at LAUNCH_FACTORS
    critical_ns: Mapping[str, float]  # of the estimated step, by family of operations


@dataclass(frozen=True)
class ScaledStep:
    """A step that was measured, after a change."""

    step_ns: int
    low_ns: int  # 10th percentile
    high_ns: int  # 90th
    ratio: float  # to the measured one
    launch_factor: float  # time of a launch, of the usual, that is likeliest
    rest_factor: float  # measured over estimated time with such launches


def scaled_step(measured_ns: float, before: Estimate, after: Estimate) -> ScaledStep:
    """What a measured step takes after a change that two estimates describe.

    Args:
        measured_ns: the step, run as `before` describes it.
        before: estimate of what was run.
        after: estimate of what is asked for.

    Raises:
        ScenarioError: if nothing was measured.
    """
    return scaled_along(measured_ns, step_curve(before), step_curve(after))


def step_curve(done: Estimate) -> StepCurve:
    """An estimate's step with launches that take a fraction of the usual time, up to many times.

    No kernel is shorter than its launch: a host that launches slowly runs ahead of nothing.
    """
    graph = done.laid_out.graph
    took_ns = done.timeline.duration_ns
    target = graph.edge_target
    is_launch = (graph.edge_kind == EdgeKind.LAUNCH) & graph.is_device[target]
    launch_ns = np.zeros(graph.num_nodes)
    launch_ns[target[is_launch]] = took_ns[graph.predecessor[is_launch]]
    steps = [_step_ns(done, np.maximum(took_ns, launch_ns * one)) for one in LAUNCH_FACTORS]
    critical = {one.family: float(one.critical_ns) for one in done.interval.families}
    return StepCurve(np.array(steps, np.float64), critical)


def _step_ns(done: Estimate, duration_ns: Float64s) -> int:
    durations: Int64s = np.rint(duration_ns).astype(np.int64)
    return int(windows(simulate(done.laid_out.graph, durations)).duration_ns[0])


def scaled_along(measured_ns: float, before: StepCurve, after: StepCurve) -> ScaledStep:
    """As `scaled_step`, of estimates with all their launch times.

    Raises:
        ScenarioError: if nothing was measured.
    """
    if not measured_ns > 0:
        raise ScenarioError(
            f"a step of {measured_ns} ns cannot be scaled: expected a measured time above 0"
        )
    was, becomes = (
        np.interp(_LOG_FINE, np.log(LAUNCH_FACTORS), np.log(one.step_ns)) for one in (before, after)
    )
    rest = math.log(measured_ns) - was
    unlikely = (rest / _OF_ALL_ELSE) ** 2 + (_LOG_FINE / _OF_LAUNCHES) ** 2
    best = int(np.argmin(unlikely))
    ratio = becomes - was  # logarithms, by launch factor
    below, above = _between(ratio, np.exp((unlikely[best] - unlikely) / 2), best)
    moved = _CHANGED * math.sqrt(changed_share(before, after))
    step_ns = measured_ns * math.exp(ratio[best])
    return ScaledStep(
        step_ns=round(step_ns),
        low_ns=round(step_ns * math.exp(-math.hypot(below, moved))),
        high_ns=round(step_ns * math.exp(math.hypot(above, moved))),
        ratio=math.exp(ratio[best]),
        launch_factor=math.exp(_LOG_FINE[best]),
        rest_factor=math.exp(rest[best]),
    )


def changed_share(before: StepCurve, after: StepCurve) -> float:
    """How much of the work on the critical path is new or gone, as a share of the longer path."""
    families = {*before.critical_ns, *after.critical_ns}
    moved = sum(
        abs(after.critical_ns.get(one, 0.0) - before.critical_ns.get(one, 0.0)) for one in families
    )
    longer = max(sum(one.critical_ns.values()) for one in (before, after))
    return moved / longer if longer else 0.0


def _between(ratio: Float64s, likelihood: Float64s, best: int) -> tuple[float, float]:
    """How far the 10th and 90th percentile lie from the likeliest, each 0 or more."""
    order = np.argsort(ratio, kind="stable")
    reached = np.cumsum(likelihood[order]) / likelihood.sum()
    low, high = (ratio[order][int(np.searchsorted(reached, at))] for at in (0.1, 0.9))
    return max(0.0, float(ratio[best] - low)), max(0.0, float(high - ratio[best]))
