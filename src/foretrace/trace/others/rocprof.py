"""What rocprofv3 records of AMD GPUs, as its JSON (`--output-format json`, `*_results.json`).

Members as ROCprofiler-SDK's tool writes them (rocm.docs.amd.com, "Using rocprofv3"). Ranges of
ROCTx are annotations. A stream is what the program called so; where it names none, the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from foretrace.base import TraceError
from foretrace.trace.columns import Trace
from foretrace.trace.others.words import (
    ANNOTATION,
    COPY,
    KERNEL,
    RUNTIME,
    RecordingFacts,
    ToldEvent,
    on_device,
    trace_in_words,
)
from foretrace.trace.source import whole_bytes

_TOOL = b'"rocprofiler-sdk-tool"'
_GPU = 2  # agents' type
_MOST_BYTES = 8 * 10**9  # the file is read whole


class _Handle(msgspec.Struct, frozen=True):
    handle: int = 0


class _Correlation(msgspec.Struct, frozen=True):
    internal: int = 0


class _Size(msgspec.Struct, frozen=True):
    x: int = 1
    y: int = 1
    z: int = 1


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = 0
    grid_size: _Size = _Size()
    workgroup_size: _Size = _Size()


class _Record(msgspec.Struct, frozen=True):
    """A call, a range, a copy or a dispatch."""

    start_timestamp: int
    end_timestamp: int
    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: _Correlation = _Correlation()
    stream_id: _Handle = _Handle()
    dispatch_info: _Dispatch = _Dispatch()
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    bytes: int = 0


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle = _Handle()
    type: int = 0
    name: str = ""
    product_name: str = ""


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""


class _Operations(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: list[str] = []


class _Mark(msgspec.Struct, frozen=True):
    key: int
    value: str = ""


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Operations] = []
    marker_api: list[_Mark] = []


class _Records(msgspec.Struct, frozen=True):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []
    rccl_api: list[_Record] = []
    marker_api: list[_Record] = []
    hsa_api: list[msgspec.Raw] = []
    memory_allocation: list[msgspec.Raw] = []
    scratch_memory: list[msgspec.Raw] = []


class _Metadata(msgspec.Struct, frozen=True):
    pid: int = 0


class _Process(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    kernel_symbols: list[_Symbol] = []
    strings: _Strings = _Strings()
    buffer_records: _Records = _Records()


class _File(msgspec.Struct, frozen=True):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


_DECODER = msgspec.json.Decoder(_File)


def recognises_rocprof(head: bytes) -> bool:
    """Whether a file that begins so is rocprofv3's JSON."""
    return head.lstrip()[:1] == b"{" and _TOOL in head[:1000]


def read_rocprof(path: Path) -> Trace:
    """The one process in a file of rocprofv3.

    Raises:
        TraceError: if the file cannot be read, is cut off, or holds several processes.
    """
    process = _process(path)
    records = process.buffer_records
    dropped = {
        "calls into the runtime of the driver (HSA)": len(records.hsa_api),
        "allocations of memory": len(records.memory_allocation) + len(records.scratch_memory),
    }
    facts = RecordingFacts(
        device_names=[one.product_name or one.name for one in _gpus(process)],
        dropped={what: count for what, count in dropped.items() if count},
    )
    return trace_in_words(path, _told(process), facts)


def _process(path: Path) -> _Process:
    instead = "record fewer steps, or with --output-format pftrace"
    text = whole_bytes(path, _MOST_BYTES, instead=instead)
    try:
        found = _DECODER.decode(text).processes
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as err:
        raise TraceError(
            f"cannot read {path}: it begins as a file of rocprofv3 and is none ({err}); record or "
            "copy it again"
        ) from err
    if len(found) != 1:
        pids = ", ".join(str(one.metadata.pid) for one in found)
        raise TraceError(
            f"cannot read {path}: it holds {len(found)} processes ({pids or 'none'}), expected "
            "one; record each rank into a file of its own, as rocprofv3 does by default"
        )
    return found[0]


def _gpus(process: _Process) -> list[_Agent]:
    return [one for one in process.agents if one.type == _GPU]


def _told(process: _Process) -> Iterator[ToldEvent]:
    devices = {one.id.handle: number for number, one in enumerate(_gpus(process))}
    records = process.buffer_records
    yield from _kernels(process, devices)
    for one in records.memory_copy:
        ends = (one.src_agent_id.handle, one.dst_agent_id.handle)
        side = "".join("D" if end in devices else "H" for end in ends)
        device = devices.get(ends[1], devices.get(ends[0], 0))
        yield on_device(
            COPY, f"Memcpy {side[0]}to{side[1]}", (one.start_timestamp, one.end_timestamp),
            device=device, stream=one.stream_id.handle, correlation=one.correlation_id.internal,
            bytes=one.bytes,
        )  # fmt: skip
    pid = process.metadata.pid
    names = [one.operations for one in process.strings.buffer_records]
    for one in (*records.hip_api, *records.rccl_api):
        call = {"correlation": one.correlation_id.internal}
        yield ToldEvent(RUNTIME, _operation(names, one), *_times(one), pid, one.thread_id, call)
    marks = {one.key: one.value for one in process.strings.marker_api}
    for one in records.marker_api:
        text = marks.get(one.correlation_id.internal) or _operation(names, one)
        yield ToldEvent(ANNOTATION, text, *_times(one), pid, one.thread_id)


def _kernels(process: _Process, devices: Mapping[int, int]) -> Iterator[ToldEvent]:
    names = {
        one.kernel_id: (one.formatted_kernel_name or one.demangled_kernel_name).removesuffix(".kd")
        for one in process.kernel_symbols
    }
    kernels = process.buffer_records.kernel_dispatch
    has_streams = any(one.stream_id.handle for one in kernels)
    for one in kernels:
        work = one.dispatch_info
        block = work.workgroup_size
        threads = (block.x, block.y, block.z)
        grid = (work.grid_size.x, work.grid_size.y, work.grid_size.z)  # in threads
        yield on_device(
            KERNEL, names.get(work.kernel_id) or f"kernel {work.kernel_id}", _times(one),
            device=devices.get(work.agent_id.handle, 0),
            stream=one.stream_id.handle if has_streams else work.queue_id.handle,
            correlation=one.correlation_id.internal,
            grid=[-(-all_ // max(1, each)) for all_, each in zip(grid, threads, strict=True)],
            block=list(threads),
        )  # fmt: skip


def _operation(names: Sequence[Sequence[str]], one: _Record) -> str:
    known = names[one.kind] if 0 <= one.kind < len(names) else ()
    return known[one.operation] if 0 <= one.operation < len(known) else f"call {one.operation}"


def _times(one: _Record) -> tuple[int, int]:
    return one.start_timestamp, one.end_timestamp
