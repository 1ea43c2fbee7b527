"""Changes to parsed Kineto files: what tests do to a trace before they ask whether it matters.

A parsed file is a JSON object whose decimal numbers are `Decimal`, so that nothing is rounded:
`read` and `save` keep every digit. No function changes its argument.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

Trace = dict[str, Any]
Record = dict[str, Any]

_DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


def read(path: Path) -> Trace:
    """A Kineto file, gzip or plain, parsed without rounding."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    parsed: Trace = json.loads(content, parse_float=Decimal)
    return parsed


def dumped(trace: Trace) -> str:
    """The trace as JSON text, every digit as it was."""
    marked = json.dumps(trace, default=lambda number: f"<decimal {number}>")
    return re.sub(r'"<decimal ([^>"]+)>"', r"\1", marked)


def save(trace: Trace, path: Path) -> Path:
    """Write a trace, compressed if the name ends in .gz; returns the path."""
    content = dumped(trace).encode()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def nanoseconds(microseconds: Decimal | float) -> int:
    """A file's `ts` or `dur` as whole ns."""
    return int((Decimal(str(microseconds)) * 1000).to_integral_value())


def _microseconds(ns: int, like: Decimal | float) -> Decimal | int:
    """`ns` in the file's own way: whole microseconds stay whole."""
    if isinstance(like, int):
        if ns % 1000:
            raise ValueError(f"this file has whole microseconds; {ns} ns is not a multiple of 1000")
        return ns // 1000
    return Decimal(ns).scaleb(-3)


def _moved(event: Record, ns: int) -> Record:
    return {**event, "ts": _microseconds(nanoseconds(event["ts"]) + ns, event["ts"])}


def _begin(event: Record) -> int:
    return nanoseconds(event["ts"])


def _end(event: Record) -> int:
    return nanoseconds(event["ts"]) + nanoseconds(event.get("dur", 0))


def _correlation(event: Record) -> int | None:
    found: int | None = event.get("args", {}).get("correlation")
    return found


def shift_clock(trace: Trace, ns: int) -> Trace:
    """The same trace by a clock that is `ns` ahead: a constant on every timestamp."""
    return {**trace, "traceEvents": [_moved(event, ns) for event in trace["traceEvents"]]}


def shuffle_events(trace: Trace, seed: int) -> Trace:
    """The same events in random order."""
    events = list(trace["traceEvents"])
    random.Random(seed).shuffle(events)
    return {**trace, "traceEvents": events}


def _find(trace: Trace, categories: tuple[str, ...], correlation: int) -> Record:
    for event in trace["traceEvents"]:
        if event.get("cat") in categories and _correlation(event) == correlation:
            found: Record = event
            return found
    raise ValueError(f"no event of {categories} has correlation {correlation}")


def stretch_host_segment(trace: Trace, correlation: int, extra_ns: int) -> Trace:
    """Host time right before a runtime call longer by `extra_ns`; what follows slips with it.

    Everything that begins at or after the call moves; host operators that stand around that
    moment grow; a device operation that runs then is left alone. That is exactly what a longer
    segment does where the device has nothing to do at that moment, and only in a job of one rank;
    `LongerSegment` is exact everywhere.
    """
    moment = _begin(_find(trace, ("cuda_runtime", "cuda_driver"), correlation))
    events = []
    for event in trace["traceEvents"]:
        if _begin(event) >= moment:
            events.append(_moved(event, extra_ns))
        elif _end(event) > moment and event.get("cat") not in _DEVICE_CATEGORIES:
            longer = nanoseconds(event["dur"]) + extra_ns
            events.append({**event, "dur": _microseconds(longer, event["dur"])})
        else:
            events.append(event)
    return {**trace, "traceEvents": events}


def room_before_ns(trace: Trace, correlation: int) -> int:
    """How much earlier a kernel could have started: its launch call and its stream were ready."""
    kernel = _find(trace, ("kernel",), correlation)
    launch = _find(trace, ("cuda_runtime", "cuda_driver"), correlation)
    earliest = _end(launch)
    for event in trace["traceEvents"]:
        on_stream = event.get("cat") in _DEVICE_CATEGORIES[:3] and event["tid"] == kernel["tid"]
        if on_stream and event["pid"] == kernel["pid"] and _begin(event) < _begin(kernel):
            earliest = max(earliest, _end(event))
    return _begin(kernel) - earliest


def start_collective_earlier(trace: Trace, correlation: int, ns: int) -> Trace:
    """A communication kernel begins `ns` earlier and ends as before: it waited longer.

    Raises:
        ValueError: if it would begin before its launch call or its stream's predecessor ended;
            `room_before_ns` says how much is possible.
    """
    if ns > (room := room_before_ns(trace, correlation)):
        raise ValueError(f"kernel {correlation} cannot begin {ns} ns earlier, only {room} ns")
    kernel = _find(trace, ("kernel",), correlation)
    events = []
    for event in trace["traceEvents"]:
        same_place = (event.get("pid"), event.get("tid")) == (kernel["pid"], kernel["tid"])
        if not (same_place and event.get("ts") == kernel["ts"]):
            events.append(event)
            continue
        moved = _moved(event, -ns)
        if "dur" in event:
            moved["dur"] = _microseconds(nanoseconds(event["dur"]) + ns, event["dur"])
        events.append(moved)
    return {**trace, "traceEvents": events}


def drop_collective(trace: Trace, correlation: int) -> Trace:
    """A trace in which this rank never issued one communication.

    Its kernel, its launch call, their arrows and shadows go, and so do the host operators that
    name the communication around the launch: `c10d::`, `record_param_comms` and `nccl:`.
    """
    kernel = _find(trace, ("kernel",), correlation)
    launch = _find(trace, ("cuda_runtime", "cuda_driver"), correlation)

    def belongs(event: Record) -> bool:
        name, category = event.get("name", ""), event.get("cat")
        if category == "ac2g":
            return bool(event["id"] == correlation)
        if category == "gpu_user_annotation":
            return bool(event["tid"] == kernel["tid"] and event["ts"] == kernel["ts"])
        names_it = name == "record_param_comms" or name.startswith(("c10d::", "nccl:"))
        if names_it and event.get("tid") == launch["tid"]:
            return _begin(event) <= _begin(launch) and _end(event) >= _end(launch)
        return category != "cuda_sync" and _correlation(event) == correlation

    kept = [event for event in trace["traceEvents"] if not belongs(event)]
    return {**trace, "traceEvents": kept}


def truncate_bytes(content: bytes, keep: int) -> bytes:
    """The first `keep` bytes, as a full disk or a killed job leaves a file.

    Raises:
        ValueError: if nothing would be cut.
    """
    if not 0 <= keep < len(content):
        raise ValueError(f"keep must be below the {len(content)} bytes there are, got {keep}")
    return content[:keep]
