"""`checked_step`: what checks of its operators add to an estimated step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretrace.base import RiskError
from foretrace.estimate import estimate
from foretrace.machine import Machine
from foretrace.risk.campaign.corruption import OperatorCheck
from foretrace.whatif import Check, predict_estimate
from foretrace.workload import Model, Plan

_HOURS = 24.0
_PER_FIT = 1e-9  # failures of an hour
_BITS_PER_MBIT = 1e6


@dataclass(frozen=True)
class CheckedStep:
    """A plan's step, and the same with each check."""

    step_ns: int
    num_hosts: int
    gpus_per_host: int
    parameter_bytes: int  # of one GPU
    checks: tuple[OperatorCheck, ...]

    def upsets_per_host_day(self, fit_per_mbit: float) -> float:
        """Upsets in the parameters that a host's GPUs hold."""
        mbit = 8 * self.parameter_bytes * self.gpus_per_host / _BITS_PER_MBIT
        return fit_per_mbit * mbit * _PER_FIT * _HOURS


def checked_step(
    model: Model, plan: Plan, machine: Machine, *, coverage: Mapping[str, float]
) -> CheckedStep:
    """The estimated step, and what each check makes of it.

    Args:
        model: what is trained.
        plan: on how many ranks.
        machine: the ranks' machine.
        coverage: of every check by its name, as `whatif --check` has them: "sums", "twice".

    Raises:
        RiskError: if the model has no footprint, or a host no GPUs.
        ScenarioError: for a check that does not exist.
    """
    base = estimate(model, plan, machine)
    if base.footprint is None:
        raise RiskError(f"{model.name} has no parameters that could be counted: name another model")
    gpus = min(machine.tiers[0].num_ranks, plan.num_ranks)
    checks = []
    for name, share in coverage.items():
        step_ns = predict_estimate(base, (Check(name),)).step_ns
        overhead = max(step_ns / base.step_ns - 1, 0.0)
        checks.append(OperatorCheck(name=name, overhead=overhead, coverage=share))
    return CheckedStep(
        step_ns=base.step_ns,
        num_hosts=-(-plan.num_ranks // gpus),
        gpus_per_host=gpus,
        parameter_bytes=base.footprint.peak.parameters,
        checks=tuple(checks),
    )
