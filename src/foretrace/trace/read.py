"""One file becomes one `Trace`: rows in their stated order, strings and lanes once each.

Strings are sorted by text and lanes by kind, process, device and number, so the same events
give the same columns whatever order they had in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int32s, Int64s, turns_within
from foretrace.trace.columns import (
    NO_STRING,
    Category,
    CollectiveColumns,
    FlowColumns,
    LaneKind,
    Lanes,
    MemoryColumns,
    SyncColumns,
    Trace,
    TraceMeta,
)
from foretrace.trace.fields import MTIA_DEVICE, Row
from foretrace.trace.meta import described, trace_meta
from foretrace.trace.scan import Scanned, scanned
from foretrace.trace.source import OpenFile, opened_source

UNPAIRED_BEGIN = "begins without an end"
UNPAIRED_END = "ends without a begin that was read"
PAIRED_END = "ends, joined to their begins"
UNPAIRED_FLOW = "arrows from forward to backward without their other end"
_COLLECTIVE_STRINGS = (1, 2, 3, 4, 5, 12, 13)  # columns of Scanned.collectives
_KEPT_ON_DEVICE = {
    "event_wait": Category.SYNC,
    "event_record": Category.SYNC,
    "dma_request": Category.MEMCPY,
}

# Words of a Kineto file's head. The list of events may begin far behind them.
_WORDS = (b'"traceEvents"', b'"ph"', b'"deviceProperties"', b'"schemaVersion"')


def assembled(scan: Scanned, meta: TraceMeta, base_ns: int) -> Trace:
    """The trace of one file; `base_ns` is added to every timestamp.

    `meta.dropped` comes back with what had no counterpart added.
    """
    dropped = dict(scan.dropped)
    durations = _paired_durations(scan, dropped)
    kept = np.flatnonzero(durations >= 0)
    rows = scan.rows if len(kept) == len(scan.rows) else scan.rows[kept]
    durations = durations[kept]
    flow_ends = _paired_flows(scan.flows, _lane_places(scan.lanes), dropped)
    texts = [
        scan.arena[begin:end].tobytes()
        for begin, end in zip(scan.begins[:-1], scan.begins[1:], strict=True)
    ]
    category = _categories(rows, texts)
    syncs, collectives = (
        _moved(table, kept, len(scan.rows)) for table in (scan.syncs, scan.collectives)
    )
    syncs = syncs[category[syncs[:, 0]] == Category.SYNC]
    unnamed = syncs[:, 1] == NO_STRING
    syncs[unnamed, 1] = rows[syncs[unnamed, 0], Row.NAME]
    strings, string_rank = _sorted_strings(
        texts,
        [rows[:, Row.NAME], rows[:, Row.SIGNATURE], syncs[:, 1]]
        + [collectives[:, column] for column in _COLLECTIVE_STRINGS],
    )
    lanes, lane_rank = _sorted_lanes(
        scan.lanes, [rows[:, Row.LANE], scan.flows[flow_ends.ravel(), 3]]
    )
    for column in _COLLECTIVE_STRINGS:
        collectives[:, column] = string_rank[collectives[:, column]]
    syncs[:, 1] = string_rank[syncs[:, 1]]
    name = string_rank[rows[:, Row.NAME]]
    signature = string_rank[rows[:, Row.SIGNATURE]]
    lane = lane_rank[rows[:, Row.LANE]]
    start = rows[:, Row.START] + base_ns
    order = _row_order(
        (start, -durations, lane, rows[:, Row.CORRELATION], rows[:, Row.EXTERNAL], name),
        (
            category,
            rows[:, Row.RECORD_FUNCTION],
            rows[:, Row.SEQUENCE],
            rows[:, Row.BYTES],
            signature,
        ),
        (collectives, syncs),
    )
    return Trace(
        meta=replace(
            meta,
            dropped=dict(sorted(dropped.items())),
            device_names=_names_of_used(meta.device_names, lanes),
        ),
        strings=strings,
        lanes=lanes,
        start_ns=start[order],
        duration_ns=durations[order],
        category=category[order],
        name=name[order],
        lane=lane[order],
        correlation=rows[order, Row.CORRELATION],
        external=rows[order, Row.EXTERNAL],
        record_function=rows[order, Row.RECORD_FUNCTION],
        sequence=rows[order, Row.SEQUENCE],
        num_bytes=rows[order, Row.BYTES],
        signature=signature[order],
        collectives=_collective_columns(collectives, order),
        syncs=_sync_columns(syncs, order),
        memory=_memory_columns(scan.memory, base_ns),
        flows=_flow_columns(scan.flows, flow_ends, lane_rank, base_ns),
    )


def _names_of_used(names: tuple[str, ...], lanes: Lanes) -> tuple[str, ...]:
    """Of a host's unlike devices, those that anything ran on: a display's is not what was used."""
    if len(set(names)) == 1:
        return names
    used = np.unique(lanes.device[lanes.kind == LaneKind.DEVICE])
    named = tuple(names[one] for one in used.tolist() if 0 <= one < len(names))
    return named or names


def _paired_durations(scan: Scanned, dropped: dict[str, int]) -> Int64s:
    """Durations with begin/end pairs joined; -1 for a begin whose end is missing.

    A lane's halves are taken in time order, those of one time in the order of the file, and an
    end closes the last begin that is still open.
    """
    durations = scan.rows[:, Row.DURATION].copy()
    halves = scan.halves
    if not len(halves):
        return durations
    order = np.lexsort((np.arange(len(halves)), halves[:, 1], halves[:, 2]))
    open_rows: dict[int, list[tuple[int, int]]] = {}
    num_paired = num_unpaired = 0
    for is_end, at, lane, row in halves[order].tolist():
        stack = open_rows.setdefault(lane, [])
        if not is_end:
            stack.append((row, at))
        elif stack:
            begun, begin = stack.pop()
            durations[begun] = at - begin
            num_paired += 1
        else:
            num_unpaired += 1
    counts = {
        PAIRED_END: num_paired,
        UNPAIRED_END: num_unpaired,
        UNPAIRED_BEGIN: int(np.count_nonzero(durations < 0)),
    }
    dropped.update({reason: count for reason, count in counts.items() if count})
    return durations


def _paired_flows(flows: Int64s, lane_place: Int64s, dropped: dict[str, int]) -> Int64s:
    """Positions of (begin, end) of each arrow, int64[arrows, 2].

    Of several arrows with one id, the first begin in time belongs to the first end, and so on.
    """
    order = np.lexsort((lane_place[flows[:, 3]], flows[:, 2], flows[:, 1]))
    is_end = flows[order, 0] == 1
    begins, ends = order[~is_end], order[is_end]
    keys = [
        list(zip(flows[half, 1].tolist(), turns_within(flows[half, 1]).tolist(), strict=True))
        for half in (begins, ends)
    ]
    end_by_key = dict(zip(keys[1], ends.tolist(), strict=True))
    pairs = [
        (begin, end_by_key[key])
        for key, begin in zip(keys[0], begins.tolist(), strict=True)
        if key in end_by_key
    ]
    num_unpaired = len(flows) - 2 * len(pairs)
    if num_unpaired:
        dropped[UNPAIRED_FLOW] = num_unpaired
    return np.array(pairs, np.int64).reshape(-1, 2)


def _categories(rows: Int64s, texts: Sequence[bytes]) -> NDArray[np.uint8]:
    """uint8[rows], Category; MTIA's device records are told apart by name."""
    category = rows[:, Row.CATEGORY].astype(np.uint8)
    for row in np.flatnonzero(category == MTIA_DEVICE):
        name = texts[rows[row, Row.NAME]].decode("utf-8", "replace")
        category[row] = _KEPT_ON_DEVICE.get(name, Category.KERNEL)
    return category


def _moved(table: Int64s, kept: Int64s, num_rows: int) -> Int64s:
    """A table whose first column is a row, with that row's position among the kept ones."""
    position = np.full(num_rows, -1, np.int64)
    position[kept] = np.arange(len(kept))
    table = table.copy()
    table[:, 0] = position[table[:, 0]]
    return table[table[:, 0] >= 0]


def _sorted_strings(
    texts: Sequence[bytes], columns: Sequence[Int64s]
) -> tuple[tuple[str, ...], Int32s]:
    """The strings that these columns hold, by text, and each old string's new position.

    The last element of the positions is NO_STRING, so that NO_STRING maps to itself.
    """
    is_used = np.zeros(len(texts) + 1, np.bool_)
    for column in columns:
        is_used[column] = True
    used = np.flatnonzero(is_used[:-1]).tolist()
    decoded = sorted((texts[string].decode("utf-8", "replace"), string) for string in used)
    rank = np.full(len(texts) + 1, NO_STRING, np.int32)
    rank[[string for _, string in decoded]] = np.arange(len(decoded), dtype=np.int32)
    return tuple(text for text, _ in decoded), rank


def _lane_places(lanes: Int64s) -> Int64s:
    """Each lane's place in the order of kind, process, device and number."""
    place = np.empty(len(lanes), np.int64)
    place[np.lexsort((lanes[:, 3], lanes[:, 2], lanes[:, 1], lanes[:, 0]))] = np.arange(len(lanes))
    return place


def _sorted_lanes(lanes: Int64s, columns: Sequence[Int64s]) -> tuple[Lanes, Int32s]:
    """The lanes that these columns hold, in order, and each old lane's new position."""
    is_used = np.zeros(len(lanes), np.bool_)
    for column in columns:
        is_used[column] = True
    place = _lane_places(lanes)
    used = np.flatnonzero(is_used)
    used = used[np.argsort(place[used])]
    rank = np.full(len(lanes), -1, np.int32)
    rank[used] = np.arange(len(used), dtype=np.int32)
    return (
        Lanes(
            kind=lanes[used, 0].astype(np.uint8),
            process=lanes[used, 1],
            device=lanes[used, 2].astype(np.int32),
            number=lanes[used, 3],
        ),
        rank,
    )


def _row_order(
    stated: tuple[NDArray[np.signedinteger], ...],
    more: tuple[NDArray[np.generic], ...],
    tables: tuple[Int64s, ...],
) -> Int64s:
    """Positions of the rows in order of `stated`; what is still equal, by everything else.

    Most starts differ, so later columns are looked at only where the ones before are equal.
    """
    order = np.argsort(stated[0], kind="stable")
    is_tied = _is_tied(order, stated[:1])
    if not is_tied.any():
        return order
    _reorder(order, is_tied, stated[:3])
    is_tied = _is_tied(order, stated[:3])
    if not is_tied.any():
        return order
    _reorder(order, is_tied, stated)
    is_tied = _is_tied(order, stated)
    if is_tied.any():
        _reorder(order, is_tied, (*stated, *more, *_columns_by_row(tables, len(order))))
    return order


def _is_tied(order: Int64s, columns: Sequence[NDArray[np.generic]]) -> Bools:
    """bool[rows], whether a place in the order has a neighbour equal in all columns."""
    is_same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in columns:
        ordered = column[order]
        is_same &= ordered[1:] == ordered[:-1]
    is_tied = np.zeros(len(order), np.bool_)
    is_tied[1:] |= is_same
    is_tied[:-1] |= is_same
    return is_tied


def _reorder(order: Int64s, places: Bools, columns: Sequence[NDArray[np.generic]]) -> None:
    """Sort these places of an order among themselves by all columns. out: order.

    The places are runs of equal leading columns, so none leaves its run.
    """
    rows = np.sort(order[places])
    order[places] = rows[np.lexsort([column[rows] for column in reversed(columns)])]


def _columns_by_row(tables: tuple[Int64s, ...], num_rows: int) -> list[Int64s]:
    """The columns of side tables, one value per row, -1 where a row is not in the table."""
    columns = []
    for table in tables:
        for number in range(1, table.shape[1]):
            column = np.full(num_rows, -1, np.int64)
            column[table[:, 0]] = table[:, number]
            columns.append(column)
    return columns


def _by_event(table: Int64s, order: Int64s) -> Int64s:
    """A side table in the order of its events, whose new positions stand in column 0."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    table = table.copy()
    table[:, 0] = place[table[:, 0]]
    return table[np.argsort(table[:, 0], kind="stable")]


def _collective_columns(table: Int64s, order: Int64s) -> CollectiveColumns:
    table = _by_event(table, order)
    strings = table.astype(np.int32)
    return CollectiveColumns(
        event=strings[:, 0].copy(),
        collective=strings[:, 1].copy(),
        group=strings[:, 2].copy(),
        group_description=strings[:, 3].copy(),
        group_ranks=strings[:, 4].copy(),
        dtype=strings[:, 5].copy(),
        group_size=table[:, 6].copy(),
        sequence=table[:, 7].copy(),
        in_elements=table[:, 8].copy(),
        out_elements=table[:, 9].copy(),
        source_rank=table[:, 10].copy(),
        destination_rank=table[:, 11].copy(),
        in_splits=strings[:, 12].copy(),
        out_splits=strings[:, 13].copy(),
    )


def _sync_columns(table: Int64s, order: Int64s) -> SyncColumns:
    table = _by_event(table, order)
    return SyncColumns(
        event=table[:, 0].astype(np.int32),
        kind=table[:, 1].astype(np.int32),
        stream=table[:, 2].copy(),
        wait_on_stream=table[:, 3].copy(),
        record_correlation=table[:, 4].copy(),
        cuda_event=table[:, 5].copy(),
    )


def _memory_columns(table: Int64s, base_ns: int) -> MemoryColumns:
    order = np.lexsort([table[:, column] for column in (1, 3, 2, 5, 4, 0)])
    table = table[order]
    return MemoryColumns(
        at_ns=table[:, 0] + base_ns,
        change_bytes=table[:, 1].copy(),
        allocated_bytes=table[:, 2].copy(),
        reserved_bytes=table[:, 3].copy(),
        device_type=_narrow(table[:, 4]),
        device=_narrow(table[:, 5]),
    )


def _narrow(column: Int64s) -> Int32s:
    """As int32; what does not fit is read as absent."""
    fits = (column >= -(2**31)) & (column < 2**31)
    return np.where(fits, column, -1).astype(np.int32)


def _flow_columns(flows: Int64s, ends: Int64s, lane_rank: Int32s, base_ns: int) -> FlowColumns:
    begin, end = flows[ends[:, 0]], flows[ends[:, 1]]
    from_lane, to_lane = lane_rank[begin[:, 3]], lane_rank[end[:, 3]]
    order = np.lexsort((to_lane, from_lane, end[:, 2], begin[:, 2]))
    return FlowColumns(
        from_ns=begin[order, 2] + base_ns,
        to_ns=end[order, 2] + base_ns,
        from_lane=from_lane[order],
        to_lane=to_lane[order],
    )


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a Kineto trace."""
    return head.lstrip()[:1] in (b"{", b"[") and any(word in head for word in _WORDS)


def read_trace(path: Path) -> Trace:
    """The trace in one Kineto file: JSON, gzip of it, or a tar archive with one file.

    Timestamps come out absolute, in ns since the clock's own zero: a file's
    `baseTimeNanoseconds` is added, so ranks of one job compare even where their bases differ.

    Raises:
        TraceError: if the file cannot be read or holds no list of trace events.
    """
    with opened_source(path) as source:
        return trace_of(source)


def trace_of(source: OpenFile) -> Trace:
    """The trace in an open file, or in any text of this form."""
    scan = scanned(source)
    told = described(scan.members)
    meta = trace_meta(scan, told, path=source.path, file_bytes=source.file_bytes)
    return assembled(scan, meta, told.base_ns)
