"""`OneMoreRail`: what one more card of every host is worth, by the price of links and simulated.

Prices are derivatives: they hold for a hundredth more. A rail is an eighth more of eight, after
which something else may hold the step up, so each level is simulated again with that much more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from foretrace.analyze import windows
from foretrace.answer import Column, Plain, Table, Unit
from foretrace.cost import CostModel, Inflation
from foretrace.estimate.link_traffic import sharing_of, unshared
from foretrace.estimate.shared_links import SharedLinks, wider
from foretrace.estimate.step_time import simulated_step
from foretrace.machine import Machine, links_of
from foretrace.workload import LaidOut

ALL_LINKS = "all of them"
_HUNDREDTHS = 100


@dataclass(frozen=True)
class OneMoreRail(Plain):
    """One more of the links of a level, or of all beyond the host."""

    links: str  # "cards", "uplinks of rack"; "all of them"
    num_rails: int  # before
    priced_ns: int  # what the step is shorter by, as the price of a hundredth more says
    saved_ns: int  # simulated again
    links_per_hour: float | None  # what more of them costs the job; `None`: not priced


def more_rails(
    laid_out: LaidOut,
    machine: Machine,
    links: SharedLinks,
    *,
    step_ns: int,
    costs_of: Callable[[Machine], CostModel],
    inflation: Inflation,
) -> tuple[OneMoreRail, ...]:
    """A row for each level beyond the host, and for all of them together.

    Args:
        laid_out: of the plan.
        machine: on which the step was simulated with shared links.
        links: what it asked of them, with their prices.
        step_ns: that step.
        costs_of: what predicts on a machine.
        inflation: how much slower kernels are beside communication.
    """
    known = links_of(machine)
    first, rails = known.card_tier, known.num_cards
    share = 1 / rails

    def saved_ns(widened: Machine) -> int:
        costs = costs_of(unshared(widened))
        sharing = sharing_of(laid_out, costs, widened)
        done = simulated_step(laid_out.graph, costs, inflation, sharing=sharing)
        return step_ns - int(windows(done.timeline).duration_ns[0])

    def rows() -> Iterator[OneMoreRail]:
        every, priced, money = machine, 0, 0.0
        for at in range(first, len(machine.tiers)):
            own, tier = links.rows[at], machine.tiers[at]
            priced_ns = round(own.gain_ns * _HUNDREDTHS * share)
            cost = tier.links_per_chip_hour
            cost = None if cost is None else cost * share * laid_out.plan.num_ranks
            yield OneMoreRail(
                own.links, rails, priced_ns, saved_ns(with_rails(machine, at, share)), cost
            )
            every = with_rails(every, at, share)
            priced, money = priced + priced_ns, money + (cost or 0.0)
        if len(machine.tiers) - first > 1:
            paid = money if machine.links_per_chip_hour is not None else None
            yield OneMoreRail(ALL_LINKS, rails, priced, saved_ns(every), paid)

    return tuple(rows())


def with_rails(machine: Machine, tier: int, share: float) -> Machine:
    """The machine with so much more of the links into one tier, also where that is its cards'."""
    found = wider(machine, tier, 1 + share)
    nic = machine.host.nic_bytes_per_ns
    if tier != links_of(machine).card_tier or nic is None:
        return found
    return replace(found, host=replace(found.host, nic_bytes_per_ns=nic * (1 + share)))


def rails_table(rows: tuple[OneMoreRail, ...]) -> Table:
    """A row for each level."""
    has_price = any(row.links_per_hour is not None for row in rows)
    return Table.of(
        "more-rails",
        rows,
        Column("links", "one more of", Unit.WORD),
        Column("num_rails", "beside"),
        Column("priced_ns", "saves by its price ms", Unit.MS),
        Column("saved_ns", "saves ms", Unit.MS),
        *((Column("links_per_hour", "costs an hour", Unit.NUMBER),) if has_price else ()),
        title="one more rail: what it saves by the price of 1 % more, and simulated again",
    )
