"""Nsight Systems' reports, as `nsys export --type sqlite` writes them.

Tables and columns as NVIDIA documents them (docs.nvidia.com/nsight-systems, "SQLite Schema
Reference"). Ranges of NVTX that PyTorch's `emit_nvtx` makes are operators with shapes; others are
annotations. A report of several processes is a folder of them: `report.sqlite/4711`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrace.base import TraceError
from foretrace.trace.archives import SQLITE
from foretrace.trace.columns import Trace
from foretrace.trace.others.tables import (
    RecordedTables,
    database_part,
    opened_tables,
    place_of,
    refused_parts,
)
from foretrace.trace.others.words import (
    ANNOTATION,
    COPY,
    FILL,
    KERNEL,
    OPERATOR,
    RUNTIME,
    SYNC,
    RecordingFacts,
    ToldEvent,
    Value,
    on_device,
    trace_in_words,
)

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_EVENTS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_RANGES = "NVTX_EVENTS"
_ON_DEVICE = (_KERNELS, _COPIES, _FILLS, _GRAPHS)
# What the report has and no question asks for.
_NOT_TOLD = {
    "OSRT_API": "calls into the operating system",
    "SCHED_EVENTS": "scheduling of threads",
    "COMPOSITE_EVENTS": "samples of threads",
    "PROFILER_OVERHEAD": "the profiler's own span",
    "GPU_METRICS": "samples of the device's counters",
}
_BEFORE = ("deviceId", "streamId", "correlationId", "start", "end", "globalPid")
_PUSHED_RANGES = (59, 70)  # eventType: NvtxPushPopRange, and of a payload of newer versions
# CUpti_ActivityMemcpyKind, and what Nsight Systems adds: pages of managed memory that move.
_DIRECTIONS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD",
}  # fmt: skip
_MIGRATIONS = (11, 12, 13)
_SYNC_KINDS = {  # CUpti_ActivitySynchronizationType
    1: "Event Sync",
    2: "Stream Wait Event",
    3: "Stream Sync",
    4: "Context Sync",
}
_VERSION = re.compile(r"_v\d+$")
_SEQUENCE = re.compile(r", seq = (\d+)")
_SIZES = re.compile(r", sizes = (\[.*\])")
_OPERATOR = re.compile(r"^[\w:.<>~ ]+?(?=, (?:seq|op_id|sizes) = )")
_EXAMPLES = 5  # of tables that an error names
_MOST_DEVICES = 1024  # of a host; a larger number is no device's
_NUMBER = 0xFFFFFF  # a thread's and a process's share of a global id


def recognises_nsight(head: bytes) -> bool:
    """Whether a file that begins so is a report that was exported."""
    return head.startswith(SQLITE) and b"rocpd_" not in head


def read_nsight(path: Path) -> Trace:
    """The one process with device work in a report, or the one that the path names.

    Raises:
        TraceError: if the file cannot be read, holds no such work, or several processes' of it.
    """
    with opened_tables(path) as tables:
        found = processes_of_nsight(tables)
        process = _process(tables, path, found)
        texts = {
            number: text or ""
            for number, text in tables.rows("StringIds", ("id", "value"), texts=("value",))
        }
        unread = {what: tables.count(name) for name, what in _NOT_TOLD.items()}
        rank, world_size = place_of(process, found)
        facts = RecordingFacts(
            rank=rank,
            world_size=world_size,
            device_names=_devices(tables, process),
            dropped={what: count for what, count in unread.items() if count},
            notes=_notes(tables),
        )
        return trace_in_words(path, _told(tables, process, texts), facts)


def processes_of_nsight(tables: RecordedTables) -> Counter[int]:
    """How much device work each process has, by its number, in the order of their devices."""
    found: Counter[int] = Counter()
    least: dict[int, int] = {}
    for name in _ON_DEVICE:
        for process, device in tables.rows(name, ("globalPid", "deviceId")):
            number = _pid(process)
            found[number] += 1
            least[number] = min(device or 0, least.get(number, device or 0))
    return Counter({one: found[one] for one in sorted(found, key=lambda one: (least[one], one))})


def _process(tables: RecordedTables, path: Path, found: Counter[int]) -> int:
    """The process that used devices; 0 where the report names none."""
    if not found:
        names = [name for name in tables.names if not name.startswith("ENUM_")]
        # Those of devices first: they say what was recorded in place of kernels.
        names.sort(key=lambda name: not name.startswith("CUPTI_"))
        held = ", ".join(names[:_EXAMPLES]) + (", ..." if len(names) > _EXAMPLES else "")
        raise TraceError(
            f"cannot read {path}: it is an SQLite file without device work of Nsight "
            f"Systems: it has the tables {held or 'none'}, expected {_KERNELS}; record with "
            "`nsys profile --trace=cuda,nvtx` and export with `nsys export --type sqlite`"
        )
    process = database_part(path, found)
    return refused_parts(path, found) if process is None else process


def _pid(global_id: int | None) -> int:
    return 0 if global_id is None else global_id >> 24 & _NUMBER


def _devices(tables: RecordedTables, process: int) -> tuple[str, ...]:
    """Names of the host's devices, by the number that the process gives them."""
    named = {
        number: name
        for number, name in tables.rows("TARGET_INFO_GPU", ("id", "name"), texts=("name",))
        if number is not None and name and 0 <= number < _MOST_DEVICES
    }
    # CUDA_VISIBLE_DEVICES numbers anew, and a host's list has devices that are not NVIDIA's.
    given = {
        number: named[gpu]
        for gpu, number, of in tables.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
        if of == process and gpu in named and number is not None and 0 <= number < _MOST_DEVICES
    }
    named = given or named
    return tuple(named.get(number, "") for number in range(max(named, default=-1) + 1))


def _notes(tables: RecordedTables) -> tuple[str, ...]:
    found: list[str] = []
    if graphs := tables.count(_GRAPHS):
        found.append(
            f"{graphs:,} launches of CUDA graphs are one operation each: their kernels were not "
            "recorded (`nsys profile --cuda-graph-trace=node` records them)"
        )
    if moved := sum(kind in _MIGRATIONS for (kind,) in tables.rows(_COPIES, ("copyKind",))):
        found.append(
            f"{moved:,} copies are pages of managed memory, moved as the host or the device "
            "touched them: nothing launches them, and who waited for them is not recorded"
        )
    return tuple(found)


def _told(tables: RecordedTables, process: int, texts: Mapping[int, str]) -> Iterator[ToldEvent]:
    yield from _kernels(tables, process, texts)
    yield from _copies(tables, process)
    for device, stream, call, start, end, _, size in _own(tables, process, _FILLS, "bytes"):
        yield on_device(
            FILL, "Memset (Device)", (start, end),
            device=device, stream=stream, correlation=call, bytes=size or 0,
        )  # fmt: skip
    for device, stream, call, start, end, _, graph in _own(tables, process, _GRAPHS, "graphId"):
        yield on_device(
            KERNEL, f"CUDA graph {graph}", (start, end),
            device=device, stream=stream, correlation=call,
        )  # fmt: skip
    yield from _syncs(tables, process)
    yield from _calls(tables, process, texts)
    yield from _ranges(tables, process, texts)


def _own(
    tables: RecordedTables, process: int, table: str, *columns: str
) -> Iterator[tuple[Any, ...]]:
    """Device rows of a process that have ended, with those columns that all have before others."""
    for device, stream, call, start, end, owner, *more in tables.rows(table, (*_BEFORE, *columns)):
        if process in {0, _pid(owner)} and None not in {start, end}:
            yield device or 0, stream, call, start, end, owner, *more


def _kernels(tables: RecordedTables, process: int, texts: Mapping[int, str]) -> Iterator[ToldEvent]:
    sizes = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    for row in _own(tables, process, _KERNELS, "demangledName", "shortName", *sizes):
        device, stream, call, start, end, _, full, short, *shape = row
        args: dict[str, Value] = {}
        if None not in shape:
            args = {"grid": shape[:3], "block": shape[3:]}
        name = texts.get(full) or texts.get(short) or f"kernel {full}"
        yield on_device(
            KERNEL, name, (start, end), device=device, stream=stream, correlation=call, **args
        )


def _copies(tables: RecordedTables, process: int) -> Iterator[ToldEvent]:
    for row in _own(tables, process, _COPIES, "bytes", "copyKind", "srcKind", "dstKind"):
        device, stream, call, start, end, _, size, kind, *ends = row
        memory = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
        source, goal = (memory.get(one, "?") for one in ends)
        if kind in _MIGRATIONS:  # nothing launches them: who touches a page has it moved
            source = goal = memory[4]
            call = None
        yield on_device(
            COPY, f"Memcpy {_DIRECTIONS.get(kind, f'kind {kind}')} ({source} -> {goal})",
            (start, end), device=device, stream=stream, correlation=call, bytes=size or 0,
        )  # fmt: skip


@dataclass(frozen=True)
class _Recorded:
    """One time an event was put into a stream."""

    correlation: int
    stream: int


def _syncs(tables: RecordedTables, process: int) -> Iterator[ToldEvent]:
    """Waits, each with the last record of its event before it."""
    columns = ("correlationId", "streamId", "eventId", "globalPid")
    recorded: dict[int, list[_Recorded]] = defaultdict(list)
    for call, stream, event, owner in tables.rows(_EVENTS, columns):
        if call is not None and (process in {0, _pid(owner)} or owner is None):
            recorded[event].append(_Recorded(call, stream))
    for records in recorded.values():
        records.sort(key=lambda one: one.correlation)
    for row in _own(tables, process, _SYNCS, "syncType", "eventId"):
        device, stream, call, start, end, _, kind, event = row
        words = _SYNC_KINDS.get(kind)
        if words is None:
            continue
        args: dict[str, Value] = {"cuda_sync_kind": words}
        before = [one for one in recorded.get(event, ()) if one.correlation < (call or 0)]
        if before and kind in (1, 2):
            args["wait_on_stream"] = before[-1].stream
            args["wait_on_cuda_event_record_corr_id"] = before[-1].correlation
            args["wait_on_cuda_event_id"] = event
        stream = -1 if stream is None or kind == 4 else stream  # noqa: PLR2004  the whole device
        yield on_device(
            SYNC, words, (start, end), device=device, stream=stream, correlation=call, **args
        )


def _calls(tables: RecordedTables, process: int, texts: Mapping[int, str]) -> Iterator[ToldEvent]:
    for start, end, thread, call, name in tables.rows(
        _CALLS, ("start", "end", "globalTid", "correlationId", "nameId")
    ):
        if _is_of(thread, process) and None not in {start, end}:
            words = _VERSION.sub("", texts.get(name, f"call {name}"))
            yield ToldEvent(
                RUNTIME, words, start, end, *_thread(thread), args={"correlation": call}
            )


def _ranges(tables: RecordedTables, process: int, texts: Mapping[int, str]) -> Iterator[ToldEvent]:
    for start, end, kind, thread, text, number in tables.rows(
        _RANGES, ("start", "end", "eventType", "globalTid", "text", "textId"), texts=("text",)
    ):
        is_whole = kind in _PUSHED_RANGES and None not in {start, end}
        if is_whole and _is_of(thread, process):
            yield _range(text or texts.get(number, ""), (start, end), _thread(thread))


def _range(text: str, times: tuple[int, int], at: tuple[int, int]) -> ToldEvent:
    """A range as `torch.autograd.profiler.emit_nvtx` words it is an operator."""
    operator = _OPERATOR.match(text)
    if operator is None:
        return ToldEvent(ANNOTATION, text, *times, *at)
    args: dict[str, Value] = {}
    if (sequence := _SEQUENCE.search(text)) is not None:
        args["Sequence number"] = int(sequence[1])
    if (sizes := _SIZES.search(text)) is not None and (read := _sizes(sizes[1])) is not None:
        args["Input Dims"] = read
    return ToldEvent(OPERATOR, operator[0], *times, *at, args=args)


def _sizes(text: str) -> list[list[int]] | None:
    try:
        read = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    is_sizes = isinstance(read, list) and all(
        isinstance(one, list) and all(isinstance(size, int) for size in one) for one in read
    )
    return read if is_sizes else None


def _is_of(thread: int | None, process: int) -> bool:
    return thread is not None and process in {0, _pid(thread)}


def _thread(thread: int) -> tuple[int, int]:
    return thread >> 24 & _NUMBER, thread & _NUMBER
