"""Runs of chosen host nodes: those on one thread with nothing that matters between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import HOST_KINDS, ExecutionGraph, NodeKind

_ON_HOST = (*HOST_KINDS, NodeKind.STEP_BEGIN, NodeKind.STEP_END)


@dataclass(frozen=True)
class HostRuns:
    """Which host nodes stand in a run of two chosen ones or more."""

    first: Int64s  # int64[nodes], of chosen nodes the first of their run, of others themselves
    is_between: Bools  # bool[nodes], after a run's first chosen node and up to its last


def host_runs(
    graph: ExecutionGraph, chosen: Bools, passed: Bools, *, within: tuple[str, ...] = ()
) -> HostRuns:
    """Runs of chosen nodes. One ends at whatever else a thread does, marks of steps too.

    Args:
        graph: of any origin.
        chosen: bool[nodes].
        passed: bool[nodes], what may stand between chosen nodes.
        within: columns of the graph in which all of a run are alike.
    """
    host = graph.in_lanes(graph.nodes_of(*_ON_HOST))
    is_chosen = chosen[host]
    is_end = ~(passed[host] | is_chosen)
    for name in ("lane", *within):
        column = getattr(graph, name)[host]
        is_end |= np.append(True, column[1:] != column[:-1])[: len(host)]
    run = np.cumsum(is_end) - 1
    seen = _counted(is_chosen, run)
    total = np.bincount(run, is_chosen).astype(np.int64)[run] if len(run) else seen
    gone = np.zeros(graph.num_nodes, np.bool_)
    is_after_first = np.where(is_chosen, seen > 1, seen > 0)
    is_before_last = np.where(is_chosen, True, seen < total)  # noqa: FBT003  a column of flags
    gone[host] = is_after_first & is_before_last
    first = np.arange(graph.num_nodes, dtype=np.int64)
    opens = np.flatnonzero(is_chosen & (seen == 1))
    members = np.flatnonzero(is_chosen)
    first[host[members]] = host[opens[np.searchsorted(run[opens], run[members])]]
    return HostRuns(first, gone)


def _counted(flags: Bools, run: Int64s) -> Int64s:
    """How many flags of its run stand up to each row, itself included; int64[rows]."""
    number: Int64s = flags.astype(np.int64)
    count: Int64s = np.cumsum(number)
    first = np.searchsorted(run, run)  # first row of each row's run
    counted: Int64s = count - count[first] + number[first]
    return counted
