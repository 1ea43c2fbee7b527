"""`LinksToBuy`: the best plan under each of some figures of a machine's links, which cost.

More bandwidth makes steps shorter and links dearer. For each value the machine is another one,
with a search of its own; which is best is the search's objective, told with the price of links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from foretrace.base import WorkloadError
from foretrace.machine import Machine, with_figures
from foretrace.search.found import PlanSearch
from foretrace.search.found_links import LinksTried
from foretrace.search.objectives import Objective, Target


@dataclass(frozen=True)
class LinksToBuy:
    """A figure of a machine's links, and values that it may have."""

    figure: str
    values: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> LinksToBuy:
        """From "network.region.oversubscription=1:1,2:1".

        Raises:
            WorkloadError: if it is not of that form.
        """
        figure, _, values = text.partition("=")
        found = tuple(one.strip() for one in values.split(",") if one.strip())
        if not figure.startswith("network.") or not found or len(set(found)) < len(found):
            raise WorkloadError(
                f"links {text!r} are not understood: write a figure of a tier and its values, as "
                "in network.region.oversubscription=1:1,2:1,7:1"
            )
        return cls(figure.strip(), found)

    def machines(self, machine: Machine) -> tuple[Machine, ...]:
        """The machine with each value.

        Raises:
            MachineError: for a tier or a value that cannot be.
            WorkloadError: if no tier of the machine states a price of links.
        """
        if machine.links_per_chip_hour is None:
            raise WorkloadError(
                f"no tier of machine {machine.name!r} says what its links cost, so that the "
                'widest would always be best: state link_price = "150 /Gb/s/month"'
            )
        return tuple(with_figures(machine, {self.figure: one}) for one in self.values)


def with_links(target: Target, machine: Machine) -> Target:
    """The target, which pays for the links of a machine too."""
    return replace(target, links_per_hour=machine.links_per_chip_hour or 0.0)


def links_tried(
    found: LinksToBuy, machine: Machine, *, target: Target, search: Callable[[Machine], PlanSearch]
) -> PlanSearch:
    """The best search of all, with a row for each value.

    Raises:
        MachineError: as `LinksToBuy.machines`.
        WorkloadError: so too.
    """
    machines = found.machines(machine)
    searches = [search(one) for one in machines]
    rows, values = [], []
    for value, one, own in zip(found.values, searches, machines, strict=True):
        paid, best = with_links(target, own), one.best
        hour = (own.links_per_chip_hour or 0.0) * best.plan.num_ranks
        price = paid.figure(Objective.COST, best.plan, best.step_ns)
        rows.append(
            LinksTried(found.figure, value, hour, best.step_ns, price, best.summary, one.gap)
        )
        values.append(paid.value(best.plan, best.step_ns))
    return replace(searches[values.index(min(values))], links=tuple(rows))
