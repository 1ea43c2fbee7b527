# ruff: noqa: PLR1714  numba compiles plain comparisons best
"""Compiled functions that read one record of Kineto's JSON: its values, strings and lane.

A record is taken whole: if the buffer ends inside one, nothing of it is kept. The same happens when
a table is full, so adding a string or a lane is idempotent.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, njit
from foretrace.trace.fields import (
    FIRST_ARGUMENT,
    NUM_SLOTS,
    KeyTable,
    RecordKey,
    ScanState,
    ValueKind,
)
from foretrace.trace.json._compiled import (
    ABSENT,
    BAD,
    MORE,
    compact,
    number_at,
    string_end,
    unescape,
    value_end,
)
from foretrace.trace.texts._compiled import (
    HASH_FACTOR,
    HASH_MASK,
    HASH_START,
    NO_ROOM,
    Pool,
    hash_of,
    text_at,
    text_of,
)

Scalar: TypeAlias = Any  # an int or bool, inside numba one of its own
LARGEST_ID = 10**18  # an id or size beyond it is read as absent
LARGEST_NS = 4 * 10**18  # year 2096; a time beyond it is no time
UNSIGNED_MINUS_ONE = 4294967295  # CUPTI's "no stream" and "no id", unsigned 32 bits

# Nothing here allocates, so arrays need no reference counts: without them 1.8 times faster.
# Tuples of arrays are passed by value: functions called once a record are inlined.
compiled = njit(_nrt=False)
inlined = njit(_nrt=False, forceinline=True)


class RecordTables(NamedTuple):
    """Where records go."""

    rows: Int64s  # int64[rows, len(Row)]
    collectives: Int64s  # int64[rows, COLLECTIVE_FIELDS]
    syncs: Int64s  # int64[rows, SYNC_FIELDS]
    memory: Int64s  # int64[rows, MEMORY_FIELDS]
    flows: Int64s  # int64[rows, FLOW_FIELDS]
    halves: Int64s  # int64[rows, HALF_FIELDS]
    lanes: Int64s  # int64[lanes, LANE_FIELDS]
    lane_slots: Int32s  # int32[a power of two], lane; -1 empty


class Scratch(NamedTuple):
    """One record's values, by `RecordKey`."""

    number: Int64s  # int64[keys]
    known: UInt8s  # uint8[keys], whether the record has it
    begin: Int64s  # int64[keys], where the value's text begins
    end: Int64s  # int64[keys]
    text: UInt8s  # uint8[bytes], at least as long as the buffer and 256 more


@inlined
def key_at(
    buffer: UInt8s, begin: int, end: int, slots: Int32s, texts: UInt8s, text_begins: Int64s
) -> Scalar:
    """Position of the key with this text; ABSENT if it is none of them."""
    length = end - begin
    if length == 0:
        return ABSENT
    first = np.int64(buffer[begin])
    last = np.int64(buffer[end - 1])
    slot = (length * 29 + first * 7 + last * 13) & (NUM_SLOTS - 1)
    while True:
        key = slots[slot]
        if key < 0:
            return ABSENT
        text = text_begins[key]
        if text_begins[key + 1] - text == length:
            is_same = True
            for k in range(length):
                if buffer[begin + k] != texts[text + k]:
                    is_same = False
                    break
            if is_same:
                return np.int64(key)
        slot = (slot + 1) & (NUM_SLOTS - 1)


@inlined
def read_record(buffer: UInt8s, i: int, n: int, keys: KeyTable, scratch: Scratch) -> Scalar:
    """Fill `scratch` from the object that begins at `i`; the position after it, MORE or BAD.

    out: scratch.number, scratch.known, scratch.begin, scratch.end
    """
    # arrays of a tuple are counted at every use: taken out once, four times faster
    known = scratch.known
    number = scratch.number
    begins = scratch.begin
    ends = scratch.end
    all_keys = keys.keys
    kinds = keys.kinds
    known[:] = 0
    is_inside_args = False
    i += 1
    while True:
        c = buffer[i]
        while c == 32 or c == 10 or c == 44 or c == 13 or c == 9:
            i += 1
            c = buffer[i]
        if c == 125:
            i += 1
            if not is_inside_args:
                return i
            is_inside_args = False
            continue
        if c != 34:
            return MORE if i >= n else BAD
        begin = i + 1
        end = string_end(buffer, begin, n)
        if end < 0:
            return MORE
        i = end + 1
        c = buffer[i]
        while c == 32 or c == 58 or c == 10 or c == 13 or c == 9:
            i += 1
            c = buffer[i]
        position = key_at(buffer, begin, end, keys.slots, keys.texts, keys.begins)
        key = ABSENT
        if position >= 0:
            key = all_keys[position]
            if (key >= FIRST_ARGUMENT) != is_inside_args:
                key = ABSENT
        if key < 0:
            i = value_end(buffer, i, n)
            if i < 0:
                return MORE
            continue
        kind = kinds[position]
        if kind == ValueKind.SPAN:
            begins[key] = i
            i = value_end(buffer, i, n)
            if i < 0:
                return MORE
            ends[key] = i
            # "null" and nothing at all are no value
            known[key] = i > begins[key] and c != 110
        elif kind == ValueKind.ARGS:
            if c == 123:
                is_inside_args = True
                i += 1
            else:
                i = value_end(buffer, i, n)
                if i < 0:
                    return MORE
        elif c == 123 or c == 91:
            known[key] = 0
            i = value_end(buffer, i, n)
            if i < 0:
                return MORE
        else:
            if kind == ValueKind.TIME:
                is_number, value, i = number_at(buffer, i, n, 3, LARGEST_NS)
            else:
                is_number, value, i = number_at(buffer, i, n, 0, LARGEST_ID)
            if i < 0:
                return MORE
            number[key] = value
            known[key] = is_number


@inlined
def number_or_absent(scratch: Scratch, key: int) -> Scalar:
    """The record's number, ABSENT where it has none."""
    return scratch.number[key] if scratch.known[key] != 0 else np.int64(ABSENT)


@compiled
def id_or_absent(scratch: Scratch, key: int) -> Scalar:
    """An id of `cuda_sync`, ABSENT where it has none or says so in unsigned 32 bits."""
    value = number_or_absent(scratch, key)
    return np.int64(ABSENT) if value == UNSIGNED_MINUS_ONE else value


@inlined
def phase_of(buffer: UInt8s, scratch: Scratch) -> Scalar:
    """The letter of the record's phase; 0 if it has none."""
    begin = scratch.begin[RecordKey.PHASE]
    if scratch.known[RecordKey.PHASE] == 0 or scratch.end[RecordKey.PHASE] - begin != 3:
        return np.int64(0)
    return np.int64(buffer[begin + 1])


@inlined
def is_memory(buffer: UInt8s, scratch: Scratch) -> Scalar:
    """Whether the record's name is "[memory]"."""
    begin = scratch.begin[RecordKey.NAME]
    return (
        scratch.known[RecordKey.NAME] != 0
        and scratch.end[RecordKey.NAME] - begin == 10
        and buffer[begin + 1] == 91
        and buffer[begin + 2] == 109
        and buffer[begin + 7] == 121
        and buffer[begin + 8] == 93
    )


@compiled
def string_at(buffer: UInt8s, begin: int, end: int, scratch: Scratch, pool: Pool) -> Scalar:
    """The string that a value's text stands for; NO_ROOM if the pool is full.

    out: scratch.text, pool
    """
    if buffer[begin] != 34:
        length = compact(buffer, begin, end, scratch.text, 0)
        return text_at(scratch.text, 0, length, pool)
    begin += 1
    end -= 1
    h = np.int64(HASH_START)
    for k in range(begin, end):
        c = buffer[k]
        if c == 92:
            length = unescape(buffer, begin, end, scratch.text, 0)
            return text_at(scratch.text, 0, length, pool)
        h = ((h ^ np.int64(c)) * HASH_FACTOR) & HASH_MASK
    return text_of(buffer, begin, end, h, pool)


@compiled
def string_or_absent(buffer: UInt8s, scratch: Scratch, key: int, pool: Pool) -> Scalar:
    """The record's string, ABSENT where it has none, NO_ROOM if the pool is full."""
    if scratch.known[key] == 0:
        return np.int64(ABSENT)
    return string_at(buffer, scratch.begin[key], scratch.end[key], scratch, pool)


@compiled
def append_member(
    buffer: UInt8s, scratch: Scratch, key: int, label: UInt8s, length: int, at: int
) -> Scalar:
    """Write `"label":value` into `scratch.text`, if the record has the value; its end."""
    if scratch.known[key] == 0:
        return at
    scratch.text[at] = 123 if at == 0 else 44
    scratch.text[at + 1] = 34
    at += 2
    for k in range(length):
        scratch.text[at + k] = label[k]
    at += length
    scratch.text[at] = 34
    scratch.text[at + 1] = 58
    return compact(buffer, scratch.begin[key], scratch.end[key], scratch.text, at + 2)


@compiled
def signature_at(
    buffer: UInt8s,
    scratch: Scratch,
    labels: UInt8s,
    label_begins: Int64s,
    pool: Pool,
) -> Scalar:
    """The record's shapes, types, strides, scalars and launch grid as one string.

    Returns ABSENT if the record has none of them, NO_ROOM if the pool is full.
    `labels[label_begins[k]:label_begins[k + 1]]` names the k-th of Key.INPUT_DIMS to Key.BLOCK.
    out: scratch.text, pool
    """
    at = 0
    for k in range(len(label_begins) - 1):
        begin = label_begins[k]
        length = label_begins[k + 1] - begin
        at = append_member(buffer, scratch, RecordKey.INPUT_DIMS + k, labels[begin:], length, at)
    if at == 0:
        return np.int64(ABSENT)
    scratch.text[at] = 125
    at += 1
    return text_at(scratch.text, 0, at, pool)


@inlined
def lane_number(buffer: UInt8s, begin: int, end: int, n: int) -> Scalar:
    """The number that a thread's or process's text stands for.

    A number, a number in quotes, and the end of "stream 7" are that number; any other text
    is a number below -2**32 made of the text's hash.
    """
    is_number, value, _ = number_at(buffer, begin, n, 0, LARGEST_ID)
    if is_number:
        return value
    if buffer[begin] == 34:
        begin += 1
        end -= 1
    if end - begin > 7 and buffer[begin] == 115 and buffer[begin + 6] == 32:
        value = np.int64(0)
        i = begin + 7
        while i < end and i < begin + 24 and buffer[i] >= 48 and buffer[i] <= 57:
            value = value * 10 + np.int64(buffer[i]) - 48
            i += 1
        if i == end:
            return value
    return -(hash_of(buffer, begin, end) + HASH_MASK + 2)


@inlined
def lane_hash(kind: int, process: int, device: int, number: int) -> Scalar:
    """A hash of a lane's identity."""
    low = 0xFFFFFFFF
    mixed = (number & low) * 40503 + (process & low) * 30011 + (device & 0xFFFF) * 271 + kind
    return mixed ^ (mixed >> 15)


@compiled
def fill_lane_slots(slots: Int32s, lanes: Int64s, num_lanes: int) -> None:
    """Put lanes back into a larger, empty table. out: slots."""
    mask = len(slots) - 1
    for lane in range(num_lanes):
        mixed = lane_hash(lanes[lane, 0], lanes[lane, 1], lanes[lane, 2], lanes[lane, 3])
        slot = mixed & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = lane


@inlined
def lane_of(
    kind: int, process: int, device: int, number: int, tables: RecordTables, state: Int64s
) -> Scalar:
    """The lane with this identity, added if it is new; NO_ROOM if there is none.

    out: tables.lanes, tables.lane_slots, state
    """
    mask = len(tables.lane_slots) - 1
    slot = lane_hash(kind, process, device, number) & mask
    while True:
        lane = np.int64(tables.lane_slots[slot])
        if lane < 0:
            break
        if (
            tables.lanes[lane, 3] == number
            and tables.lanes[lane, 1] == process
            and tables.lanes[lane, 2] == device
            and tables.lanes[lane, 0] == kind
        ):
            return lane
        slot = (slot + 1) & mask
    lane = np.int64(state[ScanState.NUM_LANES])
    if lane >= len(tables.lanes) or 2 * lane + 2 > len(tables.lane_slots):
        return np.int64(NO_ROOM)
    tables.lanes[lane, 0] = kind
    tables.lanes[lane, 1] = process
    tables.lanes[lane, 2] = device
    tables.lanes[lane, 3] = number
    tables.lane_slots[slot] = lane
    state[ScanState.NUM_LANES] = lane + 1
    return lane


@inlined
def record_lane(
    buffer: UInt8s, n: int, scratch: Scratch, is_device: bool, tables: RecordTables, state: Int64s
) -> Scalar:
    """The lane that a record stands on. Device and stream arguments come before pid and tid.

    out: tables.lanes, tables.lane_slots, state
    """
    process = np.int64(ABSENT)
    number = np.int64(ABSENT)
    if scratch.known[RecordKey.PROCESS] != 0:
        process = lane_number(
            buffer, scratch.begin[RecordKey.PROCESS], scratch.end[RecordKey.PROCESS], n
        )
    if scratch.known[RecordKey.THREAD] != 0:
        number = lane_number(
            buffer, scratch.begin[RecordKey.THREAD], scratch.end[RecordKey.THREAD], n
        )
    device = np.int64(ABSENT)
    if is_device:
        device = process
        process = np.int64(ABSENT)
        if scratch.known[RecordKey.DEVICE] != 0:
            device = scratch.number[RecordKey.DEVICE]
        if scratch.known[RecordKey.STREAM] != 0:
            number = scratch.number[RecordKey.STREAM]
        if number == UNSIGNED_MINUS_ONE:
            number = np.int64(ABSENT)
        if device < -1 or device >= 2147483647:
            device = np.int64(ABSENT)
    kind = np.int64(1) if is_device else np.int64(0)
    return lane_of(kind, process, device, number, tables, state)
