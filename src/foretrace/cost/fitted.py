"""`FittedCosts`: the cost model that foretrace uses unless another takes its place."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.cost.answer import Costs
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.model import CollectiveRequests, KernelRequests
from foretrace.cost.network import collective_costs
from foretrace.machine import Machine


@dataclass(frozen=True)
class FittedCosts:
    """Kernels by the machine's chip, collectives by its tiers; constants as shipped."""

    machine: Machine

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Duration of each call on the device.

        Raises:
            MachineError: if the chip's description lacks what a model needs.
        """
        return FittedKernels(self.machine.chip).kernel_costs(requests)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """Duration of each collective from the last arrival on.

        Raises:
            MachineError: for a collective that is not known, or a chip without links.
            ValueError: for a place outside the machine.
        """
        return collective_costs(requests, self.machine)
