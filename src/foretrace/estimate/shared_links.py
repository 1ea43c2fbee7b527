"""`SharedLinks`: what a step asked of each level of a network; what more or less is worth.

Prices follow from the way back. A collective on the critical path that a full link held up is over
sooner by as much as the link is wider; one that nothing held takes what the cost model says of a
machine whose tier is wider, or nearer; and kernels on it are slowed for less long by whatever
communicates beside them. All are of first order: they hold for small changes, and an estimate on
the changed machine checks them (`more_rails`).

Prices are derivatives: they hold for a hundredth more. A rail is an eighth more of eight, after
which something else may hold the step up, so each level is simulated again with that much more.

A degraded port, a card that flaps (its share of the time up), a leaf whose uplinks are half gone,
loss (goodput over bandwidth): each leaves a link some of what it had. Alike links hurt alike, so
one of each kind is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.answer import Column, Plain, Table, Unit
from foretrace.base import Int64s, UInt8s
from foretrace.cost import CostModel, Inflation, inflated, transfer_ns
from foretrace.estimate.interval import SimulatedStep
from foretrace.estimate.link_traffic import flows_of, sharing_of
from foretrace.estimate.step_time import simulated_step
from foretrace.graph import NO_COLLECTIVE, NodeKind
from foretrace.machine import Machine, links_of
from foretrace.simulate import simulate, simulate_links, simulate_shared, way_back
from foretrace.workload import LaidOut

_FURTHER = 2
_STEP = 0.01  # by which a figure is changed to see what the cost model makes of it

ALL_LINKS = "all of them"
_HUNDREDTHS = 100


@dataclass(frozen=True)
class LinkUse(Plain):
    """Links of one level of a network, both ways."""

    links: str  # "ports", "cards", "uplinks of rack"
    tier: str  # that they lead into
    num_links: int  # one way
    bytes_per_ns: float  # of each
    busy_share: float  # of the step, of the busiest
    crowded_ns: int  # time in which more was asked of the most crowded than it has
    held_ns: int  # time on the critical path in which a full one held a collective up
    incast_ns: int  # of it by links that lead in: several send to one place
    gain_ns: int  # what the step is shorter by, for a hundredth more bandwidth of all
    latency_gain_ns: int | None  # for a hundredth less latency of the tier; `None`: not stated


@dataclass(frozen=True)
class SharedLinks(Plain):
    """The network in one step."""

    private_ns: int  # the step, if each collective had found its links empty
    rows: tuple[LinkUse, ...]  # innermost first

    def table(self) -> Table:
        """A row for each level of links."""
        return Table.of(
            "links",
            self.rows,
            Column("links", unit=Unit.WORD),
            Column("tier", "into", Unit.WORD),
            Column("num_links", "number"),
            Column("bytes_per_ns", "GB/s", Unit.GIGABYTES_PER_S),
            Column("busy_share", "busy"),
            Column("crowded_ns", "crowded ms", Unit.MS),
            Column("held_ns", "holds up ms", Unit.MS),
            Column("incast_ns", "of it incast ms", Unit.MS),
            Column("gain_ns", "1 % more saves ms", Unit.MS),
            Column("latency_gain_ns", "1 % nearer saves ms", Unit.MS),
            title="links of the network, GB/s of each; crowded: more is asked of one than it has",
        )


def shared_links(
    done: SimulatedStep,
    costs_of: Callable[[Machine], CostModel] | None,
    inflation: Inflation | None = None,
) -> SharedLinks | None:
    """What simulated steps asked of their network, the mean step; `None` if no link was shared.

    Args:
        done: one step, or several.
        costs_of: what predicts on another machine; no price of latency, and of bandwidth none that
            the cost model knows, without it.
        inflation: how much slower kernels are beside communication.
    """
    timeline, found, alone_ns = done.timeline, done.traffic, done.duration_ns
    steps = windows(timeline)
    if found is None or not len(steps):
        return None
    private = windows(simulate(timeline.graph, alone_ns)).duration_ns
    end_node, count = int(steps.end_node[-1]), len(steps)
    nodes = way_back(timeline, end_node).node
    critical = nodes[timeline.graph.kind[nodes] == NodeKind.FINISH]
    watched: UInt8s = np.zeros(found.traffic.num_flows, np.uint8)
    watched[flows_of(critical, found.traffic)] = 1
    _, times = simulate_links(timeline.graph, alone_ns, found.traffic, watched=watched)
    whole_ns = int(timeline.end_ns[end_node])
    level = found.links.level[found.own_link] // 2  # both ways are one
    num_levels = len(found.links.levels) // 2
    crowded, busy = np.zeros((2, num_levels))
    np.maximum.at(crowded, level, times.crowded_ns)
    np.maximum.at(busy, level, found.carried_ns / max(whole_ns, 1))
    held = np.bincount(level, times.held_ns, num_levels)
    leads_in = found.links.level[found.own_link] % 2 == 1
    incast = np.bincount(level, times.held_ns * leads_in, num_levels)
    free = critical[timeline.duration_ns[critical] <= alone_ns[critical] + 1]
    own = _Elasticity(done, nodes, free, costs_of=costs_of, inflation=inflation)
    rows = []
    for at in range(num_levels):
        one = found.links.levels[2 * at]
        latency = own.latency_gain_ns(at)
        gain = held[at] * _STEP / (1 + _STEP) + own.bandwidth_gain_ns(at)
        rows.append(
            LinkUse(
                links=one.name,
                tier=one.tier,
                num_links=found.links.num_filled(2 * at),
                bytes_per_ns=one.bytes_per_ns,
                busy_share=min(float(busy[at]), 1.0),
                crowded_ns=round(crowded[at] / count),
                held_ns=round(held[at] / count),
                incast_ns=round(incast[at] / count),
                gain_ns=round(gain / count),
                latency_gain_ns=None if latency is None else round(latency / count),
            )
        )
    return SharedLinks(round(float(private.mean())), tuple(rows))


class _Elasticity:
    """What a cost model makes of other figures of a tier, for a step's critical path.

    Collectives on it that nothing held up take less, and kernels are slowed for less long.
    """

    def __init__(
        self,
        done: SimulatedStep,
        path: Int64s,
        free: Int64s,
        *,
        costs_of: Callable[[Machine], CostModel] | None,
        inflation: Inflation | None,
    ) -> None:
        assert done.traffic is not None  # noqa: S101  links are shared
        self._done, self._traffic, self._inflation = done, done.traffic, inflation
        self._machine, self._costs_of = done.traffic.links.machine, costs_of
        graph, kernels = done.timeline.graph, path[:0]
        self._ends = np.unique(free)
        if inflation is not None:
            is_slowed = done.duration_ns[path] > done.costs.duration_ns[path]
            kernels = path[is_slowed & (graph.kind[path] == NodeKind.KERNEL)]
        self._kernels = kernels
        if kernels.size:
            ends = (graph.kind == NodeKind.FINISH) & (graph.collective != NO_COLLECTIVE)
            self._ends = np.flatnonzero(ends)
        self._is_free = np.isin(self._ends, free)
        self._before = self._taken_ns(self._machine)

    def _taken_ns(self, machine: Machine) -> Int64s:
        if self._costs_of is None or not self._ends.size:
            return np.zeros(len(self._ends), np.int64)
        costs = self._costs_of(machine.unshared())
        return transfer_ns(self._done.timeline.graph, self._ends, costs)

    def bandwidth_gain_ns(self, tier: int) -> float:
        """For a hundredth more bandwidth."""
        if tier >= len(self._machine.tiers):  # PCIe
            return 0.0
        return self._gain_ns(wider(self._machine, tier, 1 + _STEP), wider_level=tier)

    def latency_gain_ns(self, tier: int) -> float | None:
        """For a hundredth less latency."""
        # Latency of the innermost tiers is in what the fits have of hops; PCIe is no tier.
        if self._costs_of is None or not _FURTHER <= tier < len(self._machine.tiers):
            return None
        before = self._machine.tiers[tier].latency_ns
        if before is None:
            return None
        tiers = list(self._machine.tiers)
        tiers[tier] = replace(tiers[tier], latency_ns=before * (1 - _STEP))
        return self._gain_ns(replace(self._machine, tiers=tuple(tiers)))

    def _gain_ns(self, machine: Machine, wider_level: int | None = None) -> float:
        saved_ns = self._before - self._taken_ns(machine)
        on_path = float(saved_ns[self._is_free].sum())
        if self._inflation is None or not self._kernels.size or self._costs_of is None:
            return on_path
        if wider_level is None and not saved_ns.any():
            return on_path
        alone_ns = self._done.costs.duration_ns.copy()
        alone_ns[self._ends] -= saved_ns
        traffic = self._traffic.changed(
            self._done.costs.duration_ns, alone_ns, wider_level, by=1 + _STEP
        )
        timeline = simulate_shared(self._done.timeline.graph, alone_ns, traffic=traffic)
        grown_ns = inflated(timeline, alone_ns, self._inflation)
        return on_path + float((self._done.duration_ns - grown_ns)[self._kernels].sum())


def wider(machine: Machine, tier: int, factor: float) -> Machine:
    """The machine with so many times the bandwidth of one tier; with the innermost its chips'."""
    tiers = list(machine.tiers)
    tiers[tier] = replace(tiers[tier], bytes_per_ns=tiers[tier].bytes_per_ns * factor)
    if tier > 0:
        return replace(machine, tiers=tuple(tiers))
    host, chip = machine.host, machine.host.chip
    links = chip.link_bytes_per_ns
    chip = replace(chip, link_bytes_per_ns=None if links is None else links * factor)
    return replace(machine, tiers=tuple(tiers), host=replace(host, chip=chip))


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
        costs = costs_of(widened.unshared())
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
