"""What a rank's communications belong to: pipeline transfers, gradient buckets, or a layer's own.

Sends and receives of two ranks pass activations between pipeline stages; their direction orders
the stages. A collective in the backward pass is a bucket of gradients where it is not part of an
operator's own backward, or where its group moves nothing in the forward pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int64s, UInt8s, numbered_rows
from foretrace.graph.blocks.facts import ScopeFacts
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.nodes import Part, Phase
from foretrace.trace import NO_ID

NO_PEER = -1
_PAIR = 2
SCALARS_BYTES = 1_024  # norms, losses and overflow flags; gradients are larger
_SEND = re.compile(r"c10d::i?send|nccl:i?send|i?send$")
_RECEIVE = re.compile(r"c10d::i?recv|nccl:i?recv|i?recv$")
_BUFFER = re.compile(r"aten::(?:new_)?(?:empty|zeros)")
_PARAMETERS = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.BROADCAST,
)


@dataclass(frozen=True)
class StageTransfers:
    """Points that pass data between two pipeline stages, or make room for it."""

    is_transfer: Bools  # bool[points]
    is_send: Bools  # bool[points]
    peer: Int64s  # int64[points], rank at the other end; NO_PEER


@dataclass(frozen=True)
class CommunicationPoints:
    """What the trace says of each communication, laid onto points."""

    row: Int64s  # int64[points], row of the communication; -1
    kind: tuple[str, ...]  # of rows
    group: Int64s  # int64[rows], equal in one group
    num_bytes: Int64s  # int64[rows], -1 unknown


def communication_points(
    points: WorkPoints, comm: CommunicationOps, arrive: Int64s
) -> CommunicationPoints:
    """The communication that each point begins.

    Args:
        points: of work.
        comm: all communications.
        arrive: node of each one's begin, int64[rows].
    """
    size = int(max(points.node.max(initial=-1), arrive.max(initial=-1))) + 1
    row_of_node = np.full(size, -1, np.int64)
    row_of_node[arrive] = np.arange(len(comm))
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    group = [
        known.setdefault(one, len(known)) for one in zip(comm.group, comm.members, strict=True)
    ]
    return CommunicationPoints(
        row_of_node[points.node], comm.kind, np.array(group, np.int64), comm.num_bytes
    )


def transfers_of(
    points: WorkPoints,
    met: CommunicationPoints,
    comm: CommunicationOps,
    names: Sequence[str],
    ranks: Sequence[int],
) -> StageTransfers:
    """Sends and receives, by the communication's own kind or the operator that issued it."""
    is_send, is_receive = np.zeros((2, len(points)), np.bool_)
    peer = np.full(len(points), NO_PEER, np.int64)
    is_pairwise = np.array([kind.is_transfer for kind in comm.kind] + [False], np.bool_)
    for point in np.flatnonzero(is_pairwise[met.row]).tolist():
        row = int(met.row[point])
        kind = comm.kind[row]
        name = names[points.token[point]]
        is_either = kind is CollectiveKind.SEND_RECV
        is_send[point] = kind is CollectiveKind.SEND or (is_either and bool(_SEND.match(name)))
        is_receive[point] = kind is CollectiveKind.RECV or (
            is_either and bool(_RECEIVE.match(name))
        )
        ends = (int(comm.source_rank[row]), int(comm.destination_rank[row]))
        own = ranks[int(points.rank[point])]
        others = [end for end in ends if end not in (own, -1)]
        if not others and len(comm.members[row]) == _PAIR:
            others = [member for member in comm.members[row] if member != own]
        if len(others) == 1:
            peer[point] = others[0]
    for point in np.flatnonzero(is_receive).tolist():
        for row in _buffers(points, point, names):
            is_receive[row], peer[row] = True, peer[point]
    return StageTransfers(is_send | is_receive, is_send, peer)


def _buffers(points: WorkPoints, receive: int, names: Sequence[str]) -> Iterator[int]:
    """The points right before a receive that make room for it: on the CPU operators are points."""
    row = receive - 1
    while (
        row >= 0
        and points.rank[row] == points.rank[receive]
        and points.step[row] == points.step[receive]
        and _BUFFER.match(names[points.token[row]])
    ):
        yield row
        row -= 1


@dataclass(frozen=True)
class StageOrder:
    """The pipeline's order."""

    stage: Int64s  # int64[ranks], from 0; 0 where there is no pipeline
    num_stages: int
    upstream: frozenset[tuple[int, int]]  # (earlier, later) positions of ranks that exchange


def pipeline_stages(points: WorkPoints, moved: StageTransfers, ranks: Sequence[int]) -> StageOrder:
    """Who comes before whom: the first thing that two stages exchange goes forward."""
    position = {rank: index for index, rank in enumerate(ranks)}
    before: set[tuple[int, int]] = set()
    rows = np.flatnonzero(moved.is_transfer & (moved.peer != NO_PEER))
    seen: set[tuple[int, int]] = set()
    for row in rows.tolist():
        own, other = int(points.rank[row]), position.get(int(moved.peer[row]), -1)
        if other < 0 or (own, other) in seen:
            continue
        seen.add((own, other))
        before.add((own, other) if moved.is_send[row] else (other, own))
    # Both ends must agree, or the order is unknown.
    before = {(one, other) for one, other in before if (other, one) not in before}
    stage = np.zeros(len(ranks), np.int64)
    for _ in range(len(ranks)):
        changed = False
        for one, other in before:
            if stage[other] < stage[one] + 1 <= len(ranks):
                stage[other], changed = stage[one] + 1, True
        if not changed:
            break
    return StageOrder(stage, int(stage.max(initial=0)) + 1, frozenset(before))


def transfer_phases(
    points: WorkPoints,
    phase: UInt8s,
    moved: StageTransfers,
    stages: StageOrder,
    ranks: Sequence[int],
) -> UInt8s:
    """Phases of transfers: what goes downstream is forward, what comes back is backward."""
    position = {rank: index for index, rank in enumerate(ranks)}
    phase = phase.copy()
    for row in np.flatnonzero(moved.is_transfer).tolist():
        own, other = int(points.rank[row]), position.get(int(moved.peer[row]), -1)
        if (own, other) in stages.upstream:
            phase[row] = Phase.FORWARD if moved.is_send[row] else Phase.BACKWARD
        elif (other, own) in stages.upstream:
            phase[row] = Phase.BACKWARD if moved.is_send[row] else Phase.FORWARD
    return phase


def bucket_points(
    points: WorkPoints,
    met: CommunicationPoints,
    moved: StageTransfers,
    *,
    phase: UInt8s,
    facts: ScopeFacts,
) -> Bools:
    """Points that communicate gradients or sharded parameters, or copy them to and from buckets."""
    is_bucket: Bools = facts.part[points.scope] == Part.BUCKET
    chosen = np.flatnonzero((met.row >= 0) & ~moved.is_transfer)
    if not len(chosen):
        return is_bucket
    row = met.row[chosen]
    kinds = np.array([met.kind[one] for one in row.tolist()])
    own_phase = phase[chosen]
    is_backward = np.isin(own_phase, (Phase.BACKWARD, Phase.RECOMPUTE))
    is_forward = own_phase == Phase.FORWARD
    group = numbered_rows((met.group[row], points.rank[chosen]))
    size = int(group.max()) + 1
    is_parameters = np.isin(kinds, _PARAMETERS)
    computes, scatters = np.zeros((2, size), np.bool_)
    computes[group[is_forward & ~is_parameters]] = True
    computes[group[is_forward & (kinds == CollectiveKind.REDUCE_SCATTER)]] = True
    scatters[group[is_backward & (kinds == CollectiveKind.REDUCE_SCATTER)]] = True
    # Groups that gather forward and never scatter backward gather activations.
    gathers = np.zeros(size, np.bool_)
    gathers[group[is_forward & (kinds == CollectiveKind.ALL_GATHER)]] = True
    computes |= gathers & ~scatters
    root = facts.root[points.scope[chosen]]
    is_numbered = facts.own_sequence[root] != NO_ID
    if not is_numbered.any():
        is_numbered = (root >= 0) & ~facts.is_accumulating[root]
    in_backward = is_backward & (~computes[group] | ~is_numbered)
    in_forward = is_forward & is_parameters & ~computes[group]
    num_bytes = met.num_bytes[row]
    is_scalar = (num_bytes >= 0) & (num_bytes <= SCALARS_BYTES)
    reduces = np.zeros(size, np.bool_)
    reduces[group[in_backward]] = True
    in_update = (own_phase == Phase.OPTIMIZER) & (reduces[group] | is_parameters) & ~is_scalar
    is_bucket = is_bucket.copy()
    is_bucket[chosen[in_backward | in_forward | in_update]] = True
    return is_bucket
