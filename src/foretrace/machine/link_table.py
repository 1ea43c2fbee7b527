"""A table of links, MLCommons' InfraGraph too, becomes tiers of ranks that are as far apart.

What a group gets of the tier around it are the links that lead out of it, over its ranks.

Devices have components and edges between them, and may hold other devices; instances of devices
are joined by edges of the whole. Components that are `xpu` are the ranks, in the order in which
they stand; all else are switches and cards.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import msgspec

from foretrace.base import MachineError

_COLUMNS = ("from", "to", "gb_per_s")
_RANK = re.compile(r"(?:gpu|npu|rank|)(\d+)", re.IGNORECASE)
_LEAST = 1e-9

_RANKS = ("xpu", "npu", "gpu")
_SLICED = re.compile(r"([^\[\].]+)(?:\[(\d*)(:?)(\d*)\])?")
_GIGABYTES = {"bits": 1 / 8, "bytes": 1.0}
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_MOST_DEEP = 8  # devices inside each other
_MOST_PARTS = 200_000
_Table = Mapping[str, object]


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


def yaml_or_json(text: str, where: str) -> object:
    """What a text states, in either.

    Raises:
        MachineError: if it is neither.
    """
    try:
        return json.loads(text) if text.lstrip().startswith("{") else msgspec.yaml.decode(text)
    except (ValueError, msgspec.DecodeError) as err:
        raise MachineError(f"{where} is neither YAML nor JSON: {err}") from err


def read_infragraph(text: str, where: str) -> list[TableLink]:
    """The links of an infrastructure, YAML or JSON, with its chips as gpu0, gpu1, ...

    Raises:
        MachineError: if something is missing, is named and not there, or cannot be.
    """
    whole = _table(yaml_or_json(text, where), where)
    return _Infrastructure(_table(whole.get("infrastructure", whole), where), where).links()


class _Infrastructure:
    """Devices by name, and what instances of them are made of."""

    def __init__(self, table: _Table, where: str) -> None:
        self._table, self._where = table, where
        self._devices = {str(one.get("name")): one for one in _rows(table, "devices", where)}
        self._counts: dict[str, int] = {}  # of components and devices, by where they stand
        self._ranks: dict[str, str] = {}  # gpu0, ... by component
        self._num_parts = 0
        self._links: list[TableLink] = []

    def links(self) -> list[TableLink]:
        """All of them."""
        for one in _rows(self._table, "instances", self._where):
            name = str(one.get("name"))
            self._counts[name] = _count(one, self._where)
            for at in range(self._counts[name]):
                self._build(str(one.get("device")), f"{name}.{at}", 0)
        self._join(self._table, "", "instance")
        if not self._links:
            raise MachineError(f"{self._where} has no edges")
        return self._links

    def _build(self, device: str, path: str, depth: int) -> None:
        if device not in self._devices or depth > _MOST_DEEP:
            why = "holds itself" if device in self._devices else "is not among its devices"
            raise MachineError(f"{path} of {self._where} is a device {device!r}, which {why}")
        table = self._devices[device]
        for one in _rows(table, "components", self._where):
            name, kind = f"{path}.{one.get('name')}", str(one.get("choice", one.get("type")))
            self._counts[name] = _count(one, self._where)
            self._num_parts += self._counts[name]
            if self._num_parts > _MOST_PARTS:
                raise MachineError(f"{self._where} has more than {_MOST_PARTS:,} parts")
            for at in range(self._counts[name]):
                if kind in _RANKS:
                    self._ranks[f"{name}.{at}"] = f"gpu{len(self._ranks)}"
                if kind == "device":
                    self._build(str(one.get("name")), f"{name}.{at}", depth + 1)
        self._join(table, f"{path}.", "device")

    def _join(self, table: _Table, path: str, outer: str) -> None:
        """Edges of a device, or of the whole."""
        kinds = {str(one.get("name")): one for one in _rows(table, "links", self._where)}
        for edge in _rows(table, "edges", self._where):
            ends = [self._ends(_table(edge.get(key), self._where), path, outer)
                    for key in ("ep1", "ep2")]  # fmt: skip
            name = str(edge.get("link"))
            if name not in kinds:
                raise MachineError(f"{self._where} joins by {name!r}, which is none of its links")
            rate, delay = _figures(kinds[name], name, self._where)
            for one, other in self._pairs(edge, ends):
                names = (self._ranks.get(one, one), self._ranks.get(other, other))
                self._links.append(TableLink(names, rate, delay))

    def _pairs(self, edge: _Table, ends: Sequence[list[str]]) -> Iterator[tuple[str, str]]:
        one, other = ends
        scheme = edge.get("scheme", "many2many" if edge.get("many2many") else "one2one")
        if len(one) * len(other) > _MOST_PARTS and scheme == "many2many":
            raise MachineError(
                f"{self._where} joins {len(one)} ends with {len(other)}, each with each"
            )
        if scheme == "many2many":
            if one == other:
                yield from combinations(one, 2)
            else:
                yield from product(one, other)
        elif scheme == "one2one" and len(one) == len(other):
            yield from zip(one, other, strict=True)
        else:
            raise MachineError(
                f"{self._where} joins {len(one)} ends with {len(other)} by {scheme!r}: expected "
                "many2many, or one2one of as many"
            )

    def _ends(self, end: _Table, path: str, outer: str) -> list[str]:
        """Components that an end means, indices as Python slices."""
        found = [path.removesuffix(".")] if path else [""]
        steps = [end[key] for key in (outer, "component") if end.get(key)]
        for step in ".".join(map(str, steps)).split("."):
            match = _SLICED.fullmatch(step)
            key = f"{found[0]}.{match[1]}".lstrip(".") if match else ""
            if match is None or key not in self._counts:
                raise MachineError(f"{self._where} joins {step!r}, which none of its parts is")
            count = self._counts[key]
            first, last = int(match[2] or 0), int(match[4] or count)
            if match[2] and not match[3]:
                last = first + 1
            if not first < last <= count:
                raise MachineError(f"{self._where} joins {step!r} of {count} {match[1]}")
            found = [
                f"{one}.{match[1]}.{at}".lstrip(".") for one in found for at in range(first, last)
            ]
        return found


def _table(found: object, where: str) -> _Table:
    if not isinstance(found, Mapping):
        raise MachineError(f"{where} holds {type(found).__name__}, where keys are expected")
    return found


def _rows(table: _Table, key: str, where: str) -> list[_Table]:
    found = table.get(key) or []
    if not isinstance(found, list):
        raise MachineError(f"{key} of {where} is {type(found).__name__}, where a list is expected")
    return [_table(one, where) for one in found]


def _count(table: _Table, where: str) -> int:
    count = table.get("count", 1)
    if not isinstance(count, int) or not 0 < count <= _MOST_PARTS:
        raise MachineError(f"{table.get('name')!r} of {where} is there {count!r} times")
    return count


def _figures(link: _Table, name: str, where: str) -> tuple[float, float]:
    """Gigabytes a second, and nanoseconds."""
    physical = _table(link.get("physical", link), where)
    rate = _amount(physical.get("bandwidth"), _GIGABYTES)
    if not 0 < rate < float("inf"):
        raise MachineError(
            f"link {name!r} of {where} has no bandwidth above 0: state gigabits_per_second"
        )
    return rate, _amount(physical.get("latency"), _NANOSECONDS)


def _amount(stated: object, units: Mapping[str, float]) -> float:
    """The number of a choice of units, in the first that its name holds; 0: none is stated."""
    for key, value in stated.items() if isinstance(stated, Mapping) else ():
        for unit, factor in units.items():
            if unit in str(key) and isinstance(value, int | float) and value >= 0:
                return float(value) * factor
    return 0.0
