"""Which node of a graph becomes which record of which rank's file, and what it waits for.

A member's arrival and finish become one record; the meeting itself (the hub) is the collective,
which readers match by its group. What a rank that was not recorded does goes into the file of a
recorded member, which waits for it.

`comm_size` is what Chakra's converter writes: the bytes of a rank's input tensors. An all-gather's
is its share; the whole stays in `num_bytes`, as nccl-tests counts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, CollectiveKind, GraphError, Int64s, UInt8s
from foretrace.exchange.chakra.messages import TextPool
from foretrace.graph import (
    NO_COLLECTIVE,
    Collective,
    ExecutionGraph,
    NodeKind,
)
from foretrace.trace import COMM_TYPES, NO_TEXT, CommType, NodeType

NO_RECORD = -1
TO_MEETING = 64  # added to an edge's kind where it leads to a collective's meeting
_FIELDS = 12  # of `_described`
_MOST_TAG = (1 << 31) - 1


@dataclass(frozen=True)
class Records:
    """The records of all ranks; a record is named by the node that ends it."""

    graph: ExecutionGraph
    rank: Int64s  # int64[nodes], rank whose file holds the node's record; -1 none
    record: Int64s  # int64[nodes], node that stands for it; NO_RECORD of hubs
    arrive: Int64s  # int64[nodes], of a FINISH its ARRIVE; -1 of others
    edge_source: Int64s  # int64[edges], record, by target, then as in the graph
    edge_target: Int64s  # int64[edges]
    edge_kind: UInt8s  # uint8[edges], EdgeKind, TO_MEETING added
    # Edges from other ranks into communication, which for readers wait for the rank anyway.
    remote_source: Int64s  # int64[edges], record
    remote_target: Int64s  # int64[edges]
    remote_kind: UInt8s  # uint8[edges], EdgeKind
    # Finishes that wait for certain arrivals in place of the meeting, and the lanes of these.
    waits_target: Int64s  # int64[waits], record
    waits_lane: Int64s  # int64[waits]


def records_of(graph: ExecutionGraph) -> Records:
    """The records of a graph.

    Raises:
        GraphError: if a node waits for another rank's node other than in a collective.
    """
    arrive = graph.arrivals()
    record = np.arange(graph.num_nodes)
    is_paired = arrive >= 0
    record[arrive[is_paired]] = np.flatnonzero(is_paired)
    record[graph.kind == NodeKind.HUB] = NO_RECORD
    source = graph.predecessor.astype(np.int64)
    target = graph.edge_target
    rank = _ranks(graph, source, target)
    kind_of = graph.kind
    is_meeting = (kind_of[source] == NodeKind.ARRIVE) & (kind_of[target] == NodeKind.HUB)
    is_meeting |= kind_of[source] == NodeKind.HUB
    is_wait = (kind_of[source] == NodeKind.ARRIVE) & (kind_of[target] == NodeKind.FINISH)
    is_into_hub = (kind_of[target] == NodeKind.HUB) & ~is_meeting
    target_record = np.where(is_into_hub, NO_RECORD, record[target])
    hub_edges = np.flatnonzero(is_into_hub)
    target_record[hub_edges] = _members(graph, rank, source[hub_edges], target[hub_edges])
    kept = np.flatnonzero(~is_meeting & ~is_wait)
    edge_source, edge_target = record[source[kept]], target_record[kept]
    edge_kind = (graph.edge_kind[kept] + TO_MEETING * is_into_hub[kept]).astype(np.uint8)
    remote = _remote(graph, rank, edge_source, edge_target)
    is_inside = np.ones(len(kept), np.bool_)
    is_inside[remote] = False
    inside = np.flatnonzero(is_inside)
    order = inside[np.argsort(edge_target[inside], kind="stable")]
    remote = remote[np.argsort(edge_target[remote], kind="stable")]
    waits = np.flatnonzero(is_wait)
    return Records(
        graph,
        rank,
        record,
        arrive,
        edge_source[order],
        edge_target[order],
        edge_kind[order],
        remote_source=edge_source[remote],
        remote_target=edge_target[remote],
        remote_kind=edge_kind[remote],
        waits_target=target[waits],
        waits_lane=graph.lane[source[waits]].astype(np.int64),
    )


def _ranks(graph: ExecutionGraph, source: Int64s, target: Int64s) -> Int64s:
    """Rank whose file holds each node; ghosts go where what they follow is."""
    rank = graph.rank.astype(np.int64)
    is_ghost = (graph.kind == NodeKind.GHOST) & (rank < 0)
    # A chain of ghosts may follow ghosts; node order is topological, so one pass in order does.
    edges = np.flatnonzero(is_ghost[target])
    for edge in edges.tolist():
        if rank[target[edge]] < 0:
            rank[target[edge]] = rank[source[edge]]
    first = min(graph.ranks, default=0)
    rank[is_ghost & (rank < 0)] = first
    rank[graph.kind == NodeKind.HUB] = -1
    return rank


def _members(graph: ExecutionGraph, rank: Int64s, source: Int64s, hub: Int64s) -> Int64s:
    """For edges into hubs, the record of the source's rank in that collective."""
    finish = graph.nodes_of(NodeKind.FINISH)
    member = {
        (collective, of_rank): node
        for collective, of_rank, node in zip(
            graph.collective[finish].tolist(), graph.rank[finish].tolist(), finish.tolist(),
            strict=True,
        )
    }  # fmt: skip
    wanted = zip(graph.collective[hub].tolist(), rank[source].tolist(), strict=True)
    found = [member.get(key, NO_RECORD) for key in wanted]
    return np.array(found, np.int64)


def _remote(graph: ExecutionGraph, rank: Int64s, source: Int64s, target: Int64s) -> Int64s:
    """Edges between ranks, which no file can name; into communication they need not be."""
    is_remote: Bools = (source < 0) | (target < 0)
    is_remote |= rank[np.maximum(source, 0)] != rank[np.maximum(target, 0)]
    remote = np.flatnonzero(is_remote)
    is_lost = (target[remote] < 0) | (source[remote] < 0)
    is_lost |= graph.kind[np.maximum(target[remote], 0)] != NodeKind.FINISH
    lost = remote[is_lost]
    if len(lost):
        edge = int(lost[0])
        raise GraphError(
            f"cannot write as Chakra: node {int(target[edge])} waits for node "
            f"{int(source[edge])} of another rank ({len(lost)} edges do), and each rank's file "
            "can name its own nodes only; make it a collective or a send and its receive"
        )
    return remote


@dataclass(frozen=True)
class FinishColumns:
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
class NumberedGroup:
    """A group of ranks that communicate, as files number them."""

    number: int  # from 1: ASTRA-sim takes names that are numbers above 0
    name: str  # as the graph calls it
    ranks: tuple[int, ...]


def communicators(graph: ExecutionGraph) -> tuple[NumberedGroup, ...]:
    """The distinct groups of a graph's collectives, in order of appearance."""
    keys = dict.fromkeys((one.group, one.ranks) for one in graph.collectives)
    return tuple(NumberedGroup(number, name, ranks) for number, (name, ranks) in enumerate(keys, 1))


def communication_columns(
    graph: ExecutionGraph, groups: tuple[NumberedGroup, ...], pool: TextPool
) -> FinishColumns:
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
    return FinishColumns(kind, member.astype(np.int64), *columns[1:])


def _described(one: Collective, number: int, pool: TextPool) -> tuple[int, ...]:
    """The columns of one collective, whether it is a transfer of a pair first."""
    kind = one.kind
    size = max(one.num_bytes, 0)
    if kind is CollectiveKind.ALL_GATHER:
        size //= max(len(one.ranks), 1)
    sender, receiver = one.ranks if one.is_pair else (NO_TEXT, NO_TEXT)
    return (
        int(one.is_pair),
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
