"""`Slower`: a cost model's answers, times what a step's kernels take over a benchmark's.

A benchmark runs one kernel over and over, on numbers of its own choice, at the clock that the
chip then has. In a step kernels follow one another on real numbers, near the power limit for
minutes, and other software may bring older kernels. Such differences are by family of kernels;
where they come from stands with whoever states them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from foretrace.base import Float64s
from foretrace.cost.answer import Costs
from foretrace.cost.model import CollectiveRequests, CostModel, KernelRequests


@dataclass(frozen=True)
class Slower:
    """Another model's answers, each family's times its factor."""

    model: CostModel
    # By how a family of kernels begins ("gemm", "attention backward"); the longest counts.
    factor_by_family: Mapping[str, float] = field(default_factory=dict)
    # The same of collectives ("all_gather"); "" for all others.
    factor_by_collective: Mapping[str, float] = field(default_factory=dict)

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """As the model's own, slower."""
        return _slowed(self.model.kernel_costs(requests), self.factor_by_family)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """As the model's own, slower."""
        return _slowed(self.model.collective_costs(requests), self.factor_by_collective)


def _slowed(costs: Costs, factors: Mapping[str, float]) -> Costs:
    if not factors:
        return costs
    by_family = np.array([_factor(name, factors) for name in costs.families])
    factor: Float64s = by_family[costs.family]
    return replace(
        costs,
        duration_ns=np.rint(costs.duration_ns * factor).astype(np.int64),
        low_ns=np.rint(costs.low_ns * factor).astype(np.int64),
        high_ns=np.rint(costs.high_ns * factor).astype(np.int64),
    )


def _factor(family: str, factors: Mapping[str, float]) -> float:
    fitting = [begin for begin in factors if family.startswith(begin)]
    return factors[max(fitting, key=len)] if fitting else 1.0
