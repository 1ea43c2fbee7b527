"""Changes of durations alone: lengths, factors, delays, the network, data loading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.base import Bools, Float64s, Int64s, ScenarioError, numbered_rows
from foretrace.cost import STATED, Source
from foretrace.graph import NO_STEP, ExecutionGraph, NodeKind, Part
from foretrace.whatif.changes.change import Delayed, Loading, SlowerNetwork, Takes, Times
from foretrace.whatif.changes.matching import fitting
from foretrace.whatif.changes.transfers import transfers_of
from foretrace.whatif.changes.working import (
    BLOCK_COLUMNS,
    Working,
    launches,
    previous_on_host,
)
from foretrace.whatif.recorded.program import Program

_LOADING_KINDS = (NodeKind.HOST_SEGMENT, NodeKind.OPERATOR, NodeKind.CALL)


def taken(working: Working, change: Takes) -> Working:
    """Selected operations take what was stated."""
    mask = fitting(working.graph, change.selection)
    length_ns = float(change.duration_ns)
    return replace(
        working,
        duration_ns=np.where(mask, length_ns, working.duration_ns),
        low_ns=np.where(mask, length_ns, working.low_ns),
        high_ns=np.where(mask, length_ns, working.high_ns),
        # What a user states is the user's measurement.
        source=np.where(mask, Source.TABLE, working.source).astype(np.uint8),
        family=np.where(mask, len(working.families), working.family).astype(np.int32),
        families=(*working.families, STATED),
    )


def multiplied(
    working: Working, changes: Sequence[Times | SlowerNetwork], program: Program | None
) -> Working:
    """Every factor on its nodes."""
    factor = np.ones(working.graph.num_nodes)
    for change in changes:
        factor[_mask(working, change, program)] *= change.factor
    return working.times(factor)


def delayed(
    working: Working, changes: Sequence[Delayed | SlowerNetwork], program: Program | None
) -> Working:
    """Every delay on its nodes."""
    extra_ns = np.zeros(working.graph.num_nodes)
    for change in changes:
        if isinstance(change, SlowerNetwork):
            nodes = np.flatnonzero(_mask(working, change, program))
        else:
            nodes = _delayed_nodes(working.graph, change)
        np.add.at(extra_ns, nodes, float(change.extra_ns))
    return working.plus(extra_ns)


def loaded(working: Working, changes: Sequence[Loading]) -> Working:
    """Lengths first, the last of each rank; then factors."""
    graph = working.graph
    for change in changes:
        nodes = loading_nodes(graph, change.ranks)
        factor = np.ones(graph.num_nodes)
        extra_ns = np.zeros(graph.num_nodes)
        if change.duration_ns is None:
            factor[nodes] = change.factor
        else:
            _set_length(working, nodes, change.duration_ns, (factor, extra_ns))
        working = working.times(factor)
        if extra_ns.any():
            working = working.plus(extra_ns)
    return working


def loading_nodes(graph: ExecutionGraph, ranks: tuple[int, ...] | None) -> Int64s:
    """Host time in which steps get their data: int64[found].

    Raises:
        ScenarioError: if none is known.
    """
    is_loading = (graph.part == Part.DATA) & graph.is_of(*_LOADING_KINDS)
    is_loading &= graph.step != NO_STEP
    if not is_loading.any():
        raise ScenarioError(
            "no step's data loading is known: no part of this job is called data. Name the calls "
            "that load it in a blocks file, or delay the first part of the forward pass."
        )
    if ranks is not None:
        loaders = np.unique(graph.rank[is_loading])
        is_loading &= np.isin(graph.rank, ranks)
        if not is_loading.any():
            raise ScenarioError(
                f"ranks {', '.join(map(str, ranks))} load no data: ranks "
                f"{', '.join(map(str, loaders[:8].tolist()))} do."
            )
    return np.flatnonzero(is_loading)


def _set_length(
    working: Working, nodes: Int64s, length_ns: int, into: tuple[Float64s, Float64s]
) -> None:
    """Factors that make each rank's loading in each step so long. Out: factor and extra."""
    graph, (factor, extra_ns) = working.graph, into
    group = numbered_rows([graph.rank[nodes], graph.step[nodes]])
    _, first = np.unique(group, return_index=True)
    total_ns = np.bincount(group, working.duration_ns[nodes]).astype(np.float64)
    factor[nodes] = (length_ns / np.where(total_ns > 0, total_ns, length_ns or 1))[group]
    extra_ns[nodes[first]] = np.where(total_ns > 0, 0.0, length_ns)


def _mask(working: Working, change: Times | SlowerNetwork, program: Program | None) -> Bools:
    if isinstance(change, SlowerNetwork):
        return transfers_of(working.arranged, change.groups, program)
    return fitting(working.graph, change.selection)


def _delayed_nodes(graph: ExecutionGraph, change: Delayed) -> Int64s:
    """Where the time is added: the segment before a call, else the call, else the operation."""
    nodes = np.flatnonzero(fitting(graph, change.selection))
    launch = launches(graph)
    entry = np.where(launch[nodes] >= 0, launch[nodes], nodes)
    if change.once_per_block:
        first = _first_of_blocks(graph, nodes, entry)
        nodes, entry = nodes[first], entry[first]
    if change.on_device:
        return nodes
    before = previous_on_host(graph)[entry]
    has_segment = (before >= 0) & (graph.kind[before] == NodeKind.HOST_SEGMENT)
    return np.where(has_segment, before, entry)


def _first_of_blocks(graph: ExecutionGraph, nodes: Int64s, entry: Int64s) -> Int64s:
    """Row of each block's operation that is launched first, int64[blocks]."""
    block = numbered_rows([getattr(graph, name)[nodes] for name in BLOCK_COLUMNS])
    order = np.lexsort((nodes, entry))
    _, first = np.unique(block[order], return_index=True)
    return np.sort(order[first])
