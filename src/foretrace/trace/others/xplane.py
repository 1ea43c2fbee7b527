"""Profiles of JAX, XLA and TensorFlow (`*.xplane.pb`), of GPUs and TPUs.

Fields as in tsl/profiler/protobuf/xplane.proto of openxla/xla. A plane is a device or the host, its
lines are streams or threads. Of a GPU the streams are told, of a TPU its line of operations; other
lines of a device say the same again by module, scope or source. An operation that is spread over
others (a loop, a call) is not told beside them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretrace.base import TraceError
from foretrace.trace.columns import Trace
from foretrace.trace.marks import STEP_MARK
from foretrace.trace.others.messages import Messages, message_text, read_message
from foretrace.trace.others.words import (
    ANNOTATION,
    COPY,
    FILL,
    KERNEL,
    OPERATOR,
    RUNTIME,
    RecordingFacts,
    ToldEvent,
    Value,
    on_device,
    trace_in_words,
)

MESSAGES: Messages = {
    "XSpace": {"planes": (1, "*XPlane")},
    "XPlane": {
        "name": (2, "bytes"),
        "lines": (3, "*XLine"),
        "event_metadata": (4, "*EventEntry"),
        "stat_metadata": (5, "*StatEntry"),
    },
    "EventEntry": {"key": (1, "int64"), "value": (2, "XEventMetadata")},
    "StatEntry": {"key": (1, "int64"), "value": (2, "XStatMetadata")},
    "XLine": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "*XEvent"),
    },
    "XEvent": {
        "metadata_id": (1, "int64"),
        "offset_ps": (2, "int64"),
        "duration_ps": (3, "int64"),
        "stats": (4, "*XStat"),
    },
    "XStat": {
        "metadata_id": (1, "int64"),
        "uint64_value": (3, "uint64"),
        "int64_value": (4, "int64"),
        "str_value": (5, "bytes"),
        "ref_value": (7, "uint64"),
    },
    "XEventMetadata": {"name": (2, "bytes"), "display_name": (4, "bytes")},
    "XStatMetadata": {"name": (2, "bytes")},
}
_STREAM = re.compile(r"Stream #(\d+)")
_OPERATIONS = ("XLA Ops", "Async XLA Ops")  # lines of a TPU; the second runs beside the first
_SIZE = re.compile(r"size:(\d+)")
_CALL = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*$")
_HOST = "/host:"
_DEVICE = "/device:"
_TPU = "/device:TPU:"
_PS = 1000  # picoseconds in a nanosecond
_HEAD_FIELDS = frozenset((0x08, 0x12, 0x1A))  # of a plane: its id, name or first line


def recognises_xplane(head: bytes) -> bool:
    """Whether a file that begins so is a space of planes, the first of a device or the host."""
    start = head[:400]
    return (
        start[:1] == b"\n"
        and any(word in start for word in (b"/device:", b"/host:", b"Task Environment"))
        and any(byte in _HEAD_FIELDS for byte in start[2:6])
    )


def read_xplane(path: Path) -> Trace:
    """What one process recorded of its host and devices.

    Raises:
        TraceError: if the file cannot be read, or holds neither.
    """
    space = read_message(path, "xplane", MESSAGES)
    planes = [_Plane.of(one) for one in space.planes]
    devices = [one for one in planes if one.device is not None and one.lines]
    hosts = [one for one in planes if one.name.startswith(_HOST)]
    if not any(one.lines for one in (*devices, *hosts)):
        names = ", ".join(one.name for one in planes)[:200]
        raise TraceError(
            f"cannot read {path}: its planes ({names or 'none'}) hold no event of a device or a "
            "host; record at least one step with jax.profiler.trace"
        )
    dropped: Counter[str] = Counter()
    events = _Events(hosts, devices, dropped)
    titles = [""] * (max((one.device or 0 for one in devices), default=-1) + 1)
    for one in devices:
        titles[one.device or 0] = one.name.removeprefix(_DEVICE)
    told = list(events)  # so that what is dropped is counted
    return trace_in_words(path, told, RecordingFacts(device_names=titles, dropped=dropped))


@dataclass(frozen=True)
class _Plane:
    name: str
    device: int | None  # its number; None of the host
    lines: Sequence[Any]
    events: Mapping[int, str]  # names of events
    stats: Mapping[int, str]

    @classmethod
    def of(cls, plane: Any) -> _Plane:
        name = message_text(plane.name)
        number = re.match(r"/device:(?:GPU|TPU):(\d+)", name)
        return cls(
            name=name,
            device=None if number is None else int(number[1]),
            lines=plane.lines,
            events={
                one.key: message_text(one.value.display_name or one.value.name)
                for one in plane.event_metadata
            },
            stats={one.key: message_text(one.value.name) for one in plane.stat_metadata},
        )

    def told_of(self, event: Any) -> dict[str, int | str]:
        """What an event says of itself, by name."""
        found: dict[str, int | str] = {}
        for stat in event.stats:
            name = self.stats.get(stat.metadata_id, "")
            if stat.HasField("ref_value"):
                found[name] = self.stats.get(stat.ref_value, "")
            elif stat.HasField("str_value"):
                found[name] = message_text(stat.str_value)
            elif stat.HasField("uint64_value"):
                found[name] = stat.uint64_value
            elif stat.HasField("int64_value"):
                found[name] = stat.int64_value
        return found


@dataclass
class _Events:
    """Events of all planes, in Kineto's words."""

    hosts: Sequence[_Plane]
    devices: Sequence[_Plane]
    dropped: Counter[str]
    threads: dict[tuple[str, int], int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ToldEvent]:
        for plane in self.devices:
            for line in plane.lines:
                yield from self._of_stream(plane, line)
        for plane in self.hosts:
            for line in plane.lines:
                # numbers of threads may be hashes, which are no whole number of 64 bits
                thread = self.threads.setdefault((plane.name, line.id), len(self.threads) + 1)
                yield from self._of_thread(plane, line, thread)

    def _of_stream(self, plane: _Plane, line: Any) -> Iterator[ToldEvent]:
        name = message_text(line.name)
        stream = _STREAM.match(name)
        if stream is None and (name not in _OPERATIONS or not plane.name.startswith(_TPU)):
            self.dropped["lines that tell a device's work again"] += len(line.events)
            return
        number = int(stream[1]) if stream else _OPERATIONS.index(name)
        events = line.events
        if stream is None:
            events = _innermost(events)
            if len(events) < len(line.events):
                self.dropped["operations whose parts are told"] += len(line.events) - len(events)
        for event in events:
            told = plane.told_of(event)
            call = told.get("correlation_id")
            text = plane.events.get(event.metadata_id, "").removesuffix(".kd")
            category, args = _device_work(told)
            yield on_device(
                category, text or f"event {event.metadata_id}", _times(line, event),
                device=plane.device or 0, stream=number,
                correlation=call if isinstance(call, int) else None, **args,
            )  # fmt: skip

    def _of_thread(self, plane: _Plane, line: Any, thread: int) -> Iterator[ToldEvent]:
        for event in line.events:
            text = plane.events.get(event.metadata_id, "") or f"event {event.metadata_id}"
            told = plane.told_of(event)
            step, call = told.get("step_num"), told.get("correlation_id")
            args: dict[str, Value] = {}
            category = OPERATOR
            if isinstance(step, int):
                category, text = ANNOTATION, f"{STEP_MARK}{step}"
            elif text.startswith("$"):
                category, text = "python_function", text[1:]
            elif _CALL.match(text):
                category = RUNTIME
                args = {"correlation": call} if isinstance(call, int) else {}
            yield ToldEvent(category, text, *_times(line, event), 0, thread, args)


def _device_work(told: Mapping[str, int | str]) -> tuple[str, dict[str, Value]]:
    """What an event of a stream is, and the bytes it moves."""
    for key, category in (("memcpy_details", COPY), ("memset_details", FILL)):
        if key in told:
            size = _SIZE.search(str(told[key]))
            return category, {"bytes": int(size[1]) if size else 0}
    return KERNEL, {}


def _innermost(events: Sequence[Any]) -> list[Any]:
    """Events of a line without those that others of it lie in."""
    ordered = sorted(events, key=lambda one: (one.offset_ps, -one.duration_ps))
    return [
        one
        for at, one in enumerate(ordered)
        if at + 1 == len(ordered)
        or ordered[at + 1].offset_ps >= one.offset_ps + one.duration_ps
        or one.duration_ps == 0
    ]


def _times(line: Any, event: Any) -> tuple[int, int]:
    start_ps = line.timestamp_ns * _PS + event.offset_ps
    return start_ps // _PS, (start_ps + event.duration_ps) // _PS
