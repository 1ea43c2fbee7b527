"""`Trace`: what one rank's file says, as columns.

One row per duration event that is kept. Rows stand in one total order that does not depend on
the order in the file: start, then longer first, then lane, correlation, external id, name text.
Whatever is not kept is counted in `TraceMeta.dropped`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from foretrace.base import Int32s, Int64s, UInt8s

NO_ID = -1  # an id the file does not give
NO_STRING = -1  # a string the file does not give


class Category(IntEnum):
    """What an event is, across profiler versions and vendors."""

    OPERATOR = 0  # a framework operator on a host thread (`cpu_op`, `Operator`)
    ANNOTATION = 1  # a user's or the profiler's mark on a host thread (`user_annotation`)
    RUNTIME = 2  # a call into CUDA, HIP or another device runtime or driver, on a host thread
    PYTHON = 3  # a Python function on a host thread (`python_function`)
    KERNEL = 4  # a kernel on a device stream
    MEMCPY = 5  # a copy on a device stream
    MEMSET = 6  # a fill on a device stream
    SYNC = 7  # `cuda_sync`: what a synchronisation waited for
    DEVICE_ANNOTATION = 8  # an annotation's shadow on a device stream (`gpu_user_annotation`)


class LaneKind(IntEnum):
    """Where events run one after the other."""

    HOST = 0  # a thread of the host
    DEVICE = 1  # a stream of a device


@dataclass(frozen=True)
class Lanes:
    """The threads and streams of one trace; `Trace.lane` is a position in these columns."""

    kind: UInt8s  # uint8[lanes], LaneKind
    process: Int64s  # int64[lanes], process id; of a device lane: NO_ID
    device: Int32s  # int32[lanes], device index; of a host lane: NO_ID
    number: Int64s  # int64[lanes], thread id or stream number; may be negative

    def __len__(self) -> int:
        """Number of lanes."""
        return len(self.kind)


@dataclass(frozen=True)
class CollectiveColumns:
    """What events say of the communication they belong to; one row per such event.

    An event has a row if it carries collective metadata: `record_param_comms` operators and,
    in newer profilers, the communication kernels themselves. String columns are positions in
    `Trace.strings`, NO_STRING where absent; number columns are NO_ID where absent.
    """

    event: Int32s  # int32[rows], position of the event in the trace's rows, rising
    collective: Int32s  # int32[rows], "allreduce", "_allgather_base", ...
    group: Int32s  # int32[rows], process group name
    group_description: Int32s  # int32[rows]
    group_ranks: Int32s  # int32[rows], text as in the file, "[0, 1]"
    dtype: Int32s  # int32[rows]
    group_size: Int64s  # int64[rows]
    sequence: Int64s  # int64[rows], the collective's number inside its group
    in_elements: Int64s  # int64[rows]
    out_elements: Int64s  # int64[rows]
    source_rank: Int64s  # int64[rows], of a point-to-point transfer
    destination_rank: Int64s  # int64[rows]
    in_splits: Int32s  # int32[rows], text of the split list
    out_splits: Int32s  # int32[rows]


@dataclass(frozen=True)
class SyncColumns:
    """What `cuda_sync` events say; one row per event of category SYNC."""

    event: Int32s  # int32[rows], position of the event in the trace's rows, rising
    kind: Int32s  # int32[rows], string: "Stream Sync", "Context Sync", "Event Sync", ...
    stream: Int64s  # int64[rows], stream that waits or is waited for; NO_ID: not one stream
    wait_on_stream: Int64s  # int64[rows], stream whose event is waited for
    record_correlation: Int64s  # int64[rows], correlation of that event's cudaEventRecord
    cuda_event: Int64s  # int64[rows], the event's id


@dataclass(frozen=True)
class MemoryColumns:
    """Profiler memory events (`[memory]` instants)."""

    at_ns: Int64s  # int64[rows]
    change_bytes: Int64s  # int64[rows]; negative frees
    allocated_bytes: Int64s  # int64[rows], total after the event
    reserved_bytes: Int64s  # int64[rows]
    device_type: Int32s  # int32[rows]; 0 host, 1 CUDA
    device: Int32s  # int32[rows]


@dataclass(frozen=True)
class FlowColumns:
    """Arrows from a forward operator to its backward (`fwdbwd`), by matching flow id."""

    from_ns: Int64s  # int64[rows], on lane `from_lane`
    to_ns: Int64s  # int64[rows]
    from_lane: Int32s  # int32[rows]
    to_lane: Int32s  # int32[rows]


@dataclass(frozen=True)
class ProcessGroup:
    """One process group as the file's `distributedInfo.pg_config` lists it."""

    name: str
    description: str
    ranks: tuple[int, ...]  # empty: the file does not say


@dataclass(frozen=True)
class TraceMeta:
    """What a file says about itself, and what reading it left out."""

    path: Path
    content_key: str  # hash of the file's bytes, names its cache entry; "" if none was taken
    file_bytes: int  # as stored, compressed if it is
    json_bytes: int  # of the text inside
    rank: int | None
    world_size: int | None
    backend: str | None
    process_groups: tuple[ProcessGroup, ...]
    device_names: tuple[str, ...]
    timestamp_unit_ns: int  # 1 where timestamps have decimals, 1000 where whole microseconds
    is_truncated: bool  # the file ends before its JSON does; what stands before is kept
    num_events: int  # records in the file, of any kind
    dropped: dict[str, int]  # reason -> records not kept
    notes: tuple[str, ...]  # anything odd that a reader repaired, in words
    step_mark: str = ""  # how names of marks begin that were stated to be of steps; "": none were


@dataclass(frozen=True)
class Trace:
    """One rank's trace, columnar; rows in the order that the module's docstring states."""

    meta: TraceMeta
    strings: tuple[str, ...]  # every text once; columns hold positions
    lanes: Lanes
    start_ns: Int64s  # int64[events], since the clock's own zero
    duration_ns: Int64s  # int64[events], never negative
    category: UInt8s  # uint8[events], Category
    name: Int32s  # int32[events], string
    lane: Int32s  # int32[events], position in `lanes`
    correlation: Int64s  # int64[events], joins a runtime call and its device operations; NO_ID
    external: Int64s  # int64[events], `External id`; NO_ID
    record_function: Int64s  # int64[events], `Record function id`; NO_ID
    sequence: Int64s  # int64[events], autograd `Sequence number`; NO_ID
    num_bytes: Int64s  # int64[events], of a copy or fill; NO_ID
    signature: Int32s  # int32[events], string: shapes, dtypes, strides, scalars; or launch grid
    collectives: CollectiveColumns
    syncs: SyncColumns
    memory: MemoryColumns
    flows: FlowColumns

    @property
    def num_events(self) -> int:
        """Rows kept."""
        return len(self.start_ns)

    @property
    def num_accounted(self) -> int:
        """Records of the file that are kept or counted as dropped; equal to `meta.num_events`.

        An arrow is two records, everything else that is kept is one.
        """
        return (
            self.num_events
            + len(self.memory.at_ns)
            + 2 * len(self.flows.from_ns)
            + sum(self.meta.dropped.values())
        )
