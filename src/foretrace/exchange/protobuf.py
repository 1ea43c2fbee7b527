"""Perfetto's own format: packets of track events, exact in nanoseconds and smaller than JSON.

Every text is written once and named by number; a flow names the slices that it joins. The
packets are written as bytes directly: there is one kind of event and three descriptors.
Processes are tracks too, of no process: Perfetto orders those as told, and processes as it likes.

Source: protos/perfetto/trace/perfetto_trace.proto of Perfetto, field numbers as in version 55.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np

from foretrace.base import Bools, Int64s, row_starts
from foretrace.exchange._compiled import (
    FLOW_BYTES,
    MOST_ARGUMENT_BYTES,
    MOST_EVENT_BYTES,
    events_into,
)
from foretrace.exchange.tracks import MISSING, Content, Layout, Values, numbered

# Events per chunk: at most some 30 MB of bytes, with the arguments of a collective on each.
CHUNK = 200_000

_BEGIN, _END, _COUNTER = 1, 2, 4  # TrackEvent.Type
_SEQUENCE = 1
_STATE_CLEARED = 1  # TracePacket.SequenceFlags
_ORDER_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
_MERGE_NEVER = 2  # TrackDescriptor.SiblingMergeBehavior: equal names stay two tracks
_COUNTER_UNITS = {"launches": 2, "bytes": 3}  # CounterDescriptor.Unit
_VARINT, _BYTES = 0, 2  # wire types


def write_protobuf(out: IO[bytes], layout: Layout, contents: tuple[Content, ...]) -> None:
    """Write everything as one Perfetto trace."""
    keys = _argument_keys(contents)
    out.write(_first_packet(layout, contents, keys))
    tracks = _Uuids(len(layout.processes), len(layout.places))
    for packet in _descriptors(layout, tracks):
        out.write(packet)
    num_values = num_flows = 0
    for content in contents:
        joined = _joined(content, keys, num_flows)
        for chunk in _slice_chunks(joined, tracks):
            out.write(chunk)
        for values in content.values:
            uuid = tracks.of_values(num_values)
            out.write(_counter_descriptor(values, tracks, uuid))
            for chunk in _counter_chunks(values, uuid):
                out.write(chunk)
            num_values += 1
        num_flows += sum(len(flows.source) for flows in content.flows)


@dataclass(frozen=True)
class _Uuids:
    """Numbers of the file's tracks: processes first, then slices' tracks, then counters."""

    num_processes: int
    num_places: int

    def of_process(self, process: int) -> int:
        return process + 1

    def of_place(self, place: int) -> int:
        return self.num_processes + place + 1

    def of_values(self, index: int) -> int:
        return self.num_processes + self.num_places + index + 1


@dataclass(frozen=True)
class _Joined:
    """One timeline's rows as one table, with the arguments and flows of each row."""

    place: Int64s  # int64[rows]
    name: Int64s  # int64[rows]
    start_ns: Int64s  # int64[rows]
    end_ns: Int64s  # int64[rows]
    argument: Int64s  # int64[arguments, 3], by row
    first_argument: Int64s  # int64[rows + 1]
    flow: Int64s  # int64[flows, 2], by row
    first_flow: Int64s  # int64[rows + 1]


def varint(value: int) -> bytes:
    """A number in 7 bits a byte; one below zero as its 64 bits."""
    value %= 1 << 64
    parts = bytearray()
    while value >> 7:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def field_bytes(number: int, value: int | str | bytes) -> bytes:
    """One protobuf field: a number as a varint, text and messages behind their length."""
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | _BYTES) + varint(len(data)) + data


def _packet(*fields: bytes) -> bytes:
    return field_bytes(1, b"".join((*fields, field_bytes(10, _SEQUENCE))))


def _argument_keys(contents: tuple[Content, ...]) -> dict[str, int]:
    """Interning id of every key of an argument."""
    keys = (
        argument.key for content in contents for rows in content.rows for argument in rows.arguments
    )
    return {key: index + 1 for index, key in enumerate(dict.fromkeys(keys))}


def _first_packet(layout: Layout, contents: tuple[Content, ...], keys: dict[str, int]) -> bytes:
    """What begins the sequence: all texts with their numbers."""
    rows = [each for content in contents for each in content.rows]
    names = _used(each.name for each in rows)
    texts = _used(
        argument.value[argument.value != MISSING]
        for each in rows
        for argument in each.arguments
        if argument.is_text
    )
    interned = b"".join(
        field_bytes(field, field_bytes(1, position + 1) + field_bytes(2, layout.texts[position]))
        for field, positions in ((2, names), (29, texts))
        for position in positions
    ) + b"".join(
        field_bytes(3, field_bytes(1, iid) + field_bytes(2, key)) for key, iid in keys.items()
    )
    return _packet(field_bytes(12, interned), field_bytes(13, _STATE_CLEARED), field_bytes(87, 1))


def _used(positions: Iterable[Int64s]) -> list[int]:
    arrays = list(positions)
    return np.unique(np.concatenate(arrays)).tolist() if arrays else []


def _descriptors(layout: Layout, tracks: _Uuids) -> Iterator[bytes]:
    """All tracks but the counters; the file itself is track 0, whose children are processes."""
    yield _packet(field_bytes(60, field_bytes(1, 0) + field_bytes(11, _ORDER_EXPLICIT)))
    for index, process in enumerate(layout.processes):
        yield _packet(
            field_bytes(
                60,
                field_bytes(1, tracks.of_process(index))
                + field_bytes(2, process.name)
                + field_bytes(11, _ORDER_EXPLICIT)
                + field_bytes(12, process.number)
                + field_bytes(15, _MERGE_NEVER),
            )
        )
    for index, place in enumerate(layout.places):
        yield _packet(
            field_bytes(
                60,
                field_bytes(1, tracks.of_place(index))
                + field_bytes(2, place.name)
                + field_bytes(5, tracks.of_process(place.process))
                + field_bytes(12, place.order)
                + field_bytes(15, _MERGE_NEVER),
            )
        )


def _counter_descriptor(values: Values, tracks: _Uuids, uuid: int) -> bytes:
    unit = _COUNTER_UNITS.get(values.unit)
    described = field_bytes(3, unit) if unit is not None else field_bytes(6, values.unit)
    return _packet(
        field_bytes(
            60,
            field_bytes(1, uuid)
            + field_bytes(2, values.name)
            + field_bytes(5, tracks.of_process(values.process))
            + field_bytes(8, described)
            + field_bytes(12, values.order),
        )
    )


def _joined(content: Content, keys: dict[str, int], num_flows: int) -> _Joined:
    arguments, owners = [np.zeros((0, 3), np.int64)], [np.zeros(0, np.int64)]
    for first, rows in numbered(content.rows):
        for each in rows.arguments:
            there = np.flatnonzero(each.value != MISSING)
            # A text goes by its number, which counts from 1.
            value = each.value[there] + (1 if each.is_text else 0)
            key = np.full(len(there), keys[each.key])
            is_text = np.full(len(there), int(each.is_text))
            arguments.append(np.stack([key, is_text, value], axis=1))
            owners.append(first + there)
    num_rows = sum(len(rows) for rows in content.rows)
    argument, first_argument = _by_owner(np.concatenate(arguments), owners, num_rows)
    flows, flow_owners = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)]
    for arrows in content.flows:
        flow_id = num_flows + 1 + np.arange(len(arrows.source))
        num_flows += len(arrows.source)
        for ends, owner in ((0, arrows.source), (1, arrows.target)):
            flows.append(np.stack([flow_id, np.full(len(owner), ends)], axis=1))
            flow_owners.append(owner)
    flow, first_flow = _by_owner(np.concatenate(flows), flow_owners, num_rows)
    return _Joined(
        place=np.concatenate([rows.place for rows in content.rows]),
        name=np.concatenate([rows.name for rows in content.rows]),
        start_ns=np.concatenate([rows.start_ns for rows in content.rows]),
        end_ns=np.concatenate([rows.end_ns for rows in content.rows]),
        argument=argument,
        first_argument=first_argument,
        flow=flow,
        first_flow=first_flow,
    )


def _by_owner(table: Int64s, owners: list[Int64s], num_rows: int) -> tuple[Int64s, Int64s]:
    """The table by owning row, and where each row's part begins."""
    owner = np.concatenate(owners)
    return table[np.argsort(owner, kind="stable")], row_starts(owner, num_rows)


def _slice_chunks(joined: _Joined, tracks: _Uuids) -> Iterator[bytes]:
    row, kind, at_ns = _in_order(joined.start_ns, joined.end_ns)
    for first in range(0, len(row), CHUNK):
        part = slice(first, first + CHUNK)
        begins = kind[part] == _BEGIN
        of_row = row[part]
        events = np.stack(
            [
                at_ns[part],
                kind[part],
                tracks.of_place(0) + joined.place[of_row],
                np.where(begins, joined.name[of_row] + 1, 0),
                np.zeros(len(of_row), np.int64),
            ],
            axis=1,
        )
        yield _encoded(
            events,
            (joined.argument, _ranges(joined.first_argument, of_row, begins)),
            (joined.flow, _ranges(joined.first_flow, of_row, begins)),
        )


def _in_order(start_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Begins and ends of all slices as a reader has to meet them: row, type and timestamp.

    At one moment, slices that began earlier end first, inner ones before outer ones; then those
    without length begin and end; then the others begin, outer ones first, as rows do.
    """
    row = np.arange(len(start_ns))
    has_no_length = start_ns == end_ns
    begin = (
        start_ns,
        np.where(has_no_length, 1, 2),
        row,
        np.zeros(len(row), np.int64),
    )
    end = (
        end_ns,
        np.where(has_no_length, 1, 0),
        np.where(has_no_length, row, -start_ns),
        np.where(has_no_length, 1, -row),
    )
    at_ns, turn, then, last = (np.concatenate(pair) for pair in zip(begin, end, strict=True))
    order = np.lexsort((last, then, turn, at_ns))
    kind = np.repeat(np.array([_BEGIN, _END], np.int64), len(row))
    return np.concatenate([row, row])[order], kind[order], at_ns[order]


def _ranges(first: Int64s, row: Int64s, is_chosen: Bools) -> Int64s:
    """From where to where each event's part of a table goes; int64[events, 2]."""
    return np.stack([first[row], np.where(is_chosen, first[row + 1], first[row])], axis=1)


def _counter_chunks(values: Values, uuid: int) -> Iterator[bytes]:
    for first in range(0, len(values.at_ns), CHUNK):
        at_ns = values.at_ns[first : first + CHUNK]
        count = len(at_ns)
        nothing = np.zeros((count, 2), np.int64)
        bits = np.ascontiguousarray(values.value[first : first + CHUNK]).view(np.int64)
        columns = [at_ns, np.full(count, _COUNTER), np.full(count, uuid), np.zeros(count, np.int64)]
        yield _encoded(
            np.stack([*columns, bits], axis=1),
            (np.zeros((0, 3), np.int64), nothing),
            (np.zeros((0, 2), np.int64), nothing),
        )


def _encoded(events: Int64s, argument: tuple[Int64s, Int64s], flow: tuple[Int64s, Int64s]) -> bytes:
    num_arguments, num_flows = (
        int((ranges[:, 1] - ranges[:, 0]).sum()) for _, ranges in (argument, flow)
    )
    most = (
        MOST_EVENT_BYTES * len(events)
        + MOST_ARGUMENT_BYTES * num_arguments
        + FLOW_BYTES * num_flows
    )
    buffer = np.empty(most, np.uint8)
    written = events_into(buffer, events, *argument, *flow)
    return buffer[:written].tobytes()
