"""`MachineLinks`: the links of a machine, and which of them a message takes.

Links have one direction. Every chip has a port into each tier of its host; a host's network cards
belong to its chips in turn; every instance of a tier has an uplink into each tier around it, as
wide as its members' cards over the oversubscription, in as many planes as there are rails. A
message goes up as far as the tier that holds both ends, and down again; a port takes it only
where both ends are in one host. Behind PCIe switches a chip has a link to its switch, by which it
reaches the cards, and each switch one to its CPU, which takes what goes from switch to switch; of
chips that have no other links, the ports are those to the switches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from foretrace.answer import Plain
from foretrace.base import MOST_RANKS, Float64s, Int64s, MachineError
from foretrace.machine.host import Host
from foretrace.machine.machine import Machine

PCIE = "PCIe"  # in place of a tier


class LinkWay(StrEnum):
    """Which way a link leads."""

    OUT = "out"
    IN = "in"


@dataclass(frozen=True)
class LinkLevel(Plain):
    """Alike links of a machine: what they lead out of, and which way."""

    name: str  # "ports", "cards", "uplinks of rack"
    tier: str  # the tier that they lead into
    way: LinkWay
    num_links: int
    bytes_per_ns: float  # of each
    oversubscription: float  # how much more its members' cards could send through it


@dataclass(frozen=True)
class MachineLinks:
    """The links of a machine, numbered level by level: out of places, then into them."""

    machine: Machine  # whose tiers they are made of
    levels: tuple[LinkLevel, ...]  # of every tier out, then in, innermost first
    card_tier: int  # the first beyond ports, into which cards lead
    num_cards: int  # of one host
    num_planes: int
    num_switches: int  # PCIe switches of one host; 0: none is told

    @property
    def first_link(self) -> Int64s:
        """Number of each level's first link, and of all links; int64[levels + 1]."""
        return np.append(0, np.cumsum([level.num_links for level in self.levels]))

    @property
    def num_links(self) -> int:
        """Number of links."""
        return sum(level.num_links for level in self.levels)

    @property
    def bytes_per_ns(self) -> Float64s:
        """Of every link, float64[links]."""
        each = [level.bytes_per_ns for level in self.levels]
        return np.repeat(each, [level.num_links for level in self.levels]) * self._filled

    @property
    def full_bytes_per_ns(self) -> Float64s:
        """Of every link, if no tier had less than its members' cards; float64[links]."""
        each = [level.bytes_per_ns * level.oversubscription for level in self.levels]
        return np.repeat(each, [level.num_links for level in self.levels]) * self._filled

    @property
    def _filled(self) -> Float64s:
        """Of the places behind every link, the share in which there is a chip; float64[links].

        Where a building has fewer chips, what leads out of it is narrower.
        """
        found = np.ones(self.num_links)
        if self.machine.sizes:
            inside = self.machine.tiers[-2].num_ranks
            filled = np.repeat(np.array(self.machine.sizes) / inside, self.num_planes)
            first = int(self.first_link[2 * len(self.machine.tiers) - 2])
            found[first : first + 2 * len(filled)] = np.tile(filled, 2)
        return found

    @property
    def level(self) -> Int64s:
        """Place in `levels` of every link, int64[links]."""
        return np.repeat(np.arange(len(self.levels)), [one.num_links for one in self.levels])

    def num_filled(self, level: int) -> int:
        """Links of a level behind which there is a chip."""
        one, machine = self.levels[level], self.machine
        if not machine.sizes or level // 2 == len(machine.tiers) - 1:
            return one.num_links
        return one.num_links * machine.num_ranks // machine.tiers[-1].num_ranks

    def widened(self, factor: Float64s) -> MachineLinks:
        """The same links, of every level so many times as wide; float64[levels]."""
        levels = tuple(
            replace(level, bytes_per_ns=level.bytes_per_ns * times)
            for level, times in zip(self.levels, factor.tolist(), strict=True)
        )
        return replace(self, levels=levels)

    def link(self, places: Int64s, tier: int, way: LinkWay) -> Int64s:
        """The link by which messages of these places enter a tier, or leave it; of any shape.

        Args:
            places: in the machine.
            tier: its number, from 0: the scale-up domain.
            way: OUT of the places.
        """
        own = self._own(places, tier)
        return own + int(self.first_link[2 * tier + (way is LinkWay.IN)])

    def _own(self, places: Int64s, tier: int) -> Int64s:
        num_chips = self.machine.host.num_chips
        if tier < self.card_tier:
            return places
        if tier == self.card_tier:
            host, chip = places // num_chips, places % num_chips
            return host * self.num_cards + chip * self.num_cards // num_chips
        plane = places % num_chips * self.num_planes // num_chips
        return places // self.machine.tiers[tier - 1].num_ranks * self.num_planes + plane

    @property
    def is_by_pcie(self) -> bool:
        """Whether chips of a host have no way to each other but over its PCIe switches."""
        return self.num_switches > 0 and self.machine.chip.link_bytes_per_ns is None

    def switch(self, places: Int64s) -> Int64s:
        """The PCIe switch of places, numbered over the machine."""
        return places // (self.machine.host.num_chips // self.num_switches)

    def uplink(self, switch: Int64s, way: LinkWay) -> Int64s:
        """The link of PCIe switches to their CPU."""
        return switch + int(self.first_link[len(self.levels) - 2 + (way is LinkWay.IN)])

    def to_card(self, places: Int64s, way: LinkWay) -> tuple[Int64s, Int64s]:
        """PCIe links between places and their cards: which of these places, and a link; each."""
        which = np.arange(len(places))
        if not self.num_switches:
            return which[:0], places[:0]
        tiers = 2 * len(self.machine.tiers)
        level = 0 if self.is_by_pcie else tiers
        if level == len(self.levels) - 2:  # how wide a chip's own is nobody knows
            own = which[:0]
        else:
            own = places + int(self.first_link[level + (way is LinkWay.IN)])
        num_chips = self.machine.host.num_chips
        card = places % num_chips * self.num_cards // num_chips
        of_card = (
            places // num_chips * self.num_switches + card * self.num_switches // self.num_cards
        )
        of_chip = self.switch(places)
        ends = (of_chip, of_card) if way is LinkWay.OUT else (of_card, of_chip)
        apart = of_chip != of_card
        links = (self.uplink(end[apart], one) for end, one in zip(ends, LinkWay, strict=True))
        return (
            np.concatenate([which[: len(own)], which[apart], which[apart]]),
            np.concatenate([own, *links]),
        )

    def between_switches(self, source: Int64s, target: Int64s) -> tuple[Int64s, Int64s]:
        """PCIe links of messages between places of a host: the message, and a link; each."""
        which = np.arange(len(source))
        if not self.is_by_pcie:
            return which[:0], source[:0]
        ends = self.switch(source), self.switch(target)
        apart = ends[0] != ends[1]
        links = (self.uplink(end[apart], way) for end, way in zip(ends, LinkWay, strict=True))
        return np.tile(which[apart], 2), np.concatenate([*links])

    def crossed(self, source: Int64s, target: Int64s) -> tuple[Int64s, Int64s]:
        """Links of messages between places: the message, and one of its links; int64[uses] each.

        Args:
            source: int64[messages], place.
            target: int64[messages], another one.
        """
        message, link = [], []
        apart = np.arange(len(source))
        for tier, joins in enumerate(self.machine.tiers):
            outer = source[apart] // joins.num_ranks != target[apart] // joins.num_ranks
            here = apart[~outer] if tier < self.card_tier else apart
            for places, way in ((source, LinkWay.OUT), (target, LinkWay.IN)):
                message.append(here)
                link.append(self.link(places[here], tier, way))
                if tier == self.card_tier:
                    which, own = self.to_card(places[here], way)
                    message.append(here[which])
                    link.append(own)
            if tier < self.card_tier:
                which, own = self.between_switches(source[here], target[here])
                message.append(here[which])
                link.append(own)
            apart = apart[outer]
        return np.concatenate(message), np.concatenate(link)


def links_of(machine: Machine) -> MachineLinks:
    """The links of a machine, from its tiers.

    Raises:
        MachineError: if a host's chips do not make whole scale-up domains of it, it is too large,
            or has PCIe switches of unknown width.
    """
    host, tiers = machine.host, machine.tiers
    num_places = tiers[-1].num_ranks
    if num_places > MOST_RANKS:
        raise MachineError(
            f"machine {machine.name!r} has {num_places:,} places: the links of {MOST_RANKS:,} "
            "can be told at most"
        )
    num_cards = host.num_chips if host.num_nics is None else min(host.num_nics, host.num_chips)
    rails = {tier.num_rails for tier in tiers[1:] if tier.num_rails is not None}
    num_planes = min(min(rails, default=1), host.num_chips)
    if machine.num_ranks % host.num_chips or num_places % host.num_chips:
        raise MachineError(
            f"machine {machine.name!r} has {machine.num_ranks} chips, which is no whole number of "
            f"hosts of {host.num_chips}: its links cannot be told"
        )
    beyond = (at for at, tier in enumerate(tiers) if at and tier.num_ranks > host.num_chips)
    card_tier = next(beyond, len(tiers))
    levels = []
    for at, tier in enumerate(tiers):
        name, inside = "ports", num_places
        if at == card_tier:
            name, inside = "cards", num_places // host.num_chips * num_cards
        elif at > card_tier:
            name = f"uplinks of {tiers[at - 1].name}"
            inside = num_places // tiers[at - 1].num_ranks * num_planes
        each = tier.bytes_per_ns / tier.oversubscription * num_places / inside
        levels += [
            LinkLevel(name, tier.name, way, inside, each, tier.oversubscription) for way in LinkWay
        ]
    switches = host.num_pcie_switches or 0
    levels += _pcie_levels(host, num_places // host.num_chips)
    return MachineLinks(machine, tuple(levels), card_tier, num_cards, num_planes, switches)


def _pcie_levels(host: Host, num_hosts: int) -> Iterator[LinkLevel]:
    """Links of chips to their PCIe switches, where ports are not these, and of switches to CPUs."""
    if host.num_pcie_switches is None:
        return
    if host.pcie_switch_bytes_per_ns is None:
        raise MachineError(
            f"host {host.name!r} has PCIe switches, and nothing says how wide their links are: "
            "state pcie_switch_bandwidth, or host_bandwidth of its chip"
        )
    rows = [("PCIe switches", host.num_pcie_switches, host.pcie_switch_bytes_per_ns)]
    own = host.chip.host_bytes_per_ns
    if host.chip.link_bytes_per_ns is not None and own is not None:
        rows.insert(0, ("PCIe links of chips", host.num_chips, own))
    for name, count, bytes_per_ns in rows:
        yield from (
            LinkLevel(name, PCIE, way, count * num_hosts, bytes_per_ns, 1.0) for way in LinkWay
        )
