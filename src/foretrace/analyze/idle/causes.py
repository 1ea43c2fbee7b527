"""What a piece of a walk says about its time: the cause, the rank and the name responsible."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from foretrace.analyze.activity import is_compute
from foretrace.analyze.host_stalls import item_before_ns, loads_data
from foretrace.analyze.idle._compiled import LAG, NOTHING_BEFORE, OWN, UNEXPLAINED
from foretrace.analyze.idle.subjects import Subjects
from foretrace.analyze.idle.walks import WalkPieces
from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.graph import HOST_KINDS, EdgeKind, ExecutionGraph, NodeKind, Timeline

# A host node this long is work of its own, not the overhead of launching: in six public traces
# with a device 95% of the times between two calls last at most 0.27 ms, and under 2% reach this.
LONG_NS = 1_000_000


class IdleCause(IntEnum):
    """Why time was lost; the order is that of ties."""

    DATA = 0  # the host fetched or waited for the next batch
    HOST = 1  # the host worked and could not launch sooner
    SYNCHRONISATION = 2  # the host had waited for the device and so lost its lead
    LAUNCH_LATENCY = 3  # between a launch call's return and the begin of its operation
    QUEUE = 4  # between a free place in the launch queue and the launch that waited for it
    STREAM = 5  # between an operation's end and the begin of the next, on its or another stream
    COMPUTE = 6  # a rank that was waited for computed
    COPY = 7  # it copied or filled memory
    COMMUNICATION = 8  # it took part in another collective, or the transfer was set up
    EDGE = 9  # before a rank's recording begins, or after its last operation
    UNRECORDED = 10  # by a rank, or a launch, that was not recorded
    UNEXPLAINED = 11  # in a measured timeline: nothing recorded explains it
    STALL = 12  # the host stood still in a call that usually takes far less (`stalls`)

    @property
    def words(self) -> str:
        """The cause as a reader sees it."""
        return _WORDS[self]


_WORDS = {
    IdleCause.DATA: "data loading",
    IdleCause.HOST: "host work",
    IdleCause.SYNCHRONISATION: "synchronisation",
    IdleCause.LAUNCH_LATENCY: "launch latency",
    IdleCause.QUEUE: "launch queue",
    IdleCause.STREAM: "stream hand-over",
    IdleCause.COMPUTE: "compute",
    IdleCause.COPY: "copies",
    IdleCause.COMMUNICATION: "communication",
    IdleCause.EDGE: "begin or end of the recording",
    IdleCause.UNRECORDED: "not recorded",
    IdleCause.UNEXPLAINED: "unexplained",
    IdleCause.STALL: "host stalls",
}
_OF_KIND = {
    **dict.fromkeys(HOST_KINDS, IdleCause.HOST),
    NodeKind.STEP_BEGIN: IdleCause.HOST,
    NodeKind.STEP_END: IdleCause.HOST,
    NodeKind.OPERATOR: IdleCause.COMPUTE,
    NodeKind.SYNC: IdleCause.SYNCHRONISATION,
    NodeKind.KERNEL: IdleCause.COMPUTE,
    NodeKind.MEMCPY: IdleCause.COPY,
    NodeKind.MEMSET: IdleCause.COPY,
    NodeKind.ARRIVE: IdleCause.COMMUNICATION,
    NodeKind.HUB: IdleCause.COMMUNICATION,
    NodeKind.FINISH: IdleCause.COMMUNICATION,
    NodeKind.GHOST: IdleCause.UNRECORDED,
    NodeKind.RANK_START: IdleCause.EDGE,
}
_OF_EDGE = {
    EdgeKind.HOST_ORDER: IdleCause.HOST,
    EdgeKind.THREAD: IdleCause.HOST,
    EdgeKind.LAUNCH: IdleCause.LAUNCH_LATENCY,
    EdgeKind.ISSUE: IdleCause.LAUNCH_LATENCY,
    EdgeKind.QUEUE: IdleCause.QUEUE,
    EdgeKind.WAKE: IdleCause.SYNCHRONISATION,
    EdgeKind.STREAM: IdleCause.STREAM,
    EdgeKind.INTER_STREAM: IdleCause.STREAM,
    EdgeKind.INTER_STREAM_INFERRED: IdleCause.STREAM,
    EdgeKind.PROGRAMMATIC: IdleCause.STREAM,
    EdgeKind.GRAPH: IdleCause.STREAM,
    EdgeKind.ARRIVAL: IdleCause.COMMUNICATION,
    EdgeKind.TRANSFER: IdleCause.COMMUNICATION,
    EdgeKind.GHOST: IdleCause.UNRECORDED,
    EdgeKind.STATED: IdleCause.HOST,  # of no latency: the cause is what it waits for
}


@dataclass(frozen=True)
class Excuses:
    """Synchronisations at which the host really waited, by rank, then return.

    Host time shortly after such a return would have passed while the device was still busy, had
    the host not waited: as much of it as the wait was long. So it is charged to the
    synchronisation, unless it is data loading, a stall or a host node of `LONG_NS` or more.
    """

    first: Int64s  # int64[ranks + 1], rows of each rank of the graph's `ranks`
    node: Int64s  # int64[rows]
    return_ns: Int64s  # int64[rows], rising in each rank
    until_ns: Int64s  # int64[rows], return plus wait

    @classmethod
    def of(cls, timeline: Timeline) -> Excuses:
        """All synchronisations of a timeline that waited."""
        graph = timeline.graph
        node = graph.nodes_of(NodeKind.SYNC)
        return_ns = timeline.start_ns[node]
        called_ns = item_before_ns(timeline, node)
        order = np.lexsort((node, return_ns, graph.rank[node]))
        order = order[called_ns[order] < return_ns[order]]
        node, return_ns, called_ns = node[order], return_ns[order], called_ns[order]
        ranks = np.array(graph.ranks, np.int64)
        first = np.searchsorted(graph.rank[node], np.append(ranks, np.iinfo(np.int32).max))
        return cls(first, node, return_ns, 2 * return_ns - called_ns)

    def covering(self, graph: ExecutionGraph, rank: Int32s, at_ns: Int64s) -> Int64s:
        """The synchronisation that excuses each moment of a rank's host; -1 none."""
        found = np.full(len(rank), -1, np.int64)
        for position, one in enumerate(graph.ranks):
            low, high = self.first[position], self.first[position + 1]
            mine = np.flatnonzero(rank == one)
            if low == high or not len(mine):
                continue
            row = low - 1 + np.searchsorted(self.return_ns[low:high], at_ns[mine], side="right")
            is_in = (row >= low) & (at_ns[mine] < self.until_ns[np.maximum(row, 0)])
            found[mine[is_in]] = self.node[row[is_in]]
        return found


@dataclass(frozen=True)
class ExplainedPieces:
    """IdleCause, rank and name of every piece."""

    cause: UInt8s  # uint8[pieces], IdleCause
    rank: Int32s  # int32[pieces], whose doing it is; -1: of a rank that was not recorded
    subject: Int32s  # int32[pieces], position in the names of `Subjects`


def described_pieces(
    timeline: Timeline, pieces: WalkPieces, excuses: Excuses, subjects: Subjects
) -> ExplainedPieces:
    """What each piece of a walk says about its time."""
    graph = timeline.graph
    node, cause = pieces.node.copy(), _causes(graph, pieces)
    rank = graph.rank[node]
    before = graph.predecessor[np.maximum(pieces.edge, 0)] if graph.num_edges else node
    rank = np.where((rank < 0) & (pieces.edge >= 0), graph.rank[before], rank)
    cause[(cause == IdleCause.HOST) & loads_data(graph)[node]] = IdleCause.DATA
    subject = subjects.subject[node]
    stall = subjects.stall[node]
    stalled = (stall >= 0) & ((cause == IdleCause.HOST) | (cause == IdleCause.COMPUTE))
    cause[stalled], subject[stalled] = IdleCause.STALL, stall[stalled]
    is_short = timeline.duration_ns[node] < LONG_NS
    asking = np.flatnonzero((cause == IdleCause.HOST) & is_short)
    excuse = excuses.covering(graph, rank[asking], pieces.begin_ns[asking])
    asking, excuse = asking[excuse >= 0], excuse[excuse >= 0]
    cause[asking], subject[asking] = IdleCause.SYNCHRONISATION, subjects.subject[excuse]
    return ExplainedPieces(cause, rank.astype(np.int32), subject)


def _causes(graph: ExecutionGraph, pieces: WalkPieces) -> UInt8s:
    of_kind = np.zeros(max(NodeKind) + 1, np.uint8)
    of_kind[list(_OF_KIND)] = list(_OF_KIND.values())
    of_edge = np.zeros(max(EdgeKind) + 1, np.uint8)
    of_edge[list(_OF_EDGE)] = list(_OF_EDGE.values())
    cause = np.full(len(pieces), IdleCause.UNEXPLAINED, np.uint8)
    own, lag = pieces.what == OWN, pieces.what == LAG
    cause[own] = of_kind[graph.kind[pieces.node[own]]]
    on_host = own & (graph.kind[pieces.node] == NodeKind.OPERATOR)
    cause[on_host & ~is_compute(graph)[pieces.node]] = IdleCause.HOST  # a device computes
    cause[lag] = of_edge[graph.edge_kind[pieces.edge[lag]]]
    cause[pieces.what == NOTHING_BEFORE] = IdleCause.EDGE
    is_wait = (pieces.what == UNEXPLAINED) & (graph.kind[pieces.node] == NodeKind.SYNC)
    cause[is_wait] = IdleCause.SYNCHRONISATION  # it returned later than usual
    return cause
