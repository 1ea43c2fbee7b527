"""`SharedLinks`: what a step asked of every level of a network, and what more of it is worth.

Prices follow from the way back. A collective on the critical path that a full link held up is over
sooner by as much as the link is wider; one that nothing held takes what the cost model says of a
machine whose tier is wider, or nearer; and kernels on it are slowed for less long by whatever
communicates beside them. All are of first order: they hold for small changes, and an estimate on
the changed machine checks them (`more_rails`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.answer import Column, Plain, Table, Unit
from foretrace.base import Int64s, UInt8s
from foretrace.cost import CostModel, Inflation, inflated, transfer_ns
from foretrace.estimate.link_traffic import flows_of, unshared
from foretrace.estimate.step_time import SimulatedStep
from foretrace.graph import NO_COLLECTIVE, NodeKind
from foretrace.machine import Machine
from foretrace.simulate import simulate, simulate_links, simulate_shared, way_back

_FURTHER = 2
_STEP = 0.01  # by which a figure is changed to see what the cost model makes of it


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
        costs = self._costs_of(unshared(machine))
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
