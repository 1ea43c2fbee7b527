"""`DegradedLink`: what a step takes where one link of a network has lost bandwidth.

A degraded port, a card that flaps (its share of the time up), a leaf whose uplinks are half gone,
loss (goodput over bandwidth): each leaves a link some of what it had. Alike links hurt alike, so
one of each kind is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import windows
from foretrace.answer import Column, Plain, Table, Unit
from foretrace.estimate.step_time import SimulatedStep
from foretrace.simulate import simulate_shared


@dataclass(frozen=True)
class DegradedLink(Plain):
    """One link that has lost bandwidth, where of its level it hurts most."""

    links: str  # its level
    way: str
    number: int  # the lowest of its kind, from 0 within the level: a port's is its chip's
    num_alike: int  # links that hurt as much
    left_share: float  # of its bandwidth
    step_ns: int
    slower_share: float  # than with all links


def slow_links(step: SimulatedStep, left: float) -> tuple[DegradedLink, ...]:
    """The worst link of each level to lose bandwidth, and what the step then takes.

    Args:
        step: simulated on shared links, whose traffic was made for links that keep so little.
        left: share of its bandwidth that the link keeps, above 0.
    """
    found, graph = step.traffic, step.timeline.graph
    if found is None:
        return ()
    whole_ns = int(windows(step.timeline).duration_ns[0])
    first = found.links.first_link
    worst: dict[int, DegradedLink] = {}
    for link in np.flatnonzero(found.may_be_crowded).tolist():
        timeline = simulate_shared(
            graph, step.duration_ns, traffic=found.with_slow_link(link, left)
        )
        step_ns = int(windows(timeline).duration_ns[0])
        own = int(found.own_link[link])
        at = int(found.links.level[own])
        if at in worst and worst[at].step_ns >= step_ns:
            continue
        level = found.links.levels[at]
        worst[at] = DegradedLink(
            links=level.name,
            way=level.way.value,
            number=own - int(first[at]),
            num_alike=int(found.num_alike[link]),
            left_share=left,
            step_ns=step_ns,
            slower_share=step_ns / whole_ns - 1,
        )
    return tuple(worst[at] for at in sorted(worst))


def slow_table(rows: Sequence[DegradedLink]) -> Table:
    """A row for each level, out and in."""
    return Table.of(
        "slow-links",
        rows,
        Column("links", unit=Unit.WORD),
        Column("way", unit=Unit.WORD),
        Column("number", "the lowest", Unit.IDENTIFIER),
        Column("num_alike", "as bad"),
        Column("left_share", "left"),
        Column("step_ns", "step ms", Unit.MS),
        Column("slower_share", "longer", Unit.SIGNED_SHARE),
        title="one link with less bandwidth, where it hurts most",
    )
