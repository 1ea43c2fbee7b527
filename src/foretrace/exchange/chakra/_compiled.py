# ruff: noqa: PLR1714  numba compiles plain comparisons best
"""The compiled loop that writes Chakra's protobuf messages; `messages.py` is its wrapper.

In: columns of nodes. Out: bytes, the same that protobuf's own library writes: shortest varints,
fields by number, what equals a default left out, lists packed. Lengths stand before their
content, so sizes are counted first.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, njit
from foretrace.exchange._compiled import varint_into

Scalar: TypeAlias = Any  # an int or bool, inside numba one of its own
# Nothing here allocates, so arrays need no reference counts: without them ten times faster.
compiled = njit(_nrt=False)
# Tuples of arrays are passed by value: what is called once a text is inlined.
inlined = njit(_nrt=False, forceinline=True)


class Columns(NamedTuple):
    """`ChakraNodes` as numba takes it."""

    arena: UInt8s
    begins: Int64s
    node_id: Int64s
    name: Int32s
    kind: UInt8s
    start: Int64s
    duration: Int64s
    values: Int32s
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
def varint_size(value: int) -> Scalar:
    """Bytes of a number as a varint."""
    rest = np.uint64(value)
    size = 1
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def zigzag(value: int) -> Scalar:
    """A signed number as protobuf's sint types write it."""
    return (np.int64(value) << 1) ^ (np.int64(value) >> 63)


@inlined
def text_size(text: int, columns: Columns) -> Scalar:
    """Bytes of a text behind its length."""
    length = columns.begins[text + 1] - columns.begins[text]
    return varint_size(length) + length


@inlined
def text_into(buffer: UInt8s, at: int, text: int, columns: Columns) -> Scalar:
    """Write a text behind its length; returns where the next byte goes."""
    begin, end = columns.begins[text], columns.begins[text + 1]
    at = varint_into(buffer, at, end - begin)
    # Unsigned places: signed ones might count from the end, which costs a branch a byte.
    to, start = np.uint64(at), np.uint64(begin)
    for k in range(np.uint64(end - begin)):
        buffer[to + k] = columns.arena[start + k]
    return at + end - begin


@inlined
def is_empty(text: int, columns: Columns) -> Scalar:
    """Whether a text is absent or has no bytes."""
    return text < 0 or columns.begins[text + 1] == columns.begins[text]


@inlined
def attribute_size(row: int, columns: Columns) -> Scalar:
    """Bytes of an attribute's message without its length."""
    size = 0
    if not is_empty(columns.attribute_name[row], columns):
        size += 1 + text_size(columns.attribute_name[row], columns)
    if not is_empty(columns.attribute_doc[row], columns):
        size += 1 + text_size(columns.attribute_doc[row], columns)
    field = np.int64(columns.attribute_field[row])
    if field == 0:
        return size
    value = columns.attribute_value[row]
    size += 1 if field < 16 else 2
    if field % 2 == 0 or field == 29 or field == 31:
        return size + text_size(value, columns)
    if field == 3 or field == 21 or field == 25:
        return size + 8
    if field == 5 or field == 19 or field == 23:
        return size + 4
    if field == 15 or field == 17:
        return size + varint_size(zigzag(value))
    return size + varint_size(value)


@inlined
def attribute_into(buffer: UInt8s, at: int, row: int, columns: Columns) -> Scalar:
    """Write an attribute's message without its length; returns where the next byte goes."""
    if not is_empty(columns.attribute_name[row], columns):
        buffer[at] = 0x0A
        at = text_into(buffer, at + 1, columns.attribute_name[row], columns)
    if not is_empty(columns.attribute_doc[row], columns):
        buffer[at] = 0x12
        at = text_into(buffer, at + 1, columns.attribute_doc[row], columns)
    field = np.int64(columns.attribute_field[row])
    if field == 0:
        return at
    value = columns.attribute_value[row]
    if field % 2 == 0 or field == 29 or field == 31:
        at = varint_into(buffer, at, field << 3 | 2)
        return text_into(buffer, at, value, columns)
    size = 0
    if field == 3 or field == 21 or field == 25:
        at = varint_into(buffer, at, field << 3 | 1)
        size = 8
    elif field == 5 or field == 19 or field == 23:
        at = varint_into(buffer, at, field << 3 | 5)
        size = 4
    else:
        at = varint_into(buffer, at, field << 3)
        if field == 15 or field == 17:
            value = zigzag(value)
        return varint_into(buffer, at, value)
    rest = np.uint64(value)
    for _ in range(size):
        buffer[at] = np.uint8(rest & np.uint64(0xFF))
        rest >>= np.uint64(8)
        at += 1
    return at


@inlined
def packed_size(values: Int64s, begin: int, end: int) -> Scalar:
    """Bytes of these ids as a packed list, without its length."""
    size = 0
    for k in range(begin, end):
        size += varint_size(values[k])
    return size


@inlined
def values_size(row: int, first: int, columns: Columns) -> Scalar:
    """Bytes of an IOInfo without its length; -1 if the node has none."""
    if columns.values[row, first] < 0:
        return -1
    size = 0
    for k in range(first, first + 3):
        if not is_empty(columns.values[row, k], columns):
            size += 1 + text_size(columns.values[row, k], columns)
    return size


@inlined
def node_size(row: int, columns: Columns) -> Scalar:
    """Bytes of a node's message without its length."""
    size = 0
    if columns.node_id[row] != 0:
        size += 1 + varint_size(columns.node_id[row])
    if not is_empty(columns.name[row], columns):
        size += 1 + text_size(columns.name[row], columns)
    if columns.kind[row] != 0:
        size += 1 + varint_size(columns.kind[row])
    content = packed_size(
        columns.control, columns.first_control[row], columns.first_control[row + 1]
    )
    if content > 0:
        size += 1 + varint_size(content) + content
    content = packed_size(columns.data, columns.first_data[row], columns.first_data[row + 1])
    if content > 0:
        size += 1 + varint_size(content) + content
    if columns.start[row] != 0:
        size += 1 + varint_size(columns.start[row])
    if columns.duration[row] != 0:
        size += 1 + varint_size(columns.duration[row])
    for first in (0, 3):
        content = values_size(row, first, columns)
        if content >= 0:
            size += 1 + varint_size(content) + content
    for attribute in range(columns.first_attribute[row], columns.first_attribute[row + 1]):
        content = attribute_size(attribute, columns)
        size += 1 + varint_size(content) + content
    return size


@inlined
def packed_into(buffer: UInt8s, at: int, tag: int, values: Int64s, begin: int, end: int) -> Scalar:
    """Write ids as a packed list behind its tag and length, if there are any."""
    content = packed_size(values, begin, end)
    if content == 0:
        return at
    buffer[at] = np.uint8(tag)
    at = varint_into(buffer, at + 1, content)
    for k in range(begin, end):
        at = varint_into(buffer, at, values[k])
    return at


@inlined
def node_into(buffer: UInt8s, at: int, row: int, columns: Columns) -> Scalar:
    """Write a node's message without its length; returns where the next byte goes."""
    if columns.node_id[row] != 0:
        buffer[at] = 0x08
        at = varint_into(buffer, at + 1, columns.node_id[row])
    if not is_empty(columns.name[row], columns):
        buffer[at] = 0x12
        at = text_into(buffer, at + 1, columns.name[row], columns)
    if columns.kind[row] != 0:
        buffer[at] = 0x18
        at = varint_into(buffer, at + 1, columns.kind[row])
    begin, end = columns.first_control[row], columns.first_control[row + 1]
    at = packed_into(buffer, at, 0x22, columns.control, begin, end)
    begin, end = columns.first_data[row], columns.first_data[row + 1]
    at = packed_into(buffer, at, 0x2A, columns.data, begin, end)
    if columns.start[row] != 0:
        buffer[at] = 0x30
        at = varint_into(buffer, at + 1, columns.start[row])
    if columns.duration[row] != 0:
        buffer[at] = 0x38
        at = varint_into(buffer, at + 1, columns.duration[row])
    for first in (0, 3):
        content = values_size(row, first, columns)
        if content >= 0:
            buffer[at] = 0x42 if first == 0 else 0x4A
            at = varint_into(buffer, at + 1, content)
            for k in range(3):
                if not is_empty(columns.values[row, first + k], columns):
                    buffer[at] = np.uint8((k + 1) << 3 | 2)
                    at = text_into(buffer, at + 1, columns.values[row, first + k], columns)
    for attribute in range(columns.first_attribute[row], columns.first_attribute[row + 1]):
        buffer[at] = 0x52
        at = varint_into(buffer, at + 1, attribute_size(attribute, columns))
        at = attribute_into(buffer, at, attribute, columns)
    return at


@compiled
def message_sizes(begin: int, end: int, columns: Columns, sizes: Int64s) -> None:
    """Bytes of each of these nodes' messages without its length, into `sizes` (*out*)."""
    for row in range(begin, end):
        sizes[row - begin] = node_size(row, columns)


@compiled
def messages_into(buffer: UInt8s, begin: int, end: int, columns: Columns, sizes: Int64s) -> Scalar:
    """Write these nodes, each behind its length; returns the number of bytes.

    Args:
        buffer: *out*, uint8[enough]: the sum of `sizes`, and 10 bytes per node.
        begin: first node.
        end: node after the last.
        columns: the nodes.
        sizes: int64[nodes], as `message_sizes` counts them.
    """
    at = 0
    for row in range(begin, end):
        at = varint_into(buffer, at, sizes[row - begin])
        at = node_into(buffer, at, row, columns)
    return at
