"""Perfetto's traces (`.pftrace`), as rocprofv3 and other profilers of GPUs write them.

Fields as in protos/perfetto/trace/perfetto_trace.proto of google/perfetto, version 55. Slices of
track events are told: on tracks of threads host work, on other tracks of devices, which are known
by their names or by what slices say of themselves. Counters, samples of the system and what other
data sources write are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretrace.base import TraceError
from foretrace.trace.columns import Trace
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
    "Trace": {"packet": (1, "*Packet")},
    "Packet": {
        "timestamp": (8, "uint64"),
        "sequence": (10, "uint32"),
        "event": (11, "TrackEvent"),
        "interned": (12, "Interned"),
        "flags": (13, "uint32"),
        "cleared": (41, "bool"),
        "defaults": (59, "Defaults"),
        "track": (60, "Track"),
    },
    "TrackEvent": {
        "annotations": (4, "*Annotation"),
        "type": (9, "int32"),
        "name_iid": (10, "uint64"),
        "track": (11, "uint64"),
        "categories": (22, "*bytes"),
        "category_iids": (3, "*uint64"),
        "name": (23, "bytes"),
    },
    "Annotation": {
        "name_iid": (1, "uint64"),
        "uint": (3, "uint64"),
        "int": (4, "int64"),
        "text": (6, "bytes"),
        "name": (10, "bytes"),
    },
    "Interned": {
        "categories": (1, "*Text"),
        "names": (2, "*Text"),
        "annotations": (3, "*Text"),
    },
    "Text": {"iid": (1, "uint64"), "text": (2, "bytes")},
    "Defaults": {"event": (11, "TrackEvent")},
    "Track": {
        "uuid": (1, "uint64"),
        "name": (2, "bytes"),
        "process": (3, "Process"),
        "thread": (4, "Thread"),
        "parent": (5, "uint64"),
        "static_name": (10, "bytes"),
    },
    "Process": {"pid": (1, "int32"), "name": (6, "bytes")},
    "Thread": {"pid": (1, "int32"), "tid": (2, "int64"), "name": (5, "bytes")},
}
# First bytes of a packet's fields: clocks, timestamp, sequence, event, interned texts, flags;
# fields from 16 up take two bytes.
_PACKET_TAGS = (0x32, 0x40, 0x50, 0x5A, 0x62, 0x68)
_BEGIN, _END = 1, 2  # TrackEvent.Type
_CLEARED = 1  # TracePacket.SequenceFlags
_IS_DEVICE = re.compile(r"\b(?:GPU|AGENT|STREAM|QUEUE|DEVICE|HIP Activity)\b", re.IGNORECASE)
_STREAM = re.compile(r"(?:STREAM|QUEUE)\s*\[?#?(\d+)", re.IGNORECASE)
_DEVICE = re.compile(r"(?:AGENT|GPU|DEVICE)\s*\[?#?(\d+)", re.IGNORECASE)
_CALL = re.compile(r"(?:cuda|cu|hip|rccl|nccl|hsa_)[A-Z_]?\w*$")
# What slices call the number that joins a call and its work.
_CORRELATIONS = ("corr_id", "correlation", "correlation_id", "stack_id")
_KINDS = (
    (re.compile("kernel|dispatch", re.IGNORECASE), KERNEL),
    (re.compile("mem_?(ory_)?(copy|cpy)", re.IGNORECASE), COPY),
    (re.compile("mem_?(ory_)?set|fill", re.IGNORECASE), FILL),
)


def recognises_perfetto(head: bytes) -> bool:
    """Whether a file that begins so is a list of packets: the first is of a timed sequence."""
    if head[:1] != b"\n" or len(head) < 4:  # noqa: PLR2004
        return False
    at = 1
    while at < len(head) and head[at] & 0x80:
        at += 1
    tag, second = head[at + 1 : at + 3] if len(head) > at + 2 else (0, 0)
    return tag in _PACKET_TAGS or (tag & 0x80 != 0 and second in range(1, 9))


@dataclass
class _Sequence:
    """What one writer of packets said once for those that follow."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    annotations: dict[int, str] = field(default_factory=dict)
    track: int = 0

    def learn(self, interned: Any) -> None:
        for known, said in (
            (self.names, interned.names),
            (self.categories, interned.categories),
            (self.annotations, interned.annotations),
        ):
            known.update({one.iid: message_text(one.text) for one in said})


@dataclass(frozen=True)
class _Place:
    """A track: a thread of a process, or a stream of a device."""

    name: str
    process: int
    thread: int
    is_thread: bool

    @property
    def is_device(self) -> bool:
        return not self.is_thread and _IS_DEVICE.search(self.name) is not None


@dataclass(frozen=True)
class _Slice:
    """A slice as it was begun."""

    name: str
    categories: tuple[str, ...]
    start_ns: int
    said: Mapping[str, int | str]


def read_perfetto(path: Path) -> Trace:
    """The slices of a trace, as host and device work.

    Raises:
        TraceError: if the file cannot be read, or holds no slice.
    """
    packets = read_message(path, "perfetto", MESSAGES).packet
    places = _places(packets)
    dropped: Counter[str] = Counter()
    told = list(_told(packets, places, dropped))
    if not told:
        raise TraceError(
            f"cannot read {path}: its {len(packets):,} packets hold no slice of a track event; "
            "record with a profiler of GPUs, such as rocprofv3 --output-format pftrace"
        )
    return trace_in_words(path, told, RecordingFacts(dropped=dropped))


def _places(packets: Iterable[Any]) -> dict[int, _Place]:
    tracks = {one.track.uuid: one.track for one in packets if one.HasField("track")}
    return {uuid: _place(track, tracks) for uuid, track in tracks.items()}


def _place(track: Any, tracks: Mapping[int, Any]) -> _Place:
    name = message_text(track.name or track.static_name or track.thread.name or track.process.name)
    if track.HasField("thread"):
        return _Place(name, track.thread.pid, track.thread.tid, is_thread=True)
    above, names = track, [name]
    for _ in range(8):  # of tracks in tracks
        if above.parent not in tracks:
            break
        above = tracks[above.parent]
        names.append(message_text(above.name or above.static_name or above.process.name))
    full = " / ".join(reversed([one for one in names if one]))
    return _Place(full, above.process.pid, track.uuid & 0x7FFFFFFF, is_thread=False)


def _told(
    packets: Iterable[Any], places: Mapping[int, _Place], dropped: Counter[str]
) -> Iterator[ToldEvent]:
    sequences: dict[int, _Sequence] = {}
    open_slices: dict[int, list[_Slice]] = {}
    for packet in packets:
        if packet.cleared or packet.flags & _CLEARED:
            sequences[packet.sequence] = _Sequence()
        state = sequences.setdefault(packet.sequence, _Sequence())
        if packet.HasField("defaults"):
            state.track = packet.defaults.event.track
        if packet.HasField("interned"):
            state.learn(packet.interned)
        if not packet.HasField("event"):
            dropped["packets that are no track event"] += not packet.HasField("track")
            continue
        event = packet.event
        track = event.track if event.HasField("track") else state.track
        stack = open_slices.setdefault(track, [])
        if event.type == _BEGIN:
            stack.append(_begun(event, packet.timestamp, state))
        elif event.type == _END and stack:
            yield _ended(stack.pop(), packet.timestamp, places.get(track), track)
        else:
            dropped["instants and counters"] += 1
    unended = sum(map(len, open_slices.values()))
    if unended:
        dropped["slices without an end"] = unended


def _begun(event: Any, at_ns: int, state: _Sequence) -> _Slice:
    named = state.categories
    return _Slice(
        name=message_text(event.name) or state.names.get(event.name_iid, f"slice {event.name_iid}"),
        categories=(
            *map(message_text, event.categories),
            *(named.get(one, "") for one in event.category_iids),
        ),
        start_ns=at_ns,
        said=dict(_said(event.annotations, state)),
    )


def _said(annotations: Iterable[Any], state: _Sequence) -> Iterator[tuple[str, int | str]]:
    for one in annotations:
        name = message_text(one.name) or state.annotations.get(one.name_iid, "")
        if one.HasField("uint"):
            yield name, one.uint
        elif one.HasField("int"):
            yield name, one.int
        elif one.HasField("text"):
            yield name, message_text(one.text)


def _ended(begun: _Slice, end_ns: int, place: _Place | None, track: int) -> ToldEvent:
    times = (begun.start_ns, end_ns)
    where = place or _Place("", 0, track & 0x7FFFFFFF, is_thread=True)
    correlation = _correlation(begun.said)
    words = " ".join(begun.categories)
    kind = next((kind for pattern, kind in _KINDS if pattern.search(words)), None)
    if where.is_device or (kind is not None and not where.is_thread):
        stream = _STREAM.search(where.name)
        device = _DEVICE.search(where.name)
        return on_device(
            kind or KERNEL, begun.name.removesuffix(".kd"), times,
            device=int(device[1]) if device else 0,
            stream=int(stream[1]) if stream else where.thread,
            correlation=correlation, **_moved(begun.said),
        )  # fmt: skip
    args: dict[str, Value] = {} if correlation is None else {"correlation": correlation}
    if _CALL.match(begun.name):
        return ToldEvent(RUNTIME, begun.name, *times, where.process, where.thread, args)
    category = ANNOTATION if "marker" in words.lower() or "annotation" in words else OPERATOR
    return ToldEvent(category, begun.name, *times, where.process, where.thread)


def _correlation(said: Mapping[str, int | str]) -> int | None:
    for key in _CORRELATIONS:
        found = said.get(key)
        if isinstance(found, int):
            return found
        if isinstance(found, str) and found.isdigit():
            return int(found)
    return None


def _moved(said: Mapping[str, int | str]) -> dict[str, Value]:
    size = next((said[key] for key in ("bytes", "size", "copy_bytes") if key in said), None)
    return {"bytes": size} if isinstance(size, int) else {}
