"""One rank's records become `ChakraNodes`: standard attributes as consumers read them, and ours.

Value types are those of Chakra's own feeder (src/feeder/et_feeder_node.cpp): `is_cpu_op` bool,
`comm_type` and `comm_size` int64, `comm_src`, `comm_dst` and `comm_tag` int32, `pg_name` text.
All that gates a node stands in `data_deps`, which is what the feeder looks at; what the host's
order and launches say stands in `ctrl_deps` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.base import NS_PER_US, Bools, Int32s, Int64s, joined_ranges, row_starts
from foretrace.exchange.chakra.messages import TextPool, list_message
from foretrace.exchange.chakra.records import FinishColumns, Records
from foretrace.graph import (
    HOST_KINDS,
    NO_LANE,
    NODE_COLUMNS,
    EdgeKind,
    NodeKind,
    Timeline,
)
from foretrace.trace import NO_TEXT, Attributes, ChakraNodes, NodeType, ValueField

BATCH_NODES = 1 << 16
# Numbers that fit a byte, so many in a row, stand for a list in one number.
_MOST_PACKED = 7
_MARKS = (NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END)
_CONTROL = (EdgeKind.HOST_ORDER, EdgeKind.LAUNCH, EdgeKind.ISSUE)
# Host work, and what stands for a rank that was not recorded.
CPU_KINDS = (*HOST_KINDS, *_MARKS, NodeKind.GHOST)

# Columns of a graph that a record holds in fields of its own, or not as they are.
_STATED_OTHERWISE = ("kind", "rank", "name", "collective", "measured_ns", "inflation")


@dataclass(frozen=True)
class _Column:
    """One attribute of some of the rows."""

    name: str
    field: ValueField
    value: NDArray[np.integer]  # int64[rows]
    is_there: Bools | None = None  # bool[rows]; None: on every row


@dataclass(frozen=True)
class WrittenGraph:
    """What is written, the same for all ranks."""

    records: Records
    communication: FinishColumns
    timeline: Timeline | None
    pool: TextPool


def node_batches(source: WrittenGraph, rank: int) -> Iterator[ChakraNodes]:
    """The records of one rank, by number, so many at a time: memory does not grow with them."""
    records = source.records
    is_record = records.record == np.arange(records.graph.num_nodes)
    rows = np.flatnonzero(is_record & (records.rank == rank))
    for begin in range(0, len(rows), BATCH_NODES):
        yield _nodes(source, rows[begin : begin + BATCH_NODES])


def _nodes(source: WrittenGraph, rows: Int64s) -> ChakraNodes:
    graph = source.records.graph
    data = _dependencies(source, rows)
    columns = [*_standard(source, rows), *_ours(source, rows, data)]
    attributes = _attributes(columns, len(rows), source.pool)
    duration_ns = source.records.graph.measured_ns[rows]
    start_ns = _start_ns(source, rows)
    return ChakraNodes(
        texts=source.pool.texts(),
        node_id=rows,
        name=graph.name[rows],
        kind=source.communication.kind[rows],
        start_micros=(start_ns + NS_PER_US // 2) // NS_PER_US,
        duration_micros=(duration_ns + NS_PER_US // 2) // NS_PER_US,
        values=np.full((len(rows), 6), NO_TEXT, np.int32),
        first_control=data.first_control,
        control=data.control,
        first_data=data.first,
        data=data.source,
        attributes=attributes,
    )


def _start_ns(source: WrittenGraph, rows: Int64s) -> Int64s:
    if source.timeline is None:
        return np.zeros(len(rows), np.int64)
    arrive = source.records.arrive[rows]
    return source.timeline.start_ns[np.where(arrive >= 0, arrive, rows)]


@dataclass(frozen=True)
class _Dependencies:
    first: Int64s
    source: Int64s
    kinds: Int32s  # int32[rows], text of the list of edge kinds; NO_TEXT
    first_control: Int64s
    control: Int64s
    more: Int32s  # int32[rows], text of the list of further edges between the same; NO_TEXT


def _dependencies(source: WrittenGraph, rows: Int64s) -> _Dependencies:
    """What each row waits for; two edges between the same nodes are one dependency."""
    records = source.records
    begin = np.searchsorted(records.edge_target, rows)
    end = np.searchsorted(records.edge_target, rows, side="right")
    count = end - begin
    edge = joined_ranges(begin, count)
    row = np.repeat(np.arange(len(rows)), count)
    of_source, kind = records.edge_source[edge], records.edge_kind[edge]
    is_first = _is_first(row, of_source)
    more = _lists_by_row(
        source.pool, len(rows), row[~is_first],
        np.stack([of_source[~is_first], kind[~is_first].astype(np.int64)], axis=1),
    )  # fmt: skip
    row, of_source, kind = row[is_first], of_source[is_first], kind[is_first]
    is_control = np.isin(kind, _CONTROL)
    return _Dependencies(
        row_starts(row, len(rows)),
        of_source,
        _lists_by_row(source.pool, len(rows), row, kind.astype(np.int64)[:, None]),
        row_starts(row[is_control], len(rows)),
        of_source[is_control],
        more,
    )


def _is_first(row: Int64s, source: Int64s) -> Bools:
    """Whether no edge of the same row and source stands before; bool[edges]."""
    order = np.lexsort((np.arange(len(row)), source, row))
    is_new = np.ones(len(row), np.bool_)
    is_new[1:] = (np.diff(row[order]) != 0) | (np.diff(source[order]) != 0)
    is_first = np.zeros(len(row), np.bool_)
    is_first[order] = is_new
    return is_first


def _lists_by_row(pool: TextPool, num_rows: int, row: Int64s, values: Int64s) -> Int32s:
    """Each row's numbers as the text of a list message; NO_TEXT where it has none."""
    lists = np.full(num_rows, NO_TEXT, np.int32)
    first = row_starts(row, num_rows)
    count = np.diff(first)
    owners = np.flatnonzero(count)
    flat = np.ascontiguousarray(values, np.int64)
    if flat.shape[1] == 1 and not (flat >> 8).any():
        short = owners[count[owners] <= _MOST_PACKED]
        lists[short] = _packed_lists(pool, flat[:, 0], first[short], count[short])
        owners = owners[count[owners] > _MOST_PACKED]
    for owner, begin, end in zip(
        owners.tolist(), first[owners].tolist(), first[owners + 1].tolist(), strict=True
    ):
        numbers = flat[begin:end].ravel().tolist()
        lists[owner] = pool.of(list_message(ValueField.INT64_LIST, numbers))
    return lists


def _packed_lists(pool: TextPool, values: Int64s, first: Int64s, count: Int64s) -> Int32s:
    """Texts of short lists of small numbers; most are equal, so each distinct one is made once."""
    key = count << 8 * _MOST_PACKED
    for at in range(_MOST_PACKED):
        has_it = count > at
        key[has_it] |= values[first[has_it] + at] << 8 * at
    distinct, which = np.unique(key, return_inverse=True)
    texts = [
        pool.of(
            list_message(
                ValueField.INT64_LIST,
                [one >> 8 * at & 0xFF for at in range(one >> 8 * _MOST_PACKED)],
            )
        )
        for one in distinct.tolist()
    ]
    found: Int32s = np.array(texts, np.int32)[which.reshape(-1)]
    return found


def _standard(source: WrittenGraph, rows: Int64s) -> list[_Column]:
    """Attributes that Chakra's converter and feeder know."""
    graph = source.records.graph
    lane = graph.lane[rows]
    number = np.array([one.number for one in graph.lanes] or [0], np.int64)[np.maximum(lane, 0)]
    on_device = graph.is_on_stream[rows]
    communication = source.communication
    is_collective = communication.kind[rows] == NodeType.COMM_COLL
    is_transfer = np.isin(communication.kind[rows], (NodeType.COMM_SEND, NodeType.COMM_RECV))
    is_any = is_collective | is_transfer
    # Of communication none: what runs on a thread of a CPU backend is communication first.
    is_cpu = graph.is_of(*CPU_KINDS)[rows]
    return [
        _Column("is_cpu_op", ValueField.BOOL, is_cpu.astype(np.int64)),
        _Column("tid", ValueField.INT64, number, lane != NO_LANE),
        _Column("stream", ValueField.INT64, number, on_device),
        _Column("comm_type", ValueField.INT64, communication.comm_type[rows], is_collective),
        _Column("comm_size", ValueField.INT64, communication.comm_size[rows], is_any),
        _Column("comm_src", ValueField.INT32, communication.sender[rows], is_transfer),
        _Column("comm_dst", ValueField.INT32, communication.receiver[rows], is_transfer),
        _Column("comm_tag", ValueField.INT32, communication.tag[rows], is_transfer),
        _Column("pg_name", ValueField.STRING, communication.pg_name[rows], is_any),
    ]


def _ours(source: WrittenGraph, rows: Int64s, data: _Dependencies) -> list[_Column]:
    """What makes the graph again, to the nanosecond."""
    graph, communication = source.records.graph, source.communication
    member = communication.collective[rows]
    is_member = member >= 0
    waits = _waits(source, rows)
    inflation = graph.inflation[rows]
    int32 = ValueField.INT32
    columns = [
        _Column("duration_ns", ValueField.INT64, source.records.graph.measured_ns[rows]),
        _Column("node_kind", int32, graph.kind[rows].astype(np.int64)),
        *(
            _optional(
                name,
                ValueField.STRING if column.table == "names" else int32,
                getattr(graph, name)[rows],
                column.neutral,
            )
            for name, column in NODE_COLUMNS.items()
            if name not in _STATED_OTHERWISE
        ),
        _Column(
            "inflation", ValueField.FLOAT, inflation.view(np.uint32).astype(np.int64),
            inflation != 1,
        ),
        _optional("edge_kinds", ValueField.INT64_LIST, data.kinds, NO_TEXT),
        _optional("remote_edges", ValueField.INT64_LIST, _remote_edges(source, rows), NO_TEXT),
        _optional("more_edges", ValueField.INT64_LIST, data.more, NO_TEXT),
        _Column("collective", int32, member, is_member),
        _Column("collective_name", ValueField.STRING, communication.name[rows], is_member),
        _Column("position", int32, communication.position[rows], is_member),
        _Column("num_bytes", ValueField.INT64, communication.num_bytes[rows], is_member),
        _Column("dtype", ValueField.STRING, communication.dtype[rows], is_member),
        _Column(
            "is_transfer_estimated", ValueField.BOOL, communication.is_estimated[rows], is_member
        ),
        _Column("waits_for_lanes", ValueField.INT64_LIST, waits, waits != NO_TEXT),
    ]  # fmt: skip
    if source.timeline is not None:
        end_ns = source.timeline.end_ns[rows]
        columns.insert(0, _Column("end_ns", ValueField.INT64, end_ns))
        columns.insert(0, _Column("start_ns", ValueField.INT64, _start_ns(source, rows)))
    return columns


def _optional(name: str, field: ValueField, value: NDArray[np.integer], absent: int) -> _Column:
    """An attribute that is left out where it says nothing."""
    return _Column(name, field, value.astype(np.int64), value != absent)


def _waits(source: WrittenGraph, rows: Int64s) -> Int32s:
    """Lanes whose arrivals a finish waits for in place of the meeting; NO_TEXT: the meeting."""
    records = source.records
    at = np.searchsorted(rows, records.waits_target)
    at = np.minimum(at, len(rows) - 1) if len(rows) else at
    chosen = np.flatnonzero(rows[at] == records.waits_target) if len(rows) else at[:0]
    chosen = chosen[np.argsort(at[chosen], kind="stable")]
    return _lists_by_row(source.pool, len(rows), at[chosen], records.waits_lane[chosen][:, None])


def _remote_edges(source: WrittenGraph, rows: Int64s) -> Int32s:
    """Rank, number and kind of edge of what each row waits for on other ranks."""
    records = source.records
    begin = np.searchsorted(records.remote_target, rows)
    count = np.searchsorted(records.remote_target, rows, side="right") - begin
    edge = joined_ranges(begin, count)
    of = records.remote_source[edge]
    triples = np.stack([records.rank[of], of, records.remote_kind[edge].astype(np.int64)], axis=1)
    return _lists_by_row(source.pool, len(rows), np.repeat(np.arange(len(rows)), count), triples)


def _attributes(columns: list[_Column], num_rows: int, pool: TextPool) -> Attributes:
    """Attributes of all rows, each row's in the order of the columns."""
    there = [
        np.ones(num_rows, np.bool_) if column.is_there is None else column.is_there
        for column in columns
    ]
    first = np.zeros(num_rows + 1, np.int64)
    for is_there in there:
        first[1:] += is_there
    np.cumsum(first, out=first)
    name, value = np.empty(first[-1], np.int32), np.empty(first[-1], np.int64)
    field = np.empty(first[-1], np.uint8)
    at = first[:-1].copy()
    for column, is_there in zip(columns, there, strict=True):
        place = at[is_there]
        name[place] = pool.of(column.name)
        field[place] = column.field
        value[place] = column.value[is_there]
        at += is_there
    return Attributes(first, name, np.full(len(name), NO_TEXT, np.int32), field, value)
