"""Calls at which the host no longer waits for the device, or waits for what is older."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.base import Bools, Int64s, ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.whatif.changes.change import Unsynchronised
from foretrace.whatif.changes.matching import fitting, is_meant, nearest, of_block
from foretrace.whatif.changes.working import Working, with_edges


def unsynchronised(working: Working, change: Unsynchronised) -> Working:
    """Without the selected waits, or with what they waited for some steps before."""
    graph = working.graph
    chosen = _chosen_edges(graph, change)
    if change.steps:
        smaller = _with_older(graph, chosen, change.steps)
    else:
        smaller = with_edges(graph, ~chosen)
    return replace(working, arranged=replace(working.arranged, graph=smaller))


def check_calls(graph: ExecutionGraph, change: Unsynchronised) -> None:
    """Refuse a change that names no wait.

    Raises:
        ScenarioError: naming the calls at which the host waits.
    """
    waiting = np.unique(graph.edges_of(EdgeKind.WAKE)[1])
    if not len(waiting):
        raise ScenarioError(
            "the host waits for no device here: there is no synchronisation to remove. Without a "
            "device, what a thread waits for are other threads and ranks."
        )
    names = [graph.names[at] for at in np.unique(graph.name[waiting]).tolist()]
    if not any(is_meant(change.calls, name) for name in names):
        raise ScenarioError(
            f"the host waits at no call named {change.calls!r}: {nearest(change.calls, names)}."
        )
    if not _chosen_edges(graph, change).any():
        raise ScenarioError(
            f"no wait at {change.calls!r} fits {str(change.selection)!r}: calls are selected by "
            "their block and operator, and by the kernels that they wait for. Leave one out."
        )


def _chosen_edges(graph: ExecutionGraph, change: Unsynchronised) -> Bools:
    selection = change.selection
    target = graph.edge_target
    wakes: Bools = graph.edge_kind == EdgeKind.WAKE
    used = np.unique(graph.name[target[wakes]])
    named = [at for at in used.tolist() if is_meant(change.calls, graph.names[at])]
    fits = of_block(graph, selection) & np.isin(graph.name, named)
    if selection.operators is not None:
        operators = np.unique(graph.operator[target[wakes]])
        meant = [
            at
            for at in operators.tolist()
            if at >= 0 and is_meant(selection.operators, graph.names[at])
        ]
        fits &= np.isin(graph.operator, meant)
    wakes &= fits[target]
    if selection.kernels is not None or selection.family is not None:
        of_what = replace(selection, operators=None, part=None, phase=None, layers=None, ranks=None)
        wakes &= fitting(graph, of_what)[graph.predecessor]
    return wakes


def _with_older(graph: ExecutionGraph, chosen: Bools, steps: int) -> ExecutionGraph:
    """Chosen edges begin where those of the same call, so many steps before, did."""
    target = graph.edge_target
    older = _calls_before(graph, np.unique(target[chosen]), steps)
    sources = dict.fromkeys(older.tolist(), np.zeros(0, np.int64))
    for call in sources:
        edges = slice(int(graph.first_edge[call]), int(graph.first_edge[call + 1]))
        is_wake = graph.edge_kind[edges] == EdgeKind.WAKE
        sources[call] = graph.predecessor[edges][is_wake].astype(np.int64)
    added = [
        (source, call)
        for call, before in zip(np.unique(target[chosen]).tolist(), older.tolist(), strict=True)
        if before >= 0
        for source in sources[before].tolist()
    ]
    source = np.append(graph.predecessor[~chosen], [one for one, _ in added]).astype(np.int32)
    ends = np.append(target[~chosen], [one for _, one in added]).astype(np.int64)
    kind = np.append(graph.edge_kind[~chosen], np.full(len(added), EdgeKind.WAKE, np.uint8))
    lag_ns = np.append(graph.lag_ns[~chosen], np.full(len(added), _lag_ns(graph), np.int32))
    return graph.rewired(source, ends, kind=kind, lag_ns=lag_ns)


def _calls_before(graph: ExecutionGraph, calls: Int64s, steps: int) -> Int64s:
    """The same call so many steps before; -1 where there is none; int64[calls].

    The same is the one of that name with the same number on its thread, counted from the step's
    begin.
    """
    every = graph.nodes_of(NodeKind.SYNC)
    place: dict[tuple[int, int, int, int], int] = {}
    counts: dict[tuple[int, int, int], int] = {}
    of_call: dict[int, tuple[int, int, int, int]] = {}
    for call in every.tolist():
        key = int(graph.lane[call]), int(graph.name[call]), int(graph.step[call])
        number = counts[key] = counts.get(key, -1) + 1
        of_call[call] = (*key, number)
        place[(*key, number)] = call
    found = []
    for call in calls.tolist():
        lane, name, step, number = of_call[call]
        # Before the first step nothing is of one: no call there is the same one.
        found.append(place.get((lane, name, step - steps, number), -1) if step >= steps else -1)
    return np.array(found, np.int64)


def _lag_ns(graph: ExecutionGraph) -> int:
    return next((one.lag_ns for one in graph.constants if one.kind == EdgeKind.WAKE), 0)
