"""`Awaited`: what each slice of a timeline waited for last, for an arrow from there to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import UNRECORDED_RANK, IdleCause, IdleCauses, binding_edges
from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.graph import EdgeKind, NodeKind, Timeline
from foretrace.report.slices import COMMUNICATION, COMPUTE, HOST, TRACK_OF_KIND
from foretrace.report.subjects import shortened

NOBODY = -1
_TRACK_OF_CAUSE = {
    **dict.fromkeys((IdleCause.COMPUTE, IdleCause.COPY), COMPUTE),
    IdleCause.COMMUNICATION: COMMUNICATION,
}
_MEETINGS = (NodeKind.HUB, NodeKind.ARRIVE)  # behind which stands what a late rank did


@dataclass(frozen=True)
class Awaited:
    """By number of a node or, behind them, of an interval of idle time's reason."""

    rank: Int32s  # int32[numbers]; NOBODY
    track: UInt8s  # uint8[numbers], position in `TRACKS`
    at_ns: Int64s  # int64[numbers]; NOBODY: where the slice ends

    def __len__(self) -> int:
        """How many numbers it knows."""
        return len(self.rank)

    def shifted(self, first: int, num_numbers: int) -> Awaited:
        """The same for numbers from `first` on, of so many."""
        rank = np.full(num_numbers, NOBODY, np.int32)
        track, at_ns = np.zeros(num_numbers, np.uint8), np.full(num_numbers, NOBODY, np.int64)
        own = slice(first, first + len(self))
        rank[own], track[own], at_ns[own] = self.rank, self.track, self.at_ns
        return Awaited(rank, track, at_ns)


def awaited_nodes(timeline: Timeline) -> Awaited:
    """Whom each node of a timeline's graph waited for; nobody of the call before on its thread."""
    graph = timeline.graph
    edge = binding_edges(timeline)
    before = np.where(edge >= 0, np.append(graph.predecessor, 0)[edge], NOBODY)
    source = before.copy()
    for _ in _MEETINGS:
        is_meeting = (source >= 0) & np.isin(graph.kind[source], _MEETINGS)
        source = np.where(is_meeting, before[source], source)
    is_order = np.append(graph.edge_kind, 0)[edge] == EdgeKind.HOST_ORDER
    is_known = (source >= 0) & ~is_order & (graph.rank[source] >= 0)
    return Awaited(
        rank=np.where(is_known, graph.rank[source], NOBODY).astype(np.int32),
        track=TRACK_OF_KIND[graph.kind[source]],
        at_ns=timeline.end_ns[source],
    )


def awaited_culprits(idle: IdleCauses, number: Int64s, awaited: Awaited) -> Awaited:
    """With those who are behind idle time.

    Args:
        number: int64[intervals], of each interval's reason.
    """
    rank, track = awaited.rank.copy(), awaited.track.copy()
    is_known = idle.culprit_rank != UNRECORDED_RANK
    rank[number[is_known]] = idle.culprit_rank[is_known]
    of_cause = np.array([_TRACK_OF_CAUSE.get(cause, HOST) for cause in IdleCause], np.uint8)
    track[number] = of_cause[idle.cause]
    return Awaited(rank, track, awaited.at_ns)


@dataclass(frozen=True)
class Reasons:
    """Numbered from `first` on: after a graph's nodes, so that one number is either."""

    first: int
    facets: tuple[tuple[str, str, str, str], ...]  # texts by `FACETS`
    number_by_title: Mapping[str, Int64s]  # int64[intervals] of each `IdleCauses`


def reasons(idle_by_title: Mapping[str, IdleCauses], first: int) -> Reasons:
    """The reasons of all intervals, of all titles."""
    pool: dict[tuple[str, str, str, str], int] = {}
    number_by_title = {}
    for title, idle in idle_by_title.items():
        columns = np.stack([idle.cause, idle.culprit_rank, idle.subject], axis=1).astype(np.int64)
        rows, of_interval = np.unique(columns, axis=0, return_inverse=True)
        numbers = [
            pool.setdefault(_facets(idle, cause, culprit, subject), len(pool))
            for cause, culprit, subject in rows.tolist()
        ]
        number_by_title[title] = first + np.array(numbers, np.int64)[of_interval.reshape(-1)]
    return Reasons(first, tuple(pool), number_by_title)


def _facets(idle: IdleCauses, cause: int, culprit: int, subject: int) -> tuple[str, str, str, str]:
    words = IdleCause(cause).words
    who = "not recorded" if culprit == UNRECORDED_RANK else f"of rank {culprit}"
    return (f"{words} {who}", shortened(idle.subjects[subject]), f"idle: {words}", "")
