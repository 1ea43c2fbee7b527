"""`annealed`: a placement of tables whose account is shorter, by simulated annealing.

Tables move to other ranks and other ways, and change ranks, or ranks and ways, with each other: so
that one comes into a full memory as another leaves it. What has no room costs
as much as it takes of the room, so that tables can pass through full ranks. Each cycle begins hot
where the best one ended; the last placements are cold. The same numbers are drawn every time, so
that nothing but a deadline makes two searches differ.

Source:
    Kirkpatrick, Gelatt, Vecchi, Science 220 (1983), 671-680.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.search._compiled import EVERYWHERE, HOST, PIECES, anneal
from foretrace.search.table_account import TableAccount, TableOption
from foretrace.search.table_floor import table_floor
from foretrace.search.table_moves import ChosenWay, DealtTables
from foretrace.search.table_starts import start
from foretrace.workload import TableScheme

WORTH = 1.1  # of the least by the account: what is above is not looked at
# Found on 4 of the 50 instances that bench/search_checks.py draws; of the account.
_HOT, _COLD = 1e-3, 1e-5
_HOTTER = 1.6e-2  # of cycles that begin afresh, after the first: numbers of tables even out
_EVENED = 0.1  # of the mean square of loads: what leads off plains
_OVER = 1.0  # for as many bytes above the room as there is room
_MOVES, _LEAST_MOVES = 2_500, 100  # of a table in a cycle; the least are made whatever the time
_CYCLES = 8  # that find nothing better: then it ends
_AFRESH = 2  # every so many cycles begin where the first did
_OF_PROGRAM = 0.1  # of the time, for each program of whole tables, at most
_NOTHING = -1
_AT_ONCE = 8_192  # moves between two looks at the time
_KINDS = {
    TableScheme.TABLE: PIECES,
    TableScheme.COLUMN: PIECES,
    TableScheme.TABLE_ROW: HOST,
    TableScheme.ROW: EVERYWHERE,
    TableScheme.DATA: EVERYWHERE,
}


def annealed(placement: DealtTables, deadline_s: float) -> DealtTables:
    """The best placement on the way from one, which may be that one.

    Args:
        placement: where to begin; it may have no room.
        deadline_s: of `time.monotonic`, when to stop.
    """
    cycles = _Cycles(placement, deadline_s)
    best, least_ns = placement, placement.value_ns if placement.fits else math.inf
    cycle, until = 0, _CYCLES
    while cycle < until and (cycle == 0 or time.monotonic() < deadline_s):
        is_afresh = cycle % _AFRESH == 0
        found = cycles.cooled(
            placement if is_afresh else best, _HOTTER if is_afresh and cycle else _HOT
        )
        cycle += 1
        if found.fits and found.value_ns < least_ns:
            best, least_ns, until = found, found.value_ns, cycle + _CYCLES
    return best


def annealed_families(
    account: TableAccount, deadline_s: float
) -> tuple[tuple[str, DealtTables], ...]:
    """The best placement of each family of schemes that has room, and how it began.

    Families are sets of schemes, as every scheme costs launches and exchanges of its own, which no
    single move saves. A program of whole tables says where each begins: a table that has to leave
    a scheme before others fit is what moves find least. Families that may be best come first; one
    that nothing good can come of ends it, and the time that is left is the best one's.

    Args:
        account: of all schemes.
        deadline_s: as in `annealed`.
    """
    accounts = [(own, account.of_schemes(own)) for own in _families(account)]
    whole_s = _OF_PROGRAM * max(deadline_s - time.monotonic(), 0.0)
    floors = [(floor, *own) for own in accounts if (floor := table_floor(own[1], whole_s=whole_s))]
    floors.sort(key=lambda one: one[0].least_ns)
    found: list[tuple[str, DealtTables]] = []
    for left, (floor, family, own) in zip(range(len(floors), 0, -1), floors, strict=True):
        if found and floor.least_ns > WORTH * min(one.value_ns for _, one in found):
            break
        how, first = start(own, floor)
        now_s = time.monotonic()
        best = annealed(first, now_s + (deadline_s - now_s) / left)
        if best.fits:
            found.append((f"{', '.join(family)}, {how}", best))
    found.sort(key=lambda one: one[1].value_ns)
    if found and time.monotonic() < deadline_s:
        found[0] = (found[0][0], annealed(found[0][1], deadline_s))
    return tuple(found)


def _families(account: TableAccount) -> Iterator[tuple[TableScheme, ...]]:
    there = {one.option.scheme for own in account.options for one in own}
    single = [scheme for scheme in TableScheme if scheme in there - {TableScheme.DATA}]
    alone = [(scheme,) for scheme in single]
    beside = [(*one, TableScheme.DATA) for one in alone if TableScheme.DATA in there]
    yield from dict.fromkeys((*alone, *beside, tuple(one for one in TableScheme if one in there)))


@dataclass(frozen=True)
class _Ways:
    """An account as the loop reads it; ways of all tables in one row."""

    first: Int64s  # int64[tables + 1]
    ways: Int64s  # int64[ways, 3]: first row, number of pieces or ranks, kind
    copied: Float64s  # float64[ways]
    alike: Int64s  # int64[ways], the same for ways that differ in the table alone
    way_of: Int64s  # int64[tables, alike], a table's way of each; NOTHING
    rows: Float64s  # float64[rows, resources]

    @classmethod
    def of(cls, account: TableAccount) -> _Ways:
        """Equal tables share rows."""
        row_of: dict[int, int] = {}
        rows: list[Float64s] = []
        ways, num_rows = [], 0
        every = [one for own in account.options for one in own]
        for one in every:
            if id(one) not in row_of:
                row_of[id(one)] = num_rows
                rows.append(one.rows)
                num_rows += len(one.rows)
            kind = _KINDS[one.option.scheme]
            count = one.option.num_pieces if kind == PIECES else len(one.rows)
            ways.append((row_of[id(one)], count, kind))
        first = np.cumsum([0, *(len(own) for own in account.options)])
        copied = np.array([one.copied for one in every], np.float64)
        numbers: dict[TableOption, int] = {}
        alike = np.array([numbers.setdefault(one.option, len(numbers)) for one in every])
        way_of = np.full((len(account.options), len(numbers)), _NOTHING)
        table = np.repeat(np.arange(len(account.options)), np.diff(first))
        way_of[table, alike] = np.arange(len(every))
        return cls(
            first, np.array(ways, np.int64), copied, alike, way_of, rows=np.concatenate(rows)
        )


class _Cycles:
    """Cycles from hot to cold, of as many moves as there is time for."""

    def __init__(self, placement: DealtTables, deadline_s: float) -> None:
        """Draw from the beginning."""
        account = placement.account
        self._account, self._deadline_s = account, deadline_s
        self._ways = _Ways.of(account)
        lines = (*account.exchange, account.copied)
        self._starts, self._slopes = (
            np.array(own) for own in zip(*((one.start_ns, one.slope) for one in lines), strict=True)
        )
        room = account.room
        self._room = np.array([room.hbm, room.host, room.ssd], np.float64)
        self._rng = np.random.default_rng(0)
        self._scale_ns = max(placement.value_ns, 1.0)
        is_pieces = self._ways.ways[:, 2] == PIECES
        self._pieces = int(self._ways.ways[is_pieces, 1].max(initial=1))
        self._moves, self._least_moves = (
            each * len(account.options) for each in (_MOVES, _LEAST_MOVES)
        )

    def cooled(self, start: DealtTables, heat: float) -> DealtTables:
        """The best that one cycle came to, which begins with a heat in parts of the account."""
        ways, room = self._ways, self._account.room
        chosen = ways.first[:-1] + np.array([one.option for one in start.chosen])
        ranks = np.zeros((len(chosen) + 1, self._pieces), np.int64)
        for table, one in enumerate(start.chosen):
            ranks[table, : len(one.ranks)] = one.ranks
        loads, order = start.loads.copy(), np.arange(room.num_ranks)
        best_chosen, best_ranks, kept = chosen.copy(), ranks.copy(), np.empty_like(loads)
        # The first move is made whatever it is, as nothing is known of where the loop begins.
        state = np.array([start.copied, math.inf, math.inf, 0.0])
        made, moves, begin_s = 0, self._moves, time.monotonic()
        hot = heat * self._scale_ns
        while made < moves:
            now = min(_AT_ONCE, moves - made)
            cooling = (_COLD / heat) ** (1 / moves)
            anneal(
                self._rng, now, hot * cooling**made, cooling, ways.first, ways.ways, ways.copied,
                ways.alike, ways.way_of, ways.rows, self._starts, self._slopes,
                self._room, room.ranks_per_host, _EVENED,
                _OVER * self._scale_ns, order, kept, loads, chosen, ranks, best_chosen, best_ranks,
                state,
            )  # fmt: skip
            made += now
            if made == now:  # colder sooner where there is less time
                spent_s = time.monotonic() - begin_s
                share = (self._deadline_s - begin_s) / max(spent_s, 1e-6)
                moves = min(moves, max(self._least_moves, made, round(made * share)))
        return self._placement(best_chosen, best_ranks)

    def _placement(self, chosen: Int64s, ranks: Int64s) -> DealtTables:
        """As the account knows it."""
        ways, account = self._ways, self._account
        found = []
        for table, way in enumerate(chosen.tolist()):
            _, count, kind = ways.ways[way].tolist()
            num = {PIECES: count, HOST: 1, EVERYWHERE: 0}[kind]
            own = tuple(ranks[table, :num].tolist())
            found.append(ChosenWay(way - int(ways.first[table]), own))
        return DealtTables(account, found)
