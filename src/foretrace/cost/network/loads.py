"""What a collective puts on the links of a machine, by its algorithm.

NCCL lays as many rings over a group as it has members in each scale-up domain, every ring on
another card, so that each host-to-host step is divided over the members' cards (rails), and each
member's port carries what its rings do not send out. Its trees are two over the hosts, each for
half of the message, in which who has children in one is a leaf of the other. An all-to-all
goes straight from rank to rank; libraries made for experts send a token once to each host.

Source:
    `ncclGetBtree` and `ncclGetDtree` of NCCL 2.28, src/graph/trees.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from foretrace.base import (
    USUAL_CHANNELS,
    CollectiveKind,
    Dispatched,
    Float64s,
    Int64s,
    channels_of,
)
from foretrace.cost.network.domain import DIRECT, collective_named
from foretrace.machine import LinkWay, MachineLinks


@dataclass(frozen=True)
class CollectiveLoads:
    """Bytes on links for each byte of the message, all groups taken together."""

    link: Int64s  # int64[uses], rising
    load: Float64s  # float64[uses]
    least_ns: float  # that one group of them needs for each byte, on links without oversubscription
    one_load: float  # of a connection: on the busiest link of one group, beyond ports if it has any
    connections: float  # there, over those of as many channels as NCCL takes by itself


def collective_loads(
    name: str,
    groups: Int64s,
    links: MachineLinks,
    *,
    is_upward: bool = True,
    by_tree: bool = False,
) -> CollectiveLoads:
    """What alike groups put on the links of a machine when each does the same collective.

    Args:
        name: of the collective, as graphs have it.
        groups: int64[groups, members], places in the machine.
        links: of the machine.
        is_upward: of a transfer between two, whether the first sends.
        by_tree: go up and down trees of hosts, where groups have as many members on each.
    """
    kind = collective_named(name) or CollectiveKind.ALL_TO_ALL
    groups = links.machine.places(groups)
    loads = partial(_loads, kind, name, links=links, is_upward=is_upward, by_tree=by_tree)
    own = loads(groups[:1])
    rows = loads(groups) if len(groups) > 1 else own
    link, load = _summed(*rows)
    one_link, one_load = _summed(*own)
    first = links.first_link
    is_beyond = one_link >= first[2 * links.card_tier]
    beyond = one_load[is_beyond & (one_link < first[2 * len(links.machine.tiers)])]
    channels = channels_of(name)
    # Every card that is left has one at least.
    inside = 1 if kind in DIRECT else _by_host(np.sort(groups[:1], axis=1), links).shape[2]
    return CollectiveLoads(
        link,
        load,
        least_ns=float((one_load / links.full_bytes_per_ns[one_link]).max(initial=0.0)),
        one_load=float(beyond.max() if beyond.size else one_load.max(initial=0.0)),
        connections=max(channels, inside) / USUAL_CHANNELS if channels else 1.0,
    )


def _summed(link: Int64s, load: Float64s) -> tuple[Int64s, Float64s]:
    """Links that carry anything, rising, and how much each does in all."""
    carrying = np.flatnonzero(np.bincount(link))
    return carrying, np.bincount(link, load)[carrying].astype(np.float64)


def _loads(
    kind: CollectiveKind,
    name: str,
    groups: Int64s,
    *,
    links: MachineLinks,
    is_upward: bool,
    by_tree: bool,
) -> tuple[Int64s, Float64s]:
    """A link and what it carries of each byte of the message, a row for each way to it."""
    size = groups.shape[1]
    if size < 2:  # noqa: PLR2004
        return np.empty(0, np.int64), np.empty(0)
    if kind in DIRECT and (size > 2 or kind is CollectiveKind.ALL_TO_ALL):  # noqa: PLR2004
        return _direct(groups, links, Dispatched.named(name))
    if kind in DIRECT:
        source, target = groups.T if is_upward else groups.T[::-1]
        message, link = links.crossed(source, target)
        return link, np.ones(len(message))
    bus_share = float(kind.bus_share(np.array([float(size)]))[0])
    groups = np.sort(groups, axis=1)
    by_host = _by_host(groups, links)
    if by_host.shape[1] == 1:
        source, target = groups, np.roll(groups, -1, axis=1)
        message, link = links.crossed(source.ravel(), target.ravel())
        return link, np.full(len(message), bus_share)
    inside = by_host.shape[2]
    # Fewer channels than members leave every host by as many cards.
    num_rings = min(inside, channels_of(name) or inside)
    leaves = np.arange(num_rings) * inside // num_rings
    leaving = by_host[:, :, leaves]
    if by_tree:
        link, load = _trees(leaving, links, kind)
    else:
        ahead = np.roll(leaving, -1, axis=1)
        message, link = links.crossed(leaving.ravel(), ahead.ravel())
        load = np.full(len(message), bus_share)
    load /= num_rings
    if inside == 1:
        return link, load
    ports = [links.link(by_host.ravel(), 0, way) for way in LinkWay]
    own = np.full(by_host.shape, bus_share)
    own[:, :, leaves] = bus_share * (num_rings - 1) / num_rings
    uplinks = _uplinks(by_host, links, bus_share)
    return (
        np.concatenate([link, *ports, uplinks[0]]),
        np.concatenate([load, own.ravel(), own.ravel(), uplinks[1]]),
    )


def _uplinks(by_host: Int64s, links: MachineLinks, bus_share: float) -> tuple[Int64s, Float64s]:
    """What rings that visit the members of each host pass from one PCIe switch to the next."""
    if not links.is_by_pcie:
        return np.empty(0, np.int64), np.empty(0)
    switch = links.switch(by_host)
    is_first = np.diff(switch, axis=2, prepend=-1) != 0
    count = is_first.sum(axis=2, keepdims=True)
    load = np.broadcast_to(bus_share * (count - 1) / count, switch.shape)[is_first]
    link = np.concatenate([links.uplink(switch[is_first], way) for way in LinkWay])
    return link, np.tile(load, 2)


def _by_host(groups: Int64s, links: MachineLinks) -> Int64s:
    """Members host by host, in the order of places; int64[groups, hosts, members of each].

    Where hosts differ by how many they have, all go one by one.
    """
    count, size = groups.shape
    in_domain = links.machine.tiers[0].num_ranks
    inside = int((groups[0] // in_domain == groups[0, 0] // in_domain).sum())
    by_host = groups.reshape(count, -1, inside) if size % inside == 0 else groups[:, :, None]
    host = by_host // in_domain
    is_even = (host == host[:, :, :1]).all() and (np.diff(host[:, :, 0], axis=1) != 0).all()
    return by_host if is_even else groups[:, :, None]


def _trees(by_host: Int64s, links: MachineLinks, kind: CollectiveKind) -> tuple[Int64s, Float64s]:
    """Two trees over hosts, half of the message up each of them, or down, or both."""
    found = []
    for parent in tree_parents(by_host.shape[1]):
        child = np.flatnonzero(parent >= 0)
        below, above = by_host[:, child].ravel(), by_host[:, parent[child]].ravel()
        if kind is not CollectiveKind.BROADCAST:
            found.append(links.crossed(below, above)[1])
        if kind is not CollectiveKind.REDUCE:
            found.append(links.crossed(above, below)[1])
    link = np.concatenate(found)
    return link, np.full(len(link), 0.5)


def tree_parents(count: int) -> Int64s:
    """Parent of every host in both trees, int64[2, hosts]; -1: the root."""
    host = np.arange(count)
    lowest = host & -host  # the lowest bit that is set
    up = (host ^ lowest) | (lowest << 1)
    first = np.where(host == 0, -1, np.where(up < count, up, host ^ lowest))
    if count % 2:  # shifted by one
        second = np.roll(np.where(first < 0, -1, (first + 1) % count), 1)
    else:  # mirrored
        second = np.where(first < 0, -1, count - 1 - first)[::-1]
    return np.stack([first, second])


def _direct(
    groups: Int64s, links: MachineLinks, dispatched: Dispatched | None
) -> tuple[Int64s, Float64s]:
    """From every rank to each other; what goes to ranks behind one link is added up."""
    size = groups.shape[1]
    row = np.arange(len(groups))[:, None]
    link, load = [], []
    insides = [_num_inside(groups // tier.num_ranks, row) for tier in links.machine.tiers]
    inside, parts = insides[0], [(insides[0] - 1) / size]
    for tier in range(1, len(insides)):
        # A port is for those behind it alone, a card for all that lie beyond.
        reached = insides[tier] / size if tier < links.card_tier else 1.0
        parts.append(reached - insides[tier - 1] / size)
    if dispatched is not None:
        hosts = np.maximum(size / inside, 1.0)
        once = dispatched.hosts_reached(hosts) / dispatched.copies(float(size))
        parts = [(inside - 1) / inside, *(part * once for part in parts[1:])]
    for tier, part in enumerate(parts):
        uses = part > 0
        for way in LinkWay:
            link.append(links.link(groups[uses], tier, way))
            load.append(part[uses])
            if tier == links.card_tier:
                which, own = links.to_card(groups[uses], way)
                link.append(own)
                load.append(part[uses][which])
    if links.is_by_pcie:
        inside = insides[links.card_tier - 1]
        part = (inside - _num_inside(links.switch(groups), row)) / size
        for way in LinkWay:
            link.append(links.uplink(links.switch(groups[part > 0]), way))
            load.append(part[part > 0])
    return np.concatenate(link), np.concatenate(load)


def _num_inside(instance: Int64s, row: Int64s) -> Float64s:
    """Members of its own group in each member's instance, float64[groups, members]."""
    key = row * (int(instance.max()) + 1) + instance
    _, place, count = np.unique(key, return_inverse=True, return_counts=True)
    found: Float64s = count[place].reshape(instance.shape).astype(np.float64)
    return found
