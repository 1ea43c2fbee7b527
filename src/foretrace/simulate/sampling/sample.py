"""The static engine over many samples whose durations are drawn in the same pass."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from foretrace.base import Float64s, Int32s, SimulationError
from foretrace.graph import ExecutionGraph
from foretrace.simulate._compiled import Status
from foretrace.simulate.sampling._compiled import LANES, OK, ORDER, _sampled_ends
from foretrace.simulate.sampling.draws import Draws, check_draws
from foretrace.simulate.static import check_columns, sentence

_BYTES_AT_ONCE = 2 * 2**30  # of ends in memory, over all threads


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
            np.ascontiguousarray(graph.first_edge),
            np.ascontiguousarray(graph.predecessor),
            np.ascontiguousarray(graph.lag_ns),
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
