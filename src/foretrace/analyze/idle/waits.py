"""Waits inside collectives: who came last, and what it did longer than one who waited.

The last rank and a typical one that waited for it are followed back, from when each was ready,
to where their ways meet: a moment at which one of them had waited for the other, or both for
the same. Way minus way, cause by cause, is the delay. Ways lead through other groups to other
ranks, so a delay is charged to the rank where it began, and what both ways share cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from foretrace.analyze.activity import participations
from foretrace.analyze.idle.causes import Excuses, ExplainedPieces, IdleCause, described_pieces
from foretrace.analyze.idle.subjects import Subjects
from foretrace.analyze.idle.walks import WalkPieces, binding_predecessor, walked_apart
from foretrace.base import Bools, Float64s, Int32s, Int64s, UInt8s, begins_run
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Timeline

_Column: TypeAlias = Int64s | Int32s | UInt8s
UNRECORDED_RANK = -1


@dataclass(frozen=True)
class Delays:
    """Who came last, for whom others waited; one row per collective and late arrival."""

    collective: Int32s  # int32[delays], position in the graph's `collectives`
    late_node: Int64s  # int64[delays], its arrival; of a rank not recorded: what stands for it
    late_rank: Int32s  # int32[delays]; UNRECORDED_RANK
    late_ns: Int64s  # int64[delays], its arrival after that of the typical rank that waited
    typical_rank: Int32s  # int32[delays], whom it is compared with: the median of those waiting
    first_share: Int64s  # int64[delays + 1]
    share: Float64s  # float64[shares], of each delay; positive, largest first, sum 1
    share_cause: UInt8s  # uint8[shares], IdleCause
    share_rank: Int32s  # int32[shares], where the delay began; UNRECORDED_RANK
    share_subject: Int32s  # int32[shares], position in `subjects`
    subjects: tuple[str, ...]

    def __len__(self) -> int:
        """Number of delays."""
        return len(self.collective)


@dataclass(frozen=True)
class Waits:
    """Every recorded rank's wait at every collective at which it waited."""

    collective: Int32s  # int32[waits], position in the graph's `collectives`
    rank: Int32s  # int32[waits], who waited
    arrive: Int64s  # int64[waits], node
    begin_ns: Int64s  # int64[waits], arrival
    end_ns: Int64s  # int64[waits], begin of the transfer, later than the arrival
    delay: Int64s  # int64[waits], row of `delays`
    is_transfer: Bools  # bool[waits], a transfer between two ranks: one waits by design
    delays: Delays

    def __len__(self) -> int:
        """Number of waits."""
        return len(self.collective)

    @property
    def duration_ns(self) -> Int64s:
        """Length of each wait; int64[waits]."""
        return self.end_ns - self.begin_ns


def waits_of(timeline: Timeline, binding: Int64s, excuses: Excuses, subjects: Subjects) -> Waits:
    """All waits of a timeline, each with the delay that it was for.

    Args:
        timeline: measured or simulated.
        binding: its binding edges.
        excuses: its synchronisations that waited.
        subjects: the names of its graph's nodes.
    """
    graph = timeline.graph
    pairs = participations(graph)
    begin_ns, end_ns = timeline.start_ns[pairs.arrive], timeline.start_ns[pairs.finish]
    rows = np.flatnonzero(end_ns > begin_ns)
    late = binding_predecessor(graph, binding, pairs.finish[rows])
    is_hub = (late >= 0) & (graph.kind[late] == NodeKind.HUB)
    late[is_hub] = binding_predecessor(graph, binding, late[is_hub])
    late = np.where(late < 0, pairs.arrive[rows], late)
    arrive, collective = pairs.arrive[rows], pairs.collective[rows]
    delay, first = _numbered(collective, late)
    typical = _typical(delay, arrive, late, timeline.start_ns[arrive])
    delays = _delays(
        timeline, binding, (excuses, subjects), (collective[first], late[first], typical)
    )
    kinds = np.array(graph.collectives.each(lambda each: each.is_transfer), np.bool_)
    return Waits(
        collective=collective,
        rank=pairs.rank[rows],
        arrive=arrive,
        begin_ns=begin_ns[rows],
        end_ns=end_ns[rows],
        delay=delay,
        is_transfer=kinds[collective],
        delays=delays,
    )


def _numbered(collective: Int32s, late: Int64s) -> tuple[Int64s, Int64s]:
    """Number of each row's pair of collective and late node, and a first row of each pair."""
    order = np.lexsort((late, collective))
    is_new = np.append(
        True, (np.diff(late[order]) != 0) | (np.diff(collective[order].astype(np.int64)) != 0)
    )[: len(order)]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return number, order[is_new]


def _typical(delay: Int64s, arrive: Int64s, late: Int64s, arrive_ns: Int64s) -> Int64s:
    """Arrival in the middle of those that waited for each delay, the lower of two."""
    others = np.flatnonzero(arrive != late)
    rows = np.append(others, np.flatnonzero(arrive == late))  # who came last only if alone
    order = rows[np.lexsort((arrive_ns[rows], arrive[rows] == late[rows], delay[rows]))]
    found, first = np.unique(delay[order], return_index=True)
    num_others = np.bincount(delay[others], minlength=len(found))
    middle: Int64s = arrive[order[first + np.maximum(num_others - 1, 0) // 2]]
    return middle


def _delays(
    timeline: Timeline,
    binding: Int64s,
    known: tuple[Excuses, Subjects],
    of: tuple[Int32s, Int64s, Int64s],
) -> Delays:
    """Compare every late arrival with the typical one."""
    graph, (collective, late, typical), (excuses, subjects) = timeline.graph, of, known
    late_rank = graph.rank[late]
    ends = np.stack([late, typical], axis=1).reshape(-1)
    edge, ready_ns = _readiness(timeline, binding, ends)
    pieces = walked_apart(timeline, ends, edge, ready_ns, binding)
    described = described_pieces(timeline, pieces, excuses, subjects)
    table = _differences(pieces, described, graph.rank[ends], len(late))
    late_ns = timeline.end_ns[late] - timeline.end_ns[typical]
    table, first, share = _shares(table, len(late))
    is_bare = np.flatnonzero(np.diff(first) == 0)
    return _with_bare(
        Delays(
            collective=collective,
            late_node=late,
            late_rank=late_rank.astype(np.int32),
            late_ns=late_ns,
            typical_rank=graph.rank[typical].astype(np.int32),
            first_share=first,
            share=share,
            share_cause=table.cause,
            share_rank=table.rank,
            share_subject=_grown(graph, table, subjects, (late, typical)),
            subjects=subjects.names,
        ),
        is_bare,
        is_measured=timeline.is_measured,
    )


def _readiness(timeline: Timeline, binding: Int64s, node: Int64s) -> tuple[Int64s, Int64s]:
    """When each arrival's own work was done, and over which edge that is known.

    A rank may be ready while its stream still waits in the collective before: that wait is the
    other collective's. Without another predecessor, the arrival itself counts.
    """
    graph = timeline.graph
    edge, ready_ns = binding[node].copy(), timeline.end_ns[node].copy()
    before = graph.predecessor[np.maximum(edge, 0)] if graph.num_edges else node
    queued = np.flatnonzero(
        (edge >= 0)
        & (graph.edge_kind[np.maximum(edge, 0)] == EdgeKind.STREAM)
        & (graph.kind[before] == NodeKind.FINISH)
    )
    for row in queued.tolist():
        edges = np.arange(graph.first_edge[node[row]], graph.first_edge[node[row] + 1])
        edges = edges[graph.kind[graph.predecessor[edges]] != NodeKind.FINISH]
        if len(edges):
            at_ns = timeline.end_ns[graph.predecessor[edges]] + graph.lag_ns[edges]
            edge[row] = edges[np.argmax(at_ns)]
            ready_ns[row] = min(int(at_ns.max()), int(ready_ns[row]))
    return edge, ready_ns


@dataclass(frozen=True)
class _Differences:
    """What the late rank's way has more of than the other's; by delay, most first."""

    delay: Int64s
    more_ns: Int64s
    cause: UInt8s
    rank: Int32s
    subject: Int32s
    net_ns: Int64s  # int64[delays], what it has more of, less what it has less of


def _differences(
    pieces: WalkPieces, described: ExplainedPieces, end_rank: Int32s, num_delays: int
) -> _Differences:
    """Sum pieces by delay, rank, cause and subject, the typical rank's with a minus.

    The two ranks themselves count as one, so that what they both do cancels.
    """
    walk = pieces.walk.astype(np.int64)
    delay, side = walk // 2, walk % 2
    rank = np.where(described.rank == end_rank[walk], end_rank[walk - side], described.rank)
    signed_ns = np.where(side == 0, pieces.duration_ns, -pieces.duration_ns)
    keys = (described.subject, described.cause, rank, delay)
    fine, fine_ns = _summed(keys, signed_ns)
    at, coarse_ns = _summed(tuple(column[fine] for column in keys[1:]), fine_ns)
    coarse = fine[at]
    # the subject that grew most stands for its cause
    order = np.lexsort((-fine_ns, *(column[fine] for column in keys[1:])))
    leads = order[begins_run(*(column[fine][order] for column in keys[1:]))]
    more = np.flatnonzero(coarse_ns > 0)
    by_size = more[np.lexsort((-coarse_ns[more], delay[coarse[more]]))]
    row = coarse[by_size]
    return _Differences(
        delay=delay[row],
        more_ns=coarse_ns[by_size],
        cause=described.cause[row],
        rank=rank[row].astype(np.int32),
        subject=described.subject[fine[leads]][by_size],
        net_ns=np.rint(np.bincount(delay, weights=signed_ns, minlength=num_delays)).astype(
            np.int64
        ),
    )


def _summed(keys: tuple[_Column, ...], value: Int64s) -> tuple[Int64s, Int64s]:
    """A row of each combination of keys, the last key first, and the sum of its values."""
    key = _packed(keys)
    order = np.lexsort(keys) if key is None else np.argsort(key, kind="stable")
    starts = np.flatnonzero(
        begins_run(*(column[order] for column in (keys if key is None else [key])))
    )
    if not len(starts):
        return order[starts], np.zeros(0, np.int64)
    return order[starts], np.add.reduceat(value[order], starts)


def _packed(keys: tuple[_Column, ...]) -> Int64s | None:
    """All keys in one number per row that sorts as they do; None if it would not fit."""
    if not len(keys[0]):
        return None
    lowest = [int(column.min()) for column in keys]
    spans = [int(column.max()) - low + 1 for column, low in zip(keys, lowest, strict=True)]
    if math.prod(spans) >= 2**62:
        return None
    packed = np.zeros(len(keys[0]), np.int64)
    for column, low, span in reversed(list(zip(keys, lowest, spans, strict=True))):
        packed *= span
        packed += column - low
    return packed


def _grown(
    graph: ExecutionGraph, table: _Differences, subjects: Subjects, of: tuple[Int64s, Int64s]
) -> Int32s:
    """Each share's subject: of compute and host work what takes longer than on the typical rank.

    On the way itself an innocent kernel can stand: one that the typical rank did while it waited.
    """
    late, typical = of
    subject = table.subject.copy()
    works = np.isin(table.cause, (IdleCause.COMPUTE, IdleCause.HOST)) & (table.rank >= 0)
    rows = np.flatnonzero(works)
    keys = zip(
        table.rank[rows].tolist(),
        graph.rank[typical[table.delay[rows]]].tolist(),
        graph.step[late[table.delay[rows]]].tolist(),
        (table.cause[rows] == IdleCause.HOST).tolist(),
        strict=True,
    )
    known: dict[tuple[int, int, int, bool], int] = {}
    for row, key in zip(rows.tolist(), keys, strict=True):
        if key not in known:
            known[key] = subjects.grown(*key[:3], is_host=key[3])
        if known[key] >= 0:
            subject[row] = known[key]
    return subject


def _shares(table: _Differences, num_delays: int) -> tuple[_Differences, Int64s, Float64s]:
    """The differences that count, the first of each delay, and each one's part of its delay.

    What the late rank did less of is taken off the smallest of what it did more of: the fewest
    causes that explain the delay. Small differences of both signs are the ways' own noise.
    """
    first = np.searchsorted(table.delay, np.arange(num_delays + 1))
    running_ns = np.cumsum(table.more_ns)
    before_ns = running_ns - table.more_ns
    before_ns -= before_ns[np.minimum(first[table.delay], max(len(running_ns) - 1, 0))]
    total_ns = np.bincount(table.delay, weights=table.more_ns, minlength=num_delays)
    net_ns = np.where(table.net_ns > 0, table.net_ns, total_ns)[table.delay]
    share: Float64s = np.clip(net_ns - before_ns, 0, table.more_ns) / net_ns
    counts = share > 0
    columns = ("delay", "more_ns", "cause", "rank", "subject")
    kept = replace(table, **{name: getattr(table, name)[counts] for name in columns})
    return kept, np.searchsorted(kept.delay, np.arange(num_delays + 1)), share[counts]


def _with_bare(delays: Delays, bare: Int64s, *, is_measured: bool) -> Delays:
    """The same with one share for each delay that nothing explains."""
    if not len(bare):
        return delays
    cause = IdleCause.UNEXPLAINED if is_measured else IdleCause.COMMUNICATION
    at = delays.first_share[bare]
    is_ghost = delays.late_rank[bare] == UNRECORDED_RANK
    added = np.concatenate([[0], np.cumsum(np.diff(delays.first_share) == 0)])
    return Delays(
        collective=delays.collective,
        late_node=delays.late_node,
        late_rank=delays.late_rank,
        late_ns=delays.late_ns,
        typical_rank=delays.typical_rank,
        first_share=delays.first_share + added,
        share=np.insert(delays.share, at, 1.0),
        share_cause=np.insert(
            delays.share_cause, at, np.where(is_ghost, IdleCause.UNRECORDED, cause).astype(np.uint8)
        ),
        share_rank=np.insert(delays.share_rank, at, delays.late_rank[bare]),
        share_subject=np.insert(delays.share_subject, at, len(delays.subjects) - 1),
        subjects=delays.subjects,
    )
