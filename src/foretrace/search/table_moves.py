"""`DealtTables`: a placement of tables by a `TableAccount`, and what moving one makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s
from foretrace.search.table_account import (
    NUM_RESOURCES,
    NUM_TIMED,
    Costed,
    TableAccount,
)
from foretrace.workload import TablePlace, TableScheme

_OVER = 1e12  # ns for as many bytes as a rank has room for, above the room
_EVENED = 1e-3  # of the mean square of loads: what breaks ties
_MOST_RANKS = 24  # where a table may move to: those with least to do


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

    def _copies(self, copied: Float64s) -> Float64s:
        return np.array([self.account.copied.at(one) for one in copied.tolist()])
