# ruff: noqa: PLR1714  numba compiles plain comparisons best
"""The compiled loop that reads Kineto JSON; `scan.py` is its wrapper.

In: a buffer of the file's text that ends in zeros, and where the last call stopped.
Out: rows of integers and pools of unique strings, written into tables that the wrapper
allocated. No Python object is made per record.

A record is taken whole: if the buffer ends inside one, nothing of it is kept and the wrapper
hands it in again with more text behind it. The same happens when a table is full, so adding a
string must be idempotent, and nothing else may be written before every check has passed.
Doubled and trailing commas are passed over.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from foretrace.base import Int64s, UInt8s, njit
from foretrace.trace.columns import Category
from foretrace.trace.fields import Drop, KeyTable, RecordKey, Row, ScanPhase, ScanState, ScanStatus
from foretrace.trace.json._compiled import ABSENT, BAD, MORE, is_text, string_end, value_end
from foretrace.trace.record._compiled import (
    RecordTables,
    Scratch,
    id_or_absent,
    is_memory,
    lane_number,
    number_or_absent,
    phase_of,
    read_record,
    record_lane,
    signature_at,
    string_at,
    string_or_absent,
)
from foretrace.trace.texts._compiled import NO_ROOM, Pool

Scalar: TypeAlias = Any  # an int or bool, inside numba one of its own

# What the columns of `CollectiveColumns` are read from, in their order, after the row.
COLLECTIVE_KEYS = np.array(
    [
        ABSENT,
        RecordKey.COLLECTIVE,
        RecordKey.GROUP,
        RecordKey.GROUP_DESCRIPTION,
        RecordKey.GROUP_RANKS,
        RecordKey.DTYPE,
        RecordKey.GROUP_SIZE,
        RecordKey.GROUP_SEQUENCE,
        RecordKey.IN_ELEMENTS,
        RecordKey.OUT_ELEMENTS,
        RecordKey.SOURCE_RANK,
        RecordKey.DESTINATION_RANK,
        RecordKey.IN_SPLITS,
        RecordKey.OUT_SPLITS,
    ],
    np.int64,
)
IS_COLLECTIVE_TEXT = np.array([0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1], np.bool_)

# Nothing here allocates, so arrays need no reference counts: without them 1.8 times faster.
# Tuples of arrays are passed by value: functions called once a record are inlined.
compiled = njit(_nrt=False)
inlined = njit(_nrt=False, forceinline=True)


class Known(NamedTuple):
    """What strings that were added first mean."""

    categories: Int64s  # int64[known], Category of string 0, 1, ...
    trace: int  # string "Trace": the profiler's span
    forward_backward: int  # string "fwdbwd"
    empty: int  # string ""


class Counts(NamedTuple):
    """Records not kept."""

    by_reason: Int64s  # int64[reasons], Drop
    by_category: Int64s  # int64[texts], by the category's text
    by_phase: Int64s  # int64[256], by the phase's letter


@compiled
def add_collective(
    buffer: UInt8s, row: int, scratch: Scratch, tables: RecordTables, pool: Pool, state: Int64s
) -> Scalar:
    """Add the record's collective metadata; NO_ROOM if a string did not fit.

    out: tables.collectives, pool, state
    """
    out = tables.collectives[state[ScanState.NUM_COLLECTIVES]]
    out[0] = row
    for column in range(1, len(COLLECTIVE_KEYS)):
        key = COLLECTIVE_KEYS[column]
        if key == RecordKey.GROUP and scratch.known[key] == 0:
            key = np.int64(RecordKey.GROUP_NUMBER)
        if scratch.known[key] == 0:
            out[column] = ABSENT
        elif IS_COLLECTIVE_TEXT[column]:
            out[column] = string_at(buffer, scratch.begin[key], scratch.end[key], scratch, pool)
            if out[column] == NO_ROOM:
                return NO_ROOM
        else:
            out[column] = scratch.number[key]
    return 0


@inlined
def keep_duration(
    buffer: UInt8s,
    lane: int,
    category: int,
    is_half: bool,
    scratch: Scratch,
    labels: UInt8s,
    label_begins: Int64s,
    known: Known,
    tables: RecordTables,
    pool: Pool,
    state: Int64s,
) -> Scalar:
    """Add a row; False if some table or pool is full. out: tables, pool, state."""
    name = np.int64(known.empty)
    if scratch.known[RecordKey.NAME] != 0:
        name = string_or_absent(buffer, scratch, RecordKey.NAME, pool)
    signature = np.int64(ABSENT)
    if (
        category == Category.OPERATOR
        or category == Category.ANNOTATION
        or category == Category.KERNEL
    ):
        signature = signature_at(buffer, scratch, labels, label_begins, pool)
    if name == NO_ROOM or signature == NO_ROOM:
        return False
    row = state[ScanState.NUM_ROWS]
    has_collective = (
        scratch.known[RecordKey.COLLECTIVE] != 0
        or scratch.known[RecordKey.GROUP] != 0
        or scratch.known[RecordKey.GROUP_SIZE] != 0
    )
    if has_collective:
        if add_collective(buffer, row, scratch, tables, pool, state) == NO_ROOM:
            return False
    # MTIA device records may turn out to be synchronisations when their name is read
    if category >= Category.SYNC and category != Category.DEVICE_ANNOTATION:
        kind = string_or_absent(buffer, scratch, RecordKey.SYNC_KIND, pool)
        if kind == NO_ROOM:
            return False
        sync = tables.syncs[state[ScanState.NUM_SYNCS]]
        sync[0] = row
        sync[1] = kind
        sync[2] = id_or_absent(scratch, RecordKey.STREAM)
        sync[3] = id_or_absent(scratch, RecordKey.WAIT_STREAM)
        sync[4] = id_or_absent(scratch, RecordKey.WAIT_CORRELATION)
        sync[5] = id_or_absent(scratch, RecordKey.WAIT_EVENT)
        state[ScanState.NUM_SYNCS] += 1
    if has_collective:
        state[ScanState.NUM_COLLECTIVES] += 1
    duration = np.int64(ABSENT)
    if is_half:
        half = tables.halves[state[ScanState.NUM_HALVES]]
        half[0] = 0
        half[1] = scratch.number[RecordKey.START]
        half[2] = lane
        half[3] = row
        state[ScanState.NUM_HALVES] += 1
    else:
        duration = scratch.number[RecordKey.DURATION]
        if duration < 0:
            duration = np.int64(0)
            state[ScanState.NUM_NEGATIVE] += 1
    out = tables.rows[row]
    out[Row.START] = scratch.number[RecordKey.START]
    out[Row.DURATION] = duration
    out[Row.CATEGORY] = category
    out[Row.NAME] = name
    out[Row.LANE] = lane
    out[Row.CORRELATION] = number_or_absent(scratch, RecordKey.CORRELATION)
    out[Row.EXTERNAL] = number_or_absent(scratch, RecordKey.EXTERNAL)
    out[Row.RECORD_FUNCTION] = number_or_absent(scratch, RecordKey.RECORD_FUNCTION)
    out[Row.SEQUENCE] = number_or_absent(scratch, RecordKey.SEQUENCE)
    out[Row.BYTES] = number_or_absent(scratch, RecordKey.COPY_BYTES)
    out[Row.SIGNATURE] = signature
    state[ScanState.NUM_ROWS] = row + 1
    return True


@inlined
def keep_record(
    buffer: UInt8s,
    n: int,
    scratch: Scratch,
    labels: UInt8s,
    label_begins: Int64s,
    known: Known,
    tables: RecordTables,
    pool: Pool,
    counts: Counts,
    state: Int64s,
) -> Scalar:
    """Put the record in `scratch` where it belongs, or count it; False if there is no room.

    out: tables, pool, counts, state
    """
    phase = phase_of(buffer, scratch)
    if phase == 0:
        counts.by_reason[Drop.NO_PHASE] += 1
        return True
    if phase == 77:  # M
        counts.by_reason[Drop.METADATA] += 1
        return True
    is_flow = phase == 115 or phase == 102 or phase == 116  # s, f, t
    is_instant = phase == 105 or phase == 73 or phase == 82  # i, I, R
    is_span = phase == 88 or phase == 66  # X, B
    if not (is_flow or is_instant or is_span or phase == 69):  # E
        counts.by_phase[phase] += 1
        return True
    if is_instant and not is_memory(buffer, scratch):
        counts.by_reason[Drop.INSTANT] += 1
        return True
    category_text = np.int64(ABSENT)
    if is_flow or is_span:
        category_text = string_or_absent(buffer, scratch, RecordKey.CATEGORY, pool)
        if category_text == NO_ROOM:
            return False
    if is_flow and (category_text != known.forward_backward or phase == 116):
        counts.by_reason[Drop.FLOW] += 1
        return True
    category = np.int64(ABSENT)
    if is_span:
        if category_text == ABSENT:
            counts.by_reason[Drop.NO_CATEGORY] += 1
            return True
        if category_text == known.trace:
            counts.by_reason[Drop.SPAN] += 1
            return True
        if category_text >= len(known.categories):
            counts.by_category[category_text] += 1
            return True
        category = known.categories[category_text]
    if scratch.known[RecordKey.START] == 0:
        counts.by_reason[Drop.NO_START] += 1
        return True
    if phase == 88 and scratch.known[RecordKey.DURATION] == 0:
        counts.by_reason[Drop.NO_DURATION] += 1
        return True
    lane = np.int64(ABSENT)
    if not is_instant:
        is_device = category >= Category.KERNEL
        lane = record_lane(buffer, n, scratch, is_device, tables, state)
        if lane == NO_ROOM:
            return False
    if is_span:
        return keep_duration(
            buffer,
            lane,
            category,
            phase == 66,
            scratch,
            labels,
            label_begins,
            known,
            tables,
            pool,
            state,
        )
    if is_instant:
        out = tables.memory[state[ScanState.NUM_MEMORY]]
        out[0] = scratch.number[RecordKey.START]
        out[1] = (
            scratch.number[RecordKey.CHANGE_BYTES]
            if scratch.known[RecordKey.CHANGE_BYTES] != 0
            else 0
        )
        out[2] = number_or_absent(scratch, RecordKey.ALLOCATED)
        out[3] = number_or_absent(scratch, RecordKey.RESERVED)
        out[4] = number_or_absent(scratch, RecordKey.DEVICE_TYPE)
        out[5] = number_or_absent(scratch, RecordKey.DEVICE_ID)
        state[ScanState.NUM_MEMORY] += 1
        return True
    if phase == 69:
        half = tables.halves[state[ScanState.NUM_HALVES]]
        half[0] = 1
        half[1] = scratch.number[RecordKey.START]
        half[2] = lane
        half[3] = ABSENT
        state[ScanState.NUM_HALVES] += 1
        return True
    flow = np.int64(ABSENT)
    if scratch.known[RecordKey.FLOW] != 0:
        flow = lane_number(buffer, scratch.begin[RecordKey.FLOW], scratch.end[RecordKey.FLOW], n)
    out = tables.flows[state[ScanState.NUM_FLOWS]]
    out[0] = 0 if phase == 115 else 1
    out[1] = flow
    out[2] = scratch.number[RecordKey.START]
    out[3] = lane
    state[ScanState.NUM_FLOWS] += 1
    return True


@inlined
def has_room(tables: RecordTables, state: Int64s) -> Scalar:
    """Whether every table takes one more row."""
    return (
        state[ScanState.NUM_ROWS] < len(tables.rows)
        and state[ScanState.NUM_COLLECTIVES] < len(tables.collectives)
        and state[ScanState.NUM_SYNCS] < len(tables.syncs)
        and state[ScanState.NUM_MEMORY] < len(tables.memory)
        and state[ScanState.NUM_FLOWS] < len(tables.flows)
        and state[ScanState.NUM_HALVES] < len(tables.halves)
    )


@compiled
def scan(
    buffer: UInt8s,
    n: int,
    keys: KeyTable,
    words: tuple[UInt8s, UInt8s],
    labels: UInt8s,
    label_begins: Int64s,
    known: Known,
    scratch: Scratch,
    tables: RecordTables,
    pool: Pool,
    counts: Counts,
    state: Int64s,
) -> Scalar:
    """Read as much of `buffer[:n]` as is whole; why it stopped, as `ScanStatus`.

    `buffer` has at least 64 zeros from `n` on. `words` is (b"traceEvents", b"nodes") as arrays.
    out: scratch, tables, pool, counts, state
    """
    i = np.int64(state[ScanState.POSITION])
    while True:
        # The state stands at a boundary here: between members, or between records.
        c = buffer[i]
        while c == 32 or c == 10 or c == 44 or c == 13 or c == 9:
            i += 1
            c = buffer[i]
        state[ScanState.POSITION] = i
        if i >= n:
            state[ScanState.POSITION] = n
            return ScanStatus.MORE
        phase = state[ScanState.PHASE]
        if phase == ScanPhase.EVENTS:
            if c == 123:
                if not has_room(tables, state):
                    return ScanStatus.FULL
                end = read_record(buffer, i, n, keys, scratch)
                if end == MORE:
                    return ScanStatus.MORE
                if end == BAD:
                    return ScanStatus.MALFORMED
                if not keep_record(
                    buffer, n, scratch, labels, label_begins, known, tables, pool, counts, state
                ):
                    return ScanStatus.FULL
                i = np.int64(end)
            elif c == 93:
                i += 1
                is_bare = state[ScanState.IS_BARE_LIST] != 0
                state[ScanState.PHASE] = ScanPhase.AFTER if is_bare else ScanPhase.TOP
                continue
            elif c == 125 or c == 58:
                return ScanStatus.MALFORMED
            else:
                end = value_end(buffer, i, n)
                if end < 0:
                    return ScanStatus.MORE
                counts.by_reason[Drop.NOT_AN_OBJECT] += 1
                i = np.int64(end)
            state[ScanState.NUM_EVENTS] += 1
        elif phase == ScanPhase.TOP:
            if c == 125:
                state[ScanState.PHASE] = ScanPhase.AFTER
                i += 1
                continue
            if c != 34:
                return ScanStatus.MALFORMED
            begin = i + 1
            end = string_end(buffer, begin, n)
            if end < 0:
                return ScanStatus.MORE
            value = end + 1
            c = buffer[value]
            while c == 32 or c == 10 or c == 13 or c == 9 or c == 58:
                value += 1
                c = buffer[value]
            if value >= n:
                return ScanStatus.MORE
            if c == 91 and is_text(buffer, begin, end, words[0]):
                state[ScanState.PHASE] = ScanPhase.EVENTS
                state[ScanState.HAS_LIST] = 1
                i = np.int64(value + 1)
                continue
            if c == 91 and is_text(buffer, begin, end, words[1]):
                return ScanStatus.NODES
            value_stop = value_end(buffer, value, n)
            if value_stop < 0:
                return ScanStatus.MORE
            state[ScanState.KEY_BEGIN] = i
            state[ScanState.VALUE_BEGIN] = value
            state[ScanState.VALUE_END] = value_stop
            state[ScanState.POSITION] = value_stop
            return ScanStatus.MEMBER
        elif phase == ScanPhase.BEFORE:
            if c == 123:
                state[ScanState.PHASE] = ScanPhase.TOP
            elif c == 91:
                state[ScanState.PHASE] = ScanPhase.EVENTS
                state[ScanState.IS_BARE_LIST] = 1
                state[ScanState.HAS_LIST] = 1
            else:
                return ScanStatus.MALFORMED
            i += 1
        else:
            return ScanStatus.DONE
