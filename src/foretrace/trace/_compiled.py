# ruff: noqa: PLR1714  numba compiles plain comparisons best
"""The compiled loop that reads Kineto JSON; `scan.py` is its wrapper.

In: a buffer of the file's text that ends in zeros, and where the last call stopped.
Out: rows of integers and pools of unique strings, written into tables that the wrapper
allocated. No Python object is made per record.

A record is taken whole: if the buffer ends inside one, nothing of it is kept and the wrapper
hands it in again with more text behind it. The same happens when a table is full, so adding a
string must be idempotent, and nothing else may be written before every check has passed.

What is not JSON by the letter but has one meaning is read: doubled or trailing commas, bare
NaN and Infinity, control characters inside strings, missing values.

numba's cache looks at this file only: save it too after a change of `fields.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, njit
from foretrace.trace.columns import Category
from foretrace.trace.fields import (
    FIRST_ARGUMENT,
    NUM_SLOTS,
    Drop,
    Key,
    Kind,
    Phase,
    Row,
    State,
    Status,
)

Scalar: TypeAlias = Any  # an int or bool, inside numba one of its own
MORE = -1  # instead of a position: the buffer ends here
BAD = -2  # instead of a position: this is not JSON
NO_ROOM = -3  # instead of a string or lane: its table is full
ABSENT = -1
LARGEST_ID = 10**18  # an id or size beyond it is read as absent
LARGEST_NS = 4 * 10**18  # year 2096; a time beyond it is no time
UNSIGNED_MINUS_ONE = 4294967295  # CUPTI's "no stream" and "no id", unsigned 32 bits
HALF_OF_TEN_TO_19 = 5 * 10**18
HASH_START = 2166136261  # FNV-1a, 32 bits: http://www.isthe.com/chongo/tech/comp/fnv/
HASH_FACTOR = 16777619
HASH_MASK = 0xFFFFFFFF


# What the columns of `CollectiveColumns` are read from, in their order, after the row.
COLLECTIVE_KEYS = np.array(
    [
        ABSENT,
        Key.COLLECTIVE,
        Key.GROUP,
        Key.GROUP_DESCRIPTION,
        Key.GROUP_RANKS,
        Key.DTYPE,
        Key.GROUP_SIZE,
        Key.GROUP_SEQUENCE,
        Key.IN_ELEMENTS,
        Key.OUT_ELEMENTS,
        Key.SOURCE_RANK,
        Key.DESTINATION_RANK,
        Key.IN_SPLITS,
        Key.OUT_SPLITS,
    ],
    np.int64,
)
IS_COLLECTIVE_TEXT = np.array([0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1], np.bool_)

# Nothing here allocates, so arrays need no reference counts: without them 1.8 times faster.
# Tuples of arrays are passed by value: functions called once a record are inlined.
compiled = njit(cache=True, nogil=True, _nrt=False)
inlined = njit(cache=True, nogil=True, _nrt=False, forceinline=True)


class Keys(NamedTuple):
    """`fields.KeyTable` as numba takes it."""

    slots: Int32s
    texts: UInt8s
    begins: Int64s
    keys: Int64s
    kinds: Int64s


class Pool(NamedTuple):
    """Unique strings; string `s` is `arena[begins[s]:begins[s + 1]]`."""

    arena: UInt8s  # uint8[bytes]
    begins: Int64s  # int64[strings + 1]
    hashes: Int64s  # int64[strings]
    slots: Int32s  # int32[a power of two], string; -1 empty
    dropped: Int64s  # int64[strings], records not kept because of this category


class Known(NamedTuple):
    """What strings that were added first mean."""

    categories: Int64s  # int64[known], Category of string 0, 1, ...
    trace: int  # string "Trace": the profiler's span
    forward_backward: int  # string "fwdbwd"
    empty: int  # string ""


class Tables(NamedTuple):
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
    """One record's values, by `Key`."""

    number: Int64s  # int64[keys]
    known: UInt8s  # uint8[keys], whether the record has it
    begin: Int64s  # int64[keys], where the value's text begins
    end: Int64s  # int64[keys]
    text: UInt8s  # uint8[bytes], at least as long as the buffer and 256 more


class Counts(NamedTuple):
    """Records not kept."""

    by_reason: Int64s  # int64[reasons], Drop
    by_phase: Int64s  # int64[256], by the phase's letter


@compiled
def string_end(buffer: UInt8s, i: int, n: int) -> Scalar:
    """Position of the quote that closes the string whose text begins at `i`, or MORE."""
    while True:
        c = buffer[i]
        if c == 34:
            return i if i < n else MORE
        if c == 92:
            i += 2
        elif c == 0 and i >= n:
            return MORE
        else:
            i += 1


@compiled
def value_end(buffer: UInt8s, i: int, n: int) -> Scalar:
    """Position after the value that begins at `i`, of any kind, or MORE."""
    c = buffer[i]
    if c == 34:
        i = string_end(buffer, i + 1, n)
        return i + 1 if i >= 0 else MORE
    if c == 123 or c == 91:
        depth = 0
        while True:
            c = buffer[i]
            if c == 34:
                i = string_end(buffer, i + 1, n)
                if i < 0:
                    return MORE
                i += 1
            elif c == 123 or c == 91:
                depth += 1
                i += 1
            elif c == 125 or c == 93:
                depth -= 1
                i += 1
                if depth == 0:
                    return i
            elif c == 0 and i >= n:
                return MORE
            else:
                i += 1
    while True:
        c = buffer[i]
        if c == 44 or c == 125 or c == 93 or c == 32 or c == 10 or c == 13 or c == 9:
            return i
        if c == 0 and i >= n:
            return MORE
        i += 1


@compiled
def number_at(
    buffer: UInt8s, i: int, n: int, scale: int, limit: int
) -> tuple[Scalar, Scalar, Scalar]:
    """The number at `i` times ten to `scale`, rounded, halves up.

    Returns (whether it is one within the limit, its value, position after it or MORE).
    Digits are kept as an integer, so nothing is lost on the way through a float.
    """
    begin = i
    if buffer[i] == 34:
        i += 1
    is_negative = buffer[i] == 45
    if is_negative:
        i += 1
    mantissa = np.int64(0)
    num_digits = 0
    shift = np.int64(scale)
    first_lost = np.int64(0)
    num_lost = 0
    is_more_lost = False
    is_fraction = False
    is_too_large = False
    while True:
        c = buffer[i]
        if c >= 48 and c <= 57:
            num_digits += 1
            digit = np.int64(c) - 48
            if num_lost == 0 and mantissa <= 922337203685477579:
                mantissa = mantissa * 10 + digit
                if is_fraction:
                    shift -= 1
            elif not is_fraction:
                is_too_large = True
            elif num_lost == 0:
                first_lost = digit
                num_lost = 1
            elif digit != 0:
                is_more_lost = True
        elif c == 46 and not is_fraction:
            is_fraction = True
        else:
            break
        i += 1
    if num_digits > 0 and (buffer[i] == 101 or buffer[i] == 69):
        i += 1
        is_negative_exponent = buffer[i] == 45
        if buffer[i] == 45 or buffer[i] == 43:
            i += 1
        exponent = np.int64(0)
        num_digits = 0
        while buffer[i] >= 48 and buffer[i] <= 57:
            num_digits += 1
            if exponent < 10000:
                exponent = exponent * 10 + (np.int64(buffer[i]) - 48)
            i += 1
        shift = shift - exponent if is_negative_exponent else shift + exponent
    c = buffer[i]
    if buffer[begin] == 34:
        if c == 34 and i < n:
            i += 1
        else:
            num_digits = 0
    elif c == 0 and i >= n:
        return False, np.int64(0), np.int64(MORE)
    elif not (c == 44 or c == 125 or c == 93 or c == 32 or c == 10 or c == 13 or c == 9):
        num_digits = 0
    if num_digits == 0:
        return False, np.int64(0), np.int64(value_end(buffer, begin, n))
    if is_too_large:
        return False, np.int64(0), np.int64(i)
    while shift > 0 and mantissa != 0:
        if mantissa >= limit // 10:
            return False, np.int64(0), np.int64(i)
        mantissa *= 10
        shift -= 1
    is_half = first_lost == 5 and not is_more_lost
    is_above_half = first_lost > 5 or (first_lost == 5 and is_more_lost)
    if shift < 0:
        has_tail = first_lost > 0 or is_more_lost
        if shift < -18:
            # Ten to the 19th is more than an int64 holds; its half is not.
            is_near_half = shift == -19
            is_half = is_near_half and mantissa == HALF_OF_TEN_TO_19 and not has_tail
            is_above_half = is_near_half and (
                mantissa > HALF_OF_TEN_TO_19 or (mantissa == HALF_OF_TEN_TO_19 and has_tail)
            )
            mantissa = np.int64(0)
        else:
            power = np.int64(1)
            while shift < 0:
                power *= 10
                shift += 1
            rest = mantissa % power
            mantissa = mantissa // power
            is_half = rest * 2 == power and not has_tail
            is_above_half = rest * 2 > power or (rest * 2 == power and has_tail)
    if is_above_half or (is_half and not is_negative):
        mantissa += 1
    if mantissa >= limit:
        return False, np.int64(0), np.int64(i)
    return True, -mantissa if is_negative else mantissa, np.int64(i)


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
def read_record(buffer: UInt8s, i: int, n: int, keys: Keys, scratch: Scratch) -> Scalar:
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
        if kind == Kind.SPAN:
            begins[key] = i
            i = value_end(buffer, i, n)
            if i < 0:
                return MORE
            ends[key] = i
            # "null" and nothing at all are no value
            known[key] = i > begins[key] and c != 110
        elif kind == Kind.ARGS:
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
            if kind == Kind.TIME:
                is_number, value, i = number_at(buffer, i, n, 3, LARGEST_NS)
            else:
                is_number, value, i = number_at(buffer, i, n, 0, LARGEST_ID)
            if i < 0:
                return MORE
            number[key] = value
            known[key] = is_number


@inlined
def hash_of(text: UInt8s, begin: int, end: int) -> Scalar:
    """FNV-1a of these bytes."""
    h = np.int64(HASH_START)
    for k in range(begin, end):
        h = ((h ^ np.int64(text[k])) * HASH_FACTOR) & HASH_MASK
    return h


@compiled
def string_of(text: UInt8s, begin: int, end: int, h: int, pool: Pool, state: Int64s) -> Scalar:
    """The string with these bytes and this hash, added if it is new; NO_ROOM if there is none.

    out: pool, state
    """
    mask = len(pool.slots) - 1
    length = end - begin
    slot = h & mask
    while True:
        s = np.int64(pool.slots[slot])
        if s < 0:
            break
        if pool.hashes[s] == h:
            other = pool.begins[s]
            if pool.begins[s + 1] - other == length:
                difference = np.int64(0)
                for k in range(length):
                    difference |= np.int64(text[begin + k]) ^ np.int64(pool.arena[other + k])
                if difference == 0:
                    return s
        slot = (slot + 1) & mask
    s = np.int64(state[State.NUM_STRINGS])
    used = state[State.ARENA_USED]
    if s >= len(pool.hashes) or used + length > len(pool.arena) or 2 * s + 2 > len(pool.slots):
        return np.int64(NO_ROOM)
    for k in range(length):
        pool.arena[used + k] = text[begin + k]
    pool.begins[s + 1] = used + length
    pool.hashes[s] = h
    pool.slots[slot] = s
    pool.dropped[s] = 0
    state[State.NUM_STRINGS] = s + 1
    state[State.ARENA_USED] = used + length
    return s


@compiled
def fill_slots(slots: Int32s, hashes: Int64s, num_strings: int) -> None:
    """Put strings back into a larger, empty table; Chakra's texts too. out: slots."""
    mask = len(slots) - 1
    for s in range(num_strings):
        slot = hashes[s] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = s


@compiled
def hex_at(buffer: UInt8s, i: int) -> Scalar:
    """The four hexadecimal digits at `i`; ABSENT if they are none."""
    value = np.int64(0)
    for k in range(4):
        c = np.int64(buffer[i + k])
        if c >= 48 and c <= 57:
            value = value * 16 + c - 48
        elif c >= 97 and c <= 102:
            value = value * 16 + c - 87
        elif c >= 65 and c <= 70:
            value = value * 16 + c - 55
        else:
            return np.int64(ABSENT)
    return value


@compiled
def unescape(buffer: UInt8s, begin: int, end: int, text: UInt8s, at: int) -> Scalar:
    """Write a string's content as UTF-8 from `at` on; where it ends. out: text.

    A surrogate without its other half becomes U+FFFD; a backslash before a character that
    needs none is left out.
    """
    i = begin
    while i < end:
        c = buffer[i]
        if c != 92 or i + 1 >= end:
            text[at] = c
            at += 1
            i += 1
            continue
        c = buffer[i + 1]
        i += 2
        if c == 117 and i + 4 <= end:
            code = hex_at(buffer, i)
            if code < 0:
                text[at] = c
                at += 1
                continue
            i += 4
            if code >= 0xD800 and code < 0xDC00:
                low = np.int64(ABSENT)
                if i + 6 <= end and buffer[i] == 92 and buffer[i + 1] == 117:
                    low = hex_at(buffer, i + 2)
                if low >= 0xDC00 and low < 0xE000:
                    code = 0x10000 + (code - 0xD800) * 1024 + (low - 0xDC00)
                    i += 6
                else:
                    code = np.int64(0xFFFD)
            elif code >= 0xDC00 and code < 0xE000:
                code = np.int64(0xFFFD)
            if code < 0x80:
                text[at] = code
                at += 1
            elif code < 0x800:
                text[at] = 0xC0 | (code >> 6)
                text[at + 1] = 0x80 | (code & 63)
                at += 2
            elif code < 0x10000:
                text[at] = 0xE0 | (code >> 12)
                text[at + 1] = 0x80 | ((code >> 6) & 63)
                text[at + 2] = 0x80 | (code & 63)
                at += 3
            else:
                text[at] = 0xF0 | (code >> 18)
                text[at + 1] = 0x80 | ((code >> 12) & 63)
                text[at + 2] = 0x80 | ((code >> 6) & 63)
                text[at + 3] = 0x80 | (code & 63)
                at += 4
            continue
        if c == 110:
            text[at] = 10
        elif c == 116:
            text[at] = 9
        elif c == 114:
            text[at] = 13
        elif c == 98:
            text[at] = 8
        elif c == 102:
            text[at] = 12
        else:
            text[at] = c
        at += 1
    return at


@compiled
def compact(buffer: UInt8s, begin: int, end: int, text: UInt8s, at: int) -> Scalar:
    """Write a value as it stands, without the blanks between its parts; its end. out: text."""
    is_inside_string = False
    i = begin
    while i < end:
        c = buffer[i]
        if is_inside_string:
            text[at] = c
            at += 1
            if c == 92:
                i += 1
                text[at] = buffer[i]
                at += 1
            elif c == 34:
                is_inside_string = False
        elif not (c == 32 or c == 10 or c == 13 or c == 9):
            text[at] = c
            at += 1
            if c == 34:
                is_inside_string = True
        i += 1
    return at


@compiled
def string_at(
    buffer: UInt8s, begin: int, end: int, scratch: Scratch, pool: Pool, state: Int64s
) -> Scalar:
    """The string that a value's text stands for; NO_ROOM if the pool is full.

    out: scratch.text, pool, state
    """
    if buffer[begin] != 34:
        length = compact(buffer, begin, end, scratch.text, 0)
        return string_of(scratch.text, 0, length, hash_of(scratch.text, 0, length), pool, state)
    begin += 1
    end -= 1
    h = np.int64(HASH_START)
    for k in range(begin, end):
        c = buffer[k]
        if c == 92:
            length = unescape(buffer, begin, end, scratch.text, 0)
            h = hash_of(scratch.text, 0, length)
            return string_of(scratch.text, 0, length, h, pool, state)
        h = ((h ^ np.int64(c)) * HASH_FACTOR) & HASH_MASK
    return string_of(buffer, begin, end, h, pool, state)


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
    state: Int64s,
) -> Scalar:
    """The record's shapes, types, strides, scalars and launch grid as one string.

    Returns ABSENT if the record has none of them, NO_ROOM if the pool is full.
    `labels[label_begins[k]:label_begins[k + 1]]` names the k-th of Key.INPUT_DIMS to Key.BLOCK.
    out: scratch.text, pool, state
    """
    at = 0
    for k in range(len(label_begins) - 1):
        begin = label_begins[k]
        length = label_begins[k + 1] - begin
        at = append_member(buffer, scratch, Key.INPUT_DIMS + k, labels[begin:], length, at)
    if at == 0:
        return np.int64(ABSENT)
    scratch.text[at] = 125
    at += 1
    return string_of(scratch.text, 0, at, hash_of(scratch.text, 0, at), pool, state)


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
    kind: int, process: int, device: int, number: int, tables: Tables, state: Int64s
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
    lane = np.int64(state[State.NUM_LANES])
    if lane >= len(tables.lanes) or 2 * lane + 2 > len(tables.lane_slots):
        return np.int64(NO_ROOM)
    tables.lanes[lane, 0] = kind
    tables.lanes[lane, 1] = process
    tables.lanes[lane, 2] = device
    tables.lanes[lane, 3] = number
    tables.lane_slots[slot] = lane
    state[State.NUM_LANES] = lane + 1
    return lane


@inlined
def record_lane(
    buffer: UInt8s, n: int, scratch: Scratch, is_device: bool, tables: Tables, state: Int64s
) -> Scalar:
    """The lane that a record stands on. Device and stream arguments come before pid and tid.

    out: tables.lanes, tables.lane_slots, state
    """
    process = np.int64(ABSENT)
    number = np.int64(ABSENT)
    if scratch.known[Key.PROCESS] != 0:
        process = lane_number(buffer, scratch.begin[Key.PROCESS], scratch.end[Key.PROCESS], n)
    if scratch.known[Key.THREAD] != 0:
        number = lane_number(buffer, scratch.begin[Key.THREAD], scratch.end[Key.THREAD], n)
    device = np.int64(ABSENT)
    if is_device:
        device = process
        process = np.int64(ABSENT)
        if scratch.known[Key.DEVICE] != 0:
            device = scratch.number[Key.DEVICE]
        if scratch.known[Key.STREAM] != 0:
            number = scratch.number[Key.STREAM]
        if number == UNSIGNED_MINUS_ONE:
            number = np.int64(ABSENT)
        if device < -1 or device >= 2147483647:
            device = np.int64(ABSENT)
    kind = np.int64(1) if is_device else np.int64(0)
    return lane_of(kind, process, device, number, tables, state)


@inlined
def number_or_absent(scratch: Scratch, key: int) -> Scalar:
    """The record's number, ABSENT where it has none."""
    return scratch.number[key] if scratch.known[key] != 0 else np.int64(ABSENT)


@compiled
def string_or_absent(
    buffer: UInt8s, scratch: Scratch, key: int, pool: Pool, state: Int64s
) -> Scalar:
    """The record's string, ABSENT where it has none, NO_ROOM if the pool is full."""
    if scratch.known[key] == 0:
        return np.int64(ABSENT)
    return string_at(buffer, scratch.begin[key], scratch.end[key], scratch, pool, state)


@compiled
def add_collective(
    buffer: UInt8s, row: int, scratch: Scratch, tables: Tables, pool: Pool, state: Int64s
) -> Scalar:
    """Add the record's collective metadata; NO_ROOM if a string did not fit.

    out: tables.collectives, pool, state
    """
    out = tables.collectives[state[State.NUM_COLLECTIVES]]
    out[0] = row
    for column in range(1, len(COLLECTIVE_KEYS)):
        key = COLLECTIVE_KEYS[column]
        if key == Key.GROUP and scratch.known[key] == 0:
            key = np.int64(Key.GROUP_NUMBER)
        if scratch.known[key] == 0:
            out[column] = ABSENT
        elif IS_COLLECTIVE_TEXT[column]:
            out[column] = string_at(
                buffer, scratch.begin[key], scratch.end[key], scratch, pool, state
            )
            if out[column] == NO_ROOM:
                return NO_ROOM
        else:
            out[column] = scratch.number[key]
    return 0


@compiled
def id_or_absent(scratch: Scratch, key: int) -> Scalar:
    """An id of `cuda_sync`, ABSENT where it has none or says so in unsigned 32 bits."""
    value = number_or_absent(scratch, key)
    return np.int64(ABSENT) if value == UNSIGNED_MINUS_ONE else value


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
    tables: Tables,
    pool: Pool,
    state: Int64s,
) -> Scalar:
    """Add a row; False if some table or pool is full. out: tables, pool, state."""
    name = np.int64(known.empty)
    if scratch.known[Key.NAME] != 0:
        name = string_or_absent(buffer, scratch, Key.NAME, pool, state)
    signature = np.int64(ABSENT)
    if (
        category == Category.OPERATOR
        or category == Category.ANNOTATION
        or category == Category.KERNEL
    ):
        signature = signature_at(buffer, scratch, labels, label_begins, pool, state)
    if name == NO_ROOM or signature == NO_ROOM:
        return False
    row = state[State.NUM_ROWS]
    has_collective = (
        scratch.known[Key.COLLECTIVE] != 0
        or scratch.known[Key.GROUP] != 0
        or scratch.known[Key.GROUP_SIZE] != 0
    )
    if has_collective:
        if add_collective(buffer, row, scratch, tables, pool, state) == NO_ROOM:
            return False
    # MTIA device records may turn out to be synchronisations when their name is read
    if category >= Category.SYNC and category != Category.DEVICE_ANNOTATION:
        kind = string_or_absent(buffer, scratch, Key.SYNC_KIND, pool, state)
        if kind == NO_ROOM:
            return False
        sync = tables.syncs[state[State.NUM_SYNCS]]
        sync[0] = row
        sync[1] = kind
        sync[2] = id_or_absent(scratch, Key.STREAM)
        sync[3] = id_or_absent(scratch, Key.WAIT_STREAM)
        sync[4] = id_or_absent(scratch, Key.WAIT_CORRELATION)
        sync[5] = id_or_absent(scratch, Key.WAIT_EVENT)
        state[State.NUM_SYNCS] += 1
    if has_collective:
        state[State.NUM_COLLECTIVES] += 1
    duration = np.int64(ABSENT)
    if is_half:
        half = tables.halves[state[State.NUM_HALVES]]
        half[0] = 0
        half[1] = scratch.number[Key.START]
        half[2] = lane
        half[3] = row
        state[State.NUM_HALVES] += 1
    else:
        duration = scratch.number[Key.DURATION]
        if duration < 0:
            duration = np.int64(0)
            state[State.NUM_NEGATIVE] += 1
    out = tables.rows[row]
    out[Row.START] = scratch.number[Key.START]
    out[Row.DURATION] = duration
    out[Row.CATEGORY] = category
    out[Row.NAME] = name
    out[Row.LANE] = lane
    out[Row.CORRELATION] = number_or_absent(scratch, Key.CORRELATION)
    out[Row.EXTERNAL] = number_or_absent(scratch, Key.EXTERNAL)
    out[Row.RECORD_FUNCTION] = number_or_absent(scratch, Key.RECORD_FUNCTION)
    out[Row.SEQUENCE] = number_or_absent(scratch, Key.SEQUENCE)
    out[Row.BYTES] = number_or_absent(scratch, Key.COPY_BYTES)
    out[Row.SIGNATURE] = signature
    state[State.NUM_ROWS] = row + 1
    return True


@inlined
def is_memory(buffer: UInt8s, scratch: Scratch) -> Scalar:
    """Whether the record's name is "[memory]"."""
    begin = scratch.begin[Key.NAME]
    return (
        scratch.known[Key.NAME] != 0
        and scratch.end[Key.NAME] - begin == 10
        and buffer[begin + 1] == 91
        and buffer[begin + 2] == 109
        and buffer[begin + 7] == 121
        and buffer[begin + 8] == 93
    )


@inlined
def phase_of(buffer: UInt8s, scratch: Scratch) -> Scalar:
    """The letter of the record's phase; 0 if it has none."""
    begin = scratch.begin[Key.PHASE]
    if scratch.known[Key.PHASE] == 0 or scratch.end[Key.PHASE] - begin != 3:
        return np.int64(0)
    return np.int64(buffer[begin + 1])


@inlined
def keep_record(
    buffer: UInt8s,
    n: int,
    scratch: Scratch,
    labels: UInt8s,
    label_begins: Int64s,
    known: Known,
    tables: Tables,
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
        category_text = string_or_absent(buffer, scratch, Key.CATEGORY, pool, state)
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
            pool.dropped[category_text] += 1
            return True
        category = known.categories[category_text]
    if scratch.known[Key.START] == 0:
        counts.by_reason[Drop.NO_START] += 1
        return True
    if phase == 88 and scratch.known[Key.DURATION] == 0:
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
        out = tables.memory[state[State.NUM_MEMORY]]
        out[0] = scratch.number[Key.START]
        out[1] = scratch.number[Key.CHANGE_BYTES] if scratch.known[Key.CHANGE_BYTES] != 0 else 0
        out[2] = number_or_absent(scratch, Key.ALLOCATED)
        out[3] = number_or_absent(scratch, Key.RESERVED)
        out[4] = number_or_absent(scratch, Key.DEVICE_TYPE)
        out[5] = number_or_absent(scratch, Key.DEVICE_ID)
        state[State.NUM_MEMORY] += 1
        return True
    if phase == 69:
        half = tables.halves[state[State.NUM_HALVES]]
        half[0] = 1
        half[1] = scratch.number[Key.START]
        half[2] = lane
        half[3] = ABSENT
        state[State.NUM_HALVES] += 1
        return True
    flow = np.int64(ABSENT)
    if scratch.known[Key.FLOW] != 0:
        flow = lane_number(buffer, scratch.begin[Key.FLOW], scratch.end[Key.FLOW], n)
    out = tables.flows[state[State.NUM_FLOWS]]
    out[0] = 0 if phase == 115 else 1
    out[1] = flow
    out[2] = scratch.number[Key.START]
    out[3] = lane
    state[State.NUM_FLOWS] += 1
    return True


@inlined
def has_room(tables: Tables, state: Int64s) -> Scalar:
    """Whether every table takes one more row."""
    return (
        state[State.NUM_ROWS] < len(tables.rows)
        and state[State.NUM_COLLECTIVES] < len(tables.collectives)
        and state[State.NUM_SYNCS] < len(tables.syncs)
        and state[State.NUM_MEMORY] < len(tables.memory)
        and state[State.NUM_FLOWS] < len(tables.flows)
        and state[State.NUM_HALVES] < len(tables.halves)
    )


@compiled
def is_text(buffer: UInt8s, begin: int, end: int, text: UInt8s) -> Scalar:
    """Whether these bytes are `text`."""
    if end - begin != len(text):
        return False
    for k in range(len(text)):
        if buffer[begin + k] != text[k]:
            return False
    return True


@compiled
def scan(
    buffer: UInt8s,
    n: int,
    keys: Keys,
    words: tuple[UInt8s, UInt8s],
    labels: UInt8s,
    label_begins: Int64s,
    known: Known,
    scratch: Scratch,
    tables: Tables,
    pool: Pool,
    counts: Counts,
    state: Int64s,
) -> Scalar:
    """Read as much of `buffer[:n]` as is whole; why it stopped, as `Status`.

    `buffer` has at least 64 zeros from `n` on. `words` is (b"traceEvents", b"nodes") as arrays.
    out: scratch, tables, pool, counts, state
    """
    i = np.int64(state[State.POSITION])
    while True:
        # The state stands at a boundary here: between members, or between records.
        c = buffer[i]
        while c == 32 or c == 10 or c == 44 or c == 13 or c == 9:
            i += 1
            c = buffer[i]
        state[State.POSITION] = i
        if i >= n:
            state[State.POSITION] = n
            return Status.MORE
        phase = state[State.PHASE]
        if phase == Phase.EVENTS:
            if c == 123:
                if not has_room(tables, state):
                    return Status.FULL
                end = read_record(buffer, i, n, keys, scratch)
                if end == MORE:
                    return Status.MORE
                if end == BAD:
                    return Status.MALFORMED
                if not keep_record(
                    buffer, n, scratch, labels, label_begins, known, tables, pool, counts, state
                ):
                    return Status.FULL
                i = np.int64(end)
            elif c == 93:
                i += 1
                is_bare = state[State.IS_BARE_LIST] != 0
                state[State.PHASE] = Phase.AFTER if is_bare else Phase.TOP
                continue
            elif c == 125 or c == 58:
                return Status.MALFORMED
            else:
                end = value_end(buffer, i, n)
                if end < 0:
                    return Status.MORE
                counts.by_reason[Drop.NOT_AN_OBJECT] += 1
                i = np.int64(end)
            state[State.NUM_EVENTS] += 1
        elif phase == Phase.TOP:
            if c == 125:
                state[State.PHASE] = Phase.AFTER
                i += 1
                continue
            if c != 34:
                return Status.MALFORMED
            begin = i + 1
            end = string_end(buffer, begin, n)
            if end < 0:
                return Status.MORE
            value = end + 1
            c = buffer[value]
            while c == 32 or c == 10 or c == 13 or c == 9 or c == 58:
                value += 1
                c = buffer[value]
            if value >= n:
                return Status.MORE
            if c == 91 and is_text(buffer, begin, end, words[0]):
                state[State.PHASE] = Phase.EVENTS
                state[State.HAS_LIST] = 1
                i = np.int64(value + 1)
                continue
            if c == 91 and is_text(buffer, begin, end, words[1]):
                return Status.NODES
            value_stop = value_end(buffer, value, n)
            if value_stop < 0:
                return Status.MORE
            state[State.KEY_BEGIN] = i
            state[State.VALUE_BEGIN] = value
            state[State.VALUE_END] = value_stop
            state[State.POSITION] = value_stop
            return Status.MEMBER
        elif phase == Phase.BEFORE:
            if c == 123:
                state[State.PHASE] = Phase.TOP
            elif c == 91:
                state[State.PHASE] = Phase.EVENTS
                state[State.IS_BARE_LIST] = 1
                state[State.HAS_LIST] = 1
            else:
                return Status.MALFORMED
            i += 1
        else:
            return Status.DONE
