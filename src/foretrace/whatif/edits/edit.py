"""`Edit`: what every edit is."""

from __future__ import annotations

from typing import Protocol

from foretrace.whatif.scenario import Scenario


class Edit(Protocol):
    """A frozen value that changes one thing about a scenario."""

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this change.

        Raises:
            ScenarioError: if the scenario has nothing that it could change.
        """
        ...

    def sentence(self, before: Scenario) -> str:
        """One line that says what changes: `layers 40 -> 80`."""
        ...
