"""Ghosts in a new job: ranks that were not recorded, where their part of the program stayed.

A ghost's segment is a difference between two collectives of its group, or between a rank's start
and work whose launch nobody recorded. It holds only between the same two: with anything else
between them the missing ranks are taken to come with the recorded ones. A larger group still has
those that were missing, and they come as late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import EdgeKind, Edges, NodeKind
from foretrace.whatif.arrange.meetings import JobMeetings
from foretrace.whatif.arrange.sequence import NewSequence
from foretrace.whatif.arrange.source import RecordedNodes
from foretrace.whatif.recorded.program import NewJob


@dataclass(frozen=True)
class Ghosts:
    """Ghosts that stay; ghost i is place `num_places + num_hubs + i`."""

    source: Int64s  # int64[ghosts], recorded node
    edges: Edges  # between places
    notes: tuple[str, ...]


def ghosts_of(
    source: RecordedNodes, sequence: NewSequence, job: NewJob, meetings: JobMeetings
) -> Ghosts:
    """The ghosts of a new job."""
    graph = source.graph
    ghost = graph.nodes_of(NodeKind.GHOST)
    if not len(ghost):
        return Ghosts(ghost, Edges.joined([]), ())
    target = graph.edge_target
    into = graph.predecessor[graph.first_edge[ghost]].astype(np.int64)
    is_out = graph.kind[graph.predecessor] == NodeKind.GHOST
    after = np.full(graph.num_nodes, -1, np.int64)
    after[graph.predecessor[is_out]] = target[is_out]
    held = after[ghost]
    of_hub = graph.kind[held] == NodeKind.HUB
    kept = [
        *_before_hubs(
            source, sequence, meetings, ghost=ghost[of_hub], into=into[of_hub], hub=held[of_hub]
        ),
        *_before_operations(source, sequence, job, ghost[~of_hub], held[~of_hub]),
    ]
    rows = np.array(kept, np.int64).reshape(-1, 3)
    place = len(sequence) + len(meetings.collectives) + np.arange(len(rows))
    edges = Edges.joined(
        [
            Edges.of(EdgeKind.GHOST, rows[:, 1], place),
            Edges.of(EdgeKind.GHOST, place, rows[:, 2]),
        ]
    )
    return Ghosts(rows[:, 0], edges, _notes(len(ghost), rows[:, 0]))


def _before_hubs(
    source: RecordedNodes,
    sequence: NewSequence,
    meetings: JobMeetings,
    *,
    ghost: Int64s,
    into: Int64s,
    hub: Int64s,
) -> list[tuple[int, int, int]]:
    """Ghost, place before it and place behind it, where its group still does the same."""
    graph = source.graph
    by_collective = dict(
        zip(
            graph.collective[hub].tolist(),
            zip(ghost.tolist(), into.tolist(), strict=True),
            strict=True,
        )
    )
    starts = np.flatnonzero(sequence.kind == NodeKind.RANK_START)
    start_of_rank = {int(source.graph.rank[sequence.source[at]]): int(at) for at in starts[::-1]}
    found, group = [], meetings.members.group
    for at, recorded in enumerate(meetings.source_collective.tolist()):
        if recorded not in by_collective:
            continue
        old, new = graph.collectives[recorded].ranks, meetings.collectives[at].ranks
        if old != new and len(old) >= len(new):
            continue
        own, before = by_collective[recorded]
        is_first = at == 0 or group[at - 1] != group[at]
        if graph.kind[before] == NodeKind.RANK_START:
            place = start_of_rank.get(int(graph.rank[before])) if is_first else None
        else:
            place = None if is_first else _finish_of(source, sequence, meetings, at - 1, before)
        if place is not None:
            found.append((own, place, len(sequence) + at))
    return found


def _finish_of(
    source: RecordedNodes, sequence: NewSequence, meetings: JobMeetings, at: int, node: int
) -> int | None:
    """Where a recorded finish ends the `at`-th collective; `None` if it does not."""
    if meetings.source_collective[at] != source.graph.collective[node]:
        return None
    members = meetings.members
    own = members.finish[members.first[at] : members.first[at + 1]]
    places = own[sequence.source[own] == node]
    return int(places[0]) if len(places) else None


def _before_operations(
    source: RecordedNodes, sequence: NewSequence, job: NewJob, ghost: Int64s, operation: Int64s
) -> list[tuple[int, int, int]]:
    """Work without a launch, on ranks that did the same since their start."""
    found = []
    starts = np.flatnonzero(sequence.kind == NodeKind.RANK_START)
    bounds = np.append(starts, len(sequence))
    own_rank = source.graph.rank[operation]
    for at, rank in enumerate(job.ranks):
        low, high = int(bounds[at]) + 1, int(bounds[at + 1])
        mine = own_rank == rank.source_rank
        if not mine.any():
            continue
        begin = source.begin_of_rank[rank.source_rank]
        recorded = source.sequence[begin : begin + high - low]
        same = sequence.source[low : low + len(recorded)] == recorded
        num_same = int(np.argmin(same)) if not same.all() else len(recorded)
        offset = source.place[operation[mine]] - begin
        for one, away in zip(ghost[mine].tolist(), offset.tolist(), strict=True):
            if 0 <= away < num_same:
                found.append((one, int(starts[at]), low + away))
    return found


def _notes(count: int, kept: Int64s) -> tuple[str, ...]:
    lost = count - len(np.unique(kept))
    if not lost:
        return ()
    text = (
        f"at {lost} of {count} places, where the recording says how long work was awaited that it "
        "does not show, other work now comes before: it is taken to be there in time"
    )
    return (text,)
