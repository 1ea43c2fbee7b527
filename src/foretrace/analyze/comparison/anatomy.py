"""`Anatomy`: every moment of every step given to one thing that the rank was doing, or to none.

At a moment when several things run, compute comes before transfers, and transfers before waiting,
as in a breakdown; of two of a kind the one that began first has it until it ends. So the times of
all things, and idle, tile the step on every rank, and their sum over any labels is the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from foretrace.analyze.activity import is_compute, participations
from foretrace.analyze.intervals import Intervals
from foretrace.base import Bools, Int32s, Int64s, UInt8s
from foretrace.graph import ExecutionGraph, Timeline


class Doing(IntEnum):
    """What a rank does with its time, what comes first first; idle is what remains."""

    COMPUTE = 0
    TRANSFER = 1
    WAIT = 2  # in a collective, for other ranks


@dataclass(frozen=True)
class Anatomy:
    """One row per compute node, and two per rank and collective: its wait and its transfer."""

    graph: ExecutionGraph
    node: Int64s  # int64[rows]; of a wait or a transfer, its FINISH
    doing: UInt8s  # uint8[rows], Doing
    own_ns: Int64s  # int64[rows], moments of the chosen windows that are this row's alone
    busy_ns: Int64s  # int64[rows], whole length if it began in a chosen window, else 0
    is_counted: Bools  # bool[rows], whether it began in a chosen window
    window_ns: int  # length of the chosen windows together
    num_windows: int
    overlapped_by_rank_ns: dict[int, int]  # time of compute and communication at once

    @property
    def num_rank_steps(self) -> int:
        """Over how many steps of ranks the times are summed."""
        return self.num_windows * len(self.graph.ranks)

    @property
    def rank(self) -> Int32s:
        """Rank of each row; int32[rows]."""
        rank: Int32s = self.graph.rank[self.node]
        return rank


@dataclass(frozen=True)
class _Spans:
    """Compute nodes, then transfers, then waits of collectives; one row each, int64[rows]."""

    node: Int64s
    rank: Int64s
    doing: UInt8s  # uint8[rows], Doing
    begun_ns: Int64s  # of a transfer, when its rank arrived
    from_ns: Int64s
    until_ns: Int64s


def anatomy(timeline: Timeline, *, begin_ns: Int64s, end_ns: Int64s) -> Anatomy:
    """What has each moment of these windows, on every rank.

    Args:
        begin_ns: int64[windows], rising; windows do not overlap and are the same on all ranks.
        end_ns: int64[windows].
    """
    spans = _spans(timeline)
    own_ns = np.zeros(len(spans.node), np.int64)
    overlapped_by_rank_ns: dict[int, int] = {}
    tier = len(Doing) * spans.rank + spans.doing
    order = np.lexsort((spans.from_ns, tier))
    for rank in timeline.graph.ranks:
        taken = Intervals.union_of(begin_ns[:0], end_ns[:0])
        covered = []
        for doing in Doing:
            at = len(Doing) * rank + doing
            rows = order[slice(*np.searchsorted(tier, (at, at + 1), sorter=order).tolist())]
            covered.append(_share_out(spans, rows, taken, (begin_ns, end_ns), own_ns))
            taken = taken.union(covered[-1])
        computing, moving, waiting = covered
        both = computing.intersect(moving.union(waiting)).within_ns(begin_ns, end_ns)
        overlapped_by_rank_ns[rank] = int(both.sum())
    began = _begins_inside(spans.begun_ns, begin_ns, end_ns)
    return Anatomy(
        graph=timeline.graph,
        node=spans.node,
        doing=spans.doing,
        own_ns=own_ns,
        busy_ns=(spans.until_ns - spans.from_ns) * began,
        is_counted=began,
        window_ns=int((end_ns - begin_ns).sum()),
        num_windows=len(begin_ns),
        overlapped_by_rank_ns=overlapped_by_rank_ns,
    )


def _spans(timeline: Timeline) -> _Spans:
    graph = timeline.graph
    compute = np.flatnonzero(is_compute(graph))
    pairs = participations(graph)
    node = np.concatenate((compute, pairs.finish, pairs.finish))
    start_ns, end_ns = timeline.start_ns, timeline.end_ns
    arrived_ns, turn_ns = start_ns[pairs.arrive], start_ns[pairs.finish]
    return _Spans(
        node=node,
        rank=graph.rank[node].astype(np.int64),
        doing=np.repeat(
            np.array([Doing.COMPUTE, Doing.TRANSFER, Doing.WAIT], np.uint8),
            [len(compute), len(pairs), len(pairs)],
        ),
        begun_ns=np.concatenate((start_ns[compute], arrived_ns, arrived_ns)),
        from_ns=np.concatenate((start_ns[compute], turn_ns, arrived_ns)),
        until_ns=np.concatenate((end_ns[compute], end_ns[pairs.finish], turn_ns)),
    )


def _share_out(
    spans: _Spans,
    rows: Int64s,
    taken: Intervals,
    windows: tuple[Int64s, Int64s],
    own_ns: Int64s,
) -> Intervals:
    """Give one rank's rows what is not taken of each window; returns all moments they cover.

    Of overlapping rows the first to begin has the time until its end; ties by row. `rows` are by
    begin. Out: `own_ns`, int64[spans].
    """
    until_ns = np.maximum.accumulate(spans.until_ns[rows])
    before_ns = np.concatenate((spans.from_ns[rows[:1]], until_ns[:-1]))
    from_ns = np.maximum(spans.from_ns[rows], before_ns)
    has_own = until_ns > from_ns
    rows, from_ns, until_ns = rows[has_own], from_ns[has_own], until_ns[has_own]
    for begin_ns, end_ns in zip(*(side.tolist() for side in windows), strict=True):
        first = int(np.searchsorted(until_ns, begin_ns, side="right"))
        last = int(np.searchsorted(from_ns, end_ns, side="left"))
        if first >= last:
            continue
        begins_ns = np.maximum(from_ns[first:last], begin_ns)
        ends_ns = np.minimum(until_ns[first:last], end_ns)
        own_ns[rows[first:last]] += ends_ns - begins_ns - taken.within_ns(begins_ns, ends_ns)
    return Intervals.union_of(from_ns, until_ns)


def _begins_inside(at_ns: Int64s, begin_ns: Int64s, end_ns: Int64s) -> Bools:
    """Whether each moment lies in one of the windows; bool[moments]."""
    window = np.searchsorted(begin_ns, at_ns, side="right") - 1
    inside: Bools = (window >= 0) & (at_ns < end_ns[np.maximum(window, 0)])
    return inside
