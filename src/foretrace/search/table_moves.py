"""`DealtTables`: a placement of tables, and moves that make its `TableAccount` shorter.

Tables move to other ways and ranks, and change places, as long as the account gets shorter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s
from foretrace.search.table_account import (
    BACKWARD,
    BYTES,
    FORWARD,
    NUM_RESOURCES,
    NUM_TIMED,
    Costed,
    TableAccount,
)
from foretrace.workload import (
    MemoryTier,
    TablePlace,
    TableScheme,
)

_OVER = 1e12  # ns for as many bytes as a rank has room for, above the room
_EVENED = 1e-3  # of the mean square of loads: what breaks ties
_LEAST = 1e-9  # gain that counts, of the account
_SHAKES = 24
_SHAKEN = 0.04  # of all tables
_HBM = BYTES[MemoryTier.HBM]
_MOST_RANKS = 24  # where a table may move to: those with least to do
_DEAREST = 1e6  # ns a byte
_HALVINGS = 40  # of the price


@dataclass(frozen=True)
class ChosenWay:
    """Where one table is."""

    option: int  # of the table's
    ranks: tuple[int, ...]  # as in a `TablePlace`


class DealtTables:
    """Tables on ranks with the sums of what they take; changed in place."""

    def __init__(self, account: TableAccount, chosen: Sequence[ChosenWay]) -> None:
        """Add up."""
        self.account = account
        self.chosen = list(chosen)
        self.loads = np.zeros((account.room.num_ranks, NUM_RESOURCES))
        self.copied = 0.0
        self._rank = np.full(len(self.chosen), -1)  # of tables that are whole on one; -1
        self._rows = np.zeros((len(self.chosen), NUM_RESOURCES))  # of these
        for table, one in enumerate(self.chosen):
            self.add(table, one, 1)

    @classmethod
    def of_places(cls, account: TableAccount, places: Sequence[TablePlace]) -> DealtTables | None:
        """Tables where they are stated to be; `None` if one is nowhere the account knows."""
        chosen = []
        for place in places:
            ways = [
                one.option.place(place.table, place.ranks) for one in account.options[place.table]
            ]
            counts = [one.option.num_pieces for one in account.options[place.table]]
            own = [
                at
                for at, (way, count) in enumerate(zip(ways, counts, strict=True))
                if way == place and count in {1, len(place.ranks)}
            ]
            if not own:
                return None
            chosen.append(ChosenWay(own[0], place.ranks))
        return cls(account, chosen)

    @property
    def promise_ns(self) -> float:
        """What it may come to: its value, longer by the share of what has no room."""
        excess = float(self.account.excess(self.loads[None])[0])
        return self.value_ns * (1 + excess)

    def costed(self, table: int, one: ChosenWay) -> Costed:
        """The way that a table is placed."""
        return self.account.options[table][one.option]

    def add(self, table: int, one: ChosenWay, sign: int) -> None:
        """Add a table's rows, or take them away."""
        costed = self.costed(table, one)
        np.add.at(self.loads, self.ranks_of(costed, one.ranks), sign * costed.rows)
        self.copied += sign * costed.copied
        if sign > 0:
            is_whole = costed.option.scheme is TableScheme.TABLE
            self._rank[table] = one.ranks[0] if is_whole else -1
            self._rows[table] = costed.rows[0]

    def ranks_of(self, costed: Costed, ranks: Sequence[int]) -> list[int]:
        """A rank for each row."""
        room = self.account.room
        if costed.option.scheme is TableScheme.TABLE_ROW:
            return list(range(ranks[0], ranks[0] + room.ranks_per_host))
        if costed.option.scheme in {TableScheme.ROW, TableScheme.DATA}:
            return list(range(room.num_ranks))
        return list(ranks)

    def under(self, account: TableAccount) -> DealtTables:
        """The same places under an account of the same tables."""
        chosen = []
        for table, one in enumerate(self.chosen):
            wanted = self.costed(table, one).option
            options = [costed.option for costed in account.options[table]]
            chosen.append(ChosenWay(options.index(wanted), one.ranks))
        return DealtTables(account, chosen)

    @property
    def value_ns(self) -> float:
        """By the account."""
        return self.account.value(self.loads, self.copied)

    @property
    def fits(self) -> bool:
        """Whether every tier has room."""
        return bool(self.account.excess(self.loads[None])[0] <= 0)

    def scores(self, loads: Float64s, copied: float) -> Float64s:
        """What moves make small, of several cases."""
        account = self.account
        timed = loads[..., :NUM_TIMED] @ account.slopes
        spread = np.sqrt((timed**2).mean(axis=1))
        found: Float64s = (
            account.values(loads, copied) + _EVENED * spread + _OVER * account.excess(loads)
        )
        return found

    def places(self) -> tuple[TablePlace, ...]:
        """As a plan states them."""
        return tuple(
            self.costed(table, one).option.place(table, one.ranks)
            for table, one in enumerate(self.chosen)
        )

    def ways(self, table: int) -> list[ChosenWay]:
        """Where else a table could be: every option, on ranks that have least to do."""
        room = self.account.room
        work = self.loads[:, :NUM_TIMED] @ self.account.slopes
        order = np.argsort(work, kind="stable").tolist()[:_MOST_RANKS]
        hosts = sorted({rank // room.ranks_per_host for rank in order})
        found = []
        for at, costed in enumerate(self.account.options[table]):
            scheme, count = costed.option.scheme, costed.option.num_pieces
            if scheme in {TableScheme.ROW, TableScheme.DATA}:
                found.append(ChosenWay(at, ()))
            elif scheme is TableScheme.TABLE_ROW:
                found += [ChosenWay(at, (host * room.ranks_per_host,)) for host in hosts]
            elif scheme is TableScheme.COLUMN:
                found += [
                    ChosenWay(at, tuple(order[first : first + count]))
                    for first in range(len(order) - count + 1)
                ]
            else:
                found += [ChosenWay(at, (rank,)) for rank in order]
        return found

    def moved_loads(self, table: int, ways: Sequence[ChosenWay]) -> Float64s:
        """Loads with a table, which is nowhere now, in each of several places."""
        found = np.repeat(self.loads[None], len(ways), axis=0)
        whole: list[tuple[int, int, int]] = []  # case, option, rank
        for case, one in enumerate(ways):
            costed = self.costed(table, one)
            if len(one.ranks) == 1 == len(costed.rows):
                whole.append((case, one.option, one.ranks[0]))
            else:
                np.add.at(found[case], self.ranks_of(costed, one.ranks), costed.rows)
        if whole:
            cases, options, ranks = np.array(whole).T
            rows = np.array([one.rows[0] for one in self.account.options[table]])
            found[cases, ranks] += rows[options]
        return found

    def scored_ways(self, table: int) -> list[tuple[float, ChosenWay]]:
        """Where a table is, then where else it could be, each with the score it gives."""
        own = self.chosen[table]
        self.add(table, own, -1)
        ways = [own, *self.ways(table)]
        loads = self.moved_loads(table, ways)
        copied = np.array([self.copied + self.costed(table, one).copied for one in ways])
        scores = self.scores(loads, 0.0) + self._copies(copied)
        self.add(table, own, 1)
        return list(zip(scores.tolist(), ways, strict=True))

    def with_table(self, table: int, one: ChosenWay) -> DealtTables:
        """The placement with a table elsewhere."""
        chosen = [*self.chosen[:table], one, *self.chosen[table + 1 :]]
        return DealtTables(self.account, chosen)

    def move(self, table: int) -> bool:
        """Put a table where it costs least; whether that is elsewhere."""
        (score, own), *others = self.scored_ways(table)
        best = min(others, key=lambda pair: pair[0])
        if not best[0] < score * (1 - _LEAST):
            return False
        self.add(table, own, -1)
        self.chosen[table] = best[1]
        self.add(table, best[1], 1)
        return True

    def _copies(self, copied: Float64s) -> Float64s:
        return np.array([self.account.copied.at(one) for one in copied.tolist()])

    def exchange(self, table: int) -> bool:
        """Let a table and another, each on one rank, change ranks; whether that was better."""
        rank = int(self._rank[table])
        others = np.flatnonzero((self._rank >= 0) & (self._rank != rank))
        if rank < 0 or not len(others):
            return False
        loads = np.repeat(self.loads[None], len(others) + 1, axis=0)
        change = self._rows[others] - self._rows[table]
        loads[1:, rank] += change
        loads[np.arange(len(others)) + 1, self._rank[others]] -= change
        scores = self.scores(loads, self.copied)
        best = int(scores.argmin())
        if not scores[best] < scores[0] * (1 - _LEAST):
            return False
        other = int(others[best - 1])
        place = int(self._rank[other])
        moved = [
            ChosenWay(self.chosen[one].option, (to,)) for one, to in ((table, place), (other, rank))
        ]
        self._put((table, other), moved)
        return True

    def refill(self, rank: int) -> bool:
        """Choose anew which rows a rank's whole tables have in HBM; whether that was better."""
        tables = np.flatnonzero(self._rank == rank).tolist()
        own = [self._whole_ways(table) for table in tables]
        if not any(len(ways) > 1 for ways in own):
            return False
        held = sum(self._row(table, self.chosen[table])[_HBM] for table in tables)
        room = self.account.room.hbm - (self.loads[rank, _HBM] - held)
        figures = [
            (
                np.array([self._row(table, one)[:NUM_TIMED] @ self.account.slopes for one in ways]),
                np.array([self._row(table, one)[_HBM] for one in ways]),
            )
            for table, ways in zip(tables, own, strict=True)
        ]
        before = [self.chosen[table] for table in tables]
        score = float(self.scores(self.loads[None], self.copied)[0])
        after = [ways[at] for ways, at in zip(own, priced(figures, room), strict=True)]
        self._put(tables, after)
        if float(self.scores(self.loads[None], self.copied)[0]) < score * (1 - _LEAST):
            return True
        self._put(tables, before)
        return False

    def _whole_ways(self, table: int) -> list[ChosenWay]:
        """Ways to have all of a table on the rank that it is on."""
        ranks = self.chosen[table].ranks
        return [
            ChosenWay(at, ranks)
            for at, one in enumerate(self.account.options[table])
            if one.option.scheme is TableScheme.TABLE
        ]

    def _row(self, table: int, one: ChosenWay) -> Float64s:
        row: Float64s = self.costed(table, one).rows[0]
        return row

    def _put(self, tables: Sequence[int], chosen: Sequence[ChosenWay]) -> None:
        for table, one in zip(tables, chosen, strict=True):
            self.add(table, self.chosen[table], -1)
            self.chosen[table] = one
            self.add(table, one, 1)

    def improve(self, deadline_s: float) -> None:
        """Move tables until nothing gets better, then shake some and go on from there."""
        self._descend(range(len(self.chosen)), deadline_s)
        rng = np.random.default_rng(0)
        size = max(2, round(_SHAKEN * len(self.chosen)))
        for _ in range(_SHAKES):
            if time.monotonic() > deadline_s:
                return
            before = list(self.chosen)
            score = self.score
            shaken = rng.choice(len(before), min(size, len(before)), replace=False).tolist()
            self._reinsert(shaken)
            self._descend([*shaken, *self._on_fullest()], deadline_s)
            if not self.score < score * (1 - _LEAST):
                changed = [at for at, one in enumerate(before) if one != self.chosen[at]]
                self._put(changed, [before[at] for at in changed])

    @property
    def score(self) -> float:
        """What moves make small."""
        return float(self.scores(self.loads[None], self.copied)[0])

    def _descend(self, tables: Sequence[int], deadline_s: float) -> None:
        """Move these tables, the dearest first, as long as anything gets better."""
        order = sorted(dict.fromkeys(tables), key=lambda table: -self._cost(table))
        for rank in range(self.account.room.num_ranks):
            self.refill(rank)
        is_better = True
        while is_better:
            is_better = False
            for table in order:
                if time.monotonic() > deadline_s:
                    return
                is_better |= self.move(table)
                is_better |= self.exchange(table)

    def _cost(self, table: int) -> float:
        total = self.costed(table, self.chosen[table]).total[:NUM_TIMED]
        return float(total @ self.account.slopes)

    def _reinsert(self, tables: Sequence[int]) -> None:
        """Take tables out together, and put one after the other where it costs least."""
        for table in tables:
            self.add(table, self.chosen[table], -1)
        for table in tables:
            self.add(table, self.chosen[table], 1)
            self._put((table,), (min(self.scored_ways(table), key=lambda pair: pair[0])[1],))

    def _on_fullest(self) -> list[int]:
        """Whole tables of the ranks that have most to do forwards, and backwards."""
        fullest = {int(self.loads[:, one].argmax()) for one in (FORWARD, BACKWARD)}
        found: list[int] = np.flatnonzero(np.isin(self._rank, list(fullest))).tolist()
        return found


def priced(figures: Sequence[tuple[Float64s, Float64s]], room: float) -> list[int]:
    """The cheapest way of each at the lowest price of a byte at which all have room.

    Args:
        figures: of each, time and bytes of its ways.
        room: bytes; where not even the smallest ways have it, these are taken.
    """
    most = max(len(own) for own, _ in figures)
    times, sizes = (
        np.array([np.pad(one[at], (0, most - len(one[at])), constant_values=nothing)
                  for one in figures])
        for at, nothing in ((0, np.inf), (1, 0.0))
    )  # fmt: skip
    every = np.arange(len(figures))

    def at(price: float) -> list[int]:
        found: list[int] = np.argmin(times + price * sizes, axis=1).tolist()
        return found

    def fits(ways: Sequence[int]) -> bool:
        return bool(sizes[every, ways].sum() <= room)

    return at_lowest_price(at, fits)


def at_lowest_price(
    at: Callable[[float], list[int]], fits: Callable[[Sequence[int]], bool]
) -> list[int]:
    """Ways at the lowest price at which they fit; at the highest, if at none."""
    low, high = 0.0, 1e-6
    found = at(low)
    if fits(found):
        return found
    while not fits(at(high)) and high < _DEAREST:
        low, high = high, high * 8
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(at(middle)) else (middle, high)
    return at(high)
