# ruff: noqa: PLR1714  numba compiles plain comparisons best
"""The compiled loop that reads Chakra's protobuf messages; `read.py` is its wrapper.

In: a buffer of length-delimited messages and where to begin. Out: columns and a pool of unique
texts, written into tables that the wrapper allocated. No Python object is made per node.

A message is taken whole: what ends behind the buffer is left for the next call, and so is a
message for which some table might be too small. Fields that the schema does not know are counted
and skipped, as protobuf asks for.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, njit
from foretrace.trace.chakra.schema import NO_TEXT, MessageState, MessageStatus
from foretrace.trace.texts._compiled import Pool, text_at

Scalar: TypeAlias = Any  # an int or bool, inside numba one of its own
BAD = -1  # instead of a position: this is no protobuf

# Nothing here allocates, so arrays need no reference counts. Tuples of arrays are passed by value:
# what is called once a field is inlined.
compiled = njit(_nrt=False)
inlined = njit(_nrt=False, forceinline=True)


class MessageTables(NamedTuple):
    """Where nodes go, as `ChakraNodes` has them."""

    node_id: Int64s
    name: Int32s
    kind: UInt8s
    start: Int64s
    duration: Int64s
    values: Int32s  # int32[nodes, 6]: values, shapes, types of inputs, then of outputs
    first_control: Int64s
    control: Int64s
    first_data: Int64s
    data: Int64s
    first_attribute: Int64s
    attribute_name: Int32s
    attribute_doc: Int32s
    attribute_field: UInt8s
    attribute_value: Int64s


@inlined
def varint_at(buffer: UInt8s, at: int, end: int) -> Scalar:
    """The number that begins here, as the bits of an int64, and where it ends; BAD if nowhere."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(64):
        byte = np.uint64(buffer[at])
        value |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
        at += 1
        if byte < np.uint64(0x80):
            return np.int64(value), at
    return np.int64(0), BAD


@inlined
def fixed_at(buffer: UInt8s, at: int, size: int) -> Scalar:
    """A number of `size` bytes, lowest first, as the bits of an int64."""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(buffer[at + k]) << np.uint64(8 * k)
    return np.int64(value)


@inlined
def skipped(buffer: UInt8s, at: int, end: int, wire: int) -> Scalar:
    """Where a field of this wire type ends that begins here; BAD if nowhere."""
    if wire == 0:
        _, at = varint_at(buffer, at, end)
        return at
    if wire == 1:
        return at + 8 if at + 8 <= end else BAD
    if wire == 5:
        return at + 4 if at + 4 <= end else BAD
    if wire == 2:
        length, at = varint_at(buffer, at, end)
        if at == BAD or length < 0 or length > end - at:
            return BAD
        return at + length
    return BAD


@inlined
def attribute_at(
    buffer: UInt8s, at: int, end: int, tables: MessageTables, pool: Pool, state: Int64s
) -> Scalar:
    """Read one AttributeProto that fills these bytes; whether it is one. out: all tables."""
    row = state[MessageState.NUM_ATTRIBUTES]
    name, doc, kind, value = np.int64(NO_TEXT), np.int64(NO_TEXT), np.int64(0), np.int64(0)
    while at < end:
        tag, at = varint_at(buffer, at, end)
        if at == BAD:
            return False
        field, wire = tag >> 3, tag & 7
        begin = at
        at = skipped(buffer, at, end, wire)
        if at == BAD:
            return False
        if wire == 2 and (field == 1 or field == 2 or field == 29 or field == 31):
            _, begin = varint_at(buffer, begin, end)
            text = text_at(buffer, begin, at, pool)
            if field == 1:
                name = text
            elif field == 2:
                doc = text
            else:
                kind, value = field, text
        elif wire == 2 and 4 <= field <= 32 and field % 2 == 0:
            _, begin = varint_at(buffer, begin, end)
            kind, value = field, text_at(buffer, begin, at, pool)
        elif wire == 0 and (7 <= field <= 17 or field == 27) and field % 2 == 1:
            bits, _ = varint_at(buffer, begin, end)
            if field == 15 or field == 17:
                half = np.int64(np.uint64(bits) >> np.uint64(1))
                bits = half ^ -(bits & 1)
            kind, value = field, bits
        elif wire == 1 and (field == 3 or field == 21 or field == 25):
            kind, value = field, fixed_at(buffer, begin, 8)
        elif wire == 5 and (field == 5 or field == 19 or field == 23):
            bits = fixed_at(buffer, begin, 4)
            if field == 23 and bits >= 0x80000000:
                bits -= 0x100000000
            kind, value = field, bits
        else:
            state[MessageState.NUM_UNKNOWN] += 1
    tables.attribute_name[row] = name
    tables.attribute_doc[row] = doc
    tables.attribute_field[row] = kind
    tables.attribute_value[row] = value
    state[MessageState.NUM_ATTRIBUTES] = row + 1
    return True


@inlined
def values_at(buffer: UInt8s, at: int, end: int, into: Int32s, pool: Pool, state: Int64s) -> Scalar:
    """Read one IOInfo that fills these bytes; whether it is one. out: into, pool, state."""
    empty = text_at(buffer, at, at, pool)
    for k in range(3):
        into[k] = empty
    while at < end:
        tag, at = varint_at(buffer, at, end)
        if at == BAD:
            return False
        field, wire = tag >> 3, tag & 7
        begin = at
        at = skipped(buffer, at, end, wire)
        if at == BAD:
            return False
        if wire == 2 and 1 <= field <= 3:
            _, begin = varint_at(buffer, begin, end)
            into[field - 1] = text_at(buffer, begin, at, pool)
        else:
            state[MessageState.NUM_UNKNOWN] += 1
    return True


@inlined
def dependencies_at(buffer: UInt8s, at: int, end: int, into: Int64s, count: int) -> Scalar:
    """Read packed ids that fill these bytes; how many there are now; BAD. out: into."""
    while at < end:
        value, at = varint_at(buffer, at, end)
        if at == BAD:
            return np.int64(BAD)
        into[count] = value
        count += 1
    return np.int64(count)


@inlined
def message_at(
    buffer: UInt8s,
    at: int,
    end: int,
    is_metadata: bool,
    tables: MessageTables,
    pool: Pool,
    state: Int64s,
) -> Scalar:
    """Read one Node, or the GlobalMetadata, that fills these bytes; whether it is one.

    The metadata's version stands where a node's name does. out: tables, pool, state
    """
    row = state[MessageState.NUM_NODES]
    empty = text_at(buffer, at, at, pool)
    tables.node_id[row] = 0
    tables.name[row] = empty
    tables.kind[row] = 0
    tables.start[row] = 0
    tables.duration[row] = 0
    for k in range(6):
        tables.values[row, k] = NO_TEXT
    num_control, num_data = state[MessageState.NUM_CONTROL], state[MessageState.NUM_DATA]
    while at < end:
        tag, at = varint_at(buffer, at, end)
        if at == BAD:
            return False
        field, wire = tag >> 3, tag & 7
        begin = at
        at = skipped(buffer, at, end, wire)
        if at == BAD:
            return False
        if is_metadata and wire == 2 and field == 1:
            field = 2
        elif is_metadata and wire == 2 and field == 2:
            field = 10
        elif is_metadata:
            field = 0
        if wire == 0:
            value, _ = varint_at(buffer, begin, end)
            if field == 1:
                tables.node_id[row] = value
            elif field == 3:
                tables.kind[row] = np.uint8(value)
            elif field == 4:
                tables.control[num_control] = value
                num_control += 1
            elif field == 5:
                tables.data[num_data] = value
                num_data += 1
            elif field == 6:
                tables.start[row] = value
            elif field == 7:
                tables.duration[row] = value
            else:
                state[MessageState.NUM_UNKNOWN] += 1
        elif wire == 2:
            _, begin = varint_at(buffer, begin, end)
            if field == 2:
                tables.name[row] = text_at(buffer, begin, at, pool)
            elif field == 4:
                num_control = dependencies_at(buffer, begin, at, tables.control, num_control)
                if num_control == BAD:
                    return False
            elif field == 5:
                num_data = dependencies_at(buffer, begin, at, tables.data, num_data)
                if num_data == BAD:
                    return False
            elif field == 8:
                if not values_at(buffer, begin, at, tables.values[row, :3], pool, state):
                    return False
            elif field == 9:
                if not values_at(buffer, begin, at, tables.values[row, 3:], pool, state):
                    return False
            elif field == 10:
                if not attribute_at(buffer, begin, at, tables, pool, state):
                    return False
            else:
                state[MessageState.NUM_UNKNOWN] += 1
        else:
            state[MessageState.NUM_UNKNOWN] += 1
    state[MessageState.NUM_NODES] = row + 1
    state[MessageState.NUM_CONTROL] = num_control
    state[MessageState.NUM_DATA] = num_data
    tables.first_control[row + 1] = num_control
    tables.first_data[row + 1] = num_data
    tables.first_attribute[row + 1] = state[MessageState.NUM_ATTRIBUTES]
    return True


@inlined
def has_room(tables: MessageTables, pool: Pool, state: Int64s, length: int) -> Scalar:
    """Whether any message of this length fits every table."""
    num_texts = pool.size[0]
    most_texts = num_texts + length // 2 + 8
    return (
        state[MessageState.NUM_NODES] < len(tables.node_id)
        and state[MessageState.NUM_CONTROL] + length <= len(tables.control)
        and state[MessageState.NUM_DATA] + length <= len(tables.data)
        and state[MessageState.NUM_ATTRIBUTES] + length // 2 + 1 <= len(tables.attribute_name)
        and most_texts <= len(pool.hashes)
        and 2 * most_texts <= len(pool.slots)
        and pool.begins[num_texts] + length <= len(pool.arena)
    )


@compiled
def messages(
    buffer: UInt8s, end: int, most_nodes: int, tables: MessageTables, pool: Pool, state: Int64s
) -> Scalar:
    """Read messages from `state[AT]` on, up to `most_nodes` of them; why it stopped, a Status.

    out: tables, pool, state; `state[NEEDED]` is the length of the message that did not fit.
    """
    while state[MessageState.AT] < end:
        if state[MessageState.NUM_NODES] >= most_nodes:
            return np.int64(MessageStatus.ENOUGH)
        length, begin = varint_at(buffer, state[MessageState.AT], end)
        if begin == BAD:
            is_cut = end - state[MessageState.AT] < 10
            return np.int64(MessageStatus.MORE) if is_cut else np.int64(MessageStatus.BAD)
        if length < 0:
            return np.int64(MessageStatus.BAD)
        state[MessageState.NEEDED] = length
        if length > end - begin:
            return np.int64(MessageStatus.MORE)
        if not has_room(tables, pool, state, length):
            return np.int64(MessageStatus.NO_ROOM)
        is_metadata = state[MessageState.IS_METADATA] != 0
        if not message_at(buffer, begin, begin + length, is_metadata, tables, pool, state):
            return np.int64(MessageStatus.BAD)
        state[MessageState.AT] = begin + length
    return np.int64(MessageStatus.MORE)
