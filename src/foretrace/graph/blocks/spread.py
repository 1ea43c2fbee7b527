"""Labels of points become labels of all nodes.

The end of a communication has the label of its begin; where all ranks come together, what all
have in common. Host work belongs to what its thread does next: the time before a launch prepares
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.graph.blocks.facts import ScopeFacts
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.draft import DraftNodes
from foretrace.graph.nodes import (
    HOST_KINDS,
    NO_COLLECTIVE,
    NO_LAYER,
    NO_MICROBATCH,
    NodeKind,
    Part,
    Phase,
)

_NEUTRAL = (int(Part.UNKNOWN), int(Phase.UNKNOWN), NO_LAYER, NO_MICROBATCH)


@dataclass(frozen=True)
class Labels:
    """Part, phase, layer and microbatch of points, or of nodes."""

    part: UInt8s  # uint8[rows], Part
    phase: UInt8s  # uint8[rows], Phase
    layer: Int64s  # int64[rows], NO_LAYER
    microbatch: Int64s  # int64[rows], NO_MICROBATCH


def spread_labels(
    nodes: DraftNodes,
    points: WorkPoints,
    labels: Labels,
    *,
    facts: ScopeFacts,
    scope: Int32s,
    met_nodes: tuple[Int64s, Int64s, Int64s],
) -> DraftNodes:
    """Nodes with labels.

    Args:
        nodes: collected.
        points: of work, each a node.
        labels: of points.
        facts: of scopes.
        scope: innermost scope of each node.
        met_nodes: arrivals, finishes in the same rows, and hubs by collective.
    """
    arrive, finish, hub = met_nodes
    columns = nodes.columns
    spread = [np.full(len(nodes), neutral, np.int64) for neutral in _NEUTRAL]
    sources = (
        labels.part.astype(np.int64),
        labels.phase.astype(np.int64),
        labels.layer,
        labels.microbatch,
    )
    for target, source in zip(spread, sources, strict=True):
        target[points.node] = source
        target[finish] = target[arrive]
    _onto_host(nodes, points, sources, spread)
    kind = columns["kind"]
    is_host = np.isin(kind, [int(one) for one in HOST_KINDS])
    is_loading = is_host & (facts.phase[scope] == Phase.DATA) & (kind != NodeKind.OPERATOR)
    for target, value in zip(
        spread, (int(Part.DATA), int(Phase.DATA), NO_LAYER, NO_MICROBATCH), strict=True
    ):
        target[is_loading] = value
    collective = columns["collective"][finish].astype(np.int64)
    for target, neutral in zip(spread, _NEUTRAL, strict=True):
        _onto_hubs(target, collective, finish, hub, neutral)
    changed = dict(zip(("part", "phase", "layer", "microbatch"), spread, strict=True))
    return DraftNodes({**columns, **changed})


def _onto_host(
    nodes: DraftNodes,
    points: WorkPoints,
    sources: tuple[Int64s, ...],
    spread: list[Int64s],
) -> None:
    """Host nodes take the label of the next point of their thread in the step, else the last."""
    columns = nodes.columns
    lane = columns["host_lane"].astype(np.int64)
    is_taken = np.zeros(len(nodes), np.bool_)
    is_taken[points.node] = True
    kind = columns["kind"]
    is_host = np.isin(kind, [int(one) for one in HOST_KINDS if one != NodeKind.OPERATOR])
    rows = np.flatnonzero(is_host & (lane >= 0) & ~is_taken)
    if not len(rows):
        return
    by_lane = np.argsort(points.lane, kind="stable")
    lanes = points.lane[by_lane].astype(np.int64)
    base = int(points.at_ns.min())
    at_ns = columns["host_ns"][rows].astype(np.int64)
    low = np.searchsorted(lanes, lane[rows], side="left")
    high = np.searchsorted(lanes, lane[rows], side="right")
    del base
    next_point = _first_not_before(points.at_ns[by_lane], low, high, at_ns)
    size = len(by_lane)
    step = columns["step"][rows]
    steps = points.step[by_lane]
    is_next = (next_point < high) & (steps[np.minimum(next_point, size - 1)] == step)
    previous = next_point - 1
    is_previous = (previous >= low) & (steps[np.maximum(previous, 0)] == step)
    chosen = np.where(is_next, next_point, np.where(is_previous, previous, -1))
    is_known = chosen >= 0
    point = by_lane[chosen[is_known]]
    for target, source in zip(spread, sources, strict=True):
        target[rows[is_known]] = source[point]


def _first_not_before(at_ns: Int64s, low: Int64s, high: Int64s, wanted: Int64s) -> Int64s:
    """First place in `at_ns[low:high]`, rising inside, with at least `wanted`; `high`: none."""
    low, high = low.copy(), high.copy()
    while (low < high).any():
        middle = (low + high) // 2
        safe = np.minimum(middle, len(at_ns) - 1)
        is_open = low < high
        is_below = is_open & (at_ns[safe] < wanted)
        low = np.where(is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low


def _onto_hubs(
    target: Int64s, collective: Int64s, finish: Int64s, hub: Int64s, neutral: int
) -> None:
    """Hubs take what all members have in common."""
    if not len(hub):
        return
    rows = np.flatnonzero(collective != NO_COLLECTIVE)
    high, low = np.full((2, len(hub)), neutral, np.int64)
    low[:] = np.iinfo(np.int64).max
    np.maximum.at(high, collective[rows], target[finish[rows]])
    np.minimum.at(low, collective[rows], target[finish[rows]])
    target[hub] = np.where(high == low, high, neutral)
