"""Draws: which node takes which duration in which sample, without keeping any.

A draw is a function of the seed, the number of the draw and the number of the sample: their hash
is a probability, and a table of quantiles says which factor it stands for. So samples do not
depend on threads, on the order of nodes or on each other, one of them can be made again alone,
and nodes that share a draw (the ranks of a collective) name the same number.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float32s, Float64s, Int32s, Int64s, SimulationError, UInt64s
from foretrace.graph import ExecutionGraph
from foretrace.simulate._compiled import Status
from foretrace.simulate.sampling._compiled import (
    LANES,
    NUM_CELLS,
    NUM_LEVELS,
    NUM_POINTS,
    OK,
    ORDER,
    _draw_factors,
    _sampled_durations,
    _sampled_ends,
)
from foretrace.simulate.static import check_columns, sentence

FIXED = -1  # make of a node that is not drawn
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment, 2**64 / golden ratio
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SEED_STEP = np.uint64(0xD1342543DE82EF95)  # odd; keeps streams of a seed apart
_BYTES_AT_ONCE = 2 * 2**30  # of ends in memory, over all threads


@dataclass(frozen=True, kw_only=True)
class Draws:
    """How the durations of a graph's nodes vary from sample to sample."""

    duration_ns: Float64s  # float64[nodes], before any factor
    make: Int32s  # int32[nodes], row of `table`; FIXED
    draw: Int64s  # int64[nodes], number of the draw; nodes that share one have one duration
    table: Float32s  # float32[makes, NUM_POINTS], of `quantile_table`
    label: Int32s  # int32[nodes], column of `factor`
    factor: Float64s  # float64[samples, labels], of a GPU or a step, drawn by the caller
    seed: int

    @property
    def num_samples(self) -> int:
        """How many samples."""
        return len(self.factor)

    def key(self) -> UInt64s:
        """Hash of every node's draw; uint64[nodes]."""
        return hashed(self.draw)

    def sample_key(self, sample: Int64s) -> UInt64s:
        """Hash of samples; uint64[samples]."""
        return sample_keys(self.seed, sample)


def hashed(number: Int64s) -> UInt64s:
    """Numbers as hashes of 64 bits: SplitMix64."""
    word = (number.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * _MIX_1
    word = (word ^ (word >> np.uint64(27))) * _MIX_2
    return word ^ (word >> np.uint64(31))


def sample_keys(seed: int, sample: Int64s) -> UInt64s:
    """Hash of samples under a seed; uint64[samples]."""
    of_seed = hashed(np.array([seed], np.int64)) * _SEED_STEP
    return hashed((sample.astype(np.uint64) + of_seed).view(np.int64))


def probabilities() -> Float64s:
    """At which probabilities a table has its points; float64[NUM_POINTS].

    256 cells of equal probability, then the lower tail and the upper, whose cells halve.
    """
    tail = 2.0 ** -np.arange(NUM_LEVELS + 1) / NUM_CELLS
    middle = np.arange(NUM_CELLS + 1) / NUM_CELLS
    return np.concatenate([middle, tail, 1.0 - tail])


def quantile_table(quantile: Callable[[Float64s], Float64s], mean: float) -> Float32s:
    """Factors at `probabilities`, scaled so that straight lines between them have this mean.

    Args:
        quantile: of the distribution; is not asked for 0 and 1.
        mean: of the distribution.
    """
    probability = probabilities()
    least = probability[NUM_CELLS + 1 + NUM_LEVELS]
    values = np.asarray(quantile(np.clip(probability, least, 1.0 - least)), np.float64)
    table = np.maximum(values, 0.0)
    found = table_mean(table)
    scaled = table * (mean / found) if found > 0 else table
    result: Float32s = scaled.astype(np.float32)
    return result


def table_mean(table: Float64s) -> float:
    """Mean of a table whose quantiles are straight between points."""
    middle = table[1:NUM_CELLS]
    low = table[NUM_CELLS + 1 : NUM_CELLS + 2 + NUM_LEVELS]
    high = table[NUM_CELLS + 2 + NUM_LEVELS :]
    width = 2.0 ** -np.arange(1, NUM_LEVELS + 1)
    tails = sum(float(((one[:-1] + one[1:]) / 2 * width).sum()) for one in (low, high))
    rest = (low[-1] + high[-1]) * 2.0**-NUM_LEVELS
    whole = float(((middle[:-1] + middle[1:]) / 2).sum())
    return (whole + tails + float(rest)) / NUM_CELLS


def drawn_factors(table: Float32s, *, seed: int, draw: Int64s, sample: Int64s) -> Float64s:
    """The factors of some draws in some samples; float64[draws, samples]."""
    found = np.empty((len(draw), len(sample)))
    _draw_factors(
        hashed(draw), sample_keys(seed, sample), np.ascontiguousarray(table, np.float32), found
    )
    return found


def sampled_duration_ns(draws: Draws, sample: int) -> Float64s:
    """Durations of all nodes in one sample; float64[nodes]."""
    check_draws(draws, len(draws.duration_ns))
    found = np.empty(len(draws.duration_ns))
    _sampled_durations(
        np.ascontiguousarray(draws.duration_ns, np.float64),
        draws.make,
        draws.key(),
        draws.label,
        draws.table,
        np.ascontiguousarray(draws.factor[sample]),
        draws.sample_key(np.array([sample], np.int64))[0],
        found,
    )
    return found


def check_draws(draws: Draws, num_nodes: int) -> None:
    """Refuse columns that a compiled loop would read past the end of.

    Raises:
        SimulationError: which one, found against expected.
    """
    for name, column, dtype in (
        ("duration_ns", draws.duration_ns, np.float64),
        ("make", draws.make, np.int32),
        ("draw", draws.draw, np.int64),
        ("label", draws.label, np.int32),
    ):
        if column.shape != (num_nodes,) or column.dtype != dtype:
            raise SimulationError(
                f"draws cannot be made: {name} must be {np.dtype(dtype)}[{num_nodes}], one per "
                f"node, got {column.dtype} of shape {column.shape}"
            )
    is_table = draws.table.ndim == 2 and draws.table.shape[1] == NUM_POINTS  # noqa: PLR2004
    if not is_table or draws.table.dtype != np.float32:
        raise SimulationError(
            f"draws cannot be made: table must be float32[makes, {NUM_POINTS}], got "
            f"{draws.table.dtype} of shape {draws.table.shape}: make rows with quantile_table"
        )
    for name, column, count in (
        ("make", draws.make, len(draws.table)),
        ("label", draws.label, draws.factor.shape[1]),
    ):
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if num_nodes and not (-1 if name == "make" else 0) <= low <= high < max(count, 1):
            raise SimulationError(
                f"draws cannot be made: {name} runs from {low} to {high}, expected up to "
                f"{count - 1}"
            )
    is_number = np.isfinite(draws.factor) & (draws.factor >= 0)
    if not bool(is_number.all()):
        raise SimulationError("draws cannot be made: factors must be numbers of 0 or more")


def simulate_samples(
    graph: ExecutionGraph, draws: Draws, goal: Int32s, *, workers: int | None = None
) -> Float64s:
    """When the last node of every goal ends in every sample; float64[samples, goals].

    Args:
        graph: who waits for whom; node order must be topological.
        draws: how durations vary.
        goal: int32[nodes], number of the goal that a node belongs to, from 0; NO_GOAL.
        workers: threads; as many as there are cores if left out. Results do not depend on it.

    Raises:
        SimulationError: if columns do not fit the graph or each other, or a duration is negative.
    """
    check_columns(graph, draws.duration_ns.shape)
    check_draws(draws, graph.num_nodes)
    if goal.shape != (graph.num_nodes,) or goal.dtype != np.int32:
        raise SimulationError(
            f"goal must be int32[{graph.num_nodes}], one per node, got {goal.dtype} of shape "
            f"{goal.shape}"
        )
    num_goals = int(goal.max(initial=-1)) + 1
    num_nodes = int(np.flatnonzero(goal >= 0)[-1]) + 1 if num_goals else 0
    found = np.full((draws.num_samples, num_goals), -1.0)
    one = _Pass(graph, draws, np.ascontiguousarray(goal), num_nodes)
    firsts = range(0, draws.num_samples, LANES)
    room = max(1, _BYTES_AT_ONCE // max(1, num_nodes * LANES * 8))
    threads = max(1, min(len(firsts), workers or os.cpu_count() or 1, room))
    with ThreadPoolExecutor(threads) as pool:
        shares = [firsts[each::threads] for each in range(threads)]
        for done in [pool.submit(one.run, share, found) for share in shares]:
            done.result()
    return found


class _Pass:
    """The graph's columns, ready to be passed over for `LANES` samples at once."""

    def __init__(self, graph: ExecutionGraph, draws: Draws, goal: Int32s, num_nodes: int) -> None:
        self._graph, self._draws, self._goal = graph, draws, goal
        self._num_nodes = num_nodes
        self._columns = (
            *graph.edges_in_one_piece,
            np.ascontiguousarray(draws.duration_ns),
            np.ascontiguousarray(draws.make),
            draws.key(),
            np.ascontiguousarray(draws.label),
            np.ascontiguousarray(draws.table),
        )

    def run(self, firsts: range, found: Float64s) -> None:
        """The passes that begin with these samples. Out: their rows of `found`."""
        draws = self._draws
        end_ns = np.empty((self._num_nodes, LANES))
        for first in firsts:
            rows = np.minimum(np.arange(first, first + LANES), draws.num_samples - 1)
            goal_end_ns = np.full((found.shape[1], LANES), -1.0)
            status, node = _sampled_ends(
                *self._columns,
                np.ascontiguousarray(draws.factor[rows].T),
                draws.sample_key(rows),
                self._goal,
                end_ns,
                goal_end_ns,
            )
            if status != OK:
                reason = Status.ORDER if status == ORDER else Status.NEGATIVE_DURATION
                raise SimulationError(sentence(self._graph, draws.duration_ns, reason, node))
            count = min(LANES, draws.num_samples - first)
            found[first : first + count] = goal_end_ns.T[:count]
