"""`GroupSpan`: which tiers of a machine a group of ranks uses, and what it gets from each.

A ring that visits hosts one after another crosses each boundary between two instances of a tier
once per member inside, so what it gets is the members inside times what the tier leaves to each:
groups that are alike share the tier's uplinks evenly. Bytes that each rank sends to all others
(all-to-all) get what the tier leaves to one rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from foretrace.machine import Machine, Tier


@dataclass(frozen=True)
class TierSpan:
    """One tier beyond the innermost, as a group uses it."""

    technology: str
    bytes_per_ns: float  # one rank, one direction, while all send
    num_inside: int  # members in the emptiest instance of what lies inside this tier
    num_crossings: int  # boundaries of this tier, and of none further out, along the ring
    num_branches: int  # instances of what lies inside, in the fullest instance of this tier
    latency_ns: float | None
    jitter_ns: float = 0.0  # of a message in the mean, beyond the latency
    tier: str = ""

    @property
    def ring_bytes_per_ns(self) -> float:
        """What all rings of the group together get across one boundary."""
        return self.bytes_per_ns * self.num_inside


@dataclass(frozen=True)
class GroupSpan:
    """A group of ranks on a machine."""

    num_ranks: int
    num_inside: int  # members in the fullest scale-up domain
    num_domains: int  # scale-up domains with a member
    levels: tuple[TierSpan, ...]  # beyond the scale-up domain, innermost first; empty inside one
    nearest_ns: float | None = None  # latency of the machine's first tier beyond that domain
    num_cards: float = 0.0  # of its fullest domain, its share where others use them too
    card_bytes_per_ns: float = 0.0  # of each
    tree_bytes_per_ns: float = np.inf  # what trees between two hosts carry, whatever the network

    @property
    def ring_bytes_per_ns(self) -> float:
        """The narrowest level's; raises ValueError inside one domain, as `min` does."""
        return min(level.ring_bytes_per_ns for level in self.levels)


def span_in_channels(
    span: GroupSpan, channels: int, bytes_per_ns: float, *, is_direct: bool
) -> GroupSpan:
    """The span as a collective of so many channels gets it, each of which carries so much.

    A ring leaves every host by one card, so fewer rings than cards leave some of them idle.
    """
    most = channels * bytes_per_ns
    levels = (
        replace(level, bytes_per_ns=min(level.bytes_per_ns, most))
        if is_direct
        else replace(
            level,
            bytes_per_ns=min(level.bytes_per_ns * min(level.num_inside, channels), most)
            / level.num_inside,
        )
        for level in span.levels
    )
    return replace(span, levels=tuple(levels))


def span_of(places: Sequence[int], machine: Machine) -> GroupSpan:
    """How a group lies in a machine.

    Args:
        places: of its members in the machine, from 0.
        machine: whose first tier is the scale-up domain.

    Raises:
        ValueError: for an empty group, or a place outside the machine.
    """
    spanned = {tier.name for tier in machine.tiers_spanned(places)}
    if machine.sizes:
        places = machine.places(np.asarray(places, np.int64)).tolist()
    per_domain = Counter(_instances(places, machine.tiers[0]))
    more = _more_of_cards(places, machine)
    host = machine.host
    per_chip = min(host.num_nics or host.num_chips, host.num_chips) / host.num_chips
    beyond = (tier for tier in machine.tiers[1:] if tier.num_ranks > host.num_chips)
    outside = next(beyond, None)
    levels = tuple(
        _level(places, inner, tier, more=more if tier.num_ranks > machine.host.num_chips else 1.0)
        for inner, tier in pairwise(machine.tiers)
        if tier.name in spanned
    )
    return GroupSpan(
        num_ranks=len(places),
        num_inside=max(per_domain.values()),
        num_domains=len(per_domain),
        levels=levels,
        nearest_ns=machine.tiers[1].latency_ns if levels else None,
        num_cards=max(max(per_domain.values()) * per_chip * more, 1.0) if levels else 0.0,
        card_bytes_per_ns=outside.bytes_per_ns / per_chip if levels and outside else 0.0,
    )


class GroupSpans:
    """Numbers of distinct spans on one machine; groups that lie alike share one."""

    def __init__(self, machine: Machine) -> None:
        """Know none yet."""
        self.machine = machine
        self.spans: list[GroupSpan] = []  # by number
        self._groups: dict[tuple[int, ...], int] = {}
        self._numbers: dict[GroupSpan, int] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Another process finds out for itself."""
        return GroupSpans, (self.machine,)

    def number(self, places: Sequence[int]) -> int:
        """Number of the span of a group.

        Args:
            places: as in `span_of`.

        Raises:
            ValueError: so too.
        """
        key = self._moved(places)
        found = self._groups.get(key)
        if found is None:
            span = span_of(key, self.machine)
            found = self._numbers.setdefault(span, len(self.spans))
            if found == len(self.spans):
                self.spans.append(span)
            self._groups[key] = found
        return found

    def _moved(self, places: Sequence[int]) -> tuple[int, ...]:
        """A group that lies in the first instance of a tier as this one in its own."""
        machine, own = self.machine, tuple(places)
        if machine.sizes or not own or not 0 <= min(own) <= max(own) < machine.num_ranks:
            return own
        for tier in machine.tiers:
            size = tier.num_ranks
            instance = own[0] // size
            if size % machine.host.num_chips or instance != max(own) // size:
                continue
            if instance != min(own) // size:
                continue
            return tuple(place - instance * size for place in own) if instance else own
        return own


def _more_of_cards(places: Sequence[int], machine: Machine) -> float:
    """How much more of its network cards a group gets than its chips' share, on empty links."""
    host = machine.host
    if not machine.is_empty or not host.num_nics or host.num_nics >= host.num_chips:
        return 1.0
    own = np.asarray(places, np.int64)
    inside = own % host.num_chips * host.num_nics // host.num_chips
    _, count = np.unique(own // host.num_chips * host.num_nics + inside, return_counts=True)
    return host.num_chips / host.num_nics / float(count.max())


def _instances(places: Sequence[int], tier: Tier) -> list[int]:
    return [place // tier.num_ranks for place in places]


def _level(places: Sequence[int], inner: Tier, tier: Tier, *, more: float) -> TierSpan:
    inside = Counter(_instances(places, inner))
    per_inner = tier.num_ranks // inner.num_ranks
    branches = Counter(instance // per_inner for instance in inside)
    return TierSpan(
        technology=tier.technology,
        bytes_per_ns=tier.shared_bytes_per_ns * more,
        num_inside=min(inside.values()),
        num_crossings=len(inside) - len(branches),
        num_branches=max(branches.values()),
        latency_ns=tier.latency_ns,
        jitter_ns=tier.jitter_ns or 0.0,
        tier=tier.name,
    )
