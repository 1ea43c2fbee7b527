"""Placements of tables that annealing begins with, dealt greedily or by differencing.

A start takes for each table the way that the program of `table_floor` gives it most of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.search.table_account import (
    BYTES,
    NUM_RESOURCES,
    NUM_TIMED,
    TableAccount,
)
from foretrace.search.table_floor import TableFloor
from foretrace.search.table_moves import ChosenWay, DealtTables
from foretrace.workload import (
    MemoryTier,
    TableScheme,
    differencing,
    greedy,
)

_HOWS = ("greedy", "differencing")


def start(account: TableAccount, floor: TableFloor) -> tuple[str, DealtTables]:
    """The more promising of both ways to deal what the floor of an account says; which it is."""
    both = ((how, _dealt(account, floor.ways, how)) for how in _HOWS)
    return min(both, key=lambda pair: pair[1].promise_ns)


def _dealt(account: TableAccount, options: Sequence[int], how: str) -> DealtTables:
    """Pieces dealt to ranks, tables of hosts to hosts; what all have a part of is everywhere."""
    room = account.room
    slopes = account.slopes
    pieces: list[tuple[int, float, int]] = []  # table, cost, bytes
    chosen: dict[int, ChosenWay] = {}
    loads = np.zeros((room.num_ranks, NUM_RESOURCES))
    hosts = np.zeros(room.num_hosts)
    for table, at in enumerate(options):
        costed = account.options[table][at]
        scheme = costed.option.scheme
        if scheme in {TableScheme.ROW, TableScheme.DATA}:
            chosen[table] = ChosenWay(at, ())
            loads += costed.rows
        elif scheme is TableScheme.TABLE_ROW:
            host = int(hosts.argmin())
            first = host * room.ranks_per_host
            chosen[table] = ChosenWay(at, (first,))
            loads[first : first + room.ranks_per_host] += costed.rows
            hosts[host] += costed.total[:NUM_TIMED] @ slopes
        else:
            row = costed.rows[0]
            size = int(row[BYTES[MemoryTier.HBM]])
            own = (table, float(row[:NUM_TIMED] @ slopes), size)
            pieces += [own] * costed.option.num_pieces
    costs = [cost for _, cost, _ in pieces]
    if how == "greedy":
        left = room.hbm - loads[:, BYTES[MemoryTier.HBM]]
        bins = greedy(
            costs, room.num_ranks, sizes=[size for _, _, size in pieces],
            room=[int(one) for one in left], loads=(loads[:, :NUM_TIMED] @ slopes).tolist(),
        )  # fmt: skip
    else:
        bins = differencing(costs, room.num_ranks)
    ranks: dict[int, list[int]] = {}
    for (table, _, _), rank in zip(pieces, bins, strict=True):
        ranks.setdefault(table, []).append(max(rank, 0))
    chosen |= {table: ChosenWay(options[table], tuple(own)) for table, own in ranks.items()}
    return DealtTables(account, [chosen[table] for table in range(len(options))])
