"""Idle time: what the operation that ends it had waited for, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze.activity import Activity, is_compute, participations
from foretrace.analyze.idle.causes import Described, Excuses, IdleCause, described_pieces
from foretrace.analyze.idle.stretches import Stretches, complement
from foretrace.analyze.idle.subjects import Subjects
from foretrace.analyze.idle.table import Stillness
from foretrace.analyze.idle.walks import Pieces, Walks, walked_back
from foretrace.analyze.steps import StepTable
from foretrace.base import Bools, Int32s, Int64s
from foretrace.graph import NO_COLLECTIVE, NO_NODE, ExecutionGraph, NodeKind, Timeline


def idle_stretches(
    timeline: Timeline,
    table: StepTable,
    activities: dict[int, Activity],
    known: tuple[Int64s, Excuses, Subjects],
) -> Stretches:
    """Idle time inside the steps, by what ended it."""
    binding, excuses, subjects = known
    walks, rank, is_last = _idle_walks(timeline, table, activities)
    pieces = walked_back(timeline, walks, binding)
    described = described_pieces(timeline, pieces, excuses, subjects)
    cause = described.cause.copy()
    cause[is_last[pieces.walk] & (cause == IdleCause.HOST)] = IdleCause.EDGE
    return _of_pieces(pieces, replace(described, cause=cause), rank)


def _of_pieces(pieces: Pieces, described: Described, rank: Int32s) -> Stretches:
    return Stretches(
        rank=rank[pieces.walk],
        kind=np.full(len(pieces), Stillness.IDLE, np.uint8),
        cause=described.cause,
        culprit_rank=described.rank,
        collective=np.full(len(pieces), NO_COLLECTIVE, np.int32),
        subject=described.subject.astype(np.int64),
        begin_ns=pieces.begin_ns,
        end_ns=pieces.end_ns,
    )


def _idle_walks(
    timeline: Timeline, table: StepTable, activities: dict[int, Activity]
) -> tuple[Walks, Int32s, Bools]:
    """One walk per idle interval; its rank, and whether no operation follows it."""
    enders = _Enders.of(timeline)
    nodes, begins, ends, ranks = ([np.zeros(0, np.int64)] for _ in range(4))
    for rank, activity in activities.items():
        mine = table.rank == rank
        if not mine.any():
            continue
        begin_ns, end_ns = int(table.begin_ns[mine].min()), int(table.end_ns[mine].max())
        gaps = complement(activity.busy, begin_ns, end_ns)
        nodes.append(enders.after(rank, gaps.end_ns))
        begins.append(gaps.start_ns)
        ends.append(gaps.end_ns)
        ranks.append(np.full(len(gaps), rank, np.int64))
    node, rank_of = np.concatenate(nodes), np.concatenate(ranks)
    is_last = node == NO_NODE
    node[is_last] = enders.last_of(rank_of[is_last])
    walks = Walks(node, np.concatenate(begins), np.concatenate(ends))
    return walks, rank_of.astype(np.int32), is_last


@dataclass(frozen=True)
class _Enders:
    """Operations that make their rank busy, by rank, then start: one of them ends an idle time."""

    graph: ExecutionGraph
    node: Int64s
    rank: Int32s
    start_ns: Int64s

    @classmethod
    def of(cls, timeline: Timeline) -> _Enders:
        """All of a timeline; operations without extent make nobody busy."""
        graph = timeline.graph
        pairs = participations(graph)
        compute = np.flatnonzero(is_compute(graph) & (timeline.end_ns > timeline.start_ns))
        takes = timeline.end_ns[pairs.finish] > timeline.start_ns[pairs.arrive]
        node = np.concatenate([compute, pairs.arrive[takes]])
        order = np.lexsort((node, timeline.start_ns[node], graph.rank[node]))
        node = node[order]
        return cls(graph, node, graph.rank[node], timeline.start_ns[node])

    def after(self, rank: int, moment_ns: Int64s) -> Int64s:
        """A rank's first operation that starts at or after each moment; NO_NODE if none."""
        low, high = np.searchsorted(self.rank, [rank, rank + 1])
        found = np.full(len(moment_ns), NO_NODE, np.int64)
        row = low + np.searchsorted(self.start_ns[low:high], moment_ns)
        found[row < high] = self.node[row[row < high]]
        return found

    def last_of(self, rank: Int64s) -> Int64s:
        """Each rank's last end of a step, or its last node where it has none."""
        graph = self.graph
        is_mark = graph.kind == NodeKind.STEP_END
        last = np.full(int(graph.rank.max(initial=0)) + 1, NO_NODE, np.int64)
        for nodes in (np.flatnonzero(graph.rank >= 0), np.flatnonzero(is_mark)):
            last[graph.rank[nodes]] = nodes  # of several, the last one stays
        found: Int64s = last[rank]
        return found
