"""Exposed waiting time inside collectives, cut by the shares of the delay it was for."""

from __future__ import annotations

import numpy as np

from foretrace.analyze.activity import Activity
from foretrace.analyze.idle.causes import IdleCause
from foretrace.analyze.idle.stretches import Stretches, complement
from foretrace.analyze.idle.table import Stillness
from foretrace.analyze.idle.waits import Waits
from foretrace.analyze.intervals import Intervals
from foretrace.base import Float64s, Int64s, begins_run, joined_ranges, rows_by_value
from foretrace.graph import NodeKind, Timeline

_NOTHING = Intervals(start_ns=np.zeros(0, np.int64), end_ns=np.zeros(0, np.int64))


def waiting_stretches(
    timeline: Timeline, waits: Waits, activities: dict[int, Activity]
) -> Stretches:
    """Exposed waiting time, cut by the shares of the delay that each wait was for."""
    transfers = _transfers(timeline)
    fragments = [
        _exposed(waits, rank, activity.compute.union(transfers.get(rank, _NOTHING)))
        for rank, activity in activities.items()
    ]
    row, begin_ns, end_ns = (
        np.concatenate([np.zeros(0, np.int64), *(each[at] for each in fragments)])
        for at in range(3)
    )
    order = np.lexsort((begin_ns, row))
    return _shared(timeline, waits, row[order], begin_ns[order], end_ns[order])


def _transfers(timeline: Timeline) -> dict[int, Intervals]:
    """Moments in which each rank transfers."""
    graph = timeline.graph
    finish = graph.nodes_of(NodeKind.FINISH)
    found = {}
    for rank, rows in rows_by_value(graph.rank[finish]).items():
        mine = finish[rows]
        found[rank] = Intervals.union_of(timeline.start_ns[mine], timeline.end_ns[mine])
    return found


def _exposed(waits: Waits, rank: int, doing: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """A rank's waiting moments in which it did nothing else: row of the wait, begin, end.

    Moments of several waits belong to the one that began first.
    """
    mine = np.flatnonzero(waits.rank == rank)
    mine = mine[np.lexsort((waits.end_ns[mine], waits.begin_ns[mine]))]
    covered_ns = np.append(np.int64(0), np.maximum.accumulate(waits.end_ns[mine]))[: len(mine)]
    begin_ns = np.maximum(waits.begin_ns[mine], covered_ns)
    kept = begin_ns < waits.end_ns[mine]
    mine, begin_ns = mine[kept], begin_ns[kept]
    own = Intervals(start_ns=begin_ns, end_ns=waits.end_ns[mine])
    if not len(own):
        return mine, begin_ns, begin_ns
    free = complement(doing, int(begin_ns[0]), int(own.end_ns[-1]))
    exposed = own.intersect(free)
    row = mine[np.searchsorted(begin_ns, exposed.start_ns, side="right") - 1]
    return row, exposed.start_ns, exposed.end_ns


def _shared(
    timeline: Timeline, waits: Waits, row: Int64s, begin_ns: Int64s, end_ns: Int64s
) -> Stretches:
    """Fragments of waits cut where one share ends and the next begins, in the shares' order.

    What of a wait came after the late rank's arrival belongs to nobody's delay.
    """
    delays = waits.delays
    part, part_row, share = _parts(timeline, waits, row, end_ns - begin_ns)
    # both cut the same length of time: fragments by time, parts by size
    at_fragment = np.append(0, np.cumsum(end_ns - begin_ns))
    at_part = np.append(0, np.cumsum(part))
    cuts = np.union1d(at_fragment, at_part)
    low, high = cuts[:-1], cuts[1:]
    fragment = np.searchsorted(at_fragment, low, side="right") - 1
    of_part = np.searchsorted(at_part, low, side="right") - 1
    start_ns = begin_ns[fragment] + low - at_fragment[fragment]
    chosen, wait = share[of_part], part_row[of_part]
    rest = IdleCause.UNEXPLAINED if timeline.is_measured else IdleCause.COMMUNICATION
    is_rest = chosen < 0
    cause = np.append(delays.share_cause, np.uint8(rest))[chosen]
    culprit = np.append(delays.share_rank, np.int32(0))[chosen]
    subject = np.append(delays.share_subject, np.int32(len(delays.subjects) - 1))[chosen]
    return Stretches(
        rank=waits.rank[wait],
        kind=np.full(len(low), Stillness.WAITING, np.uint8),
        cause=cause,
        culprit_rank=np.where(is_rest, waits.rank[wait], culprit).astype(np.int32),
        collective=waits.collective[wait],
        subject=subject.astype(np.int64),
        begin_ns=start_ns,
        end_ns=start_ns + high - low,
    )


def _parts(
    timeline: Timeline, waits: Waits, row: Int64s, fragment_ns: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Length, wait and share (-1: none) of every part of the waits that have fragments.

    Lengths of a wait's parts sum to that of its fragments.
    """
    delays = waits.delays
    wait, first = np.unique(row, return_index=True)
    if not len(wait):
        return wait, wait, wait
    total_ns = np.add.reduceat(fragment_ns, first)
    delay = waits.delay[wait]
    until_ns = timeline.end_ns[delays.late_node[delay]] - waits.begin_ns[wait]
    length_ns = waits.end_ns[wait] - waits.begin_ns[wait]
    delayed = np.clip(until_ns / length_ns, 0, 1)
    delayed_ns = np.rint(total_ns * delayed).astype(np.int64)
    number = np.diff(delays.first_share)[delay]
    owner = np.repeat(np.arange(len(wait)), number)
    share = joined_ranges(delays.first_share[delay], number)
    reached = _running(delays.share[share], owner)
    upto_ns = np.rint(delayed_ns[owner] * reached).astype(np.int64)
    is_new = begins_run(owner)
    before_ns = np.where(is_new, 0, np.append(np.int64(0), upto_ns[:-1])[: len(owner)])
    ends = np.append(np.flatnonzero(is_new)[1:], len(owner)) - 1
    upto_ns[ends] = delayed_ns  # the last share takes what rounding left
    rest = np.arange(len(wait))
    part_ns = np.append(upto_ns - before_ns, total_ns - delayed_ns)
    order = np.lexsort(
        (np.append(np.zeros(len(owner)), np.ones(len(rest))), np.append(owner, rest))
    )
    return (
        part_ns[order],
        wait[np.append(owner, rest)[order]],
        np.append(share, np.full(len(rest), -1))[order],
    )


def _running(share: Float64s, owner: Int64s) -> Float64s:
    """Sum of each owner's shares up to and with each one."""
    total = np.cumsum(share)
    first = np.searchsorted(owner, owner)
    return total - (total - share)[first]
