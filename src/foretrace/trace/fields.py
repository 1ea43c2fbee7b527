"""The keys of a Kineto record that are read, and what the scanner's tables hold.

Plain data, shared by the compiled scanner, its wrapper and the test oracle. A record is
`{"ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args": {...}}`; keys not named here are
skipped.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.trace.columns import Category

# What a half of a begin/end pair, a flow arrow, a memory record and a lane hold.
HALF_FIELDS = 4  # is end, time, lane, row (of a begin)
FLOW_FIELDS = 4  # is end, flow id, time, lane
MEMORY_FIELDS = 6
LANE_FIELDS = 4  # kind, process, device, number
COLLECTIVE_FIELDS = 14  # row, then the columns of `CollectiveColumns` in their order
SYNC_FIELDS = 6  # row, then the columns of `SyncColumns` in their order

NUM_SLOTS = 256


class ValueKind(IntEnum):
    """How a key's value is read."""

    SPAN = 0  # where it stands is remembered, it is read when the record is kept
    NUMBER = 1  # an integer; what is none counts as absent
    TIME = 2  # decimal microseconds to ns
    ARGS = 3  # the object of arguments


class RecordKey(IntEnum):
    """Positions in the scanner's table of one record's values."""

    PHASE = 0
    CATEGORY = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    START = 5
    DURATION = 6
    FLOW = 7
    ARGS = 8
    # from here on: inside "args"
    EXTERNAL = 9
    CORRELATION = 10
    RECORD_FUNCTION = 11
    SEQUENCE = 12
    STREAM = 13
    DEVICE = 14
    COPY_BYTES = 15
    CHANGE_BYTES = 16
    ALLOCATED = 17
    RESERVED = 18
    DEVICE_TYPE = 19
    DEVICE_ID = 20
    WAIT_STREAM = 21
    WAIT_CORRELATION = 22
    WAIT_EVENT = 23
    SYNC_KIND = 24
    COLLECTIVE = 25
    DTYPE = 26
    GROUP = 27
    GROUP_NUMBER = 28
    GROUP_DESCRIPTION = 29
    GROUP_RANKS = 30
    GROUP_SIZE = 31
    GROUP_SEQUENCE = 32
    IN_ELEMENTS = 33
    OUT_ELEMENTS = 34
    SOURCE_RANK = 35
    DESTINATION_RANK = 36
    IN_SPLITS = 37
    OUT_SPLITS = 38
    INPUT_DIMS = 39
    INPUT_TYPES = 40
    INPUT_STRIDES = 41
    CONCRETE_INPUTS = 42
    GRID = 43
    BLOCK = 44


FIRST_ARGUMENT = int(RecordKey.EXTERNAL)

# Spellings by profiler version: lower-case "external id" and category names with a capital are
# from 2021 (torch 1.8, 1.9); "size" is what HIP runtime and MTIA copies carry; "Process Group ID"
# stood before "Process Group Name" (torch 2.3).
KEY_TEXTS: tuple[tuple[str, RecordKey, ValueKind], ...] = (
    ("ph", RecordKey.PHASE, ValueKind.SPAN),
    ("cat", RecordKey.CATEGORY, ValueKind.SPAN),
    ("name", RecordKey.NAME, ValueKind.SPAN),
    ("pid", RecordKey.PROCESS, ValueKind.SPAN),
    ("tid", RecordKey.THREAD, ValueKind.SPAN),
    ("ts", RecordKey.START, ValueKind.TIME),
    ("dur", RecordKey.DURATION, ValueKind.TIME),
    ("id", RecordKey.FLOW, ValueKind.SPAN),
    ("args", RecordKey.ARGS, ValueKind.ARGS),
    ("External id", RecordKey.EXTERNAL, ValueKind.NUMBER),
    ("external id", RecordKey.EXTERNAL, ValueKind.NUMBER),
    ("correlation", RecordKey.CORRELATION, ValueKind.NUMBER),
    ("Record function id", RecordKey.RECORD_FUNCTION, ValueKind.NUMBER),
    ("Sequence number", RecordKey.SEQUENCE, ValueKind.NUMBER),
    ("stream", RecordKey.STREAM, ValueKind.NUMBER),
    ("device", RecordKey.DEVICE, ValueKind.NUMBER),
    ("bytes", RecordKey.COPY_BYTES, ValueKind.NUMBER),
    ("size", RecordKey.COPY_BYTES, ValueKind.NUMBER),
    ("Bytes", RecordKey.CHANGE_BYTES, ValueKind.NUMBER),
    ("Total Allocated", RecordKey.ALLOCATED, ValueKind.NUMBER),
    ("Total Reserved", RecordKey.RESERVED, ValueKind.NUMBER),
    ("Device Type", RecordKey.DEVICE_TYPE, ValueKind.NUMBER),
    ("Device Id", RecordKey.DEVICE_ID, ValueKind.NUMBER),
    ("wait_on_stream", RecordKey.WAIT_STREAM, ValueKind.NUMBER),
    ("wait_on_cuda_event_record_corr_id", RecordKey.WAIT_CORRELATION, ValueKind.NUMBER),
    ("wait_on_cuda_event_id", RecordKey.WAIT_EVENT, ValueKind.NUMBER),
    ("cuda_sync_kind", RecordKey.SYNC_KIND, ValueKind.SPAN),
    ("Collective name", RecordKey.COLLECTIVE, ValueKind.SPAN),
    ("dtype", RecordKey.DTYPE, ValueKind.SPAN),
    ("Process Group Name", RecordKey.GROUP, ValueKind.SPAN),
    ("Process Group ID", RecordKey.GROUP_NUMBER, ValueKind.SPAN),
    ("Process Group Description", RecordKey.GROUP_DESCRIPTION, ValueKind.SPAN),
    ("Process Group Ranks", RecordKey.GROUP_RANKS, ValueKind.SPAN),
    ("Group size", RecordKey.GROUP_SIZE, ValueKind.NUMBER),
    ("Seq", RecordKey.GROUP_SEQUENCE, ValueKind.NUMBER),
    ("In msg nelems", RecordKey.IN_ELEMENTS, ValueKind.NUMBER),
    ("Out msg nelems", RecordKey.OUT_ELEMENTS, ValueKind.NUMBER),
    ("Src Rank", RecordKey.SOURCE_RANK, ValueKind.NUMBER),
    ("Dst Rank", RecordKey.DESTINATION_RANK, ValueKind.NUMBER),
    ("In split size", RecordKey.IN_SPLITS, ValueKind.SPAN),
    ("Out split size", RecordKey.OUT_SPLITS, ValueKind.SPAN),
    ("Input Dims", RecordKey.INPUT_DIMS, ValueKind.SPAN),
    ("Input type", RecordKey.INPUT_TYPES, ValueKind.SPAN),
    ("Input Strides", RecordKey.INPUT_STRIDES, ValueKind.SPAN),
    ("Concrete Inputs", RecordKey.CONCRETE_INPUTS, ValueKind.SPAN),
    ("grid", RecordKey.GRID, ValueKind.SPAN),
    ("block", RecordKey.BLOCK, ValueKind.SPAN),
)

# The members of a signature's text, in this order; the text is JSON without spaces.
SIGNATURE_MEMBERS: tuple[tuple[str, RecordKey], ...] = (
    ("dims", RecordKey.INPUT_DIMS),
    ("types", RecordKey.INPUT_TYPES),
    ("strides", RecordKey.INPUT_STRIDES),
    ("inputs", RecordKey.CONCRETE_INPUTS),
    ("grid", RecordKey.GRID),
    ("block", RecordKey.BLOCK),
)

# `cat` of a record that is kept. MTIA_DEVICE is told apart by its name when columns are made.
MTIA_DEVICE = 9
CATEGORY_TEXTS: tuple[tuple[str, int], ...] = (
    ("cpu_op", Category.OPERATOR),
    ("Operator", Category.OPERATOR),
    ("operator", Category.OPERATOR),
    ("user_annotation", Category.ANNOTATION),
    ("cuda_runtime", Category.RUNTIME),
    ("cuda_driver", Category.RUNTIME),
    ("Runtime", Category.RUNTIME),
    ("runtime", Category.RUNTIME),
    ("hip_runtime", Category.RUNTIME),
    ("hip_driver", Category.RUNTIME),
    ("xpu_runtime", Category.RUNTIME),
    ("xpu_driver", Category.RUNTIME),
    ("mtia_runtime", Category.RUNTIME),
    ("glow_runtime", Category.RUNTIME),
    ("privateuse1_runtime", Category.RUNTIME),
    ("privateuse1_driver", Category.RUNTIME),
    ("python_function", Category.PYTHON),
    ("kernel", Category.KERNEL),
    ("Kernel", Category.KERNEL),
    ("gpu_memcpy", Category.MEMCPY),
    ("Memcpy", Category.MEMCPY),
    ("gpu_memset", Category.MEMSET),
    ("Memset", Category.MEMSET),
    ("cuda_sync", Category.SYNC),
    ("gpu_user_annotation", Category.DEVICE_ANNOTATION),
    ("mtia_ccp_events", MTIA_DEVICE),
)


class Drop(IntEnum):
    """Why a record is not kept; reasons that need the record's own words are counted apart."""

    METADATA = 0
    SPAN = 1
    FLOW = 2
    NO_START = 3
    NO_DURATION = 4
    NO_PHASE = 5
    NO_CATEGORY = 6
    NOT_AN_OBJECT = 7
    INSTANT = 8


DROP_TEXTS: dict[Drop, str] = {
    Drop.METADATA: "process and thread names",
    Drop.SPAN: "the profiler's own span",
    Drop.FLOW: "arrows that repeat the correlation ids",
    Drop.NO_START: "no usable timestamp",
    Drop.NO_DURATION: "no usable duration",
    Drop.NO_PHASE: "no phase",
    Drop.NO_CATEGORY: "no category",
    Drop.NOT_AN_OBJECT: "not an object",
    Drop.INSTANT: "instant marks",
}


class Row(IntEnum):
    """Columns of the table of kept records, all int64."""

    START = 0
    DURATION = 1
    CATEGORY = 2
    NAME = 3
    LANE = 4
    CORRELATION = 5
    EXTERNAL = 6
    RECORD_FUNCTION = 7
    SEQUENCE = 8
    BYTES = 9
    SIGNATURE = 10


class ScanState(IntEnum):
    """The scanner's registers between two calls."""

    POSITION = 0  # next byte to read
    PHASE = 1  # Phase
    IS_BARE_LIST = 2
    NUM_EVENTS = 3
    NUM_ROWS = 4
    NUM_LANES = 5
    NUM_COLLECTIVES = 6
    NUM_SYNCS = 7
    NUM_MEMORY = 8
    NUM_FLOWS = 9
    NUM_HALVES = 10
    NUM_NEGATIVE = 11  # negative durations, taken as 0
    KEY_BEGIN = 12  # of the member that Status.MEMBER hands out
    VALUE_BEGIN = 13
    VALUE_END = 14
    HAS_LIST = 15  # whether a list of events has begun


class ScanPhase(IntEnum):
    """Where in the file the scanner stands."""

    BEFORE = 0
    TOP = 1  # inside the file's object
    EVENTS = 2
    AFTER = 3


class ScanStatus(IntEnum):
    """Why the scanner returned."""

    MORE = 0  # the bytes end inside something; hand in the rest from POSITION, and more
    MEMBER = 1  # a member of the file's object stands between KEY_BEGIN and VALUE_END
    NODES = 2  # the file has a list of nodes: an execution trace
    DONE = 3
    MALFORMED = 4  # not JSON at POSITION
    FULL = 5  # a table or pool has no room; enlarge and call again


class KeyTable(NamedTuple):
    """Keys by hash of their length, first and last byte, in open addressing."""

    slots: Int32s  # int32[256], position in the columns below; -1 empty
    texts: UInt8s  # uint8[bytes], all texts one after the other
    begins: Int64s  # int64[keys + 1], into `texts`
    keys: Int64s  # int64[keys], Key
    kinds: Int64s  # int64[keys], Kind


def slot_of(length: int, first: int, last: int) -> int:
    """Where the search for a key begins; these factors leave few collisions."""
    return (length * 29 + first * 7 + last * 13) & (NUM_SLOTS - 1)


def key_table() -> KeyTable:
    """`KEY_TEXTS` as the scanner reads it."""
    slots = np.full(NUM_SLOTS, -1, np.int32)
    begins = [0]
    joined = b""
    for position, (text, _, _) in enumerate(KEY_TEXTS):
        raw = text.encode("ascii")
        slot = slot_of(len(raw), raw[0], raw[-1])
        while slots[slot] >= 0:
            slot = (slot + 1) & (NUM_SLOTS - 1)
        slots[slot] = position
        joined += raw
        begins.append(len(joined))
    return KeyTable(
        slots=slots,
        texts=np.frombuffer(joined, np.uint8).copy(),
        begins=np.array(begins, np.int64),
        keys=np.array([int(key) for _, key, _ in KEY_TEXTS], np.int64),
        kinds=np.array([int(kind) for _, _, kind in KEY_TEXTS], np.int64),
    )
