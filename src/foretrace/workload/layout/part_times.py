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
from foretrace.workload.layout._compiled import run_stretch
from foretrace.workload.layout.folded import host_ns_of
from foretrace.workload.layout.launch import launch_of
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
            names = (*self.tables.names.names(), "")  # the last for NOTHING
            found = self.timing.kernels([Kernel(*(names[at] for at in key)) for key in new])
            pairs = zip(*(column.tolist() for column in found), strict=True)
            self._known.update(zip(new, pairs, strict=True))

    def of(self, template: Template) -> tuple[Int64s, Float64s]:
        """How long its operators take alone, and what part of that communication adds."""
        found = [self._known[key] for key in _keys(template)]
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
class _Part:
    """A template as the compiled loop reads it."""

    items: Int64s  # int64[items, 4]: stream, time alone, host time, marks
    slower: Float64s  # float64[items]
    wait_begin: Int64s  # int64[items + 1]
    wait_item: Int64s  # int64[waits]


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
        self._parts: list[_Part] = []
        self._joined: dict[tuple[int, ...], tuple[tuple[Int64s | Float64s, ...], Int64s]] = {}
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
        place = np.flatnonzero(coarse.is_segment)
        of_operator = np.searchsorted(place, coarse.item[coarse.fine.operators])
        last = np.searchsorted(of_operator, np.arange(len(place)), side="right") - 1
        return self.joined((self.number(coarse.fine),), last)

    def joined(self, parts: tuple[int, ...], last: Int64s) -> PartRun:
        """Parts in a row, and where their segments end."""
        distinct = tuple(dict.fromkeys(parts))
        if distinct not in self._exchanges:
            own = [number for one in distinct for _, number in self._templates[one].exchanges]
            self._exchanges[distinct] = tuple(sorted({*own} - {NOTHING}))
        return PartRun(parts, last, self._exchanges[distinct])

    def segments(self, stretch: PartRun, exchange_ns: Mapping[int, int]) -> SegmentTimes:
        """How long each segment of a stretch takes.

        Args:
            stretch: of these parts.
            exchange_ns: how long exchanges take, by number.
        """
        found, last = self._run(stretch, exchange_ns), stretch.last
        stream_lag_ns, _, launch_lag_ns = self._lags
        ends_ns, (own_ns, slowed_ns, total_ns, _) = found.ends_ns[last], found.totals_ns.tolist()
        ends_ns[-1, 3] = total_ns  # exchanges behind the last operator
        begins_ns = np.empty_like(ends_ns)
        begins_ns[0] = own_ns, 0, slowed_ns, 0
        begins_ns[1:] = ends_ns[:-1]
        begins_ns[1:, (0, 2)] += stream_lag_ns
        own, _, slowed, host_ns = (ends_ns - begins_ns).T
        own, slowed = np.maximum(own, 1), np.maximum(slowed, 1)
        late_ns = ends_ns[:, 1] - own - begins_ns[:, 3] - launch_lag_ns
        leads_ns = np.minimum(np.maximum(late_ns, 0), host_ns)
        return SegmentTimes(own, leads_ns, host_ns, slowed - own)

    def whole_ns(self, parts: tuple[int, ...], exchange_ns: Mapping[int, int]) -> tuple[int, ...]:
        """How long parts in a row hold the compute stream, their operators take, and the host."""
        found = self._run(self.joined(parts, _NO_NUMBERS), exchange_ns)
        first_ns, _, host_ns, operators_ns = found.totals_ns.tolist()
        return int(found.ends_ns[-1, 0]) - first_ns, operators_ns, host_ns

    def _run(self, stretch: PartRun, exchange_ns: Mapping[int, int]) -> _Ends:
        distinct = tuple(dict.fromkeys(stretch.parts))
        table, exchange = self._table(distinct)
        kinds = exchange.tolist()
        own_ns = tuple(exchange_ns[one] for one in kinds)
        key = stretch.parts, own_ns
        if key not in self._ends:
            items = table[1].copy()
            items[items[:, 0] != COMPUTE, 1] = own_ns
            place = {part: at for at, part in enumerate(distinct)}
            parts = np.array([place[one] for one in stretch.parts], np.int64)
            size = np.diff(table[0])[parts].sum()
            room = np.empty((size, 3), np.int64), np.empty((size, 3), np.int64), np.empty((2, size))
            num_operators = sum(len(self._templates[one].operators) for one in stretch.parts)
            found = _Ends(np.empty((num_operators, 4), np.int64), np.empty(4, np.int64))
            run_stretch(
                *(parts, (table[0], items, *table[2:]), self._lags, self._layers, room),
                *(found.ends_ns, found.totals_ns),
            )
            self._ends[key] = found
        return self._ends[key]

    def _table(self, distinct: tuple[int, ...]) -> tuple[tuple[Int64s | Float64s, ...], Int64s]:
        """Parts as the loop takes them, and the kinds of exchange in their order."""
        if distinct not in self._joined:
            self._cost()
            own = [self._parts[one] for one in distinct]
            sizes = [len(one.items) for one in own]
            waits = np.cumsum([0, *(len(one.wait_item) for one in own)])
            begins = [
                one.wait_begin[:-1] + at for one, at in zip(own, waits.tolist(), strict=False)
            ]
            columns = [self._templates[one].columns["exchange"] for one in distinct]
            exchange = np.concatenate(columns)
            self._joined[distinct] = (
                (
                    np.cumsum([0, *sizes]),
                    np.concatenate([one.items for one in own]),
                    np.concatenate([one.slower for one in own]),
                    np.append(np.concatenate(begins), waits[-1]),
                    np.concatenate([one.wait_item for one in own]),
                ),
                exchange[exchange != NOTHING],
            )
        return self._joined[distinct]

    def _cost(self) -> None:
        """Make what the loop reads of templates that came since the last time."""
        new = self._templates[len(self._parts) :]
        self._kernels.ask(new)
        self._parts += [self._part(one) for one in new]

    def _part(self, template: Template) -> _Part:
        columns, own = template.columns, template.operators
        items = np.zeros((len(template), 4), np.int64)
        items[:, 0] = columns["stream"]
        alone_ns, factor = self._kernels.of(template)
        stated_ns = columns["measured_ns"][own]
        items[own, 1] = np.where(stated_ns > 0, stated_ns, alone_ns)
        items[:, 2] = host_ns_of(columns, self._launch)
        for mark, members in ((ENTRY, template.entries), (EXIT, template.exits)):
            items[[one for own in members for one in own], 3] |= mark
        items[~IS_INSIDE[items[:, 0]], 3] |= OUTSIDE
        slower = np.zeros(len(items))
        slower[own] = factor
        order = np.argsort(template.target, kind="stable")
        wait_begin = row_starts(template.target[order], len(items))
        return _Part(items, slower, wait_begin, template.source[order])
