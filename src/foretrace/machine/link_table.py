"""A table of links becomes tiers: ranks that are as far apart, in links, are of one tier.

What a group gets of the tier around it are the links that lead out of it, over its ranks.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foretrace.base import MachineError

_COLUMNS = ("from", "to", "gb_per_s")
_RANK = re.compile(r"(?:gpu|npu|rank|)(\d+)", re.IGNORECASE)
_LEAST = 1e-9


@dataclass(frozen=True)
class NetworkTier:
    """One level of a network that another tool described."""

    num_ranks: int  # of one instance
    bytes_per_ns: float  # of one rank, before oversubscription
    oversubscription: float
    latency_ns: float  # between two of its ranks


@dataclass(frozen=True)
class TableLink:
    """A link, as wide both ways."""

    ends: tuple[str, str]
    bytes_per_ns: float
    latency_ns: float


def read_link_table(text: str, where: str) -> list[TableLink]:
    """The links of a CSV table: from, to, gb_per_s and, if known, latency_ns.

    Raises:
        MachineError: if a column is missing, or a link cannot be.
    """
    reader = csv.DictReader(text.splitlines())
    lacking = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if lacking:
        raise MachineError(
            f"{where} has no column {lacking[0]!r}: a table of links begins with "
            "from,to,gb_per_s,latency_ns"
        )
    found: list[TableLink] = []
    for at, row in enumerate(reader, 2):
        ends = (str(row["from"]).strip(), str(row["to"]).strip())
        if ends[0] == ends[1] or not all(ends):
            raise MachineError(f"line {at} of {where} leads from {ends[0]!r} to {ends[1]!r}")
        rate, delay = (_number(row.get(key), at, where) for key in ("gb_per_s", "latency_ns"))
        if rate <= 0:
            raise MachineError(
                f"the link from {ends[0]} to {ends[1]} in {where} has a bandwidth of {rate:g} GB/s:"
                " a link that carries nothing is none, leave it out"
            )
        found.append(TableLink(ends, rate, delay))
    if not found:
        raise MachineError(f"{where} has no links")
    return found


def _number(text: str | None, line: int, where: str) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise MachineError(f"line {line} of {where} has {text!r}: expected a number, 0 or more")
    return value


def tiers_of_links(links: Sequence[TableLink], where: str) -> list[NetworkTier]:
    """Tiers of a network whose ranks are gpu0, gpu1, ..., and whose other nodes are switches.

    Raises:
        MachineError: if a rank cannot be reached, or distances make no tiers, as in a circle.
    """
    near: dict[str, dict[str, TableLink]] = defaultdict(dict)
    for link in links:
        one, other = link.ends
        if other in near[one]:
            raise MachineError(
                f"{where} has two links between {one} and {other}: state one, as wide as both"
            )
        near[one][other] = near[other][one] = link
    ranks = {int(match[1]): name for name in near if (match := _RANK.fullmatch(name))}
    if sorted(ranks) != list(range(len(ranks))) or len(ranks) < 2:  # noqa: PLR2004
        raise MachineError(
            f"{where} must name its ranks gpu0, gpu1, ... without gaps, found {len(ranks)}: "
            f"{', '.join(ranks[at] for at in sorted(ranks)[:5])}"
        )
    hops = {at: _hops(ranks[at], near) for at in ranks}
    lost = [at for at in ranks if ranks[at] not in hops[0]]
    if lost:
        raise MachineError(
            f"{ranks[lost[0]]} cannot be reached from {ranks[0]} in {where} ({len(lost)} of "
            f"{len(ranks)} ranks cannot): join them"
        )
    tiers: list[NetworkTier] = []
    # A rank's own card is on its side.
    inside = [_with_switches([at], ranks, hops) for at in sorted(ranks)]
    for far in sorted({hops[0][ranks[at]][0] for at in ranks if at}):
        groups = _groups(ranks, hops, far, where)
        outside = [_with_switches(group, ranks, hops) for group in groups]
        inner = inside[0]
        around = next(group for group in outside if inner <= group)
        members = sum(_RANK.fullmatch(name) is not None for name in inner)
        rate = (
            sum(
                near[name][other].bytes_per_ns
                for name in sorted(inner)
                for other in near[name]
                if other in around and other not in inner
            )
            / members
        )
        if rate < _LEAST:
            raise MachineError(f"no link of {where} leads out of {sorted(inner)[:3]}")
        delay = next(hops[0][ranks[at]][1] for at in sorted(ranks) if hops[0][ranks[at]][0] == far)
        wide = rate if len(tiers) < 2 else max(rate, tiers[1].bytes_per_ns)  # noqa: PLR2004
        tiers.append(NetworkTier(len(groups[0]), wide, wide / rate, delay))
        inside = outside
    return tiers


def _hops(begin: str, near: Mapping[str, Mapping[str, TableLink]]) -> dict[str, tuple[int, float]]:
    """Links and latency from a rank to every node, by the fewest links."""
    found = {begin: (0, 0.0)}
    waiting = deque([begin])
    while waiting:
        node = waiting.popleft()
        count, delay = found[node]
        for other, link in near[node].items():
            if other not in found:
                found[other] = (count + 1, delay + link.latency_ns)
                waiting.append(other)
    return found


def _groups(
    ranks: Mapping[int, str],
    hops: Mapping[int, Mapping[str, tuple[int, float]]],
    far: int,
    where: str,
) -> list[list[int]]:
    """Ranks that are no farther apart than that: equal neighbours, or no tier."""
    groups: list[list[int]] = []
    for at in sorted(ranks):
        own = [other for other in sorted(ranks) if hops[at][ranks[other]][0] <= far]
        if own[0] == at:
            groups.append(own)
        if own not in groups or own != list(range(own[0], own[0] + len(groups[0]))):
            raise MachineError(
                f"ranks of {where} make no tiers: within {far} links {ranks[at]} reaches "
                f"{len(own)} ranks from {ranks[own[0]]} on, which do not all reach each other or "
                "are not neighbours, as in a circle or a mesh; number ranks of a switch in a row"
            )
    return groups


def _with_switches(
    group: Sequence[int],
    ranks: Mapping[int, str],
    hops: Mapping[int, Mapping[str, tuple[int, float]]],
) -> set[str]:
    """The group's ranks, and the switches whose nearest ranks are all of the group."""
    found = {ranks[at] for at in group}
    for node in hops[group[0]]:
        if _RANK.fullmatch(node) is None:
            least = min(hops[at][node][0] for at in ranks)
            nearest = {at for at in ranks if hops[at][node][0] == least}
            if nearest <= set(group):
                found.add(node)
    return found
