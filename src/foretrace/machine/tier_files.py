"""A tier of a machine's file: its figures, its law of jitter, and what it has of its host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from foretrace.base import Citation, MachineError
from foretrace.machine.figures import (
    Figure,
    FigureField,
    as_table,
    check_keys,
    number,
    prefixed,
    read_figures,
    whole,
)
from foretrace.machine.host import Host
from foretrace.machine.tiers import Tier, TierKind
from foretrace.machine.units import QuantityKind

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
