"""What each record is as communication: its type, size, group, and partners.

`comm_size` is what Chakra's converter writes: the bytes of a rank's input tensors. An all-gather's
is its share; the whole stays in `num_bytes`, as nccl-tests counts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s, UInt8s
from foretrace.exchange.chakra.pool import TextPool
from foretrace.graph import (
    NO_COLLECTIVE,
    Collective,
    ExecutionGraph,
    NodeKind,
)
from foretrace.trace import NO_TEXT, CommType, NodeType, collective_kind_of

COMM_TYPES = {
    "allreduce": CommType.ALL_REDUCE,
    "reduce": CommType.REDUCE,
    "allgather": CommType.ALL_GATHER,
    "gather": CommType.GATHER,
    "scatter": CommType.SCATTER,
    "broadcast": CommType.BROADCAST,
    "alltoall": CommType.ALL_TO_ALL,
    "reducescatter": CommType.REDUCE_SCATTER,
    "barrier": CommType.BARRIER,
    # An exchange of many in one kernel: the nearest that the schema has.
    "sendrecv": CommType.ALL_TO_ALL,
}
_TRANSFERS = ("send", "recv", "sendrecv")
_PAIR = 2
_FIELDS = 12  # of `_described`
_MOST_TAG = (1 << 31) - 1


@dataclass(frozen=True)
class CommunicationColumns:
    """Columns over all nodes of a graph; those of FINISH nodes count."""

    kind: UInt8s  # uint8[nodes], NodeType, of all records
    collective: Int64s  # int64[nodes]; -1
    comm_type: Int64s  # int64[nodes]
    comm_size: Int64s  # int64[nodes], bytes
    sender: Int64s  # int64[nodes], rank
    receiver: Int64s  # int64[nodes], rank
    tag: Int64s  # int64[nodes]
    pg_name: Int64s  # int64[nodes], text
    name: Int64s  # int64[nodes], text
    position: Int64s  # int64[nodes]
    num_bytes: Int64s  # int64[nodes]
    dtype: Int64s  # int64[nodes], text
    is_estimated: Int64s  # int64[nodes]


@dataclass(frozen=True)
class Communicator:
    """A group of ranks that communicate, as files number them."""

    number: int  # from 1: ASTRA-sim takes names that are numbers above 0
    name: str  # as the graph calls it
    ranks: tuple[int, ...]


def communicators(graph: ExecutionGraph) -> tuple[Communicator, ...]:
    """The distinct groups of a graph's collectives, in order of appearance."""
    keys = dict.fromkeys((one.group, one.ranks) for one in graph.collectives)
    return tuple(Communicator(number, name, ranks) for number, (name, ranks) in enumerate(keys, 1))


def communication_columns(
    graph: ExecutionGraph, groups: tuple[Communicator, ...], pool: TextPool
) -> CommunicationColumns:
    """Of every record its node type; of every finish what its collective is."""
    number_of = {(group.name, group.ranks): group.number for group in groups}
    member = np.where(graph.kind == NodeKind.FINISH, graph.collective, NO_COLLECTIVE)
    described = [
        _described(one, number_of[one.group, one.ranks], pool) for one in graph.collectives
    ]
    table = np.array(described, np.int64).reshape(-1, _FIELDS)
    # A row for nodes that are no members, which stand at -1.
    table = np.concatenate([table, np.full((1, _FIELDS), NO_TEXT, np.int64)])
    columns = table[member].T
    kind = np.full(graph.num_nodes, NodeType.COMP, np.uint8)
    finishes = graph.nodes_of(NodeKind.FINISH)
    is_pair = columns[0, finishes] == 1
    is_sender = graph.rank[finishes] == columns[3, finishes]
    kind[finishes] = np.where(
        is_pair, np.where(is_sender, NodeType.COMM_SEND, NodeType.COMM_RECV), NodeType.COMM_COLL
    )
    return CommunicationColumns(kind, member.astype(np.int64), *columns[1:])


def _described(one: Collective, number: int, pool: TextPool) -> tuple[int, ...]:
    """The columns of one collective, whether it is a transfer of a pair first."""
    kind = collective_kind_of(one.name)
    size = max(one.num_bytes, 0)
    if kind == "allgather":
        size //= max(len(one.ranks), 1)
    is_pair = kind in _TRANSFERS and len(one.ranks) == _PAIR
    sender, receiver = one.ranks if is_pair else (NO_TEXT, NO_TEXT)
    return (
        int(is_pair),
        int(COMM_TYPES.get(kind, CommType.ALL_REDUCE)),
        size,
        sender,
        receiver,
        one.position & _MOST_TAG,
        pool.of(str(number)),
        pool.of(one.name),
        one.position,
        one.num_bytes,
        pool.of(one.dtype),
        int(one.is_transfer_estimated),
    )
