"""`Program`: a recording cut into pieces, rank by rank, in the order in which work is issued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from foretrace.base import CollectiveKind, Int8s, Int64s, Remembering
from foretrace.graph import (
    NO_LANE,
    NO_LAYER,
    NO_MICROBATCH,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
    Recording,
)
from foretrace.whatif.recorded.issue_order import IssueOrder, issue_order, next_where
from foretrace.workload import Axis, Group, Plan

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
    first = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
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


# Of a collective whose ranks are no group of the plan.
NO_GROUP = -1
GROUPS = tuple(Group)  # what `Program.group_of_collective` refers to


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
