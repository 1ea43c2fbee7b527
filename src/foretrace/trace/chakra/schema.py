"""Chakra's messages as the schema defines them, and the words of its attributes.

Source: schema/protobuf/et_def.proto of mlcommons/chakra at 21585d8 (version 1.0.0):

    GlobalMetadata  string version = 1; repeated AttributeProto attr = 2
    Node            uint64 id = 1; string name = 2; NodeType type = 3; repeated uint64
                    ctrl_deps = 4, data_deps = 5; uint64 start_time_micros = 6,
                    duration_micros = 7; IOInfo inputs = 8, outputs = 9;
                    repeated AttributeProto attr = 10
    IOInfo          string values = 1, shapes = 2, types = 3
    AttributeProto  string name = 1, doc_string = 2; one of the fields of `ValueField`

A file is one message after the other, each behind its length as a varint: first the metadata,
then the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from foretrace.base import CollectiveKind

NO_TEXT = -1  # a text that the file does not give
CHAKRA_VERSION = (
    "1.0.0"  # what our files state: an empty metadata message would end the file for readers
)

# Types beyond the schema's version: mlcommons/chakra, pull request 216, at 86326cd.
_PROPOSED = {8: "storage", 9: "batch", 10: "checkpoint"}


class NodeType(IntEnum):
    """`Node.type`."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


def kind_name(kind: int) -> str:
    """What a type of node is called; of a type that nobody named its number."""
    if kind < len(NodeType):
        return NodeType(kind).name
    return _PROPOSED.get(kind, f"type {kind}")


class CommType(IntEnum):
    """`CollectiveCommType`, the value of the attribute `comm_type`."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


COMM_TYPES: Mapping[CollectiveKind, CommType] = {
    CollectiveKind.ALL_REDUCE: CommType.ALL_REDUCE,
    CollectiveKind.REDUCE: CommType.REDUCE,
    CollectiveKind.ALL_GATHER: CommType.ALL_GATHER,
    CollectiveKind.GATHER: CommType.GATHER,
    CollectiveKind.SCATTER: CommType.SCATTER,
    CollectiveKind.BROADCAST: CommType.BROADCAST,
    # An exchange of many in one kernel: the nearest that the schema has.
    CollectiveKind.SEND_RECV: CommType.ALL_TO_ALL,
    CollectiveKind.ALL_TO_ALL: CommType.ALL_TO_ALL,
    CollectiveKind.REDUCE_SCATTER: CommType.REDUCE_SCATTER,
    CollectiveKind.BARRIER: CommType.BARRIER,
}
KINDS_OF_COMM_TYPE: Mapping[int, CollectiveKind] = {
    **{int(comm_type): kind for kind, comm_type in COMM_TYPES.items()},
    int(CommType.REDUCE_SCATTER_BLOCK): CollectiveKind.REDUCE_SCATTER,
}


class ValueField(IntEnum):
    """Numbers of the fields that hold an attribute's value; lists stand one above."""

    NONE = 0
    DOUBLE = 3
    FLOAT = 5
    INT32 = 7
    INT32_LIST = 8
    INT64 = 9
    INT64_LIST = 10
    UINT32 = 11
    UINT64 = 13
    UINT64_LIST = 14
    SINT32 = 15
    SINT64 = 17
    FIXED32 = 19
    FIXED64 = 21
    SFIXED32 = 23
    SFIXED64 = 25
    BOOL = 27
    BOOL_LIST = 28
    STRING = 29
    STRING_LIST = 30
    BYTES = 31
    BYTES_LIST = 32


class MessageState(IntEnum):
    """Positions in the array of the reading loop's counters."""

    NUM_NODES = 0
    NUM_CONTROL = 1
    NUM_DATA = 2
    NUM_ATTRIBUTES = 3
    AT = 4
    NEEDED = 5
    NUM_UNKNOWN = 6
    IS_METADATA = 7


class MessageStatus(IntEnum):
    """Why the reading loop stopped."""

    MORE = 0  # the buffer holds no further whole message
    ENOUGH = 1  # as many nodes as were asked for
    NO_ROOM = 2  # a table may be too small for the next message
    BAD = 3  # no protobuf
