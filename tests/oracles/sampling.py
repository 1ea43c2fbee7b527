"""Sampled durations, and jobs of many cells, by their definitions."""

from __future__ import annotations

import math

from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import Cells, Draws

_MASK = 2**64 - 1
_CELLS, _LEVELS = 256, 24
NOWHERE = -math.inf


def mixed(word: int) -> int:
    """SplitMix64's finaliser."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
    return word ^ (word >> 31)


def hashed(number: int) -> int:
    """SplitMix64 of a number."""
    return mixed((number + 1) * 0x9E3779B97F4A7C15 & _MASK)


def sample_key(seed: int, sample: int) -> int:
    """Hash of a sample under a seed."""
    return hashed(sample + (hashed(seed) * 0xD1342543DE82EF95 & _MASK) & _MASK)


def quantile(word: int, table: list[float]) -> float:
    """Straight lines between the points of a table, at the probability of 56 bits."""
    cell, rest = word >> 56, (word >> 24) & 0xFFFFFFFF
    if cell not in {0, _CELLS - 1}:
        share = rest / 2**32
        return table[cell] + share * (table[cell + 1] - table[cell])
    is_high = cell != 0
    if is_high:
        rest = 0xFFFFFFFF - rest
    level = 0
    while rest < 2**31 and level < _LEVELS - 1:
        rest, level = rest * 2, level + 1
    share = max(0.0, rest / 2**31 - 1)
    first = _CELLS + 1 + level + (_LEVELS + 1 if is_high else 0)
    return table[first + 1] + share * (table[first] - table[first + 1])


def duration(draws: Draws, node: int, sample: int) -> float:
    """How long a node takes in a sample."""
    factors = draws.factor[sample]
    length = float(draws.duration_ns[node]) * float(factors[draws.label[node]])
    make = int(draws.make[node])
    if make < 0:
        return length
    word = mixed(hashed(int(draws.draw[node])) ^ sample_key(draws.seed, sample))
    return length * quantile(word, [float(one) for one in draws.table[make]])


def ends(graph: ExecutionGraph, draws: Draws, sample: int) -> list[float]:
    """End of every node in one sample."""
    found: list[float] = []
    for node in range(graph.num_nodes):
        edges = range(int(graph.first_edge[node]), int(graph.first_edge[node + 1]))
        ready = [found[graph.predecessor[edge]] + int(graph.lag_ns[edge]) for edge in edges]
        found.append(max([0.0, *ready]) + duration(draws, node, sample))
    return found


def largest_of_shifts(values: list[float], shifts: list[int]) -> list[float]:
    """For each place the largest value where its shifts lead to, around the end."""
    size = len(values)
    return [
        max((values[(at + shift) % size] for shift in shifts), default=NOWHERE)
        for at in range(size)
    ]


Arrival = tuple[float, float, int]  # end, end without other cells, what held it back last


def met(arrived: list[Arrival], left: dict[int, list[float]], shifts: list[int]) -> list[float]:
    """When the last cell arrives in every lane's job."""
    found = []
    for lane, (own, _, _) in enumerate(arrived):
        latest = own
        for shift in shifts:
            other = (lane + shift) % len(arrived)
            there, free, since = arrived[other]
            latest = max(latest, free)
            if since >= 0:
                latest = max(latest, (there - left[since][other]) + left[since][lane])
        found.append(latest)
    return found


def cell_ends(  # noqa: C901  the definition in one piece
    graph: ExecutionGraph, draws: Draws, cells: Cells, *, offset: list[int], goal: list[int]
) -> list[float]:
    """End of the job of every lane, all nodes of all lanes kept.

    Args:
        graph: one cell.
        draws: one row of factors per lane.
        cells: the job.
        offset: of each cell: cell c of lane s is lane s + offset[c], around the end.
        goal: nodes that end the job.
    """
    lanes = range(draws.num_samples)
    end = [[0.0] * graph.num_nodes for _ in lanes]
    alone = [[0.0] * graph.num_nodes for _ in lanes]
    source = [[-1] * graph.num_nodes for _ in lanes]
    left: dict[int, list[float]] = {}

    for node in range(graph.num_nodes):
        one = int(graph.collective[node])
        taking_part = cells.by_collective[one] if one >= 0 else ()
        edges = range(int(graph.first_edge[node]), int(graph.first_edge[node + 1]))
        for lane in lanes:
            start, free, since = 0.0, 0.0, -1
            for edge in edges:
                before, lag = graph.predecessor[edge], int(graph.lag_ns[edge])
                free = max(free, alone[lane][before] + lag)
                if end[lane][before] + lag > start:
                    start, since = end[lane][before] + lag, source[lane][before]
            length = duration(draws, node, lane)
            if len(taking_part) > 1 and graph.kind[node] == NodeKind.FINISH:
                left.setdefault(one, [0.0] * len(lanes))[lane] = start + length
                free, since = NOWHERE, one
            end[lane][node], alone[lane][node] = start + length, free + length
            source[lane][node] = since
        if len(taking_part) > 1 and graph.kind[node] == NodeKind.HUB:
            arrived = [(end[lane][node], alone[lane][node], source[lane][node]) for lane in lanes]
            for lane, when in enumerate(met(arrived, left, [offset[cell] for cell in taking_part])):
                end[lane][node] = when
    last = []
    for lane in lanes:
        at, free, since = 0.0, 0.0, -1
        for node in goal:
            free = max(free, alone[lane][node])
            if end[lane][node] > at:
                at, since = end[lane][node], source[lane][node]
        last.append((at, free, since))
    return met(last, left, offset)
