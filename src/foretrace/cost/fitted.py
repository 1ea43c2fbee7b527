"""`FittedCosts`: the cost model that foretrace uses unless another takes its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretrace.cost.answer import Costs
from foretrace.cost.constants import Constants, shipped_constants
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.model import CollectiveRequests, KernelRequests
from foretrace.cost.network.costs import collective_costs, shipped_collectives
from foretrace.machine import Machine


@dataclass(frozen=True)
class FittedCosts:
    """Kernels of a machine's chip, and collectives over its tiers."""

    machine: Machine
    kernels: tuple[Constants, ...] = field(default_factory=shipped_constants)
    collectives: tuple[Constants, ...] = field(default_factory=shipped_collectives)

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """As `FittedKernels.kernel_costs`."""
        return FittedKernels(self.machine.chip, self.kernels).kernel_costs(requests)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """As `foretrace.cost.collective_costs`."""
        return collective_costs(requests, self.machine, constants=self.collectives)
