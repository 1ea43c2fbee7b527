"""The best placement by a `TableAccount`, as an integer program for HiGHS: slow, and sure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from foretrace.base import Float64s
from foretrace.search.table_account import BYTES, NUM_TIMED, Costed, TableAccount, TableRoom
from foretrace.workload import MemoryTier, TableScheme

_EVERYWHERE = (TableScheme.ROW, TableScheme.DATA)
_US, _GB = 1e-3, 1e-9  # what times and bytes are counted in, so that all are of one size


@dataclass(frozen=True)
class SolvedTables:
    """What the program found, and what no placement is below."""

    value_ns: float
    bound_ns: float


def solved_tables(account: TableAccount, *, time_s: float, gap: float = 1e-6) -> SolvedTables:
    """Time of tables in the best placement of an account.

    A variable for every table, way and place (rank, host, or everywhere; of columns the number of
    pieces on a rank), one for the fullest rank of each timed resource, one for whether any rank
    has some of it.
    """
    program = _Program(account)
    for table, own in enumerate(account.options):
        for one in own:
            for ranks in _places(one, account.room):
                program.add_place(table, one, ranks)
    num_places = program.num_variables
    program.add_fullest()
    goal, upper = np.array(program.goal), np.array(program.upper)
    found = milp(
        goal,
        constraints=program.constraints(),
        integrality=np.where(np.arange(len(goal)) < num_places, 1, np.isfinite(upper)),
        bounds=Bounds(0, upper),
        options={"time_limit": time_s, "mip_rel_gap": gap},
    )
    assert found.x is not None, found.message
    return SolvedTables(float(found.fun) / _US, float(found.mip_dual_bound) / _US)


def _places(one: Costed, room: TableRoom) -> Iterator[list[int]]:
    """Ranks of the rows of an option, everywhere it may be."""
    if one.option.scheme in _EVERYWHERE:
        yield list(range(room.num_ranks))
    elif one.option.scheme is TableScheme.TABLE_ROW:
        inside = room.ranks_per_host
        for host in range(room.num_hosts):
            yield list(range(host * inside, (host + 1) * inside))
    else:
        for rank in range(room.num_ranks):
            yield [rank]


class _Program:
    """Rows: of each rank and timed resource, of each tier, of tables, of resources in use."""

    def __init__(self, account: TableAccount) -> None:
        self.account = account
        room = account.room
        sizes = (
            *(room.num_ranks * NUM_TIMED, room.num_ranks, room.num_hosts, room.num_hosts),
            *(len(account.options), NUM_TIMED),
        )
        self.first = np.cumsum((0, *sizes)).tolist()
        self.entries: list[tuple[int, int, float]] = []
        self.goal: list[float] = []
        self.upper: list[float] = []

    @property
    def num_variables(self) -> int:
        return len(self.goal)

    def add_place(self, table: int, one: Costed, ranks: list[int]) -> None:
        timed, hbm, host, ssd, tables, used, _ = self.first
        inside = self.account.room.ranks_per_host
        for rank, row in zip(ranks, one.rows, strict=False):
            for resource in np.flatnonzero(row[:NUM_TIMED]).tolist():
                self._entry(timed + rank * NUM_TIMED + resource, row[resource] * _US)
            self._entry(hbm + rank, row[BYTES[MemoryTier.HBM]] * _GB)
            self._entry(host + rank // inside, row[BYTES[MemoryTier.HOST]] * _GB)
            self._entry(ssd + rank // inside, row[BYTES[MemoryTier.SSD]] * _GB)
        for resource in np.flatnonzero(one.rows.max(axis=0)[:NUM_TIMED]).tolist():
            self._entry(used + resource, 1.0)
        self._entry(tables + table, 1.0 / one.option.num_pieces)
        self._variable(self.account.copied.slope * one.copied * _US, one.option.num_pieces)

    def add_fullest(self) -> None:
        timed, used = self.first[0], self.first[5]
        options = self.account.options
        many = sum(max(one.option.num_pieces for one in own) for own in options)
        for resource, line in enumerate(self.account.exchange):
            for rank in range(self.account.room.num_ranks):
                self._entry(timed + rank * NUM_TIMED + resource, -1.0)
            self._variable(line.slope, np.inf)
        for resource, line in enumerate(self.account.exchange):
            self._entry(used + resource, -float(many))
            self._variable(line.start_ns * _US, 1.0)

    def constraints(self) -> LinearConstraint:
        room, first = self.account.room, self.first
        upper: Float64s = np.zeros(first[-1])
        upper[first[1] : first[2]] = room.hbm * _GB
        upper[first[2] : first[3]] = room.host * _GB
        upper[first[3] : first[4]] = room.ssd * _GB
        upper[first[4] : first[5]] = 1.0
        lower: Float64s = np.full(first[-1], -np.inf)
        lower[first[4] : first[5]] = 1.0
        rows, columns, values = zip(*self.entries, strict=True)
        shape = (first[-1], self.num_variables)
        return LinearConstraint(
            coo_array((values, (rows, columns)), shape=shape).tocsr(), lower, upper
        )

    def _entry(self, row: int, value: float) -> None:
        self.entries.append((row, self.num_variables, value))

    def _variable(self, cost: float, most: float) -> None:
        self.goal.append(cost)
        self.upper.append(most)
