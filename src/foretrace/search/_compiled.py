"""The compiled loop that anneals a placement of tables; `table_annealing` is the safe way in."""

from __future__ import annotations

import math

import numpy as np

from foretrace.base import Float64s, Int64s, njit

# What a way's rows are of: a piece each, on any ranks; all ranks of a host; all ranks.
PIECES, HOST, EVERYWHERE = 0, 1, 2

_NOTHING = 0.5  # numbers and ns below are rounding of sums
# Of what is drawn: below the first a table and another change ranks, below the second also ways,
# below the third a table moves by the way that it has, below the fourth by any way to any ranks,
# above it takes another way there.
_RANKS, _EXCHANGED, _MOVED, _ANYWHERE = 0.25, 0.5, 0.75, 0.9


@njit
def _energy(
    loads: Float64s,
    copied: float,
    starts: Float64s,
    slopes: Float64s,
    room: Float64s,
    inside: int,
    evened: float,
    over: float,
    excess: Float64s,
) -> float:
    """What annealing makes small. Out: `excess` float64[1], what has no room over the room."""
    num_ranks, num_timed = loads.shape[0], starts.size - 1
    energy = 0.0
    for resource in range(num_timed):
        most, squares = 0.0, 0.0
        for rank in range(num_ranks):
            load = loads[rank, resource]
            most = max(most, load)
            squares += load * load
        if most > _NOTHING:
            energy += starts[resource] + slopes[resource] * most
            energy += evened * slopes[resource] * math.sqrt(squares / num_ranks)
    if copied > _NOTHING:
        energy += starts[num_timed] + slopes[num_timed] * copied
    above = 0.0
    for rank in range(num_ranks):
        above += max(0.0, loads[rank, num_timed] - room[0]) / max(room[0], 1.0)
    for first in range(0, num_ranks, inside):
        for tier in range(1, room.size):
            held = 0.0
            for rank in range(first, first + inside):
                held += loads[rank, num_timed + tier]
            above += max(0.0, held - room[tier]) / max(room[tier], 1.0)
    excess[0] = above
    return energy + over * above


@njit
def _put(
    loads: Float64s, sign: float, rows: Float64s, way: Int64s, ranks: Int64s, table: int
) -> None:
    """Add a way's rows to ranks, or take them away. Out: `loads`."""
    first, count, kind = way[0], way[1], way[2]
    for at in range(count):
        rank = ranks[table, at] if kind == PIECES else at
        row = first if kind == PIECES else first + at
        if kind == HOST:
            rank += ranks[table, 0]
        for resource in range(loads.shape[1]):
            loads[rank, resource] += sign * rows[row, resource]


@njit
def anneal(
    rng: np.random.Generator,
    moves: int,
    hot: float,
    cooling: float,
    first_way: Int64s,
    ways: Int64s,
    way_copied: Float64s,
    alike: Int64s,
    way_of: Int64s,
    rows: Float64s,
    starts: Float64s,
    slopes: Float64s,
    room: Float64s,
    inside: int,
    evened: float,
    over: float,
    order: Int64s,
    kept: Float64s,
    loads: Float64s,
    chosen: Int64s,
    ranks: Int64s,
    best_chosen: Int64s,
    best_ranks: Int64s,
    state: Float64s,
) -> int:
    """Move tables, also to worse places as long as it is hot; the number of moves that were made.

    In: temperature of the first move and its factor from one to the next; `first_way` int64[tables
    + 1]; `ways` int64[ways, 3]: first row, number of pieces or ranks, kind; `way_copied`
    float64[ways], numbers; `alike` int64[ways], the same for ways that differ in the table alone;
    `way_of` int64[tables, alike], a table's way of each, -1; `rows` float64[rows, resources];
    `starts`, `slopes` float64[timed resources + 1], the last of copies; `room` float64[tiers].
    Scratch: `order` int64[ranks], any order; `kept` float64 as loads.
    Out: `loads` float64[ranks, resources], `chosen` int64[tables] way of each, `ranks`
    int64[tables + 1, pieces] (the last row is scratch), the best that had room in `best_*`;
    `state` float64[3]: numbers copied, energy, energy of the best that had room.
    """
    num_tables, num_ranks, made = chosen.size, loads.shape[0], 0
    spare = num_tables
    excess = state[3:]
    temperature = hot
    for _ in range(moves):
        temperature *= cooling
        kind = rng.random()
        table = int(rng.random() * num_tables)
        old = chosen[table]
        new, other = old, -1
        kept[:] = loads
        copied = state[0]
        other_new = -1
        if kind < _EXCHANGED and ways[old, 2] == PIECES and ways[old, 1] == 1:
            other = int(rng.random() * num_tables)
            way = other_new = chosen[other]
            one, two = ranks[table, 0], ranks[other, 0]
            if ways[way, 2] != PIECES or ways[way, 1] != 1:
                continue
            if kind >= _RANKS:
                new, other_new = way_of[table, alike[way]], way_of[other, alike[old]]
            if new < 0 or other_new < 0 or (one == two and new == old):
                continue
            for resource in range(loads.shape[1]):
                loads[one, resource] += (
                    rows[ways[other_new, 0], resource] - rows[ways[old, 0], resource]
                )
                loads[two, resource] += rows[ways[new, 0], resource] - rows[ways[way, 0], resource]
        else:
            if kind >= _MOVED:
                count = first_way[table + 1] - first_way[table]
                new = first_way[table] + int(rng.random() * count)
            pieces = ways[new, 1]
            stays = kind >= _ANYWHERE and ways[old, 2] == ways[new, 2] and ways[old, 1] == pieces
            if ways[new, 2] == HOST:
                ranks[spare, 0] = inside * int(rng.random() * (num_ranks // inside))
            elif ways[new, 2] == PIECES:
                for piece in range(pieces):
                    drawn = piece + int(rng.random() * (num_ranks - piece))
                    order[piece], order[drawn] = order[drawn], order[piece]
                    ranks[spare, piece] = ranks[table, piece] if stays else order[piece]
            _put(loads, -1.0, rows, ways[old], ranks, table)
            _put(loads, 1.0, rows, ways[new], ranks, spare)
            copied += way_copied[new] - way_copied[old]
        energy = _energy(loads, copied, starts, slopes, room, inside, evened, over, excess)
        change = state[1] - energy
        if change < 0.0 and rng.random() >= math.exp(change / temperature):
            loads[:] = kept
            continue
        made += 1
        state[0], state[1] = copied, energy
        if other >= 0:
            ranks[table, 0], ranks[other, 0] = ranks[other, 0], ranks[table, 0]
            chosen[table], chosen[other] = new, other_new
        else:
            chosen[table] = new
            ranks[table] = ranks[spare]
        if excess[0] <= 0.0 and energy < state[2]:
            state[2] = energy
            best_chosen[:] = chosen
            best_ranks[:] = ranks
    return made
