"""Compiled loops that draw durations and find longest paths in the same pass; check no lengths.

See `draws` for what a draw is, `sample` and `coupled` for the safe ways in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foretrace.base import Float32s, Float64s, Int32s, Int64s, UInt8s, UInt64s, njit

LANES = 8  # samples side by side, as in `foretrace.simulate.batch`
NUM_CELLS = 256  # of equal probability, between which a quantile table is straight
NUM_LEVELS = 24  # halvings of the first and the last cell: down to 2**-32
NUM_POINTS = NUM_CELLS + 1 + 2 * (NUM_LEVELS + 1)

OK, NEGATIVE_DURATION, ORDER = 0, 1, 2

_LANES = int(LANES)
_LAST_CELL = np.int64(NUM_CELLS - 1)
_LOW = np.int64(NUM_CELLS + 1)  # first point of the lower tail, then of the upper
_HIGH = np.int64(NUM_CELLS + 2 + NUM_LEVELS)
_LAST_LEVEL = np.int64(NUM_LEVELS - 1)
_FRACTION = 2.0**-32
_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(0x80000000)
_ONE = np.uint64(1)
_24, _32, _29, _56 = np.uint64(24), np.uint64(32), np.uint64(29), np.uint64(56)
_31, _27, _30 = np.uint64(31), np.uint64(27), np.uint64(30)
# SplitMix64's finaliser (Steele, Lea, Flood 2014), as published by Vigna.
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_NOWHERE = -np.inf
_NO_SOURCE = np.int32(-1)


@njit(inline="always")
def _mixed(word: np.uint64) -> np.uint64:
    """A 64-bit number whose bits all depend on all bits of another."""
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@njit
def _quantile(word: np.uint64, table: Float32s) -> Any:
    """The value of a quantile table at the probability that 64 random bits name."""
    cell = np.int64(word >> _56)
    rest = (word >> _24) & _MASK
    if cell == 0 or cell == _LAST_CELL:  # noqa: PLR1714  numba compiles plain branches best
        is_high = cell != 0
        if is_high:
            rest = _MASK - rest
        level = np.int64(0)
        while rest < _HALF and level < _LAST_LEVEL:
            rest <<= _ONE
            level += 1
        # Of the level's span, probabilities 2**-(level + 1) to 2**-level of a cell.
        share = max(0.0, np.float64(rest) * _FRACTION * 2.0 - 1.0)
        first = (_HIGH if is_high else _LOW) + level
        last = np.float64(table[first + 1])
        return last + share * (np.float64(table[first]) - last)
    share = np.float64(rest) * _FRACTION
    low = np.float64(table[cell])
    return low + share * (np.float64(table[cell + 1]) - low)


@njit
def _draw_factors(
    draw_key: UInt64s, sample_key: UInt64s, table: Float32s, factor: Float64s
) -> None:
    """Factors of some draws in some samples. Out: `factor` float64[draws, samples].

    In: `draw_key` uint64[draws], `sample_key` uint64[samples], `table` float32[points].
    """
    for draw in range(draw_key.size):
        for sample in range(sample_key.size):
            word = _mixed(draw_key[draw] ^ sample_key[sample])
            factor[draw, sample] = _quantile(word, table)


@njit
def _sampled_durations(
    duration_ns: Float64s,
    make: Int32s,
    key: UInt64s,
    label: Int32s,
    table: Float32s,
    factor: Float64s,
    sample_key: np.uint64,
    out_ns: Float64s,
) -> None:
    """Durations of every node in one sample. Out: `out_ns` float64[nodes].

    In: as `_sampled_ends`, `factor` float64[labels] of this sample.
    """
    for node in range(duration_ns.size):
        length = duration_ns[node] * factor[label[node]]
        if make[node] >= 0:
            word = _mixed(key[node] ^ sample_key)
            length *= _quantile(word, table[make[node]])
        out_ns[node] = length


@njit
def _sampled_ends(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    duration_ns: Float64s,
    make: Int32s,
    key: UInt64s,
    label: Int32s,
    table: Float32s,
    factor: Float64s,
    sample_key: UInt64s,
    goal: Int32s,
    end_ns: Float64s,
    goal_end_ns: Float64s,
) -> tuple[int, int]:
    """Longest paths of `LANES` samples at once, durations drawn on the way.

    In: the graph's columns, `duration_ns` float64[nodes], `make` int32[nodes] row of `table`
    (-1: no draw), `key` uint64[nodes] of its draw, `label` int32[nodes] row of `factor`
    float64[labels, lanes], `table` float32[makes, points], `sample_key` uint64[lanes], `goal`
    int32[nodes] (-1: none).
    Out: `end_ns` float64[nodes, lanes], `goal_end_ns` float64[goals, lanes] (-1 before).
    Returns (status, the node it stopped at).
    """
    num_nodes = end_ns.shape[0]
    start_ns = np.empty(_LANES, np.float64)
    drawn = np.empty(_LANES, np.float64)
    word = np.empty(_LANES, np.uint64)
    for node in range(num_nodes):
        for lane in range(_LANES):
            start_ns[lane] = 0.0
        for edge in range(first_edge[node], first_edge[node + 1]):
            before = predecessor[edge]
            if before < 0 or before >= node:
                return ORDER, node
            lag = np.float64(lag_ns[edge])
            for lane in range(_LANES):
                start_ns[lane] = max(start_ns[lane], end_ns[before, lane] + lag)
        duration = duration_ns[node]
        if not duration >= 0:  # nor NaN
            return NEGATIVE_DURATION, node
        row, own = label[node], make[node]
        for lane in range(_LANES):
            drawn[lane] = duration * factor[row, lane]
        if own >= 0:
            for lane in range(_LANES):
                word[lane] = _mixed(key[node] ^ sample_key[lane])
            for lane in range(_LANES):
                drawn[lane] *= _quantile(word[lane], table[own])
        for lane in range(_LANES):
            end_ns[node, lane] = start_ns[lane] + drawn[lane]
        target = goal[node]
        if target >= 0:
            for lane in range(_LANES):
                goal_end_ns[target, lane] = max(goal_end_ns[target, lane], end_ns[node, lane])
    return OK, num_nodes


@njit
def _reduced(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    duration_ns: Float64s,
    is_random: UInt8s,
    is_kept: UInt8s,
    out_degree: Int32s,
    most_edges: int,
    kept: Int32s,
    kept_first: Int64s,
    kept_before: Int32s,
    kept_lag_ns: Float64s,
    ready_ns: Float64s,
) -> tuple[int, int]:
    """A graph without the nodes whose ends no draw moves, and without those merely passed through.

    A node that nothing random precedes has one end, which becomes its successors' earliest start.
    A node of fixed duration with one successor becomes part of the edges to it, if that takes
    `most_edges` or fewer.
    In: the graph's columns, `is_random` and `is_kept` uint8[nodes], `out_degree` int32[nodes].
    Out: `kept` int32[nodes], the nodes that stay; `kept_first` int64[nodes + 1], `kept_before`
    int32[edges] (places in `kept`) and `kept_lag_ns` float64[edges], their edges; `ready_ns`
    float64[nodes], before which none starts. Returns how many nodes and edges there are, the
    number of nodes -1 if the edges do not fit.
    """
    num_nodes = duration_ns.size
    place = np.full(num_nodes, -1, np.int32)
    fixed_ns = np.full(num_nodes, _NOWHERE)  # end of a node that no draw moves
    passed_first = np.zeros(num_nodes, np.int64)
    passed_last = np.zeros(num_nodes, np.int64)
    passed_ready_ns = np.zeros(num_nodes)
    room = kept_before.size
    passed_before = np.empty(room, np.int32)
    passed_lag_ns = np.empty(room)
    num_passed = np.int64(0)
    num_kept = np.int64(0)
    num_edges = np.int64(0)
    for node in range(num_nodes):
        begin = num_edges
        ready = 0.0
        is_fixed = is_random[node] == 0 and is_kept[node] == 0
        for edge in range(first_edge[node], first_edge[node + 1]):
            before = predecessor[edge]
            lag = np.float64(lag_ns[edge])
            if fixed_ns[before] > _NOWHERE:
                ready = max(ready, fixed_ns[before] + lag)
                continue
            is_fixed = False
            if place[before] >= 0:
                if num_edges >= room:
                    return -1, 0
                kept_before[num_edges] = place[before]
                kept_lag_ns[num_edges] = lag
                num_edges += 1
                continue
            ready = max(ready, passed_ready_ns[before] + lag)
            for at in range(passed_first[before], passed_last[before]):
                if num_edges >= room:
                    return -1, 0
                kept_before[num_edges] = passed_before[at]
                kept_lag_ns[num_edges] = passed_lag_ns[at] + lag
                num_edges += 1
        if is_fixed:
            fixed_ns[node] = ready + duration_ns[node]
            continue
        count = num_edges - begin
        is_passed = is_random[node] == 0 and is_kept[node] == 0 and out_degree[node] == 1
        if is_passed and count <= most_edges and num_passed + count <= room:
            passed_first[node] = num_passed
            for at in range(begin, num_edges):
                passed_before[num_passed] = kept_before[at]
                passed_lag_ns[num_passed] = kept_lag_ns[at] + duration_ns[node]
                num_passed += 1
            passed_last[node] = num_passed
            passed_ready_ns[node] = ready + duration_ns[node]
            num_edges = begin
            continue
        place[node] = num_kept
        kept[num_kept] = node
        kept_first[num_kept] = begin
        ready_ns[num_kept] = ready
        num_kept += 1
    kept_first[num_kept] = num_edges
    return int(num_kept), int(num_edges)


@njit
def _slots(first_edge: Int64s, before: Int32s, slot: Int32s) -> int:
    """A place in memory for every node's end, free again once the last successor has read it.

    Out: `slot` int32[nodes]. Returns how many there are.
    """
    num_nodes = slot.size
    last_use = np.full(num_nodes, -1, np.int32)
    for node in range(num_nodes):
        for edge in range(first_edge[node], first_edge[node + 1]):
            last_use[before[edge]] = node
    free = np.empty(num_nodes, np.int32)
    num_free = 0
    num_slots = 0
    for node in range(num_nodes):
        for edge in range(first_edge[node], first_edge[node + 1]):
            one = before[edge]
            if last_use[one] == node:
                last_use[one] = -1  # another edge may name it again
                free[num_free] = slot[one]
                num_free += 1
        if num_free > 0:
            num_free -= 1
            slot[node] = free[num_free]
        else:
            slot[node] = num_slots
            num_slots += 1
    return num_slots


@njit
def _largest_of_shifts(
    value: Float64s,
    inner: Int64s,
    outer: Int64s,
    single: Int64s,
    between: Float64s,
    largest: Float64s,
) -> None:
    """For each place the largest value among the places that its shifts lead to, around the end.

    In: `value` float64[2 * size], twice the same; the shifts are every sum of an `inner` and an
    `outer` one, and every `single` one. Out: `between` float64[2 * size] is overwritten, `largest`
    float64[size].
    """
    size = largest.size
    for at in range(size):
        between[at] = _NOWHERE
        largest[at] = _NOWHERE
    for one in range(inner.size):
        shift = inner[one]
        for at in range(size):
            between[at] = max(between[at], value[at + shift])
    for at in range(size):
        between[at + size] = between[at]
    for one in range(outer.size):
        shift = outer[one]
        for at in range(size):
            largest[at] = max(largest[at], between[at + shift])
    for one in range(single.size):
        shift = single[one]
        for at in range(size):
            largest[at] = max(largest[at], value[at + shift])


@njit
def _meet(
    end_ns: Float64s,
    alone_ns: Float64s,
    source: Int32s,
    left_ns: Float64s,
    size: int,
    inner: Int64s,
    outer: Int64s,
    single: Int64s,
    stamp: Int32s,
    work: Float64s,
    met_ns: Float64s,
) -> None:
    """When the last of a collective's cells arrives, in every lane's job. Out: `met_ns`.

    In: `end_ns`, `alone_ns` float64[lanes] and `source` int32[lanes] of the arrivals, `left_ns`
    float64[hubs, lanes], the shifts of the cells, `stamp` int32[hubs] all -1 before and after,
    `work` float64[3, 2 * size]. The first `size` lanes are the cells of all jobs; lane
    `size * v + s` is the first cell of another job whose other cells are those of lane s.
    An arrival that follows a collective counts from when that one ended: in another lane's job,
    it comes as long after that job's.
    """
    lanes = met_ns.size
    value, between, largest = work[0], work[1], work[2, :size]
    for at in range(size):
        value[at] = alone_ns[at]
        value[at + size] = alone_ns[at]
    _largest_of_shifts(value, inner, outer, single, between, largest)
    for first in range(0, lanes, size):
        for at in range(size):
            met_ns[first + at] = max(end_ns[first + at], largest[at])
    for one in range(size):
        hub = source[one]
        if hub < 0 or stamp[hub] >= 0:
            continue
        stamp[hub] = 1
        for at in range(size):
            value[at] = end_ns[at] - left_ns[hub, at] if source[at] == hub else _NOWHERE
            value[at + size] = value[at]
        _largest_of_shifts(value, inner, outer, single, between, largest)
        for first in range(0, lanes, size):
            for at in range(size):
                there_ns = largest[at] + left_ns[hub, first + at]
                met_ns[first + at] = max(met_ns[first + at], there_ns)
    for at in range(size):
        if source[at] >= 0:
            stamp[source[at]] = -1


@njit
def _coupled_ends(
    first_edge: Int64s,
    before_slot: Int32s,
    lag_ns: Float64s,
    ready_ns: Float64s,
    duration_ns: Float64s,
    make: Int32s,
    key: UInt64s,
    label: Int32s,
    slot: Int32s,
    hub: Int32s,
    leaves: Int32s,
    table: Float32s,
    factor: Float64s,
    sample_key: UInt64s,
    boundary: Int64s,
    pattern: Int32s,
    inner_first: Int64s,
    inner: Int64s,
    outer_first: Int64s,
    outer: Int64s,
    single_first: Int64s,
    single: Int64s,
    size: int,
    end_ns: Float64s,
    alone_ns: Float64s,
    source: Int32s,
    left_ns: Float64s,
    met_ns: Float64s,
) -> None:
    """Ends of a cell's nodes in many lanes, where cells of other lanes take part in collectives.

    In: a reduced graph; `hub` int32[nodes], number of the collective across cells whose hub it is
    (-1: none), and `leaves` the same of its FINISH; `factor` float64[labels, blocks * LANES],
    `sample_key` uint64[blocks * LANES]; `boundary` int64[...], nodes before which the hubs since
    the last boundary meet, the last being the number of nodes; `pattern` int32[hubs], which shifts
    are a hub's: those of `inner` from `inner_first[pattern]` to the next, and so on; `size`, how
    many of the lanes are the cells of all jobs.
    Work: `end_ns`, `alone_ns` float64[blocks, slots, LANES], `source` int32 of the same shape.
    Out: `left_ns` float64[hubs, lanes], when each collective was over; `met_ns` float64[lanes],
    when the last hub met.
    """
    num_blocks = end_ns.shape[0]
    lanes = num_blocks * _LANES
    start = np.empty(_LANES, np.float64)
    alone = np.empty(_LANES, np.float64)
    cause = np.empty(_LANES, np.int32)
    drawn = np.empty(_LANES, np.float64)
    arrived_ns = np.empty(lanes, np.float64)
    arrived_alone_ns = np.empty(lanes, np.float64)
    arrived_source = np.empty(lanes, np.int32)
    work = np.empty((3, 2 * size), np.float64)
    stamp = np.full(left_ns.shape[0], -1, np.int32)
    begin = np.int64(0)
    for end in boundary:
        for block in range(num_blocks):
            lane_0 = block * _LANES
            for node in range(begin, end):
                for lane in range(_LANES):
                    start[lane] = ready_ns[node]
                    alone[lane] = ready_ns[node]
                    cause[lane] = _NO_SOURCE
                for edge in range(first_edge[node], first_edge[node + 1]):
                    where = before_slot[edge]
                    lag = lag_ns[edge]
                    for lane in range(_LANES):
                        ready = end_ns[block, where, lane] + lag
                        is_later = ready > start[lane]
                        start[lane] = ready if is_later else start[lane]
                        cause[lane] = source[block, where, lane] if is_later else cause[lane]
                        alone[lane] = max(alone[lane], alone_ns[block, where, lane] + lag)
                duration = duration_ns[node]
                row, own, to = label[node], make[node], slot[node]
                for lane in range(_LANES):
                    drawn[lane] = duration * factor[row, lane_0 + lane]
                if own >= 0:
                    for lane in range(_LANES):
                        word = _mixed(key[node] ^ sample_key[lane_0 + lane])
                        drawn[lane] *= _quantile(word, table[own])
                left = leaves[node]
                if left >= 0:
                    for lane in range(_LANES):
                        left_ns[left, lane_0 + lane] = start[lane] + drawn[lane]
                        alone[lane] = _NOWHERE
                        cause[lane] = left
                for lane in range(_LANES):
                    end_ns[block, to, lane] = start[lane] + drawn[lane]
                    alone_ns[block, to, lane] = alone[lane] + drawn[lane]
                    source[block, to, lane] = cause[lane]
        for node in range(begin, end):
            one = hub[node]
            if one < 0:
                continue
            to = slot[node]
            for block in range(num_blocks):
                for lane in range(_LANES):
                    arrived_ns[block * _LANES + lane] = end_ns[block, to, lane]
                    arrived_alone_ns[block * _LANES + lane] = alone_ns[block, to, lane]
                    arrived_source[block * _LANES + lane] = source[block, to, lane]
            own_cells = pattern[one]
            _meet(
                arrived_ns,
                arrived_alone_ns,
                arrived_source,
                left_ns,
                size,
                inner[inner_first[own_cells] : inner_first[own_cells + 1]],
                outer[outer_first[own_cells] : outer_first[own_cells + 1]],
                single[single_first[own_cells] : single_first[own_cells + 1]],
                stamp,
                work,
                met_ns,
            )
            for block in range(num_blocks):
                for lane in range(_LANES):
                    end_ns[block, to, lane] = met_ns[block * _LANES + lane]
        begin = end
