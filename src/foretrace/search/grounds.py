"""`SearchGround`: what a search stands on: its plans, their bounds, and how one is simulated.

`modelled` has that of a model and a machine, `recorded` that of a recording.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from foretrace.base import ScenarioError
from foretrace.search.constraints import Constraint
from foretrace.search.looked import Looked
from foretrace.search.space import Listing, PlanSpace
from foretrace.workload import (
    Plan,
    plan_table,
    schedule_of,
)

NUM_LEADERS = 3  # that are simulated kernel by kernel
SAMPLED_STEPS = 400  # whose 95 % is known to a tenth of their deviation


class SearchGround(Protocol):
    """What plans are looked at with."""

    @property
    def names(self) -> tuple[str, str]:
        """Of the model and of the machine."""

    @property
    def spaces(self) -> tuple[PlanSpace, ...]:
        """One for each number of ranks."""

    @property
    def is_recorded(self) -> bool:
        """Whether plans are arranged from pieces of a recording."""

    @property
    def num_leaders(self) -> int:
        """Plans that are simulated kernel by kernel, to choose from."""

    @property
    def assumed(self) -> Plan | None:
        """The plan that is taken where nobody searches, if it can be told."""

    @property
    def capacity(self) -> int | None:
        """Bytes of a chip's memory; `None`: nobody said of which."""

    def listing(self, wanted: Constraint | None, *, margin: float = 0.0) -> Listing:
        """Plans that are legal, within the constraint and within memory but for a share of it."""

    def work_key(self, plan: Plan) -> Hashable:
        """The same for plans whose ranks do the same, so that it is timed once for their bounds."""

    @property
    def bounds(self) -> Callable[[Sequence[Plan]], list[int | str]]:
        """A function that says what steps are not below, from a closed form; for processes.

        A text says why a plan turns out not to be simulated. It is the same object each time, as
        the functions below, so that processes keep what it remembers.
        """

    def run_ns(self, plan: Plan) -> int:
        """What the step is not below, from running the plan's schedule."""

    @property
    def simulates(self) -> Callable[[Plan], int | str]:
        """A function that simulates a plan's step in ns, or says why it cannot; for processes."""

    @property
    def samples(self) -> Callable[[Plan], int | str]:
        """A function that tells the step that 95 % of steps are not longer than; for processes."""

    def looked(self, plan: Plan, *, number: int, unit_ns: int | None) -> Looked:
        """A plan simulated kernel by kernel."""

    def question(self, plans: Sequence[Plan]) -> dict[str, object]:
        """All but the spaces that answers depend on, told apart by what it says of some plans."""


class ClosedBound(Protocol):
    """Has a closed form of what a step is not below."""

    def quick_ns(self, plan: Plan) -> int:
        """What the step is not below.

        Raises:
            ScenarioError: if it turns out that the plan cannot be simulated.
        """


def quick_bounds(bound: ClosedBound, plans: Sequence[Plan]) -> list[int | str]:
    """What steps are not below, or why a plan cannot be simulated."""
    found: list[int | str] = []
    for plan in plans:
        try:
            found.append(bound.quick_ns(plan))
        except ScenarioError as err:
            found.append(str(err))
    return found


def digest(value: object) -> str:
    """A text that differs where the values' own texts do."""
    return hashlib.sha256(repr(value).encode()).hexdigest()


def asked(
    ground: SearchGround,
    plans: Sequence[Plan],
    wanted: Constraint | None,
    *,
    version: str,
    margin: float = 0.0,
) -> dict[str, object]:
    """All that the answers of a search depend on.

    Args:
        ground: what it stands on.
        plans: that can run, at least one.
        wanted: of them.
        version: of foretrace.
        margin: share of memory that they leave free.
    """
    spaces = ground.spaces
    orders = schedule_of(plans[0]).orders
    return {
        "version": version,
        **ground.question(plans),
        "num_ranks": [space.num_ranks for space in spaces],
        "plan": plan_table(spaces[0].base),
        "schedule": digest([column.tolist() for column in vars(orders).values()]),
        "spaces": digest([space.variables for space in spaces]),
        "where": None if wanted is None else wanted.text,
        "margin": margin,
    }
