"""A rank's blocks as slices: layers and other parts of the model inside their phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int32s, Int64s, begins_run
from foretrace.exchange.tracks import Layout, SliceRows, no_nodes
from foretrace.graph import (
    DEVICE_KINDS,
    NO_LAYER,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
    Timeline,
    block_words,
)

BLOCKS_ORDER = 1  # in a rank's process, below its steps

# Work whose block says what the model was doing; communication, and what prepares it, cuts in.
_BLOCK_KINDS = (*DEVICE_KINDS, NodeKind.OPERATOR)
_ASIDE = (Part.BUCKET, Part.TRANSFER)


def block_name(graph: ExecutionGraph, node: int) -> str:
    """A node's block in words: "layer 3 forward, microbatch 0"; "" unknown."""
    return block_words(
        int(graph.part[node]),
        int(graph.phase[node]),
        int(graph.layer[node]),
        microbatch=int(graph.microbatch[node]),
    )


@dataclass(frozen=True)
class _Runs:
    """Stretches of work that go under one text each."""

    text: tuple[str, ...]  # "" is not drawn
    rank: Int32s  # int32[runs]
    start_ns: Int64s  # int64[runs]
    end_ns: Int64s  # int64[runs]


def block_rows(timeline: Timeline, layout: Layout, process_by_rank: dict[int, int]) -> SliceRows:
    """Runs of work of one block, inside runs of one phase and microbatch, on a track per rank."""
    work = _known_work(timeline)
    if not len(work):
        nothing = np.zeros(0, np.int64)
        return SliceRows(nothing, nothing, nothing, nothing, nothing)
    # Outer ones first.
    both = (_phase_runs(timeline, work), _part_runs(timeline, work))
    rank = np.concatenate([runs.rank for runs in both])
    text = [text for runs in both for text in runs.text]
    shown = np.array([bool(each) for each in text], np.bool_)
    place_by_rank = {
        each: layout.place(process_by_rank[each], "blocks", BLOCKS_ORDER)
        for each in np.unique(rank[shown]).tolist()
    }
    return SliceRows(
        place=np.array([place_by_rank[each] for each in rank[shown].tolist()], np.int64),
        name=np.array([layout.text(each) for each in text if each], np.int64),
        start_ns=np.concatenate([runs.start_ns for runs in both])[shown],
        end_ns=np.concatenate([runs.end_ns for runs in both])[shown],
        node=no_nodes(int(shown.sum())),
    )


def _known_work(timeline: Timeline) -> Int64s:
    """Nodes with a length whose block is known, by rank and start."""
    graph = timeline.graph
    is_known = (graph.part != Part.UNKNOWN) | (graph.phase != Phase.UNKNOWN)
    is_known &= graph.is_of(*_BLOCK_KINDS) & ~np.isin(graph.part, _ASIDE)
    is_known &= (graph.lane >= 0) & (timeline.end_ns > timeline.start_ns)
    work: Int64s = np.flatnonzero(is_known)
    return work[np.lexsort((work, timeline.start_ns[work], graph.rank[work]))]


def _phase_runs(timeline: Timeline, work: Int64s) -> _Runs:
    graph = timeline.graph
    key = np.stack([graph.rank[work], graph.phase[work], graph.microbatch[work]])
    first, start_ns, end_ns = _stretches(timeline, work, key)
    text = [
        block_words(Part.UNKNOWN, phase, NO_LAYER, microbatch=microbatch)
        for _, phase, microbatch in key[:, first].T.tolist()
    ]
    return _Runs(tuple(text), graph.rank[work[first]], start_ns, end_ns)


def _part_runs(timeline: Timeline, work: Int64s) -> _Runs:
    graph = timeline.graph
    columns = (graph.rank, graph.phase, graph.microbatch, graph.part, graph.layer)
    key = np.stack([column[work].astype(np.int32) for column in columns])
    first, start_ns, end_ns = _stretches(timeline, work, key)
    text = [
        # A part that is its phase, as the optimizer is, would stand there twice.
        "" if Part(part).name == Phase(phase).name else block_words(part, phase, layer)
        for _, phase, _, part, layer in key[:, first].T.tolist()
    ]
    return _Runs(tuple(text), graph.rank[work[first]], start_ns, end_ns)


def _stretches(timeline: Timeline, work: Int64s, key: Int32s) -> tuple[Int64s, Int64s, Int64s]:
    """First position, start and end of each stretch of equal keys.

    A stretch ends with its last work, or where the next one of its rank starts.
    """
    start_ns, rank = timeline.start_ns[work], timeline.graph.rank[work]
    first = np.flatnonzero(begins_run(*key))
    until_ns = np.maximum.reduceat(timeline.end_ns[work], first)
    is_same_rank = rank[first][1:] == rank[first][:-1]
    next_ns = np.where(is_same_rank, start_ns[first][1:], np.iinfo(np.int64).max)
    until_ns[:-1] = np.minimum(until_ns[:-1], next_ns)
    return first, start_ns[first], until_ns
