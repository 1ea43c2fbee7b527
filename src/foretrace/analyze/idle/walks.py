"""Walks back over what nodes waited for: a stretch of time becomes pieces of nodes and lags.

From a node, time is followed back over the predecessor that it waited for last, on any rank.
Each moment of the stretch belongs to exactly one piece: a node's own time, the lag of an edge,
or, in a measured timeline, time between a node's start and what should have started it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from foretrace.analyze.idle._compiled import _binding_edges, _walk_apart, _walk_back
from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.graph import ExecutionGraph, Timeline

_LEAST_ROOM = 4_096  # pieces


@dataclass(frozen=True)
class Walks:
    """Stretches of time to be explained, each by what the start of a node had waited for."""

    node: Int64s  # int64[walks], starts not before `until_ns`
    begin_ns: Int64s  # int64[walks]
    until_ns: Int64s  # int64[walks]

    def __len__(self) -> int:
        """Number of walks."""
        return len(self.node)


@dataclass(frozen=True)
class WalkPieces:
    """One row per piece, by walk, then from its end to its begin."""

    walk: Int32s  # int32[pieces], row of `Walks`
    node: Int32s  # int32[pieces], whose time it is, or who waited
    edge: Int64s  # int64[pieces], over which the node was reached, or waited; -1 none
    what: UInt8s  # uint8[pieces], OWN, LAG, UNEXPLAINED or NOTHING_BEFORE
    begin_ns: Int64s  # int64[pieces]
    end_ns: Int64s  # int64[pieces]

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.walk)

    @property
    def duration_ns(self) -> Int64s:
        """Length of each piece; int64[pieces]."""
        return self.end_ns - self.begin_ns


def binding_edges(timeline: Timeline) -> Int64s:
    """The edge over which each node became ready last; int64[nodes], -1 without predecessor."""
    graph = timeline.graph
    binding = np.empty(graph.num_nodes, np.int64)
    _binding_edges(graph.first_edge, graph.predecessor, graph.lag_ns, timeline.end_ns, binding)
    return binding


def binding_predecessor(graph: ExecutionGraph, binding: Int64s, node: Int64s) -> Int64s:
    """Whom each of some nodes waited for last; int64[nodes asked], -1 nobody."""
    edge = binding[node]
    if not graph.num_edges:
        return np.full(len(node), -1, np.int64)
    return np.where(edge >= 0, graph.predecessor[np.maximum(edge, 0)], -1)


def walked_back(timeline: Timeline, walks: Walks, binding: Int64s) -> WalkPieces:
    """The pieces of every walk; the pieces of a walk cover it without gap or overlap."""

    def some(first_walk: int, out: WalkPieces) -> tuple[int, int]:
        reached: tuple[int, int] = _walk_back(
            timeline.graph.predecessor,
            timeline.graph.lag_ns,
            timeline.start_ns,
            timeline.end_ns,
            binding,
            walks.node,
            walks.begin_ns,
            walks.until_ns,
            first_walk,
            *_columns(out),
        )
        return reached

    return _in_rounds(len(walks), some)


def walked_apart(
    timeline: Timeline, from_node: Int64s, from_edge: Int64s, until_ns: Int64s, binding: Int64s
) -> WalkPieces:
    """The pieces of pairs of walks from two nodes back to where their ways meet.

    Walks 2k and 2k + 1 are a pair; each goes over its `from_edge` first. Where the two ways
    never meet, both go back to where the recording begins.
    """

    def some(first_pair: int, out: WalkPieces) -> tuple[int, int]:
        reached: tuple[int, int] = _walk_apart(
            timeline.graph.predecessor,
            timeline.graph.lag_ns,
            timeline.start_ns,
            timeline.end_ns,
            binding,
            from_node,
            from_edge,
            until_ns,
            first_pair,
            *_columns(out),
        )
        return reached

    return _in_rounds(len(from_node) // 2, some)


def _in_rounds(total: int, some: Callable[[int, WalkPieces], tuple[int, int]]) -> WalkPieces:
    """All pieces of a loop that stops where its outputs are full and goes on from there."""
    found: list[WalkPieces] = []
    room, reached = max(_LEAST_ROOM, 8 * total), 0
    while reached < total:
        out = _empty_pieces(room)
        reached, count = some(reached, out)
        found.append(WalkPieces(*(column[:count] for column in _columns(out))))
        room *= 2
    return _joined(found)


def _columns(pieces: WalkPieces) -> list[Any]:
    return [getattr(pieces, field.name) for field in fields(WalkPieces)]


def _empty_pieces(room: int) -> WalkPieces:
    return WalkPieces(
        walk=np.empty(room, np.int32),
        node=np.empty(room, np.int32),
        edge=np.empty(room, np.int64),
        what=np.empty(room, np.uint8),
        begin_ns=np.empty(room, np.int64),
        end_ns=np.empty(room, np.int64),
    )


def _joined(parts: list[WalkPieces]) -> WalkPieces:
    parts = parts or [_empty_pieces(0)]
    return WalkPieces(
        *(
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(WalkPieces)
        )
    )
