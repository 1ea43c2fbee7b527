"""Where a rank waits for its buckets: what follows the last layer, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part
from foretrace.whatif.rearrange.units import Entry

_BETWEEN_STREAMS = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED, EdgeKind.THREAD)


class BucketWaits:
    """Cuts what waits for buckets into what waits for each."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._is_work: Bools = graph.is_of(NodeKind.LAUNCH, NodeKind.OPERATOR)
        self._is_host: Bools = graph.kind < NodeKind.KERNEL
        self._is_wait = _waits(graph)

    def parts(self, entries: Sequence[Entry], count: int) -> tuple[tuple[Entry, ...], ...]:
        """Entries cut into as many parts as there are buckets; one part if that cannot be told.

        Each part waits for another bucket; where waits left no trace in the recording, because
        nobody had to wait, each has as many launches.
        """
        if not count:
            return (tuple(entries),)
        nodes = [entry.piece.nodes for entry in entries]
        waits = [self._begins(each, self._is_wait[each]) for each in nodes]
        works = [self._begins(each, self._is_work[each]) for each in nodes]
        num_works = sum(map(len, works))
        if sum(map(len, waits)) == count:
            return _parts(entries, waits, 1)
        if num_works and num_works % count == 0:
            return _parts(entries, works, num_works // count)
        return (tuple(entries),)

    def _begins(self, nodes: Int64s, is_wanted: Bools) -> list[int]:
        """Where, in a piece's nodes, the host's way to each wanted one begins."""
        is_host, is_work = self._is_host[nodes], self._is_work[nodes]
        found = []
        for place in np.flatnonzero(is_wanted).tolist():
            before = np.flatnonzero(is_work[:place])
            begin = int(before[-1]) + 1 if len(before) else 0
            while begin < place and not is_host[begin]:
                begin += 1
            found.append(begin)
        return found


def _parts(
    entries: Sequence[Entry], begins: Sequence[Sequence[int]], every: int
) -> tuple[tuple[Entry, ...], ...]:
    """Entries cut at every so many beginnings, but the first."""
    found: list[list[Entry]] = [[]]
    count = 0
    for entry, places in zip(entries, begins, strict=True):
        begin = 0
        for place in places:
            if count and count % every == 0:
                found[-1] += _cut(entry, begin, place)
                found.append([])
                begin = place
            count += 1
        found[-1] += _cut(entry, begin, len(entry.piece.nodes))
    return tuple(tuple(part) for part in found)


def _cut(entry: Entry, begin: int, end: int) -> list[Entry]:
    if begin >= end:
        return []
    return [replace(entry, piece=replace(entry.piece, nodes=entry.piece.nodes[begin:end]))]


def _waits(graph: ExecutionGraph) -> Bools:
    """Host nodes that wait for a bucket, or launch what does; bool[nodes]."""
    target = graph.edge_target
    source = graph.predecessor
    is_bucket = (graph.kind[source] == NodeKind.FINISH) & (graph.part[source] == Part.BUCKET)
    is_awaited = is_bucket & np.isin(graph.edge_kind, _BETWEEN_STREAMS)
    waiting = np.zeros(graph.num_nodes, bool)
    waiting[target[is_awaited]] = True
    is_launch = (graph.edge_kind == EdgeKind.LAUNCH) & waiting[target]
    found = waiting & (graph.kind < NodeKind.KERNEL)
    found[source[is_launch]] = True
    return found
