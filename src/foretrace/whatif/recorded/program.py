"""`Program`: a recording cut into pieces, rank by rank, in the order in which work is issued.

Host nodes of all threads of a rank stand in the order of their measured start, no node before one
of its own thread or of another that it waits for. A device operation stands right behind the call
that launched it, what a worker thread does behind the call that issued it, a FINISH behind its
ARRIVE. So the order says nothing about how long anything took on the device.

Every edge within a rank leads forward in it, but for edges between streams that were inferred from
times and are wrong: nothing can wait for an event that is recorded only after it was launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int8s, Int64s, Remembering, begins_run
from foretrace.graph import (
    NO_LANE,
    NO_LAYER,
    NO_MICROBATCH,
    NO_NODE,
    NO_STEP,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
    Recording,
    Timeline,
)
from foretrace.workload import Axis, Group, Plan

_HANDED = (EdgeKind.LAUNCH, EdgeKind.ISSUE)

# Work of its own; all else on the host belongs to the work that comes next.
_WORKING = (
    NodeKind.LAUNCH,
    NodeKind.OPERATOR,
    NodeKind.KERNEL,
    NodeKind.MEMCPY,
    NodeKind.MEMSET,
    NodeKind.ARRIVE,
    NodeKind.FINISH,
)
_MARKS = (NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END)

# Of a collective whose ranks are no group of the plan.
NO_GROUP = -1
GROUPS = tuple(Group)  # what `Program.group_of_collective` refers to


@dataclass(frozen=True)
class IssueOrder:
    """Nodes of all ranks, rank by rank, in issue order; hubs and ghosts are not among them."""

    nodes: Int64s  # int64[those], node of the graph
    # int64[nodes of the graph]: the host node behind which a node stands, itself of a host node;
    # NO_NODE of hubs and ghosts.
    anchor: Int64s


def issue_order(graph: ExecutionGraph, measured: Timeline) -> IssueOrder:
    """The issue order of every rank of a recording.

    Args:
        graph: of the recording.
        measured: its measured timeline.
    """
    target = graph.edge_target
    lead = _leads(graph)
    anchor = _anchors(graph, target, lead)
    key_ns = _keys_ns(graph, measured, target, anchor)
    nodes = np.flatnonzero((graph.kind != NodeKind.HUB) & (graph.kind != NodeKind.GHOST))
    anchor[(graph.kind == NodeKind.HUB) | (graph.kind == NodeKind.GHOST)] = NO_NODE
    own = anchor[nodes]
    place = np.lexsort((nodes, lead[nodes], own != nodes, own, key_ns[own], graph.rank[nodes]))
    return IssueOrder(nodes[place], anchor)


def _leads(graph: ExecutionGraph) -> Int64s:
    """The node itself; of a FINISH its ARRIVE, on the same lane of the same collective."""
    lead = np.arange(graph.num_nodes, dtype=np.int64)
    arrives, finishes = graph.members()
    if len(arrives) == len(finishes):
        lead[finishes] = arrives
    return lead


def _anchors(graph: ExecutionGraph, target: Int64s, lead: Int64s) -> Int64s:
    """The host call that hands each node to a stream or a worker; the node itself of all others.

    Work whose launch is not in the recording stands with the next launched work of its stream.
    """
    anchor = np.arange(graph.num_nodes, dtype=np.int64)
    is_handed = np.isin(graph.edge_kind, _HANDED)
    anchor[target[is_handed]] = graph.predecessor[is_handed]
    # A worker's segment is issued, and its arrival follows it.
    chained = (graph.edge_kind == EdgeKind.HOST_ORDER) & (graph.kind[target] == NodeKind.ARRIVE)
    segment, arrive = graph.predecessor[chained], target[chained]
    is_open = anchor[arrive] == arrive
    anchor[arrive[is_open]] = anchor[segment[is_open]]
    anchor = np.asarray(anchor[lead])
    _adopt_orphans(graph, anchor)
    return anchor


def _adopt_orphans(graph: ExecutionGraph, anchor: Int64s) -> None:
    """Out: `anchor` of a stream's nodes without a launch, from the next on the stream that has one.

    None follows: they stay on their own, as if the host had done them. What was launched before the
    first step, and runs ahead of its work, stands behind the rank's first node, outside all steps.
    """
    by_lane = graph.in_lanes(np.flatnonzero(graph.is_on_stream))
    is_orphan = anchor[by_lane] == by_lane
    if not is_orphan.any():
        return
    following = next_where(~is_orphan)
    has_next = following < len(by_lane)
    has_next[has_next] = (
        graph.lane[by_lane[following[has_next]]] == graph.lane[by_lane[np.flatnonzero(has_next)]]
    )
    adopted = np.flatnonzero(is_orphan & has_next)
    nodes, parents = by_lane[adopted], anchor[by_lane[following[adopted]]]
    ranks, first = np.unique(graph.rank, return_index=True)
    first_of_rank = first[np.searchsorted(ranks, graph.rank[nodes])]
    is_carried = (graph.step[nodes] == NO_STEP) & (graph.step[parents] != NO_STEP)
    is_carried &= graph.step[first_of_rank] == NO_STEP
    anchor[nodes] = np.where(is_carried, first_of_rank, parents)


def next_where(is_wanted: Bools) -> Int64s:
    """For each place the first at or behind it that is wanted; the length where there is none."""
    size = len(is_wanted)
    places = np.where(is_wanted, np.arange(size), size)
    return np.minimum.accumulate(places[::-1])[::-1]


def _keys_ns(graph: ExecutionGraph, measured: Timeline, target: Int64s, anchor: Int64s) -> Int64s:
    """Measured starts, put off until what the host waits for has begun; int64[nodes]."""
    key_ns = measured.start_ns.copy()
    across = graph.edge_kind == EdgeKind.THREAD
    source, waiting = anchor[graph.predecessor[across]], target[across]
    by_lane = graph.in_lanes(np.arange(graph.num_nodes))
    first = np.flatnonzero(np.diff(graph.lane[by_lane], prepend=-2))
    while True:
        _raise_along_lanes(key_ns, by_lane, first)
        late = key_ns[source] > key_ns[waiting]
        if not late.any():
            return key_ns
        np.maximum.at(key_ns, waiting[late], key_ns[source[late]])


def _raise_along_lanes(key_ns: Int64s, by_lane: Int64s, first: Int64s) -> None:
    """Out: `key_ns`, none below that of a node before it on its lane."""
    lengths = np.diff(np.append(first, len(by_lane)))
    # By places among all keys, so that no moment is too far; lanes apart, so that one pass does.
    moments, place = np.unique(key_ns[by_lane], return_inverse=True)
    shift = np.repeat(np.arange(len(first)), lengths) * len(moments)
    key_ns[by_lane] = moments[np.maximum.accumulate(place + shift) - shift]


def pieces_of(recording: Recording) -> dict[int, tuple[RecordedPiece, ...]]:
    """The pieces of every recorded rank, in issue order; each node but hubs and ghosts in one."""
    graph = recording.graph
    order = issue_order(graph, recording.measured)
    owner = _owners(graph, order)
    key = np.stack(
        [
            graph.rank[order.nodes],
            graph.step[owner],
            graph.part[owner],
            graph.phase[owner],
            graph.layer[owner],
            graph.microbatch[owner],
            graph.is_of(*_MARKS)[order.nodes],
        ]
    ).astype(np.int64)
    first = np.flatnonzero(begins_run(*key))
    runs = np.split(order.nodes, first[1:]) if len(order.nodes) else []
    pieces: dict[int, list[RecordedPiece]] = {rank: [] for rank in graph.ranks}
    for nodes, (rank, step, part, phase, layer, microbatch, is_mark) in zip(
        runs, key[:, first].T.tolist(), strict=True
    ):
        piece = RecordedPiece(
            rank=rank,
            step=step,
            part=Part.UNKNOWN if is_mark else Part(part),
            phase=Phase.UNKNOWN if is_mark else Phase(phase),
            layer=layer,
            microbatch=microbatch,
            nodes=nodes,
        )
        pieces[rank].append(piece)
    return {rank: tuple(own) for rank, own in pieces.items()}


def _owners(graph: ExecutionGraph, order: IssueOrder) -> Int64s:
    """Node whose block each node in issue order belongs to; int64[nodes in order].

    What launches nothing belongs to what is launched next, unless its step ends before that: also
    on a thread that slept from one step into the next.
    """
    nodes = order.nodes
    owner = order.anchor[nodes]
    kind = graph.kind[owner]
    is_idle = ~np.isin(kind, (*_WORKING, *_MARKS))
    following = next_where(~is_idle)
    is_idle &= following < len(nodes)
    after = owner[following[is_idle]]
    is_same = (graph.rank[after] == graph.rank[owner[is_idle]]) & ~graph.is_of(*_MARKS)[after]
    owner[is_idle] = np.where(is_same, after, owner[is_idle])
    return owner


@dataclass(frozen=True)
class RecordedPiece:
    """A run of one rank's nodes, all of one block, in the order in which they were issued.

    Issue order is that of the host's calls over all threads of the rank. A device operation
    follows the call that launched it, a FINISH its ARRIVE, and what a worker thread does the call
    that issued it. Hubs and ghosts are in no piece.

    A call that launches nothing belongs to the block of the next launching call in that order, of
    whichever thread; so the two host threads of one backward pass do not tear it to bits.
    """

    rank: int
    step: int  # position in `step_names`; NO_STEP
    part: Part
    phase: Phase
    layer: int  # over all stages; NO_LAYER
    microbatch: int  # in its step; NO_MICROBATCH
    nodes: Int64s  # int64[nodes], of the recording's graph


@dataclass(frozen=True)
class Coordinates:
    """Where a rank stands in the grid of ranks."""

    tensor: int = 0
    context: int = 0
    data: int = 0
    pipeline: int = 0

    def along(self, axis: Axis) -> int:
        """Its place along one axis."""
        by_axis = {
            Axis.TENSOR: self.tensor,
            Axis.CONTEXT: self.context,
            Axis.DATA: self.data,
            Axis.PIPELINE: self.pipeline,
        }
        return by_axis[axis]


@dataclass(frozen=True)
class Program(Remembering):
    """What was recorded, as what can be arranged anew."""

    recording: Recording
    graph: ExecutionGraph  # of the recording
    plan: Plan  # under which it ran: stated, or read off its groups and blocks
    layers_of_stage: tuple[tuple[int, ...], ...]  # layers that each stage runs
    pieces_by_rank: Mapping[
        int, tuple[RecordedPiece, ...]
    ]  # of the whole recording, in issue order
    coordinates_by_rank: Mapping[int, Coordinates]  # of recorded ranks
    group_of_collective: Int8s  # int8[collectives], position in GROUPS; NO_GROUP
    notes: tuple[str, ...] = field(default=())  # what the plan was read from, what is unsure
    # Why its structure cannot be changed: what was not understood, and what to state about it.
    doubts: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A piece, or work made for it, at a place of a new program."""

    piece: RecordedPiece | MadeExchange | MadeOperator | MadeWait
    step: int
    part: Part
    phase: Phase
    layer: int = NO_LAYER  # in the new job
    microbatch: int = NO_MICROBATCH  # in the new job
    # Device work of the piece takes so many times as long: an optimizer with more parameters.
    scale: float = 1.0
    # Bytes of the piece's collectives, times as many: a bucket of more parameters.
    scale_bytes: float = 1.0
    # Recorded host thread (lane) that makes the piece's calls, where that is another than in the
    # recording: forward work computed again in the backward pass.
    thread: int = NO_LANE


@dataclass(frozen=True, kw_only=True)
class MadeExchange:
    """A communication that the recording has not.

    It is launched by a call of `host_ns`, waits for what the compute stream held before, and what
    follows on the compute stream waits for it if `is_awaited`. On a CPU the calling thread waits.
    """

    collective: CollectiveKind
    group: Group
    num_bytes: int  # as nccl-tests counts them
    dtype: str
    host_ns: int
    waits_for_compute: bool = True
    is_awaited: bool = True


@dataclass(frozen=True, kw_only=True)
class MadeOperator:
    """An operator that the recording has not; `cost` says how long it takes.

    On a device a call of `host_ns` launches it on the compute stream; a CPU's thread runs it.
    """

    operator: str  # the framework's name
    signature: str  # as a trace keeps shapes
    host_ns: int


@dataclass(frozen=True, kw_only=True)
class MadeWait:
    """The compute stream (on a CPU the calling thread) waits for a group's exchanges so far.

    Those that are known to be issued later than what is waited for are left out.
    """

    group: Group
    back: int = 0  # how many of the group's last exchanges it does not wait for


@dataclass(frozen=True)
class NewRank:
    """One rank of a new job: what it runs, in issue order."""

    rank: int  # in the new job, by the new plan's order of axes
    coordinates: Coordinates
    source_rank: int  # recorded rank whose threads and streams it has
    placed: tuple[Placed, ...]


@dataclass(frozen=True)
class NewJob:
    """A job that was never recorded, from pieces of one that was.

    `ranks` may be fewer than the plan's: data- and tensor-parallel copies beyond the recorded
    ones do the same as these. Collectives name all their members, and wait for those listed.
    """

    plan: Plan
    layers_of_stage: tuple[tuple[int, ...], ...]
    ranks: tuple[NewRank, ...]
    notes: tuple[str, ...] = field(default=())
    # Recorded collectives that the new job has not, though its pieces have their nodes: they go,
    # and who waited for them waits for what they had waited for.
    gone: frozenset[int] = field(default=frozenset())
    # Updates of parameters wait for all gradients even where every piece is at its recorded place.
    settles: bool = False
