"""gloo's operations: whom sends and receives name, and when its worker threads start.

`c10d::send` and `c10d::recv_` (torch 2.13: tensors, group, place of the peer in it, tag) show the
place where shapes were recorded. The group is one that the file lists: the one in which the peer
names this rank in turn, as often and in the same sizes; the first listed, which is the default
group, where several fit.

A worker that was free and asked still needs the processor, which other threads may hold for
milliseconds. Like the time between two calls of any thread, that time is kept as host work: a
segment before the arrival, into which the issue and the worker's previous collective lead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from foretrace.base import Int64s, begins_run
from foretrace.graph.assembly import Edges, NodeCollector
from foretrace.graph.communication.clocks import Clocks
from foretrace.graph.communication.description import CommunicationOps
from foretrace.graph.nodes import EdgeKind, NodeKind
from foretrace.graph.operations import OWN_NAMES, Operations, host_moments
from foretrace.trace import ProcessGroup

_CALLS = {"c10d::send": "send", "c10d::recv_": "recv"}  # others name no peer
_OTHER = {"send": "recv", "recv": "send"}
_PLACE, _TAG = 2, 3  # of the calls' arguments
_USUAL_TAG = "0"


class _Arguments(msgspec.Struct):
    """What a call's signature says of its arguments."""

    inputs: list[str] = []


@dataclass(frozen=True)
class _Stream:
    """Calls of one rank that name the same peer in the same way."""

    rank: int
    kind: str
    place: int  # of the peer, in a group that is to be found
    tag: str


@dataclass(frozen=True)
class _Found:
    """The group in which a stream's place is a rank."""

    name: str
    peer: int


def with_named_peers(operations: Operations, comm: CommunicationOps) -> CommunicationOps:
    """The same communication, with the two ranks of every transfer whose call names a place."""
    rows_by_stream = _streams(operations, comm)
    if not rows_by_stream:
        return comm
    source, destination = comm.source_rank.copy(), comm.destination_rank.copy()
    group = list(comm.group)
    for stream, found in _resolved(operations, comm, rows_by_stream).items():
        rows = rows_by_stream[stream]
        ends = (stream.rank, found.peer) if stream.kind == "send" else (found.peer, stream.rank)
        source[rows], destination[rows] = ends
        for row in rows.tolist():
            group[row] = found.name
    return replace(comm, source_rank=source, destination_rank=destination, group=tuple(group))


def _streams(operations: Operations, comm: CommunicationOps) -> dict[_Stream, Int64s]:
    """Rows of transfers that name a place and neither group nor rank, in order of start."""
    kind_of_name = [_CALLS.get(name, "") for name in operations.names]
    if not any(kind_of_name):
        return {}
    items = operations.items
    named: dict[int, tuple[int, str] | None] = {}
    rows_by_stream: dict[_Stream, list[int]] = defaultdict(list)
    launch = operations.ops.launch[comm.op]
    is_open = (launch >= 0) & (comm.source_rank < 0) & (comm.destination_rank < 0)
    for row in np.flatnonzero(is_open).tolist():
        item = int(launch[row])
        kind, signature = kind_of_name[items.name[item]], int(items.signature[item])
        if not kind or signature < 0 or comm.group[row]:
            continue
        if signature not in named:
            named[signature] = _named(operations.names[signature])
        said = named[signature]
        if said is not None:
            rank = operations.ranks[int(comm.rank[row])]
            rows_by_stream[_Stream(rank, kind, *said)].append(row)
    return {stream: np.array(rows, np.int64) for stream, rows in rows_by_stream.items()}


def _named(signature: str) -> tuple[int, str] | None:
    """The peer's place and the tag that a call's arguments show; None where they show none."""
    try:
        inputs = msgspec.json.decode(signature, type=_Arguments).inputs
    except msgspec.DecodeError:
        return None
    if len(inputs) <= _TAG or not inputs[_PLACE].isdecimal():
        return None
    return int(inputs[_PLACE]), inputs[_TAG]


def _resolved(
    operations: Operations, comm: CommunicationOps, rows_by_stream: Mapping[_Stream, Int64s]
) -> dict[_Stream, _Found]:
    """The group of every stream that has one; both ends of a transfer get the same."""
    groups = {
        rank: _groups(trace.meta.process_groups, trace.meta.world_size)
        for rank, trace in zip(operations.ranks, operations.traces, strict=True)
    }
    sizes = {stream: comm.num_bytes[rows].tolist() for stream, rows in rows_by_stream.items()}
    found: dict[_Stream, _Found] = {}
    for stream in rows_by_stream:
        if stream in found:
            continue
        options = list(_options(stream, groups[stream.rank]))
        met = [
            (far, group)
            for far, group in options
            if far in sizes and far not in found and group in groups[far.rank]
        ]
        equal = [(far, group) for far, group in met if sizes[far] == sizes[stream]]
        if equal or met:
            far, group = (equal or met)[0]
            name = _name(group, stream.tag)
            found[stream] = _Found(name, far.rank)
            found[far] = _Found(name, stream.rank)
            continue
        # Nobody answers. If only one rank can be meant, it was not recorded or never came.
        peers = {far.rank for far, _ in options}
        if len(peers) == 1:
            found[stream] = _Found(_name(options[0][1], stream.tag), peers.pop())
    return found


def _groups(listed: Sequence[ProcessGroup], world_size: int | None) -> tuple[ProcessGroup, ...]:
    """The groups of a file, with whom they are of; the whole job where it lists none."""
    known = tuple(group for group in listed if group.ranks)
    return known or (ProcessGroup("", "", tuple(range(world_size or 0))),)


def _options(
    stream: _Stream, groups: Sequence[ProcessGroup]
) -> Iterator[tuple[_Stream, ProcessGroup]]:
    """What the other end would call a stream in each group that it may be of."""
    for group in groups:
        if stream.rank not in group.ranks or stream.place >= len(group.ranks):
            continue
        peer = group.ranks[stream.place]
        if peer != stream.rank:
            own_place = group.ranks.index(stream.rank)
            yield _Stream(peer, _OTHER[stream.kind], own_place, stream.tag), group


def _name(group: ProcessGroup, tag: str) -> str:
    """What transfers of a group are called; those of one tag meet each other alone."""
    return group.name if tag == _USUAL_TAG else f"{group.name} tag {tag}".strip()


@dataclass(frozen=True)
class WorkerSegments:
    """Where edges into operations lead, and the edges from there to the operations."""

    entry: Int64s  # int64[ops], node that an edge into the operation ends at
    edges: Edges


def worker_segments(
    operations: Operations, clocks: Clocks, op_node: Int64s, collector: NodeCollector
) -> WorkerSegments:
    """A segment before every CPU collective that started later than it could have."""
    ops, items = operations.ops, operations.items
    is_on_host = ~operations.is_stream[ops.lane]
    chosen = np.flatnonzero(is_on_host & (ops.launch >= 0))
    is_same = ~begins_run(ops.lane)
    is_same &= ~np.isin(ops.lane, items.lane)  # spans on a calling thread are no queue
    long_ago = np.iinfo(np.int64).min
    previous_ns = np.where(is_same, np.append(long_ago, ops.end_ns[:-1])[: len(ops)], long_ago)
    ready_ns = np.maximum(previous_ns[chosen], items.end_ns[ops.launch[chosen]])
    late_ns = ops.start_ns[chosen] - ready_ns
    chosen, late_ns = chosen[late_ns > 0], late_ns[late_ns > 0]
    rank = ops.rank[chosen].astype(np.int64)
    segment = collector.add(
        NodeKind.HOST_SEGMENT,
        len(chosen),
        rank=np.array(operations.ranks)[rank],
        lane=ops.lane[chosen],
        name=OWN_NAMES.index("host"),
        step=ops.step[chosen],
        measured_ns=late_ns,
        end_ns=clocks.aligned(rank, ops.start_ns[chosen]),
        host_lane=items.lane[ops.launch[chosen]],
        host_ns=host_moments(operations)[ops.launch[chosen]],
    )
    entry = op_node.copy()
    entry[chosen] = segment
    return WorkerSegments(entry, Edges.of(EdgeKind.HOST_ORDER, segment, op_node[chosen]))
