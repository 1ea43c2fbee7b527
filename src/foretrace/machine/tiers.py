"""The tiers of a network, innermost first: as files state them, and what a group gets from them.

Tier by tier, `num_ranks` neighbours make one instance: ranks 0 to 7 share a host, 0 to 15 a
rack. A group uses a tier where two of its members share an instance of that tier but of none
inside it. Bandwidth is one rank's, in one direction, while all ranks send: what a shared uplink
leaves to each. A collective's own algorithm is no matter of this folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from foretrace.answer import Plain
from foretrace.base import Citation, MachineError
from foretrace.machine.figures import (
    Figure,
    FigureField,
    QuantityKind,
    as_table,
    check_keys,
    number,
    prefixed,
    read_figures,
    whole,
)
from foretrace.machine.host import Host

TIER_FIELDS = (
    FigureField(
        "ranks", QuantityKind.COUNT, 2, 10_000_000, "chips in one instance", is_required=True
    ),
    FigureField(
        "bandwidth",
        QuantityKind.BANDWIDTH,
        "0.1 Gb/s",
        "5 TB/s",
        "of one chip, one direction; left out: as its host has it",
    ),
    FigureField(
        "oversubscription", QuantityKind.RATIO, 1, 64, "7:1 leaves a seventh when all send"
    ),
    FigureField(
        "latency", QuantityKind.TIME, "50 ns", "100 ms", "one small message from chip to chip"
    ),
    FigureField(
        "distance", QuantityKind.LENGTH, "1 m", "10000 km", "of fibre between instances inside it"
    ),
    FigureField(
        "jitter", QuantityKind.TIME, "1 ns", "100 ms", "mean of what varies, beside the latency"
    ),
    FigureField(
        "link_price",
        QuantityKind.PRICE,
        "0.001 /Gb/s/month",
        "100000 /Gb/s/month",
        "of links that lead into it, both ways",
    ),
    FigureField(
        "rails", QuantityKind.COUNT, 1, 64, "separate networks, one for each chip of a host"
    ),
)

# Light in glass of a refractive index of 1.468 (Corning SMF-28, at 1,550 nm).
_FIBRE_NS_PER_METRE = 1.468 / 0.299792458
_TEXTS = ("name", "kind", "technology", "sizes", "jitter_law")
_LAW = re.compile(r"(gamma|lognormal):(\d+(?:\.\d+)?)|(exponential)")
_MOST_VARIATION = 10


class TierKind(StrEnum):
    """What joins the ranks of a tier."""

    SCALE_UP = "scale-up"  # load and store between chips: NVLink, xGMI, ICI
    RACK = "rack"
    POD = "pod"  # a zone, a scalable unit, a dragonfly group: full bandwidth inside, as a rule
    BUILDING = "building"
    REGION = "region"


@dataclass(frozen=True)
class Tier(Plain):
    """One level of the network."""

    json_also = ("shared_bytes_per_ns",)

    name: str
    kind: TierKind
    technology: str  # "NVLink 4", "RoCE"; "" if not said
    num_ranks: int  # ranks in one instance
    bytes_per_ns: float  # one rank, one direction, before oversubscription
    oversubscription: float  # 7.0: a seventh of `bytes_per_ns` is left when all send; 1.0 if full
    latency_ns: float | None  # one small message from rank to rank
    num_rails: int | None  # separate networks, one for each chip of a host
    # What a message takes beyond the latency, in the mean, and as which law that varies.
    jitter_ns: float | None = None
    jitter_law: str = ""  # "exponential", "gamma", "lognormal"; "" without jitter
    jitter_variation: float = 0.0  # of that law: standard deviation over mean
    link_price: float | None = None  # of one byte per ns both ways for an hour, any currency

    @property
    def shared_bytes_per_ns(self) -> float:
        """What one rank gets in one direction while all ranks send across this tier."""
        return self.bytes_per_ns / self.oversubscription

    @property
    def links_per_chip_hour(self) -> float | None:
        """What one chip's share of the links into this tier costs in an hour."""
        return None if self.link_price is None else self.link_price * self.shared_bytes_per_ns

    @property
    def law_text(self) -> str:
        """How jitter varies, as files have it."""
        is_whole = self.jitter_law in {"", "exponential"}
        return self.jitter_law if is_whole else f"{self.jitter_law}:{self.jitter_variation:g}"


def tiers_spanned(
    tiers: Sequence[Tier], ranks: Sequence[int], placement: Sequence[int] | None = None
) -> tuple[Tier, ...]:
    """The tiers that some pair of these ranks has between it, innermost first.

    Args:
        tiers: of the machine, innermost first.
        ranks: members of a group.
        placement: the place in the machine of every rank; rank r is at place r if left out.

    Raises:
        ValueError: for a rank without a place, or a place outside the machine.
    """
    places = _places(tiers, ranks, placement)
    spanned: list[Tier] = []
    num_inner = len(places)  # each place is its own instance of what lies inside the first tier
    for tier in tiers:
        size = tier.num_ranks
        num_outer = len({place // size for place in places}) if num_inner > 1 else 1
        if num_inner > num_outer:
            spanned.append(tier)
        num_inner = num_outer
    return tuple(spanned)


def _places(
    tiers: Sequence[Tier], ranks: Sequence[int], placement: Sequence[int] | None
) -> list[int]:
    capacity = tiers[-1].num_ranks
    if placement is None:
        places = list(ranks)
    elif all(0 <= rank < len(placement) for rank in ranks):
        places = [placement[rank] for rank in ranks]
    else:
        raise ValueError(f"rank {max(ranks)} has no place: placement holds {len(placement)}")
    outside = [place for place in places if not 0 <= place < capacity]
    if outside:
        raise ValueError(
            f"place {outside[0]} lies outside the machine, whose outermost tier "
            f"{tiers[-1].name!r} has {capacity} ranks"
        )
    if len(set(places)) < len(places):
        raise ValueError("two ranks of the group have the same place")
    return places


def instance_sizes(stated: object, tiers: Sequence[Tier], where: str) -> tuple[int, ...]:
    """Chips of each instance of the tier inside the outermost; none where nothing is stated.

    Raises:
        MachineError: if they do not fit the tiers.
    """
    if stated is None:
        return ()
    has_hosts = len(tiers) > 2  # noqa: PLR2004  inside what differs
    largest, step = (tiers[-2].num_ranks, tiers[-3].num_ranks) if has_hosts else (0, 1)
    if (
        not isinstance(stated, list)
        or not stated
        or not all(isinstance(one, int) and 0 < one <= largest for one in stated)
        or any(one % step for one in stated)
        or sum(stated) != tiers[-1].num_ranks
    ):
        raise MachineError(
            f"tier {tiers[-1].name!r} of {where} has sizes {stated!r}: expected are chips of each "
            f"instance inside it, each up to {largest}, a multiple of {step}, and "
            f"{tiers[-1].num_ranks} in all, as its ranks say"
        )
    return tuple(stated)


def check_nesting(tiers: Sequence[Tier], where: str) -> None:
    """Refuse tiers that do not hold a whole number of those inside.

    Raises:
        MachineError: naming the tier.
    """
    for inner, outer in pairwise(tiers):
        if outer.num_ranks <= inner.num_ranks or outer.num_ranks % inner.num_ranks:
            raise MachineError(
                f"tier {outer.name!r} of {where} has {outer.num_ranks} ranks, which is no multiple "
                f"of the {inner.num_ranks} of {inner.name!r} inside it: "
                "list tiers from the inside out, each a whole number of the one before"
            )


def read_tier(
    entry: object, host: Host, *, sources: dict[str, Citation], where: str
) -> tuple[Tier, tuple[Figure, ...]]:
    """A tier of a machine's file, and its figures.

    Raises:
        MachineError: for a key, a unit or a kind that is not known, or a number that cannot be.
    """
    table = as_table(entry, f"a tier of {where}")
    name = str(table.get("name", ""))
    place = f"tier {name!r} of {where}"
    check_keys(table, (*_TEXTS, *(field.key for field in TIER_FIELDS)), place)
    kinds = [kind.value for kind in TierKind]
    if not name or table.get("kind") not in kinds:
        raise MachineError(
            f"{place} has name {name!r} and kind {table.get('kind')!r}: "
            f"give it a name and one of the kinds {', '.join(kinds)}"
        )
    kind = TierKind(str(table["kind"]))
    numbers = {key: value for key, value in table.items() if key not in _TEXTS}
    figures = read_figures(numbers, TIER_FIELDS, sources=sources, where=place)
    oversubscription = number(figures, "oversubscription")
    if oversubscription is not None and oversubscription < 1:
        raise MachineError(
            f"{place} has an oversubscription of {figures['oversubscription'].quantity.text!r}, "
            'less than 1: write "7:1" where a seventh of the bandwidth is left'
        )
    law, variation = _law(table, figures, place)
    tier = Tier(
        name=name,
        kind=kind,
        technology=str(table.get("technology", "")),
        num_ranks=round(figures["ranks"].value),
        bytes_per_ns=number(figures, "bandwidth") or _host_bandwidth(host, kind, place),
        oversubscription=oversubscription or 1.0,
        latency_ns=_latency_ns(figures),
        num_rails=whole(figures, "rails"),
        jitter_ns=number(figures, "jitter"),
        jitter_law=law,
        jitter_variation=variation,
        link_price=number(figures, "link_price"),
    )
    return tier, prefixed(f"tier {name}", figures)


def _law(
    table: Mapping[str, object], figures: Mapping[str, Figure], place: str
) -> tuple[str, float]:
    """How jitter varies: a family, and its standard deviation over its mean."""
    stated, has_jitter = table.get("jitter_law"), "jitter" in figures
    if stated is None and not has_jitter:
        return "", 0.0
    match = _LAW.fullmatch(stated) if isinstance(stated, str) and has_jitter else None
    variation = float(match[2] or 1) if match else 0.0
    if match is None or not 0 < variation <= _MOST_VARIATION:
        raise MachineError(
            f"{place} has jitter_law {stated!r} and {'a' if has_jitter else 'no'} jitter: write "
            'its mean, jitter = "2 us", and its law, jitter_law = "exponential", or "gamma:0.5" or '
            f'"lognormal:1.5" with its standard deviation over its mean, up to {_MOST_VARIATION}'
        )
    return match[1] or match[3], variation


def _latency_ns(figures: Mapping[str, Figure]) -> float | None:
    """Of one message: what is stated, and the way along the fibre."""
    stated, distance = number(figures, "latency"), number(figures, "distance")
    if distance is None:
        return stated
    return (stated or 0.0) + distance * _FIBRE_NS_PER_METRE


def _host_bandwidth(host: Host, kind: TierKind, place: str) -> float:
    is_scale_up = kind is TierKind.SCALE_UP
    found = host.scale_up_bytes_per_ns if is_scale_up else host.network_bytes_per_ns
    if found is None:
        lacks = "scale_up_bandwidth" if is_scale_up else "num_nics and nic_bandwidth"
        raise MachineError(
            f"{place} has no bandwidth, and host {host.name!r} no {lacks} to take it from: "
            "add one of them"
        )
    return found
