"""`trace_in_words`: events of another profiler, told in Kineto's words, become a `Trace`.

So the one scanner orders rows, shares texts and counts what it drops, whoever recorded. A reader
gives events with times in ns and what Kineto would call them; nothing is held but a piece of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from foretrace.trace.archives import num_bytes
from foretrace.trace.columns import Trace
from foretrace.trace.read import trace_of
from foretrace.trace.source import PIECE_BYTES, OpenFile

KERNEL = "kernel"
COPY = "gpu_memcpy"
FILL = "gpu_memset"
SYNC = "cuda_sync"
RUNTIME = "cuda_runtime"
OPERATOR = "cpu_op"
ANNOTATION = "user_annotation"

Value = str | int | float | list[int] | list[list[int]]
_BYTES_AN_EVENT = 200  # of text, for the size of the first tables


@dataclass(frozen=True)
class ToldEvent:
    """One event."""

    category: str  # as Kineto writes it: KERNEL, RUNTIME, ...
    name: str
    start_ns: int
    end_ns: int
    process: int  # of a device event: its device
    thread: int  # of a device event: its stream
    args: Mapping[str, Value] = field(default_factory=dict)


def on_device(
    category: str,
    name: str,
    times: tuple[int, int],
    *,
    device: int,
    stream: int | None,
    correlation: int | None,
    **args: Value,
) -> ToldEvent:
    """An event on a device's stream, launched by the call with the same correlation.

    Args:
        category: KERNEL, COPY, FILL or SYNC.
        name: of the kernel.
        times: start and end, ns.
        device: index of the device.
        stream: number of its stream; 0 if the recording does not say.
        correlation: of the call that launched it; None if the recording does not say.
        args: whatever else Kineto writes of such an event.
    """
    stream = stream or 0
    known = {"device": device, "stream": stream, **args}
    if correlation is not None:
        known["correlation"] = correlation
    return ToldEvent(category, name, *times, process=device, thread=stream, args=known)


@dataclass(frozen=True)
class RecordingFacts:
    """What a recording says beside its events."""

    rank: int | None = None
    world_size: int | None = None
    device_names: Sequence[str] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)  # what was not told -> how many
    notes: Sequence[str] = ()


def trace_in_words(path: Path, events: Iterable[ToldEvent], facts: RecordingFacts) -> Trace:
    """The trace of these events."""
    file_bytes = num_bytes(path)
    pieces = _pieces(events, facts)
    trace = trace_of(OpenFile(path, file_bytes, max(file_bytes, _BYTES_AN_EVENT), pieces))
    meta = trace.meta
    return replace(
        trace,
        meta=replace(
            meta,
            num_events=meta.num_events + sum(facts.dropped.values()),
            dropped={**meta.dropped, **facts.dropped},
            notes=(*meta.notes, *facts.notes),
        ),
    )


def _pieces(events: Iterable[ToldEvent], facts: RecordingFacts) -> Iterator[bytes]:
    info = {"rank": facts.rank, "world_size": facts.world_size}
    head = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": number, "name": name} for number, name in enumerate(facts.device_names)
        ],
        "distributedInfo": {key: one for key, one in info.items() if one is not None},
    }
    parts = [msgspec.json.encode(head)[:-1], b',"traceEvents":[']
    size, mark = 0, b""
    for event in events:
        record = _record(event)
        parts += (mark, record)
        mark = b",\n"
        size += len(record)
        if size >= PIECE_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join((*parts, b"]}"))


def _record(event: ToldEvent) -> bytes:
    return msgspec.json.encode(
        {
            "ph": "X",
            "cat": event.category,
            "name": event.name,
            "pid": event.process,
            "tid": event.thread,
            "ts": _micros(event.start_ns),
            "dur": _micros(max(0, event.end_ns - event.start_ns)),
            "args": event.args,
        }
    )


def _micros(time_ns: int) -> msgspec.Raw:
    """Decimal microseconds without the rounding of a float."""
    sign = "-" if time_ns < 0 else ""
    micros, rest = divmod(abs(time_ns), 1000)
    return msgspec.Raw(f"{sign}{micros}.{rest:03d}".encode())
