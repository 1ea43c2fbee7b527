"""Edits of the machine: another one, or other figures of its network's tiers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.machine import Machine
from foretrace.whatif.scenario import Scenario


@dataclass(frozen=True)
class OnMachine:
    """The job runs on this machine: another GPU, another network."""

    machine: Machine

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario on this machine."""
        return replace(scenario, machine=self.machine)

    def sentence(self, before: Scenario) -> str:
        """`machine dgx-a100 -> dgx-h100`."""
        was = "unknown" if before.machine is None else before.machine.name
        return f"machine {was} -> {self.machine.name}"
