"""Placements of tables that moves begin with, dealt greedily or by differencing.

A start takes for each table the way that the program of `table_floor` gives it most of, or that is
cheapest at a price for bytes of HBM, as high as it must be for all to fit.

Source:
    Prices of HBM's bytes choose which rows leave it, as RecShard's program does: Sethi et al.,
    arXiv:2201.10095, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foretrace.base import Float64s
from foretrace.search.table_account import (
    BYTES,
    NUM_RESOURCES,
    NUM_TIMED,
    TableAccount,
)
from foretrace.search.table_floor import table_floor
from foretrace.search.table_moves import ChosenWay, DealtTables, at_lowest_price, priced
from foretrace.workload import (
    MemoryTier,
    TableScheme,
    differencing,
    greedy,
)

_PACKED = 0.97  # of the room that starts fill
_LUMPS = (np.inf, 0.5, 0.25, 0.1)  # of a rank's time and room that a piece may take
_HOWS = ("greedy", "differencing")
_HBM = BYTES[MemoryTier.HBM]


def starts(account: TableAccount) -> Iterator[tuple[str, DealtTables]]:
    """Placements to begin with, and how they were made."""
    ways = [(None, limit) for limit in _LUMPS] + [(scheme, np.inf) for scheme in TableScheme]
    floor = table_floor(account)
    seen: set[tuple[int, ...]] = {floor.ways} if floor else set()
    if floor is not None:
        for how in _HOWS:
            yield f"the ways of what none is below, {how}", _dealt(account, floor.ways, how)
    for scheme, limit in ways:
        options = _cheapest(account, scheme, limit)
        if tuple(options) in seen:
            continue
        seen.add(tuple(options))
        name = "the cheapest way for each" if scheme is None else scheme.value
        if limit < np.inf:
            name = f"{name} in pieces of at most {limit:g} ranks"
        for how in _HOWS:
            yield f"{name}, {how}", _dealt(account, options, how)


def _cheapest(
    account: TableAccount, scheme: TableScheme | None, limit: float = np.inf
) -> list[int]:
    """An option for each table: the cheapest at the lowest prices of bytes at which all fit.

    Args:
        account: costs and room.
        scheme: of all tables that may have it; `None`: any.
        limit: what a piece takes of a rank's mean time, and of its room, at most.
    """
    room = account.room
    tables = range(len(account.options))
    lump = (np.inf, np.inf)
    if limit < np.inf:
        whole = [_figures(account, table, scheme) for table in tables]
        found = _cheapest(account, scheme)
        mean_ns = sum(float(own[0][at]) for own, at in zip(whole, found, strict=True))
        lump = (limit * mean_ns, limit * room.hbm)
    figures = [_figures(account, table, scheme, lump) for table in tables]
    most = _PACKED * room.hbm * room.num_ranks
    most_host = _PACKED * room.host * room.num_hosts

    def at(price: float) -> list[int]:
        return priced([(time + price * host, hbm) for time, hbm, host in figures], most)

    def fits(ways: Sequence[int]) -> bool:
        held = sum(float(host[one]) for one, (_, _, host) in zip(ways, figures, strict=True))
        return held <= most_host

    return at_lowest_price(at, fits)


def _figures(
    account: TableAccount,
    table: int,
    scheme: TableScheme | None,
    most: tuple[float, float] = (np.inf, np.inf),
) -> tuple[Float64s, Float64s, Float64s]:
    """Time of each option of a table, shared among ranks; its bytes of HBM and of the host."""
    num_ranks = account.room.num_ranks
    options = account.options[table]
    own = [scheme is None or one.option.scheme is scheme for one in options]
    times = np.array(
        [
            float(one.total[:NUM_TIMED] @ account.slopes) / num_ranks
            + account.copied.slope * one.copied
            for one in options
        ]
    )
    hbm, host = (
        np.array([one.total[BYTES[tier]] for one in options])
        for tier in (MemoryTier.HBM, MemoryTier.HOST)
    )
    if any(own):
        times = np.where(own, times, np.inf)
    lumps = np.array(
        [
            ((one.rows[:, :NUM_TIMED] @ account.slopes).max(), one.rows[:, _HBM].max())
            for one in options
        ]
    )
    is_small = (lumps <= most).all(axis=1)
    if (is_small & (times < np.inf)).any():
        times = np.where(is_small, times, np.inf)
    return times, hbm, host


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
