"""Launches of selected work as CUDA graphs: the host does nothing between the first and last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.base import Bools, Int64s, ScenarioError
from foretrace.graph import HOST_KINDS, ExecutionGraph, NodeKind
from foretrace.whatif.changes.change import Graphed
from foretrace.whatif.changes.matching import fitting
from foretrace.whatif.changes.working import Working, launches

_PASSED = (NodeKind.HOST_SEGMENT, NodeKind.CALL)  # recorded into the graph, or not done at all
_ON_HOST = (*HOST_KINDS, NodeKind.STEP_BEGIN, NodeKind.STEP_END)


def graphed(working: Working, change: Graphed) -> Working:
    """Host time from each run's first launch to its last is gone."""
    graph = working.graph
    gone = _between(graph, _graphed_launches(graph, fitting(graph, change.selection)))
    return replace(
        working,
        duration_ns=np.where(gone, 0.0, working.duration_ns),
        low_ns=np.where(gone, 0.0, working.low_ns),
        high_ns=np.where(gone, 0.0, working.high_ns),
    )


def check_graphable(graph: ExecutionGraph, change: Graphed) -> None:
    """Refuse graphs of one launch each.

    Raises:
        ScenarioError: if no selected launch follows another.
    """
    if not _between(graph, _graphed_launches(graph, fitting(graph, change.selection))).any():
        raise ScenarioError(
            f"{str(change.selection)!r} selects no two launches that follow each other: between "
            "them a thread launches other work, waits, or ends its step, so that no graph saves "
            "any. Select what is launched between them too."
        )


def _graphed_launches(graph: ExecutionGraph, chosen: Bools) -> Bools:
    """Calls all of whose operations are chosen; bool[nodes]."""
    launch = launches(graph)
    launched = (launch >= 0) & (graph.kind != NodeKind.ARRIVE)
    num_operations = np.bincount(launch[launched], minlength=graph.num_nodes)
    num_chosen = np.bincount(launch[launched & chosen], minlength=graph.num_nodes)
    is_graphed: Bools = (graph.kind == NodeKind.LAUNCH) & (num_chosen > 0)
    is_graphed &= num_chosen == num_operations
    return is_graphed


def _between(graph: ExecutionGraph, is_graphed: Bools) -> Bools:
    """Host nodes after the first and up to the last launch of each run; bool[nodes].

    A run ends at whatever else a thread does: other launches, waits, operators, marks of steps.
    """
    host = graph.nodes_of(*_ON_HOST)
    host = graph.in_lanes(host)
    lane, launched = graph.lane[host], is_graphed[host]
    is_end = ~(graph.is_of(*_PASSED)[host] | launched)
    is_end |= np.append(True, lane[1:] != lane[:-1])[: len(host)]
    run = np.cumsum(is_end) - 1
    seen = _counted(launched, run)
    total = np.bincount(run, launched).astype(np.int64)[run] if len(run) else seen
    gone = np.zeros(graph.num_nodes, np.bool_)
    is_after_first = np.where(launched, seen > 1, seen > 0)
    is_before_last = np.where(launched, True, seen < total)  # noqa: FBT003  a column of flags
    gone[host] = is_after_first & is_before_last
    return gone


def _counted(flags: Bools, run: Int64s) -> Int64s:
    """How many flags of its run stand up to each row, itself included; int64[rows]."""
    number: Int64s = flags.astype(np.int64)
    count: Int64s = np.cumsum(number)
    first = np.searchsorted(run, run)  # first row of each row's run
    counted: Int64s = count - count[first] + number[first]
    return counted
