"""Changes to parsed Kineto files: what tests do to a trace before they ask whether it matters.

A parsed file is a JSON object whose decimal numbers are `Decimal`, so that nothing is rounded:
`read` and `save` keep every digit. No function changes its argument.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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


def stopped(
    trace: Trace, *, host_ns: int, device_ns: int, until_ns: int, never_ended: Collection[int] = ()
) -> Trace:
    """A trace of a rank that got no further, as the profiler leaves it when it is stopped.

    Args:
        trace: of a rank that ran on.
        host_ns: moment at which its host threads stood still: what begins then or later is gone,
            with all it launched; what stands around that moment is open until `until_ns`.
        device_ns: device operations that begin then or later are gone.
        until_ns: end of the recording.
        never_ended: correlations of device operations that began and are not in the file.
    """
    device = (*_DEVICE_CATEGORIES, "cuda_sync")

    def is_past(event: Record) -> bool:
        return _begin(event) >= (device_ns if event.get("cat") in device else host_ns)

    timed = [event for event in trace["traceEvents"] if "ts" in event and event.get("ph") != "M"]
    launched = {_correlation(event) for event in timed if is_past(event)} - {None}
    gone = {*never_ended, *launched}

    def belongs(event: Record) -> bool:
        if event.get("cat") == "ac2g":
            return bool(event["id"] not in gone)
        return not is_past(event) and (
            event.get("cat") not in device or _correlation(event) not in gone
        )

    def left(event: Record) -> Record:
        if event.get("cat") in device or "dur" not in event or _end(event) <= host_ns:
            return event
        return {**event, "dur": _microseconds(until_ns - _begin(event), event["dur"])}

    rest = [event for event in trace["traceEvents"] if "ts" not in event or event.get("ph") == "M"]
    return {**trace, "traceEvents": [*rest, *(left(each) for each in timed if belongs(each))]}


@dataclass
class _Progress:
    """How far one rank got."""

    trace: Trace
    last_ns: int
    host_ns: int
    device_ns: int
    never_ended: set[int]

    def issued(self, correlation: int) -> bool:
        """Whether the rank launched a communication before its host stood still."""
        launch = _find(self.trace, ("cuda_runtime", "cuda_driver"), correlation)
        return _begin(launch) < self.host_ns

    def stop_in(self, correlation: int) -> None:
        """The rank's device gets no further than this communication; its host to its next wait."""
        kernel = _find(self.trace, ("kernel",), correlation)
        self.never_ended.add(correlation)
        self.device_ns = min(self.device_ns, _end(kernel))
        waiting = [
            _begin(event)
            for event in self.trace["traceEvents"]
            if "Synchronize" in event.get("name", "") and _end(event) > _end(kernel)
        ]
        self.host_ns = min([self.host_ns, *waiting])


def hung(
    traces: dict[int, Trace],
    collectives: Sequence[Mapping[int, int]],
    *,
    missing: int,
    at: int,
    open_ns: int = 5_000_000_000,
) -> dict[int, Trace]:
    """Traces of a job in which one rank's host stood still before it issued a communication.

    Whoever meets it from there on never ends either, and so on.

    Args:
        traces: by rank, of the job as it ran on.
        collectives: all communications, each as rank to its kernel's correlation.
        missing: the rank whose host stops.
        at: position in `collectives` of what it would have issued next.
        open_ns: how long the profiler ran on after the last event.
    """
    progress = {rank: _progress_of(trace) for rank, trace in traces.items()}
    launch = _find(traces[missing], ("cuda_runtime", "cuda_driver"), collectives[at][missing])
    progress[missing].host_ns = max(
        _begin(event)
        for event in traces[missing]["traceEvents"]
        if event.get("name", "").startswith("c10d::")
        and event["tid"] == launch["tid"]
        and _begin(event) <= _begin(launch) <= _end(event)
    )
    is_changed = True
    while is_changed:
        before = [
            (each.host_ns, each.device_ns, len(each.never_ended)) for each in progress.values()
        ]
        for members in collectives:
            reached = {
                rank: progress[rank].issued(correlation) and _runs(progress[rank], correlation)
                for rank, correlation in members.items()
            }
            if not all(reached.values()):
                for rank, correlation in members.items():
                    if progress[rank].issued(correlation):
                        progress[rank].stop_in(correlation)
        is_changed = before != [
            (each.host_ns, each.device_ns, len(each.never_ended)) for each in progress.values()
        ]
    return {
        rank: stopped(
            each.trace,
            host_ns=each.host_ns,
            device_ns=each.device_ns,
            until_ns=each.last_ns + open_ns,
            never_ended=each.never_ended,
        )
        for rank, each in progress.items()
    }


def _progress_of(trace: Trace) -> _Progress:
    last_ns = max(_end(event) for event in trace["traceEvents"] if "dur" in event)
    return _Progress(trace, last_ns, last_ns + 1, last_ns + 1, set())


def _runs(progress: _Progress, correlation: int) -> bool:
    """Whether a rank's device got to a communication."""
    return _begin(_find(progress.trace, ("kernel",), correlation)) < progress.device_ns


def renamed_last(trace: Trace, before: str, after: str) -> Trace:
    """A rank whose last issued communication is of another kind.

    Raises:
        ValueError: if no issuing operator says `before`.
    """
    issuing = [
        event
        for event in trace["traceEvents"]
        if event.get("name") == "record_param_comms"
        and event["args"].get("Collective name") == before
    ]
    if not issuing:
        raise ValueError(f"no record_param_comms of {before!r}")
    last = max(issuing, key=_begin)
    changed = {**last, "args": {**last["args"], "Collective name": after}}
    events = [changed if event is last else event for event in trace["traceEvents"]]
    return {**trace, "traceEvents": events}
