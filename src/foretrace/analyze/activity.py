"""What each rank's device, or host where it has none, was doing: compute and communication.

Compute is kernels, copies and fills. On a rank without a device stream it is operators on any
of its threads; Python and framework time between operators is nobody's work.
Communication lasts from a rank's arrival at a collective to its finish, waiting included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.intervals import Intervals
from foretrace.base import Bools, GraphError, Int32s, Int64s
from foretrace.graph import ExecutionGraph, NodeKind, Timeline


@dataclass(frozen=True)
class Activity:
    """One rank's compute and communication, as sets of moments."""

    compute: Intervals
    communication: Intervals
    transfer: Intervals  # communication without what is waiting for other ranks alone

    @property
    def busy(self) -> Intervals:
        """Moments of either."""
        return self.compute.union(self.communication)


@dataclass(frozen=True)
class Participations:
    """One row per collective and rank that takes part in it; by collective, then rank."""

    collective: Int32s  # int32[rows], position in the graph's `collectives`
    rank: Int32s  # int32[rows]
    arrive: Int64s  # int64[rows], node
    finish: Int64s  # int64[rows], node

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.collective)


def activity_by_rank(timeline: Timeline) -> dict[int, Activity]:
    """Every recorded rank's compute and communication."""
    graph = timeline.graph
    compute = np.flatnonzero(is_compute(graph))
    pairs = participations(graph)
    compute_by_rank = _by_rank(
        graph.rank[compute], timeline.start_ns[compute], timeline.end_ns[compute]
    )
    communication_by_rank = _by_rank(
        pairs.rank, timeline.start_ns[pairs.arrive], timeline.end_ns[pairs.finish]
    )
    transfer_by_rank = _by_rank(
        pairs.rank, timeline.start_ns[pairs.finish], timeline.end_ns[pairs.finish]
    )
    nothing = np.zeros(0, dtype=np.int64)
    none = Intervals(start_ns=nothing, end_ns=nothing)
    return {
        rank: Activity(
            compute=compute_by_rank.get(rank, none),
            communication=communication_by_rank.get(rank, none),
            transfer=transfer_by_rank.get(rank, none),
        )
        for rank in graph.ranks
    }


def is_compute(graph: ExecutionGraph) -> Bools:
    """Which nodes count as compute; bool[nodes]."""
    with_device = np.array(sorted({lane.rank for lane in graph.lanes if lane.is_device}), np.int32)
    on_device: Bools = graph.is_device
    on_host: Bools = graph.kind == NodeKind.OPERATOR
    on_host[on_host] = ~np.isin(graph.rank[on_host], with_device)
    return on_device | on_host


def newly_at_once_ns(before: Timeline, after: Timeline) -> float:
    """Time of kernels that runs beside other kernels of its device, as it did not before.

    No recording shows whether a device has room for more kernels at once than it ran at once. What
    was hidden before grows with the work; more than that is new. Mean over ranks, of the whole
    run.
    """
    work_ns, hidden_ns = _at_once_ns(before)
    more_work_ns, now_hidden_ns = _at_once_ns(after)
    grown_ns = hidden_ns * more_work_ns / work_ns if work_ns else 0.0
    return max(now_hidden_ns - grown_ns, 0.0)


def _at_once_ns(timeline: Timeline) -> tuple[float, float]:
    """Time of kernels, and that of it during which another kernel of the rank runs already."""
    graph = timeline.graph
    kernels = graph.nodes_of(NodeKind.KERNEL)
    start_ns, end_ns = timeline.start_ns[kernels], timeline.end_ns[kernels]
    alone_ns = sum(
        one.total_ns() for one in _by_rank(graph.rank[kernels], start_ns, end_ns).values()
    )
    work_ns, num_ranks = int((end_ns - start_ns).sum()), max(len(graph.ranks), 1)
    return work_ns / num_ranks, (work_ns - alone_ns) / num_ranks


def participations(graph: ExecutionGraph) -> Participations:
    """Every rank's arrival at, and finish of, every collective.

    Raises:
        GraphError: if a rank arrives at a collective and does not finish it, or the reverse.
    """
    arrive, finish = graph.members()
    is_paired = (
        len(arrive) == len(finish)
        and bool((graph.collective[arrive] == graph.collective[finish]).all())
        and bool((graph.rank[arrive] == graph.rank[finish]).all())
    )
    if not is_paired:
        raise GraphError(_unpaired_sentence(graph, arrive, finish))
    return Participations(
        collective=graph.collective[arrive], rank=graph.rank[arrive], arrive=arrive, finish=finish
    )


def _unpaired_sentence(graph: ExecutionGraph, arrive: Int64s, finish: Int64s) -> str:
    """Which collective and rank has an arrive without a finish, or the reverse."""

    def places(nodes: Int64s) -> set[tuple[int, int]]:
        return set(zip(graph.collective[nodes].tolist(), graph.rank[nodes].tolist(), strict=True))

    odd = sorted(places(arrive) ^ places(finish))
    examples = ", ".join(
        f"{graph.collectives[collective].name!r} number {graph.collectives[collective].position} "
        f"of group {graph.collectives[collective].group!r} on rank {rank}"
        for collective, rank in odd[:5]
    )
    return (
        f"collectives without both an arrive and a finish: {len(arrive)} arrive and {len(finish)} "
        f"finish nodes, {len(odd)} places have only one kind ({examples or 'none'}), expected one "
        "of each per rank. Check the graph with foretrace.graph.verify."
    )


def _by_rank(rank: Int32s, start_ns: Int64s, end_ns: Int64s) -> dict[int, Intervals]:
    """Spans united within each rank that has any."""
    order = np.lexsort((start_ns, rank))
    rank, start_ns, end_ns = rank[order], start_ns[order], end_ns[order]
    ranks, first = np.unique(rank, return_index=True)
    bounds = [*first.tolist(), len(rank)]
    return {
        one: Intervals.union_of(
            start_ns[bounds[at] : bounds[at + 1]], end_ns[bounds[at] : bounds[at + 1]]
        )
        for at, one in enumerate(ranks.tolist())
    }
