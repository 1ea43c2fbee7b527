"""The tiers of a network, innermost first, and what a group of ranks gets from them.

Tier by tier, `num_ranks` neighbours make one instance: ranks 0 to 7 share a host, 0 to 15 a
rack. A group uses a tier where two of its members share an instance of that tier but of none
inside it. Bandwidth is one rank's, in one direction, while all ranks send: what a shared uplink
leaves to each. A collective's own algorithm is no matter of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from foretrace.answer import Plain
from foretrace.base import MachineError


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
