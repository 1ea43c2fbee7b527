"""What each communication is for, whichever rank does it; and the nodes of one that none recorded.

A collective's role says with whom a rank meets: the ranks of one of the plan's groups, or the
stage before or behind it. So a piece that another rank recorded finds its partners at its new
place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int32s, Int64s
from foretrace.graph import Collective, ExecutionGraph, NodeKind, Phase
from foretrace.whatif.recorded.program import (
    GROUPS,
    NO_GROUP,
    MadeExchange,
    MadeOperator,
    MadeWait,
    Placed,
    Program,
)
from foretrace.workload import Axis, Group, coordinates

NO_ROLE = -1
PAIR = 2
_PIPELINE = GROUPS.index(Group.PIPELINE)

_EXCHANGE = (NodeKind.LAUNCH, NodeKind.ARRIVE, NodeKind.FINISH)


@dataclass(frozen=True)
class ExchangeRole:
    """What a rank communicates for."""

    group: int  # position in GROUPS; NO_GROUP
    number: int = 0  # of several process groups of that kind that a rank is in
    direction: int = 0  # of two ranks that name each other in both directions
    # Of transfers between pipeline stages; `group` is PIPELINE.
    is_transfer: bool = False
    is_send: bool = False
    is_backward: bool = False
    # Of NO_GROUP: as recorded.
    ranks: tuple[int, ...] = ()
    name: str = ""

    @property
    def stage_offset(self) -> int:
        """Of a transfer: 1 if the peer is the next stage, -1 if it is the one before."""
        return 1 if self.is_send != self.is_backward else -1


@dataclass(frozen=True)
class Roles:
    """The roles that a recording shows."""

    roles: tuple[ExchangeRole, ...]
    of_node: Int32s  # int32[nodes], of arrivals and finishes, position in `roles`; NO_ROLE
    recorded: Mapping[
        tuple[int, ExchangeRole], tuple[int, ...]
    ]  # ranks that met each rank for a role
    # Of process groups by (group, number, ranks).
    group_names: Mapping[tuple[int, int, tuple[int, ...]], str]


def roles_of(program: Program) -> Roles:
    """The role of every arrival and finish of a recording."""
    graph = program.graph
    communicator, direction = communicators(graph.collectives)
    member = graph.nodes_of(NodeKind.ARRIVE, NodeKind.FINISH)
    collective = graph.collective[member].astype(np.int64)
    is_backward = _backward(graph, member)
    key = np.stack(
        [
            graph.rank[member].astype(np.int64),
            communicator[collective],
            is_backward[collective].astype(np.int64),
        ]
    )
    kinds, first, of_kind = np.unique(key, axis=1, return_index=True, return_inverse=True)
    finder = _Finder(program, direction)
    number: dict[ExchangeRole, int] = {}
    of_node = np.full(graph.num_nodes, NO_ROLE, np.int32)
    role_of_kind = np.empty(kinds.shape[1], np.int32)
    recorded: dict[tuple[int, ExchangeRole], tuple[int, ...]] = {}
    names: dict[tuple[int, int, tuple[int, ...]], str] = {}
    # By first node, so that process groups are numbered in the order in which they are used.
    for at in np.argsort(first, kind="stable").tolist():
        rank, _, backward = kinds[:, at].tolist()
        role = finder.role(rank, int(collective[first[at]]), is_backward=bool(backward))
        role_of_kind[at] = number.setdefault(role, len(number))
        each = graph.collectives[collective[first[at]]]
        recorded.setdefault((rank, role), each.ranks)
        names.setdefault((role.group, role.number, each.ranks), each.group)
    of_node[member] = role_of_kind[of_kind.reshape(-1)]
    return Roles(tuple(number), of_node, recorded, names)


def communicators(collectives: Sequence[Collective]) -> tuple[Int64s, Int64s]:
    """A number for the process group of each collective, and the direction in it.

    Two directions between a pair of ranks are two groups: each counts its transfers from 0 again.

    Returns:
        int64[collectives] each; directions are 0, or 1 for the second.
    """
    numbers: dict[tuple[object, ...], int] = {}
    found, direction = np.empty((2, len(collectives)), np.int64)
    turn, before, position = 0, None, -1
    for at, each in enumerate(collectives):
        is_pair = each.is_pair
        ranks = (each.group, each.ranks, is_pair)
        if ranks != before:
            turn = 0
        elif is_pair and each.position <= position:
            turn += 1
        before, position = ranks, each.position
        found[at] = numbers.setdefault((*ranks, turn), len(numbers))
        direction[at] = turn
    return found, direction


def _backward(graph: ExecutionGraph, member: Int64s) -> Bools:
    """Collectives of the backward pass, as one of their members says; bool[collectives]."""
    found = np.zeros(len(graph.collectives), np.bool_)
    found[graph.collective[member[graph.phase[member] == Phase.BACKWARD]]] = True
    return found


class _Finder:
    """Finds roles of one recording's collectives."""

    def __init__(self, program: Program, direction: Int64s) -> None:
        self._program = program
        self._direction = direction
        self._numbers: dict[tuple[int, int, bool, bool], dict[tuple[object, ...], int]] = {}
        self._stages: dict[int, int] = {}

    def role(self, rank: int, collective: int, *, is_backward: bool) -> ExchangeRole:
        """What a rank does a collective for."""
        each = self._program.graph.collectives[collective]
        group = int(self._program.group_of_collective[collective])
        direction = int(self._direction[collective])
        communicator = (each.group, each.ranks, direction)
        is_pair = each.is_pair
        if group == _PIPELINE and is_pair:
            is_next = self._is_next(rank, collective, is_backward=is_backward)
            if is_next is not None:
                is_send = is_next != is_backward
                known = self._numbers.setdefault((rank, group, is_send, is_backward), {})
                return ExchangeRole(
                    group,
                    known.setdefault(communicator, len(known)),
                    is_transfer=True,
                    is_send=is_send,
                    is_backward=is_backward,
                )
            group = NO_GROUP
        if group == NO_GROUP:
            return ExchangeRole(NO_GROUP, direction=direction, ranks=each.ranks, name=each.group)
        known = self._numbers.setdefault((rank, group, False, False), {})
        number = known.setdefault((each.group, each.ranks), len(known))
        return ExchangeRole(group, number, direction)

    def _is_next(self, rank: int, collective: int, *, is_backward: bool) -> bool | None:
        """Whether the other rank of a transfer is the next stage; `None` if it is neither."""
        each = self._program.graph.collectives[collective]
        peer = each.ranks[0] if each.ranks[1] == rank else each.ranks[1]
        count = self._program.plan.pipeline
        if rank not in each.ranks or count < PAIR:
            return None
        apart = self._stage(peer) - self._stage(rank)
        if count == PAIR and self._program.plan.num_chunks > 1:
            # `graph` lists one direction after the other, as sender and receiver are written.
            pairs = sorted((each.ranks, each.ranks[::-1]), key=str)
            sender = pairs[int(self._direction[collective])][0]
            return (sender == rank) != is_backward
        # From the last stage to the first: the next chunk.
        return {1 - count: True, count - 1: False, 1: True, -1: False}.get(apart)

    def _stage(self, rank: int) -> int:
        if rank not in self._stages:
            own = self._program.coordinates_by_rank.get(rank)
            plan = self._program.plan
            is_planned = own is None and rank < plan.num_ranks
            stage = coordinates(plan, rank)[Axis.PIPELINE] if is_planned else 0
            self._stages[rank] = stage if own is None else own.pipeline
        return self._stages[rank]


@dataclass(frozen=True)
class Made:
    """A made exchange, operator or wait at its place."""

    placed: Placed
    role: ExchangeRole
    rank: int  # position among the job's ranks
    first: int  # its first node; of a wait without nodes: the node that follows
    num_nodes: int

    @property
    def what(self) -> MadeExchange | MadeOperator | MadeWait:
        """What was made."""
        return _made(self.placed)


def kinds_of(
    what: MadeExchange | MadeOperator | MadeWait, *, has_device: bool
) -> tuple[NodeKind, ...]:
    """The nodes that something made takes, in issue order.

    On a device the launch returns at once and streams wait; without one the calling thread does.
    """
    if isinstance(what, MadeWait):
        return () if has_device else (NodeKind.THREAD_WAIT,)
    if isinstance(what, MadeOperator):
        return (NodeKind.LAUNCH, NodeKind.KERNEL) if has_device else (NodeKind.OPERATOR,)
    is_thread_held = what.is_awaited and not has_device
    return (*_EXCHANGE, NodeKind.THREAD_WAIT) if is_thread_held else _EXCHANGE


def made_role(placed: Placed) -> ExchangeRole:
    """Whom something made is for; of a transfer the phase tells the direction."""
    what = _made(placed)
    if isinstance(what, MadeOperator):
        return ExchangeRole(NO_GROUP)
    group = GROUPS.index(what.group)
    kind = what.collective if isinstance(what, MadeExchange) else CollectiveKind.UNKNOWN
    if what.group is Group.PIPELINE and kind.is_transfer:
        return ExchangeRole(
            group,
            is_transfer=True,
            is_send=kind is CollectiveKind.SEND,
            is_backward=placed.phase == Phase.BACKWARD,
        )
    return ExchangeRole(group)


def _made(placed: Placed) -> MadeExchange | MadeOperator | MadeWait:
    what = placed.piece
    if not isinstance(what, MadeExchange | MadeOperator | MadeWait):
        raise TypeError(f"expected something made, got {type(what).__name__}")
    return what
