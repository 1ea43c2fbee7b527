"""MLCommons' InfraGraph (https://infragraph.dev) becomes a table of links.

Devices have components and edges between them, and may hold other devices; instances of devices
are joined by edges of the whole. Components that are `xpu` are the ranks, in the order in which
they stand; all else are switches and cards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

import msgspec

from foretrace.base import MachineError
from foretrace.machine.link_table import TableLink

_RANKS = ("xpu", "npu", "gpu")
_SLICED = re.compile(r"([^\[\].]+)(?:\[(\d*)(:?)(\d*)\])?")
_GIGABYTES = {"bits": 1 / 8, "bytes": 1.0}
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_MOST_DEEP = 8  # devices inside each other
_MOST_PARTS = 200_000
_Table = Mapping[str, object]


def read_infragraph(text: str, where: str) -> list[TableLink]:
    """The links of an infrastructure, YAML or JSON, with its chips as gpu0, gpu1, ...

    Raises:
        MachineError: if something is missing, is named and not there, or cannot be.
    """
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else msgspec.yaml.decode(text)
    except (ValueError, msgspec.DecodeError) as err:
        raise MachineError(f"{where} is neither YAML nor JSON: {err}") from err
    whole = _table(found, where)
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
