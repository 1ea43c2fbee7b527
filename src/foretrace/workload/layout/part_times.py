"""`PartTimes`: how long what units are made of takes, part by part, by a compiled loop.

It says of a stretch what its fragments say (`unit_grain`): the same items wait for the same. No
graph is made; parts are costed once, and stretches are numbers of parts in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from foretrace.base import Float64s, Int64s, row_starts
from foretrace.graph import EdgeKind
from foretrace.workload.layout.folded import host_ns_of
from foretrace.workload.layout.launch import launch_of
from foretrace.workload.layout.stretches import run_stretches
from foretrace.workload.layout.tables import (
    COMPUTE,
    NOTHING,
    ExchangeKind,
    Tables,
    stream_layers,
)
from foretrace.workload.layout.template import IS_INSIDE, Coarse, Template
from foretrace.workload.plan.plan import Plan

ENTRY, EXIT, OUTSIDE = 1, 2, 4  # marks of items; as the compiled loop reads them
_NO_NUMBERS = np.zeros(0, np.int64)


class Kernel(NamedTuple):
    """An operation on a device, as cost models know it."""

    label: str  # in the model
    operator: str
    signature: str


@dataclass(frozen=True)
class SegmentTimes:
    """How long segments take, one by one; int64[segments] each."""

    lengths_ns: Int64s  # that each holds the compute stream
    leads_ns: Int64s  # of the host before it can begin
    host_ns: Int64s  # of all its launches
    more_ns: Int64s  # that it takes longer with communication beside it all the time


class Timing(Protocol):
    """What says how long things take."""

    def kernels(self, kernels: Sequence[Kernel]) -> tuple[Int64s, Float64s]:
        """How long each takes alone, int64[kernels], and what part of that communication adds."""

    def exchanges_ns(
        self,
        exchanges: Sequence[ExchangeKind],
        groups: Sequence[tuple[int, ...]],
        group: Sequence[int],
    ) -> Int64s:
        """How long exchanges take, each in one of some groups of ranks; int64[exchanges]."""


class KernelTimes:
    """How long kernels take, each distinct one asked for once."""

    def __init__(self, timing: Timing, tables: Tables) -> None:
        """Ask for none yet."""
        self.timing, self.tables = timing, tables
        self._known: dict[tuple[int, int, int], tuple[int, float]] = {}

    def ask(self, templates: Sequence[Template]) -> None:
        """Ask for all operators of some templates at once."""
        wanted = dict.fromkeys(key for one in templates for key in _keys(one))
        new = [key for key in wanted if key not in self._known]
        if new:
            name = self.tables.names.name
            texts = [["" if at == NOTHING else name(at) for at in key] for key in new]
            found = self.timing.kernels([Kernel(*own) for own in texts])
            pairs = zip(*(column.tolist() for column in found), strict=True)
            self._known.update(zip(new, pairs, strict=True))

    def of(self, templates: Sequence[Template]) -> tuple[Int64s, Float64s]:
        """How long their operators take alone, and what part of that communication adds."""
        found = [self._known[key] for one in templates for key in _keys(one)]
        alone_ns, slower = zip(*found, strict=True) if found else ((), ())
        return np.array(alone_ns, np.int64), np.array(slower, np.float64)


def _keys(template: Template) -> list[tuple[int, int, int]]:
    own, columns = template.operators, template.columns
    numbers = (columns[name][own].tolist() for name in ("label", "operator", "operator_signature"))
    return list(zip(*numbers, strict=True))


@dataclass(frozen=True)
class PartRun:
    """Work of one stage, part after part, and its segments."""

    parts: tuple[int, ...]  # numbers in the table of parts, none without operators
    last: Int64s  # int64[segments], the last operator of each, over all parts
    exchanges: tuple[int, ...]  # numbers of those of its parts


@dataclass(frozen=True)
class _Table:
    """Parts one after the other, as the compiled loop reads them."""

    begin: Int64s  # int64[parts + 1], of items
    items: Int64s  # int64[items, 4]: stream, time alone or exchange, host time, marks
    slower: Float64s  # float64[items]
    wait_begin: Int64s  # int64[items + 1]
    wait_item: Int64s  # int64[waits], counted from the first item of the part

    @property
    def columns(self) -> tuple[Int64s | Float64s, ...]:
        """All of it."""
        return self.begin, self.items, self.slower, self.wait_begin, self.wait_item

    def joined(self, other: _Table) -> _Table:
        """With parts behind its own."""
        pairs = (
            (self.begin, other.begin[1:] + self.begin[-1]),
            (self.items, other.items),
            (self.slower, other.slower),
            (self.wait_begin, other.wait_begin[1:] + self.wait_begin[-1]),
            (self.wait_item, other.wait_item),
        )
        return _Table(*(np.concatenate(pair) for pair in pairs))


_NO_PARTS = _Table(
    np.zeros(1, np.int64),
    np.zeros((0, 4), np.int64),
    np.zeros(0),
    np.zeros(1, np.int64),
    np.zeros(0, np.int64),
)


@dataclass(frozen=True)
class _Ends:
    """When operators of a stretch end; `run_stretch` says how."""

    ends_ns: Int64s  # int64[operators, 4]
    totals_ns: Int64s  # int64[4]


class PartTimes:
    """Parts of plans that share their blocks, and how long stretches of them take."""

    def __init__(self, plan: Plan, kernels: KernelTimes) -> None:
        """Know no part yet.

        Args:
            plan: says how its host launches and what exchanges take of a device.
            kernels: how long these take.
        """
        self._kernels, self._launch = kernels, launch_of(plan)
        lags = EdgeKind.STREAM, EdgeKind.INTER_STREAM, EdgeKind.LAUNCH
        self._lags = tuple(self._launch.lag_ns.get(kind, 0) for kind in lags)
        self._layers = stream_layers(plan.channels)
        self._numbers: dict[int, int] = {}  # by the identity of templates, which are kept
        self._templates: list[Template] = []
        self._table = _NO_PARTS
        self._kinds: dict[int, int] = {}  # of exchanges, places among all of the table
        self._exchanges: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._ends: dict[tuple[tuple[int, ...], tuple[int, ...]], _Ends] = {}

    def number(self, template: Template) -> int:
        """Number of a template."""
        found = self._numbers.get(id(template))
        if found is None:
            found = self._numbers[id(template)] = len(self._templates)
            self._templates.append(template)
        return found

    def stretch(self, coarse: Coarse) -> PartRun:
        """All of a template at unit grain."""
        return self.joined((self.number(coarse.fine),), coarse.last_operators)

    def joined(self, parts: tuple[int, ...], last: Int64s) -> PartRun:
        """Parts in a row, and where their segments end."""
        distinct = tuple(dict.fromkeys(parts))
        if distinct not in self._exchanges:
            own = [number for one in distinct for _, number in self._templates[one].exchanges]
            self._exchanges[distinct] = tuple(sorted({*own} - {NOTHING}))
        return PartRun(parts, last, self._exchanges[distinct])

    def segments(self, wanted: Sequence[tuple[PartRun, tuple[int, ...]]]) -> list[Int64s]:
        """How long segments of stretches take.

        Args:
            wanted: stretches, and how long their exchanges take.

        Returns:
            int64[segments, 4] of each: how long a segment holds the compute stream; time of the
            host before it can begin, and behind that; longer with communication beside it.
        """
        if not wanted:
            return []
        found, (stream_lag_ns, _, launch_lag_ns) = self._run(wanted), self._lags
        until = np.cumsum([len(run.last) for run, _ in wanted])
        first = np.append(0, until[:-1])
        ends_ns = np.concatenate(
            [one.ends_ns[run.last] for one, (run, _) in zip(found, wanted, strict=True)]
        )
        totals_ns = np.array([one.totals_ns for one in found])
        ends_ns[until - 1, 3] = totals_ns[:, 2]  # exchanges behind the last operator
        begins_ns = np.empty_like(ends_ns)
        begins_ns[1:] = ends_ns[:-1]
        begins_ns[1:, (0, 2)] += stream_lag_ns
        begins_ns[first] = 0
        begins_ns[first, 0], begins_ns[first, 2] = totals_ns[:, 0], totals_ns[:, 1]
        own, _, slowed, host_ns = (ends_ns - begins_ns).T
        own, slowed = np.maximum(own, 1), np.maximum(slowed, 1)
        late_ns = ends_ns[:, 1] - own - begins_ns[:, 3] - launch_lag_ns
        leads_ns = np.minimum(np.maximum(late_ns, 0), host_ns)
        columns = np.stack([own, leads_ns, host_ns - leads_ns, slowed - own], axis=1)
        return np.split(columns, until[:-1])

    def whole_ns(self, parts: tuple[int, ...], exchange_ns: Mapping[int, int]) -> tuple[int, ...]:
        """How long parts in a row hold the compute stream, their operators take, and the host."""
        run = self.joined(parts, _NO_NUMBERS)
        [found] = self._run([(run, tuple(exchange_ns[one] for one in run.exchanges))])
        first_ns, _, host_ns, operators_ns = found.totals_ns.tolist()
        return int(found.ends_ns[-1, 0]) - first_ns, operators_ns, host_ns

    def _run(self, wanted: Sequence[tuple[PartRun, tuple[int, ...]]]) -> list[_Ends]:
        """When operators of stretches end; all that are not known in one call."""
        keys = [(run.parts, own_ns) for run, own_ns in wanted]
        new = {
            key: run for key, (run, _) in zip(keys, wanted, strict=True) if key not in self._ends
        }
        if new:
            self._cost()
            self._ends.update(zip(new, self._new_ends(new), strict=True))
        return [self._ends[key] for key in keys]

    def _new_ends(
        self, new: Mapping[tuple[tuple[int, ...], tuple[int, ...]], PartRun]
    ) -> list[_Ends]:
        parts = np.array([part for own, _ in new for part in own], np.int64)
        begin = np.cumsum([0, *(len(own) for own, _ in new)])
        templates = self._templates
        sizes = [sum(len(templates[part].operators) for part in own) for own, _ in new]
        of_part = np.diff(self._table.begin)[parts]
        longest = int(np.add.reduceat(of_part, begin[:-1]).max())
        operators = np.cumsum([0, *sizes])
        stretches = (
            *(begin, parts, np.cumsum([0, *(len(own_ns) for _, own_ns in new)])),
            np.array([self._kinds[one] for run in new.values() for one in run.exchanges], np.int64),
            *(np.array([ns for _, own_ns in new for ns in own_ns], np.int64), operators),
        )
        room = (
            *(np.empty((longest, 3), np.int64), np.empty((longest, 3), np.int64)),
            *(np.empty((2, longest)), np.zeros(max(len(self._kinds), 1), np.int64)),
        )
        ends_ns = np.empty((int(operators[-1]), 4), np.int64)
        totals_ns = np.empty((len(new), 4), np.int64)
        run_stretches(
            *(stretches, self._table.columns, self._lags, self._layers, room, ends_ns, totals_ns)
        )
        return [*map(_Ends, np.split(ends_ns, operators[1:-1]), totals_ns)]

    def _cost(self) -> None:
        """Make what the loop reads of templates that came since the last time."""
        new = self._templates[len(self._table.begin) - 1 :]
        if new:
            self._kernels.ask(new)
            self._table = self._table.joined(self._read(new))

    def _read(self, new: Sequence[Template]) -> _Table:
        columns = {
            key: np.concatenate([one.columns[key] for one in new])
            for key in ("stream", "exchange", "phase", "measured_ns")
        }
        stream, begin = columns["stream"], np.cumsum([0, *map(len, new)])
        items = np.zeros((len(stream), 4), np.int64)
        slower = np.zeros(len(items))
        own = np.flatnonzero(stream == COMPUTE)
        alone_ns, slower[own] = self._kernels.of(new)
        stated_ns = columns["measured_ns"][own]
        items[:, 0] = stream
        items[own, 1] = np.where(stated_ns > 0, stated_ns, alone_ns)
        items[stream != COMPUTE, 1] = self._places(columns["exchange"][stream != COMPUTE])
        items[:, 2] = host_ns_of(columns, self._launch)
        for at, one in zip(begin.tolist(), new, strict=False):
            for mark, members in ((ENTRY, one.entries), (EXIT, one.exits)):
                for member in members:
                    items[[at + item for item in member], 3] |= mark
        items[~IS_INSIDE[stream], 3] |= OUTSIDE
        target = np.concatenate(
            [one.target + at for one, at in zip(new, begin.tolist(), strict=False)]
        )
        order = np.argsort(target, kind="stable")
        source = np.concatenate([one.source for one in new])
        return _Table(begin, items, slower, row_starts(target[order], len(items)), source[order])

    def _places(self, exchanges: Int64s) -> list[int]:
        """Of kinds of exchange among those of the table."""
        kinds = self._kinds
        return [kinds.setdefault(one, len(kinds)) for one in exchanges.tolist()]
