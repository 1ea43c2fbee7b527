"""`StatedRecords`: records of all ranks as columns, and the recording that they make.

A record of communication becomes an arrival and a finish, with one hub per collective between
them, so that ranks wait for each other in a simulation by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Float32s, Int64s, UInt8s
from foretrace.graph.assembly import Edges, NodeCollector, assembled
from foretrace.graph.graph import EdgeConstant, ExecutionGraph, Lane
from foretrace.graph.nodes import NODE_COLUMNS, Collective, EdgeKind, NodeKind

# What a record has a column for, as `ExecutionGraph` has, but for its kind and its times.
COLUMNS = {
    name: column
    for name, column in NODE_COLUMNS.items()
    if name not in ("kind", "measured_ns", "inflation")
}
# What a meeting takes over from its members.
_OF_HUB = ("part", "phase", "layer", "microbatch")


@dataclass(frozen=True)
class StatedRecords:
    """Records of all ranks, by rank and then by the order of the file."""

    kind: UInt8s  # uint8[records], NodeKind; of communication FINISH
    columns: Mapping[str, NDArray[np.integer]]  # of `COLUMNS`, each [records]
    duration_ns: Int64s  # int64[records]
    start_ns: Int64s  # int64[records]; meaningful where the files say when
    end_ns: Int64s  # int64[records]
    inflation: Float32s  # float32[records]
    # Edges between records, in the order they were stated, and whether each leads to the
    # collective's meeting in place of the record's own arrival.
    source: Int64s  # int64[edges]
    target: Int64s  # int64[edges]
    edge_kind: UInt8s  # uint8[edges], EdgeKind
    is_to_meeting: Bools  # bool[edges]
    # Finishes that wait for certain arrivals instead of the meeting.
    waits_source: Int64s  # int64[waits], record
    waits_target: Int64s  # int64[waits], record
    constants: Mapping[EdgeKind, EdgeConstant]
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    step_names: tuple[str, ...]
    collectives: tuple[Collective, ...]


@dataclass(frozen=True)
class Assembled:
    """The graph of some records."""

    graph: ExecutionGraph
    record: Int64s  # int64[nodes], record that a node comes from; -1 of hubs
    start_ns: Int64s  # int64[nodes]
    end_ns: Int64s  # int64[nodes]


def assembled_records(records: StatedRecords) -> Assembled:
    """The graph, its measured times, and where its nodes come from.

    Raises:
        CircleError: if the records wait for each other in a circle.
    """
    collector = NodeCollector()
    count = len(records.kind)
    is_member = records.kind == NodeKind.FINISH
    columns = dict(records.columns)
    member = np.flatnonzero(is_member)
    enter = collector.add(
        np.where(is_member, NodeKind.ARRIVE, records.kind).astype(np.uint8),
        count,
        **columns,
        measured_ns=np.where(is_member, 0, records.duration_ns),
        inflation=records.inflation,
        end_ns=np.where(is_member, records.start_ns, records.end_ns),
    )
    leave = enter.copy()
    leave[member] = collector.add(
        NodeKind.FINISH,
        len(member),
        **{name: column[member] for name, column in columns.items()},
        measured_ns=records.duration_ns[member],
        end_ns=records.end_ns[member],
    )
    hub = _hubs(records, member, collector)
    edges = [
        _stated(records, enter, leave, hub),
        *_meetings(records, member, (enter, leave, hub)),
    ]
    nodes = collector.collected()
    graph, original = assembled(
        nodes,
        Edges.joined(edges),
        constants=records.constants,
        names=records.names,
        lanes=records.lanes,
        step_names=records.step_names,
        collectives=records.collectives,
    )
    record = np.full(len(nodes), -1, np.int64)
    record[enter] = np.arange(count)
    record[leave] = np.arange(count)
    end_ns = nodes.columns["end_ns"][original].astype(np.int64)
    return Assembled(graph, record[original], end_ns - graph.measured_ns, end_ns)


def _hubs(records: StatedRecords, member: Int64s, collector: NodeCollector) -> Int64s:
    """One node per collective: when the last member has arrived."""
    collective = records.columns["collective"][member]
    count = len(records.collectives)
    ready_ns = np.zeros(count, np.int64)
    # A finish ends its transfer after the meeting; the earliest such moment says when it was.
    begun_ns = records.end_ns[member] - records.duration_ns[member]
    ready_ns[collective] = begun_ns
    np.minimum.at(ready_ns, collective, begun_ns)
    shared = {
        name: _shared(records.columns[name][member], collective, count, COLUMNS[name].neutral)
        for name in _OF_HUB
    }
    place = {name: at for at, name in enumerate(records.names)}
    return collector.add(
        NodeKind.HUB,
        count,
        name=np.array([place[one.name] for one in records.collectives], np.int64),
        collective=np.arange(count),
        end_ns=ready_ns,
        **shared,
    )


def _shared(
    values: NDArray[np.integer], collective: NDArray[np.integer], count: int, neutral: int
) -> Int64s:
    """What all members of each collective have in common, int64[collectives]."""
    lowest = np.full(count, np.iinfo(np.int64).max)
    highest = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(lowest, collective, values)
    np.maximum.at(highest, collective, values)
    return np.where(lowest == highest, lowest, neutral)


def _stated(records: StatedRecords, enter: Int64s, leave: Int64s, hub: Int64s) -> Edges:
    target = enter[records.target]
    to_meeting = np.flatnonzero(records.is_to_meeting)
    meeting = records.columns["collective"][records.target[to_meeting]]
    target[to_meeting] = hub[meeting]
    return Edges(leave[records.source], target, records.edge_kind)


def _meetings(
    records: StatedRecords, member: Int64s, nodes: tuple[Int64s, Int64s, Int64s]
) -> Sequence[Edges]:
    """Arrivals to hubs, hubs to finishes; finishes that wait for certain arrivals to these."""
    enter, leave, hub = nodes
    collective = records.columns["collective"][member]
    held = np.setdiff1d(member, records.waits_target)
    of_held = records.columns["collective"][held]
    return (
        Edges.of(EdgeKind.ARRIVAL, enter[member], hub[collective]),
        Edges.of(EdgeKind.TRANSFER, hub[of_held], leave[held]),
        Edges.of(EdgeKind.TRANSFER, enter[records.waits_source], leave[records.waits_target]),
    )
