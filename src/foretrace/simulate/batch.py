"""The static engine over many samples: one graph, its durations scaled in many ways at once.

Durations and lags are float64 here: exact for whole nanoseconds, and free of rounding where a
factor makes fractions. Samples stand side by side, so that one pass over the graph's columns
serves `LANES` of them; passes are shared among threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Float64s, Int32s, Int64s, SimulationError
from foretrace.graph import EdgeKind, ExecutionGraph
from foretrace.simulate._compiled import LANES, Status, _batch_ends, _batch_slopes
from foretrace.simulate.static import check_columns, sentence

NO_GOAL = -1
_BYTES_OF_PASSES = 2 * 2**30  # of ends in memory at once, over all threads


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How each sample changes durations and lags; rows are samples."""

    label: Int32s  # int32[nodes], column of `factor` that a node takes its factor from
    factor: Float64s  # float64[samples, labels], times the duration
    lag_factor: Float64s | None = None  # float64[samples, edge kinds], times the lag; None: 1
    is_removed: Bools | None = None  # bool[samples, edge kinds], edges that do not hold; None: all
    weight: Float64s | None = None  # float64[samples, labels], of durations in slopes; None: 0
    lag_weight: Float64s | None = None  # float64[samples, edge kinds], of lags in slopes

    @property
    def num_samples(self) -> int:
        """How many samples."""
        return len(self.factor)


@dataclass(frozen=True)
class BatchEnds:
    """When each goal was reached in each sample.

    A goal is reached when the last of its nodes ends. Its slope is the weighted sum of durations
    and lags on the way that led there: with a weight of 1 for what a sample's factor s scales,
    the derivative of the end by s.
    """

    end_ns: Float64s  # float64[samples, goals]; -1 of a goal without nodes
    node: Int64s  # int64[samples, goals], first node that ends last
    slope_ns: Float64s  # float64[samples, goals]; 0 without weights


def simulate_batch(
    graph: ExecutionGraph,
    scaling: Scaling,
    goal: Int32s,
    *,
    duration_ns: Int64s | Float64s | None = None,
    workers: int | None = None,
) -> BatchEnds:
    """The ends of chosen nodes in many samples; like `simulate` on each sample's durations.

    Of equally late predecessors the first edge counts as what a node waited for, of equally late
    nodes of a goal the lowest: that decides slopes, and no end.

    Args:
        graph: who waits for whom; node order must be topological.
        scaling: one row of factors per sample.
        goal: int32[nodes], number of the goal that a node belongs to, from 0; NO_GOAL.
        duration_ns: float64[nodes] or int64[nodes] before scaling; the measured ones if left out.
        workers: threads; as many as there are cores and work for, if left out.

    Raises:
        SimulationError: if columns do not fit the graph or each other, a factor is negative or
            no number, or a goal lies past 2**53 ns, where float64 stops being exact.
    """
    given = graph.measured_ns if duration_ns is None else duration_ns
    durations = np.ascontiguousarray(given, dtype=np.float64)
    check_columns(graph, durations.shape)
    _check_scaling(graph, scaling, goal)
    num_goals = int(goal.max(initial=-1)) + 1
    num_nodes = int(np.flatnonzero(goal >= 0)[-1]) + 1 if num_goals else 0
    passes = range(0, scaling.num_samples, LANES)
    threads = max(1, min(len(passes), workers or passes_at_once(num_nodes)))
    one = _Pass(graph, scaling, durations, np.ascontiguousarray(goal), num_nodes, num_goals)
    if threads == 1:
        found = [one.run(passes)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(one.run, (passes[each::threads] for each in range(threads))))
    return _collected(found, scaling.num_samples, num_goals)


def passes_at_once(num_nodes: int) -> int:
    """How many passes over a graph of this size to run side by side: cores, and memory for them."""
    room = _BYTES_OF_PASSES // max(1, num_nodes * LANES * 8)
    return max(1, min(os.cpu_count() or 1, room))


@dataclass(frozen=True)
class _Pass:
    """One pass over the graph, for up to `LANES` samples."""

    graph: ExecutionGraph
    scaling: Scaling
    duration_ns: Float64s
    goal: Int32s
    num_nodes: int  # up to the last node of any goal
    num_goals: int

    def run(self, firsts: range) -> list[tuple[int, BatchEnds]]:
        """The passes that begin with these samples, one after the other."""
        end_ns = np.empty((self.num_nodes, LANES), np.float64)
        return [(first, self._ends(first, end_ns)) for first in firsts]

    def _ends(self, first: int, end_ns: Float64s) -> BatchEnds:
        """Ends and slopes of the samples from `first` on; a last pass has lanes that repeat."""
        graph, scaling = self.graph, self.scaling
        rows = np.minimum(np.arange(first, first + LANES), scaling.num_samples - 1)
        lag_factor, shift_ns = self._of_edges(rows)
        goal_end_ns = np.full((self.num_goals, LANES), -1.0)
        goal_node = np.full((self.num_goals, LANES), -1, np.int64)
        columns = (
            *graph.edges_in_one_piece,
            np.ascontiguousarray(graph.edge_kind),
            self.duration_ns,
            np.ascontiguousarray(scaling.label),
        )
        status, node = _batch_ends(
            *columns,
            _lanes(scaling.factor, rows),
            lag_factor,
            shift_ns,
            scaling.lag_factor is None and scaling.is_removed is None,
            self.goal,
            end_ns,
            goal_end_ns,
            goal_node,
        )
        if status != Status.OK:
            raise SimulationError(sentence(graph, self.duration_ns, Status(status), node))
        slope_ns = np.zeros((self.num_goals, LANES))
        if scaling.weight is not None or scaling.lag_weight is not None:
            num_lanes = min(LANES, scaling.num_samples - first)
            _batch_slopes(
                *columns,
                *self._weights(rows),
                lag_factor,
                shift_ns,
                end_ns,
                goal_node,
                num_lanes,
                slope_ns,
            )
        return BatchEnds(goal_end_ns.T, goal_node.T, slope_ns.T)

    def _of_edges(self, rows: Int64s) -> tuple[Float64s, Float64s]:
        """Factors of lags, and -inf where edges are removed; float64[edge kinds, lanes] each."""
        scaling = self.scaling
        lag_factor, shift_ns = np.ones((len(EdgeKind), LANES)), np.zeros((len(EdgeKind), LANES))
        if scaling.lag_factor is not None:
            lag_factor = _lanes(scaling.lag_factor, rows)
        if scaling.is_removed is not None:
            shift_ns[scaling.is_removed[rows].T] = -np.inf
        return lag_factor, shift_ns

    def _weights(self, rows: Int64s) -> tuple[Float64s, Float64s]:
        """Weights of durations and of lags; float64[labels, lanes], float64[edge kinds, lanes]."""
        scaling = self.scaling
        weight = np.zeros((scaling.factor.shape[1], LANES))
        lag_weight = np.zeros((len(EdgeKind), LANES))
        if scaling.weight is not None:
            weight = _lanes(scaling.weight, rows)
        if scaling.lag_weight is not None:
            lag_weight = _lanes(scaling.lag_weight, rows)
        return weight, lag_weight


def _lanes(table: Float64s, rows: Int64s) -> Float64s:
    """Rows of a table side by side, float64[columns, lanes]."""
    return np.ascontiguousarray(table[rows].T, dtype=np.float64)


def _collected(
    found: list[list[tuple[int, BatchEnds]]], num_samples: int, num_goals: int
) -> BatchEnds:
    """All passes as one table, unused lanes left out."""
    whole = BatchEnds(
        np.empty((num_samples, num_goals)),
        np.empty((num_samples, num_goals), np.int64),
        np.empty((num_samples, num_goals)),
    )
    for first, part in (each for several in found for each in several):
        count = min(LANES, num_samples - first)
        whole.end_ns[first : first + count] = part.end_ns[:count]
        whole.node[first : first + count] = part.node[:count]
        whole.slope_ns[first : first + count] = part.slope_ns[:count]
    return whole


def _check_scaling(graph: ExecutionGraph, scaling: Scaling, goal: Int32s) -> None:
    """Refuse tables that the compiled loops would read past the end of."""
    for what, wrong in _faults(graph, scaling, goal):
        if wrong:
            raise SimulationError(
                f"a batch of {scaling.num_samples} samples cannot be run: {what}."
            )


def _faults(graph: ExecutionGraph, scaling: Scaling, goal: Int32s) -> Iterator[tuple[str, bool]]:
    """Each thing that can be wrong, and whether it is."""
    for name, column in (("label", scaling.label), ("goal", goal)):
        is_wrong = column.shape != (graph.num_nodes,) or column.dtype != np.int32
        found = f"{column.dtype} of shape {column.shape}"
        yield f"{name} must be int32[{graph.num_nodes}], one per node, got {found}", is_wrong
    shape = scaling.factor.shape
    yield f"factor must have the dimensions samples and labels, got shape {shape}", len(shape) != 2  # noqa: PLR2004
    low, high = int(scaling.label.min(initial=0)), int(scaling.label.max(initial=0))
    is_outside = bool(graph.num_nodes) and not 0 <= low <= high < shape[1]
    yield f"labels run from {low} to {high}, expected 0 to {shape[1] - 1}", is_outside
    is_number = np.isfinite(scaling.factor) & (scaling.factor >= 0)
    yield "factors must be numbers of 0 or more", not bool(is_number.all())
    by_kind = (scaling.num_samples, len(EdgeKind))
    for name, table, expected in (
        ("weight", scaling.weight, shape),
        ("lag_factor", scaling.lag_factor, by_kind),
        ("is_removed", scaling.is_removed, by_kind),
        ("lag_weight", scaling.lag_weight, by_kind),
    ):
        is_wrong = table is not None and table.shape != expected
        yield f"{name} must have shape {expected}, got {getattr(table, 'shape', None)}", is_wrong
    is_endless = scaling.lag_factor is not None and not np.isfinite(scaling.lag_factor).all()
    yield "factors of lags must be numbers", bool(is_endless)
