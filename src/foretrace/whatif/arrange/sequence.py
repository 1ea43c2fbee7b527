"""The nodes of a new job, rank by rank in the order in which they are issued."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int8s, Int64s, ScenarioError, UInt8s
from foretrace.graph import NO_LANE, NO_NODE, Lane, NodeKind, Part, Phase
from foretrace.whatif.arrange.lanes import LaneUses, NewLanes, lane_uses
from foretrace.whatif.arrange.roles import NO_ROLE, ExchangeRole, Made, kinds_of, made_role
from foretrace.whatif.arrange.source import (
    CALLS,
    OPERATIONS,
    OTHERS,
    PlaceIndex,
    RecordedNodes,
)
from foretrace.whatif.recorded.program import MadeWait, NewJob, NewRank, Placed, RecordedPiece
from foretrace.workload import Group

NO_PLACED = -1
_LAUNCHING = (NodeKind.LAUNCH, NodeKind.OPERATOR)
_SLOT_KINDS = {
    NodeKind.LAUNCH: CALLS,
    NodeKind.FINISH: OPERATIONS,
    NodeKind.KERNEL: OPERATIONS,
}
_ON_THREAD = (NodeKind.LAUNCH, NodeKind.OPERATOR, NodeKind.THREAD_WAIT)


@dataclass(frozen=True)
class NewSequence:
    """New nodes in issue order; the first of each rank is its start."""

    source: Int64s  # int64[nodes], recorded node; NO_NODE of what was made
    rank: Int64s  # int64[nodes], position among the job's ranks
    placed: Int64s  # int64[nodes], position in `all_placed`; NO_PLACED of rank starts
    kind: UInt8s  # uint8[nodes], NodeKind
    lane: Int64s  # int64[nodes], position in `lanes`; NO_LANE of rank starts
    role: Int64s  # int64[nodes], of arrivals and finishes, position in `roles`; NO_ROLE
    is_chained: Bools  # bool[nodes], part of a host thread's chain
    all_placed: tuple[Placed, ...]
    made: tuple[Made, ...]
    roles: tuple[ExchangeRole, ...]  # the recording's, then those that made exchanges add
    lanes: tuple[Lane, ...]
    lane_of: Int64s  # int64[new ranks, recorded lanes], new lane; NO_LANE where unused
    compute: Int64s  # int64[new ranks], lane of the compute stream; NO_LANE: none
    index: PlaceIndex

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.source)


@dataclass(frozen=True)
class _Rows:
    """What stands where, before lanes are known."""

    source: Int64s
    rank: Int64s
    placed: Int64s
    all_placed: tuple[Placed, ...]
    made: tuple[Made, ...]


def sequence_of(source: RecordedNodes, job: NewJob) -> NewSequence:
    """The nodes of a job's ranks in issue order.

    Raises:
        ScenarioError: if a rank is to have the threads of one that was not recorded.
    """
    rows = _rows(source, job)
    graph = source.graph
    uses = lane_uses(source)
    lanes = NewLanes(graph, uses)
    for rank in job.ranks:
        lanes.add_rank(rank.rank, rank.source_rank)
    lane_of = lanes.table(_recorded_ranks(rank) for rank in job.ranks)
    roles = {role: at for at, role in enumerate(source.roles.roles)}
    for made in rows.made:
        roles.setdefault(made.role, len(roles))

    is_copied = rows.source >= 0
    node = np.maximum(rows.source, 0)
    kind = graph.kind[node]
    recorded_lane = graph.lane[node].astype(np.int64)
    has_lane = is_copied & (recorded_lane >= 0)
    recorded_lane = np.where(has_lane, _threads_of_calls(rows, recorded_lane, uses), NO_LANE)
    lane = np.where(has_lane, lane_of[rows.rank, recorded_lane], NO_LANE)
    role = np.where(is_copied, source.roles.of_node[node], NO_ROLE).astype(np.int64)
    is_chained = is_copied & source.is_chained[node]
    slot_kind = source.slot_kind[node]
    compute = np.full(len(job.ranks), NO_LANE, np.int64)
    for at, rank in enumerate(job.ranks):
        if rank.source_rank in uses.compute:
            compute[at] = lane_of[at, uses.compute[rank.source_rank]]
    _fill_made(
        source,
        rows,
        lanes,
        roles,
        columns=_Columns(kind, lane, role, is_chained, slot_kind),
        threads=_threads(job, uses, lane_of),
        compute=compute,
    )
    index = PlaceIndex.of(
        slot_kind,
        kind=kind,
        lane=lane,
        role=role,
        rank=rows.rank,
        num_lanes=len(lanes.lanes),
        num_roles=len(roles),
    )
    return NewSequence(
        source=rows.source,
        rank=rows.rank,
        placed=rows.placed,
        kind=kind,
        lane=lane,
        role=role,
        is_chained=is_chained,
        all_placed=rows.all_placed,
        made=rows.made,
        roles=tuple(roles),
        lanes=tuple(lanes.lanes),
        lane_of=lane_of,
        compute=compute,
        index=index,
    )


def _threads_of_calls(rows: _Rows, recorded: Int64s, uses: LaneUses) -> Int64s:
    """Recorded lanes, calls of pieces that another thread makes on that thread's."""
    thread = np.array([placed.thread for placed in rows.all_placed] or [NO_LANE], np.int64)
    if (thread == NO_LANE).all():
        return recorded
    own = np.where(rows.placed >= 0, thread[rows.placed], NO_LANE)
    calling = np.array([lane for lanes in uses.threads.values() for lane in lanes], np.int64)
    is_moved = (own != NO_LANE) & np.isin(recorded, calling)
    return np.where(is_moved, own, recorded)


def _rows(source: RecordedNodes, job: NewJob) -> _Rows:
    """Recorded nodes and room for made ones, a rank's start first."""
    chunks = [np.zeros(0, np.int64)]
    sizes: list[int] = []  # of rank starts and everything placed, in turn
    rank_of: list[int] = []
    placed_of: list[int] = []
    all_placed: list[Placed] = []
    made: list[Made] = []
    count = 0
    starts = frozenset(source.rank_start.values())
    is_new = job.settles or not is_recorded(source, job)
    for at, rank in enumerate(job.ranks):
        if rank.source_rank not in source.rank_start:
            known = ", ".join(map(str, sorted(source.rank_start)[:5]))
            raise ScenarioError(
                f"rank {rank.rank} is to have the threads of rank {rank.source_rank}, which was "
                f"not recorded: {len(source.rank_start)} ranks were ({known}). Take one of those."
            )
        chunks.append(np.array([source.rank_start[rank.source_rank]], np.int64))
        sizes.append(1)
        rank_of.append(at)
        placed_of.append(NO_PLACED)
        count += 1
        for placed, role in settled(source, rank.placed) if is_new else _as_placed(rank.placed):
            if isinstance(placed.piece, RecordedPiece):
                nodes = placed.piece.nodes
                if len(nodes) and int(nodes[0]) in starts:
                    nodes = nodes[1:]
            else:
                size = len(kinds_of(placed.piece, has_device=source.has_device))
                nodes = np.full(size, NO_NODE, np.int64)
                made.append(Made(placed, role or made_role(placed), at, count, size))
            chunks.append(nodes)
            sizes.append(len(nodes))
            rank_of.append(at)
            placed_of.append(len(all_placed))
            all_placed.append(placed)
            count += len(nodes)
    return _Rows(
        np.concatenate(chunks),
        np.repeat(np.array(rank_of, np.int64), sizes),
        np.repeat(np.array(placed_of, np.int64), sizes),
        tuple(all_placed),
        tuple(made),
    )


def _as_placed(placed: Iterable[Placed]) -> Iterator[tuple[Placed, None]]:
    return ((each, None) for each in placed)


def _recorded_ranks(rank: NewRank) -> tuple[int, ...]:
    """Ranks whose pieces a new rank runs; the source rank first."""
    own = (each.piece.rank for each in rank.placed if isinstance(each.piece, RecordedPiece))
    return tuple(dict.fromkeys((rank.source_rank, *own)))


def _threads(job: NewJob, uses: LaneUses, lane_of: Int64s) -> list[int]:
    """The first calling thread of every new rank; NO_LANE where none was recorded."""
    found = []
    for at, rank in enumerate(job.ranks):
        own = uses.threads.get(rank.source_rank, ())
        found.append(int(lane_of[at, own[0]]) if own else NO_LANE)
    return found


@dataclass(frozen=True)
class _Columns:
    """Columns of `NewSequence` that made nodes are written to."""

    kind: UInt8s
    lane: Int64s
    role: Int64s
    is_chained: Bools
    slot_kind: Int8s


def _fill_made(
    source: RecordedNodes,
    rows: _Rows,
    lanes: NewLanes,
    roles: dict[ExchangeRole, int],
    *,
    columns: _Columns,
    threads: list[int],
    compute: Int64s,
) -> None:
    """Out: `columns` of everything made; lanes are added where there is none for its group.

    Calls are made on the thread that launched or computed last.
    """
    if not rows.made:
        return
    is_launching = np.isin(columns.kind, _LAUNCHING) & (rows.source >= 0)
    last = np.maximum.accumulate(np.where(is_launching, np.arange(len(rows.source)), -1))
    turns: dict[tuple[int, ExchangeRole], int] = {}
    for made in rows.made:
        before = int(last[made.first - 1])
        is_own = before >= 0 and rows.rank[before] == made.rank
        thread = int(columns.lane[before]) if is_own else threads[made.rank]
        kinds = kinds_of(made.what, has_device=source.has_device)
        serving_lane = int(compute[made.rank])
        if NodeKind.ARRIVE in kinds:
            serving = lanes.for_role(made.rank, made.role, is_device=source.has_device)
            # gloo's worker threads of a group take turns.
            turn = turns[made.rank, made.role] = turns.get((made.rank, made.role), -1) + 1
            serving_lane = serving[turn % len(serving)]
        for node, kind in enumerate(kinds, made.first):
            is_on_thread = kind in _ON_THREAD
            columns.kind[node] = kind
            columns.lane[node] = thread if is_on_thread else serving_lane
            is_exchange = kind in {NodeKind.ARRIVE, NodeKind.FINISH}
            columns.role[node] = roles[made.role] if is_exchange else NO_ROLE
            columns.is_chained[node] = is_on_thread
            columns.slot_kind[node] = _SLOT_KINDS.get(kind, OTHERS)


def is_recorded(source: RecordedNodes, job: NewJob) -> bool:
    """Whether a job is the recorded one: the same plan, and every piece at its place."""
    recorded = source.program.pieces_by_rank
    if job.plan != source.program.plan or len(job.ranks) != len(recorded):
        return False
    return all(
        rank.rank == rank.source_rank
        and rank.rank in recorded
        and len(rank.placed) == len(recorded[rank.rank])
        and all(
            placed.piece is piece and placed.scale == placed.scale_bytes == 1
            for placed, piece in zip(rank.placed, recorded[rank.rank], strict=True)
        )
        for rank in job.ranks
    )


def settled(
    source: RecordedNodes, placed: Sequence[Placed]
) -> Iterator[tuple[Placed, ExchangeRole | None]]:
    """What a rank runs, with a wait for each process group that reduces before each update.

    Yields what is placed, and of such waits whom they wait for.
    """
    awaited = {} if source.has_device else _awaited_by_step(source, placed)
    open_roles: dict[ExchangeRole, None] = {}
    for each in placed:
        if each.part is Part.OPTIMIZER and open_roles:
            for role in open_roles:
                if role in awaited.get(each.step, ()):
                    continue
                # The role says which group; a wait for one that is none of the plan has no other.
                wait = MadeWait(group=Group.ALL)
                part, phase = Part.BUCKET, Phase.BACKWARD
                yield Placed(piece=wait, step=each.step, part=part, phase=phase), role
            open_roles.clear()
        if each.part is Part.BUCKET and each.phase is Phase.BACKWARD:
            open_roles |= dict.fromkeys(_roles(source, each.piece))
        yield each, None


def _awaited_by_step(
    source: RecordedNodes, placed: Sequence[Placed]
) -> dict[int, set[ExchangeRole]]:
    """What each step's threads wait for behind its backward passes, as recorded.

    A thread that is seen to wait is not made to wait again: of long waits a part may have been
    taken for work, where threads outnumber cores.
    """
    found: dict[int, set[ExchangeRole]] = {}
    for each in placed:
        if isinstance(each.piece, RecordedPiece) and each.part in {Part.BUCKET, Part.OPTIMIZER}:
            role = source.awaited_role[each.piece.nodes]
            own = found.setdefault(each.step, set())
            own |= {source.roles.roles[number] for number in np.unique(role[role >= 0]).tolist()}
    return found


def _roles(source: RecordedNodes, piece: object) -> Iterator[ExchangeRole]:
    """Whom a piece of the recording communicates with."""
    if not isinstance(piece, RecordedPiece):
        return
    finish = piece.nodes[source.graph.kind[piece.nodes] == NodeKind.FINISH]
    for number in np.unique(source.roles.of_node[finish]).tolist():
        yield source.roles.roles[number]
