"""Nsight Systems' reports, as `nsys export --type sqlite` writes them.

Tables and columns as NVIDIA documents them (docs.nvidia.com/nsight-systems, "SQLite Schema
Reference"). Ranges of NVTX that PyTorch's `emit_nvtx` makes are operators with shapes; others are
annotations. One file holds what one process did on its devices: reports of several are named.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from foretrace.base import TraceError
from foretrace.trace.columns import Trace
from foretrace.trace.others.tables import SQLITE, RecordedTables, opened_tables
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
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}  # CUpti_ActivityMemcpyKind
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
_NUMBER = 0xFFFFFF  # a thread's and a process's share of a global id


def recognises_nsight(head: bytes) -> bool:
    """Whether a file that begins so is a report that was exported."""
    return head.startswith(SQLITE) and b"rocpd_" not in head


def read_nsight(path: Path) -> Trace:
    """The one process with device work in a report.

    Raises:
        TraceError: if the file cannot be read, holds no such work, or several processes' of it.
    """
    with opened_tables(path) as tables:
        process = _process(tables)
        texts = {number: str(text) for number, text in tables.rows("StringIds", ("id", "value"))}
        unread = {what: tables.count(name) for name, what in _NOT_TOLD.items()}
        facts = RecordingFacts(
            device_names=_devices(tables),
            dropped={what: count for what, count in unread.items() if count},
            notes=_notes(tables),
        )
        return trace_in_words(path, _told(tables, process, texts), facts)


def _process(tables: RecordedTables) -> int | None:
    """The global id of the process that used devices; None where the report names none."""
    found: Counter[int | None] = Counter()
    for name in _ON_DEVICE:
        found.update(one for (one,) in tables.rows(name, ("globalPid",)))
    if not found:
        held = ", ".join(name for name in tables.names if not name.startswith("ENUM_"))
        raise TraceError(
            f"cannot read {tables.path}: it is an SQLite file without device work of Nsight "
            f"Systems: it has the tables {held[:200] or 'none'}, expected {_KERNELS}; record with "
            "`nsys profile --trace=cuda,nvtx` and export with `nsys export --type sqlite`"
        )
    if len(found) > 1:
        told = ", ".join(
            f"{_pid(one)} ({count:,} operations)" for one, count in found.most_common(16)
        )
        raise TraceError(
            f"cannot read {tables.path}: {len(found)} processes used devices in it: {told}; "
            "record each rank into a file of its own: `torchrun ... --no-python nsys profile "
            "-o rank%q{RANK} ... python train.py`"
        )
    return next(iter(found))


def _pid(global_id: int | None) -> str:
    return "one without a number" if global_id is None else str(global_id >> 24 & _NUMBER)


def _devices(tables: RecordedTables) -> tuple[str, ...]:
    named = {
        number: str(name)
        for number, name in tables.rows("TARGET_INFO_GPU", ("id", "name"))
        if isinstance(number, int) and name
    }
    return tuple(named.get(number, "") for number in range(max(named, default=-1) + 1))


def _notes(tables: RecordedTables) -> tuple[str, ...]:
    graphs = tables.count(_GRAPHS)
    if not graphs:
        return ()
    told = (
        f"{graphs:,} launches of CUDA graphs are one operation each: their kernels were not "
        "recorded (`nsys profile --cuda-graph-trace=node` records them)"
    )
    return (told,)


def _told(
    tables: RecordedTables, process: int | None, texts: Mapping[int, str]
) -> Iterator[ToldEvent]:
    yield from _kernels(tables, texts)
    yield from _copies(tables)
    for device, stream, call, start, end, _, size in tables.rows(_FILLS, (*_BEFORE, "bytes")):
        yield on_device(
            FILL, "Memset (Device)", (start, end),
            device=device, stream=stream, correlation=call, bytes=size or 0,
        )  # fmt: skip
    for device, stream, call, start, end, _, graph in tables.rows(_GRAPHS, (*_BEFORE, "graphId")):
        yield on_device(
            KERNEL, f"CUDA graph {graph}", (start, end),
            device=device, stream=stream, correlation=call,
        )  # fmt: skip
    yield from _syncs(tables)
    yield from _calls(tables, process, texts)
    yield from _ranges(tables, process, texts)


def _kernels(tables: RecordedTables, texts: Mapping[int, str]) -> Iterator[ToldEvent]:
    sizes = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    for row in tables.rows(_KERNELS, (*_BEFORE, "demangledName", "shortName", *sizes)):
        device, stream, call, start, end, _, full, short, *shape = row
        args: dict[str, Value] = {}
        if None not in shape:
            args = {"grid": shape[:3], "block": shape[3:]}
        name = texts.get(full) or texts.get(short) or f"kernel {full}"
        yield on_device(
            KERNEL, name, (start, end), device=device, stream=stream, correlation=call, **args
        )


def _copies(tables: RecordedTables) -> Iterator[ToldEvent]:
    for row in tables.rows(_COPIES, (*_BEFORE, "bytes", "copyKind", "srcKind", "dstKind")):
        device, stream, call, start, end, _, size, kind, *ends = row
        memory = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
        source, goal = (memory.get(one, "?") for one in ends)
        yield on_device(
            COPY, f"Memcpy {_DIRECTIONS.get(kind, f'kind {kind}')} ({source} -> {goal})",
            (start, end), device=device, stream=stream, correlation=call, bytes=size or 0,
        )  # fmt: skip


@dataclass(frozen=True)
class _Recorded:
    """One time an event was put into a stream."""

    correlation: int
    stream: int


def _syncs(tables: RecordedTables) -> Iterator[ToldEvent]:
    """Waits, each with the last record of its event before it."""
    columns = ("correlationId", "streamId", "eventId")
    recorded: dict[int, list[_Recorded]] = defaultdict(list)
    for call, stream, event in tables.rows(_EVENTS, columns):
        recorded[event].append(_Recorded(call, stream))
    for records in recorded.values():
        records.sort(key=lambda one: one.correlation)
    for row in tables.rows(_SYNCS, (*_BEFORE, "syncType", "eventId")):
        device, stream, call, start, end, _, kind, event = row
        words = _SYNC_KINDS.get(kind)
        if words is None:
            continue
        args: dict[str, Value] = {"cuda_sync_kind": words}
        before = [one for one in recorded.get(event, ()) if one.correlation < call]
        if before and kind in (1, 2):
            args["wait_on_stream"] = before[-1].stream
            args["wait_on_cuda_event_record_corr_id"] = before[-1].correlation
            args["wait_on_cuda_event_id"] = event
        stream = -1 if stream is None or kind == 4 else stream  # noqa: PLR2004  the whole device
        yield on_device(
            SYNC, words, (start, end), device=device or 0, stream=stream, correlation=call, **args
        )


def _calls(
    tables: RecordedTables, process: int | None, texts: Mapping[int, str]
) -> Iterator[ToldEvent]:
    for start, end, thread, call, name in tables.rows(
        _CALLS, ("start", "end", "globalTid", "correlationId", "nameId")
    ):
        if _is_of(thread, process) and end is not None:
            words = _VERSION.sub("", texts.get(name, f"call {name}"))
            yield ToldEvent(
                RUNTIME, words, start, end, *_thread(thread), args={"correlation": call}
            )


def _ranges(
    tables: RecordedTables, process: int | None, texts: Mapping[int, str]
) -> Iterator[ToldEvent]:
    for start, end, kind, thread, text, number in tables.rows(
        _RANGES, ("start", "end", "eventType", "globalTid", "text", "textId")
    ):
        if kind in _PUSHED_RANGES and end is not None and _is_of(thread, process):
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


def _is_of(thread: int | None, process: int | None) -> bool:
    if thread is None:
        return False
    return process is None or thread >> 24 == process >> 24


def _thread(thread: int) -> tuple[int, int]:
    return thread >> 24 & _NUMBER, thread & _NUMBER
