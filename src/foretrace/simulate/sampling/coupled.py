"""Samples of a job of many like cells, from samples of one.

A *cell* is the part of a job that is simulated rank by rank, a copy of the model as a rule; the
job is so many cells that draw their durations apart and meet in collectives. A *lane* is one draw
of a cell. Every lane is the first cell of a job whose other cells are other lanes, the same ones
at every collective. All lanes are simulated side by side, collective by collective:

- A cell that no collective across cells has held back yet arrives when it arrives in its own lane.
- A cell that one has held back last arrives, in the job of another lane, as long after that
  collective's end there as it did in its own.

The first is exact. The second is where cells wait for each other again and again, and exact where
the same collective is what holds a cell back in either job. The rank of the slowest cell is never
inverted, so what a cell's ranks and collectives have in common stays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, SimulationError, UInt8s
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind
from foretrace.simulate.sampling._compiled import LANES, _coupled_ends, _reduced, _slots
from foretrace.simulate.sampling.draws import Draws, check_draws, hashed, sample_keys
from foretrace.simulate.static import check_columns

_MOST_EDGES = 8  # into a node that becomes part of its successor's edges: ARRIVE has 2 to 4
_NOBODY = -1


@dataclass(frozen=True)
class Cells:
    """The job that a graph is one cell of."""

    num_cells: int  # the graph is cell 0
    by_collective: tuple[tuple[int, ...], ...]  # cells that take part, 0 first, ascending


def simulate_cells(
    graph: ExecutionGraph,
    draws: Draws,
    cells: Cells,
    *,
    goal: Int32s,
    num_repeats: int = 1,
    num_variants: int = 1,
    workers: int | None = None,
) -> Float64s:
    """When the last cell's last goal ends, in every job; float64[repeats, lanes].

    A repeat draws every node again and keeps `draws.factor`, lane by lane: what is drawn once per
    GPU stays, and so do the cells of each job.

    Args:
        graph: one cell; node order must be topological.
        draws: how its durations vary; `factor` has one row per lane, and its column 0 is 1.
        cells: which collectives reach beyond the cell.
        goal: int32[nodes], 0 of the nodes whose last end is asked for, NO_GOAL of others.
        num_repeats: times that every lane is drawn.
        num_variants: of the first cell: so many equal shares of the lanes differ in `factor`
            alone. The first share are the cells of all jobs; a lane of another is the first cell
            of a job whose other cells are those of the same place in the first.
        workers: threads; as many as there are cores and repeats if left out.

    Raises:
        SimulationError: if columns do not fit each other, or there are fewer lanes than cells.
    """
    check_columns(graph, draws.duration_ns.shape)
    check_draws(draws, graph.num_nodes)
    _check_lanes(draws, cells, num_variants)
    program = _program(graph, draws, cells, goal, num_lanes=draws.num_samples // num_variants)
    with ThreadPoolExecutor(max(1, min(num_repeats, workers or os.cpu_count() or 1))) as pool:
        runs = [pool.submit(program.run, draws, repeat) for repeat in range(num_repeats)]
        return np.stack([one.result() for one in runs])


def _check_lanes(draws: Draws, cells: Cells, num_variants: int) -> None:
    lanes, left = divmod(draws.num_samples, num_variants)
    if left or lanes % LANES or lanes < cells.num_cells:
        raise SimulationError(
            f"{draws.num_samples} lanes in {num_variants} shares cannot make jobs of "
            f"{cells.num_cells} cells: each share must be a multiple of {LANES}, and at least "
            f"{cells.num_cells}"
        )
    if not bool((draws.factor[:, 0] == 1).all()):
        raise SimulationError("column 0 of factor must be 1: it is for what no GPU's speed moves")


@dataclass(frozen=True)
class _Shifts:
    """Which lanes are the other cells of a lane's job, by the cells that take part."""

    pattern: Int32s  # int32[hubs]
    inner: tuple[Int64s, ...]  # by pattern
    outer: tuple[Int64s, ...]
    single: tuple[Int64s, ...]


@dataclass(frozen=True)
class _Program:
    """A reduced graph, ready to run."""

    first_edge: Int64s
    before_slot: Int32s
    lag_ns: Float64s
    ready_ns: Float64s
    node: Int32s  # int32[kept], of the graph; the last, a stand-in for the end of the job, is none
    slot: Int32s
    num_slots: int
    hub: Int32s
    leaves: Int32s
    boundary: Int64s
    shifts: _Shifts
    num_lanes: int  # that are the cells of all jobs

    def run(self, draws: Draws, repeat: int) -> Float64s:
        """Ends of all jobs in one repeat; float64[lanes]."""
        lanes = draws.num_samples
        shape = (lanes // LANES, self.num_slots, LANES)
        # Variants of a lane are drawn alike: what differs is what they are variants in.
        sample = np.arange(lanes, dtype=np.int64) % self.num_lanes + repeat * self.num_lanes
        left_ns = np.zeros((len(self.shifts.pattern), lanes))
        met_ns = np.zeros(lanes)
        own = self.node[:-1]
        _coupled_ends(
            self.first_edge,
            self.before_slot,
            self.lag_ns,
            self.ready_ns,
            np.append(draws.duration_ns[own], 0.0),
            np.append(draws.make[own], np.int32(-1)),
            np.append(hashed(draws.draw[own]), np.uint64(0)),
            np.append(draws.label[own], np.int32(0)),
            self.slot,
            self.hub,
            self.leaves,
            draws.table,
            np.ascontiguousarray(draws.factor.T),
            sample_keys(draws.seed, sample),
            self.boundary,
            self.shifts.pattern,
            *_flat(self.shifts.inner),
            *_flat(self.shifts.outer),
            *_flat(self.shifts.single),
            self.num_lanes,
            np.empty(shape),
            np.empty(shape),
            np.empty(shape, np.int32),
            left_ns,
            met_ns,
        )
        return met_ns


def _flat(rows: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    ends = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return ends, np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int64)


def _program(
    graph: ExecutionGraph, draws: Draws, cells: Cells, goal: Int32s, *, num_lanes: int
) -> _Program:
    crossing = np.array([len(one) > 1 for one in cells.by_collective] or [False])
    has_any = graph.collective != NO_COLLECTIVE
    crosses = has_any & crossing[np.where(has_any, graph.collective, 0)]
    is_hub = crosses & (graph.kind == NodeKind.HUB)
    leaves = crosses & (graph.kind == NodeKind.FINISH)
    is_goal = goal == 0
    is_random = (draws.duration_ns > 0) & ((draws.make >= 0) | (draws.label > 0))
    kept, first_edge, before, lag_ns, ready_ns = _reduction(
        graph, draws, is_random.astype(np.uint8), (is_hub | leaves | is_goal).astype(np.uint8)
    )
    # The job ends where all its cells meet that have reached their last goal.
    goals = np.flatnonzero(is_goal[kept]).astype(np.int32)
    first_edge = np.append(first_edge, first_edge[-1] + len(goals))
    before = np.concatenate([before, goals])
    lag_ns = np.concatenate([lag_ns, np.zeros(len(goals))])
    slot = np.empty(len(kept) + 1, np.int32)
    num_slots = _slots(first_edge, before, slot)
    number = np.full(len(graph.collectives) + 1, _NOBODY, np.int32)
    crossed = np.flatnonzero(crossing)[: len(graph.collectives)]
    number[crossed] = np.arange(len(crossed))
    last = np.int32(len(crossed))
    of_node = number[graph.collective]
    hub = np.append(np.where(is_hub, of_node, _NOBODY)[kept], last).astype(np.int32)
    left = np.append(np.where(leaves, of_node, _NOBODY)[kept], _NOBODY).astype(np.int32)
    taking_part = [cells.by_collective[at] for at in crossed.tolist()]
    return _Program(
        first_edge=first_edge,
        before_slot=slot[before],
        lag_ns=lag_ns,
        ready_ns=np.append(ready_ns, 0.0),
        node=np.append(kept, np.int32(_NOBODY)),
        slot=slot,
        num_slots=num_slots,
        hub=hub,
        leaves=left,
        boundary=_boundaries(first_edge, before, hub),
        shifts=_shifts([*taking_part, tuple(range(cells.num_cells))], cells, num_lanes, draws.seed),
        num_lanes=num_lanes,
    )


def _reduction(
    graph: ExecutionGraph, draws: Draws, is_random: UInt8s, is_kept: UInt8s
) -> tuple[Int32s, Int64s, Int32s, Float64s, Float64s]:
    """Nodes that stay, their edges in compressed form, and before when none starts."""
    room = graph.num_edges * 2 + 1
    kept = np.empty(graph.num_nodes, np.int32)
    first_edge = np.empty(graph.num_nodes + 1, np.int64)
    before, lag_ns = np.empty(room, np.int32), np.empty(room)
    ready_ns = np.empty(graph.num_nodes)
    out_degree = np.bincount(graph.predecessor, minlength=graph.num_nodes).astype(np.int32)
    count, num_edges = _reduced(
        *graph.edges_in_one_piece,
        np.ascontiguousarray(draws.duration_ns),
        is_random,
        is_kept,
        out_degree,
        _MOST_EDGES,
        kept,
        first_edge,
        before,
        lag_ns,
        ready_ns,
    )
    assert count >= 0  # noqa: S101  room is given for every edge, and as many that pass through
    return (
        kept[:count].copy(),
        first_edge[: count + 1].copy(),
        before[:num_edges].copy(),
        lag_ns[:num_edges].copy(),
        ready_ns[:count].copy(),
    )


def _boundaries(first_edge: Int64s, before: Int32s, hub: Int32s) -> Int64s:
    """Nodes before which hubs must have met: the first that follows one, and again from there."""
    target = np.repeat(np.arange(len(hub)), np.diff(first_edge))
    follows = np.flatnonzero(hub[before] >= 0)
    found: list[int] = []
    for source, node in zip(before[follows].tolist(), target[follows].tolist(), strict=True):
        if not found or source >= found[-1]:
            found.append(node)
    return np.array([*found, len(hub)], np.int64)


def _shifts(taking_part: Sequence[tuple[int, ...]], cells: Cells, lanes: int, seed: int) -> _Shifts:
    """Cell c of lane s's job is the lane `s + offset[c]`, around the end.

    The offsets are sums of two, c = row * width + column, so that the largest over all cells is
    the largest over rows of the largest over columns.
    """
    count = cells.num_cells
    width = max(1, round(count**0.5))
    rows = -(-count // width)
    inner, outer = _offsets((rows, width), count, lanes=lanes, seed=seed)
    offset = (outer[:, None] + inner).ravel()[:count] % lanes
    whole = count // width
    patterns: dict[tuple[int, ...], int] = {}
    nothing = np.empty(0, np.int64)
    found: list[tuple[Int64s, Int64s, Int64s]] = []
    pattern = []
    for own in taking_part:
        if own not in patterns:
            patterns[own] = len(found)
            if len(own) == count:
                found.append((inner, outer[:whole], offset[whole * width :]))
            else:
                found.append((nothing, nothing, offset[list(own)]))
        pattern.append(patterns[own])
    return _Shifts(
        np.array(pattern, np.int32),
        tuple(one[0] for one in found),
        tuple(one[1] for one in found),
        tuple(one[2] for one in found),
    )


def _offsets(shape: tuple[int, int], count: int, *, lanes: int, seed: int) -> tuple[Int64s, Int64s]:
    """Offsets of columns and rows, drawn until no two cells are one lane, or nearly none."""
    rows, width = shape
    generator = np.random.default_rng(seed)
    best, fewest = (np.zeros(0, np.int64), np.zeros(0, np.int64)), lanes + 1
    for _ in range(200):  # collisions are rare where there are many more lanes than cells
        inner = generator.choice(lanes, width, replace=False).astype(np.int64)
        outer = generator.choice(lanes, rows, replace=False).astype(np.int64)
        inner[0] = outer[0] = 0
        cells = (outer[:, None] + inner).ravel()[:count] % lanes
        doubled = count - len(np.unique(cells))
        if doubled < fewest:
            best, fewest = (inner, outer), doubled
        if not doubled:
            break
    return best
