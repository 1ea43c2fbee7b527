"""What Ascend's profiler of PyTorch exports of NPUs, `trace_view.json` (gitee.com/ascend/mstt).

A list of Chrome's trace events without categories: processes tell what they are. "Python" has
operators as Kineto writes them, "CANN" the runtime's calls, "Ascend Hardware" what ran on the NPU's
streams. Arrows `HostToDevice` begin in the call that launched, and `async_npu` in the operator that
asked for it, also where another thread launches for it. A call is cut where it launches, and calls
inside calls are a part of these. The NPU's clock is set so that nothing begins before its launch.
Collectives of HCCL stand in a process of their own, and are counted, not read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from foretrace.base import TraceError
from foretrace.trace.columns import Trace
from foretrace.trace.marks import STEP_MARK
from foretrace.trace.others.words import ANNOTATION, KERNEL, OPERATOR, RUNTIME
from foretrace.trace.read import trace_of
from foretrace.trace.runtime import ASCEND_CALL, PREPARES
from foretrace.trace.source import OpenFile, whole_bytes

_WORDS = (
    b'"Ascend Hardware"',
    ASCEND_CALL.encode(),
    b'"async_npu"',
    b'"enqueue_to_dequeue"',
    b'"aclnn',
)
_MOST_BYTES = 8 * 10**9  # the file is read whole
_HARDWARE, _CALLS, _PYTHON = "Ascend Hardware", "CANN", "Python"
_COLLECTIVES = ("Communication", "HCCL")
_WAITS = re.compile(r"(?i)notify|^event_|place_?holder")  # a stream's own, no work
_AS_KINETO = frozenset((OPERATOR, ANNOTATION, "fwdbwd", "python_function"))
_Place = tuple[int | str, str]  # a stream or thread, and a moment as the file writes it


class _Event(msgspec.Struct, frozen=True):
    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: str | float = ""
    dur: str | float = 0
    id: int | str = ""
    args: Any = None
    bp: str = ""

    @property
    def place(self) -> _Place:
        """Where and when it begins."""
        return self.tid, str(self.ts)

    @property
    def begin_ns(self) -> int:
        """Its begin."""
        return _nanoseconds(self.ts)

    @property
    def end_ns(self) -> int:
        """Its end."""
        return _nanoseconds(self.ts) + _nanoseconds(self.dur)


_DECODER = msgspec.json.Decoder(list[_Event])


def recognises_ascend(head: bytes) -> bool:
    """Whether a file that begins so is an export of the Ascend profiler."""
    return head.lstrip()[:1] == b"[" and any(word in head for word in _WORDS)


def read_ascend(path: Path) -> Trace:
    """The trace in a `trace_view.json`.

    Raises:
        TraceError: if it cannot be read, or is none.
    """
    text = whole_bytes(path, _MOST_BYTES, instead="record fewer steps")
    try:
        export = _Export(_DECODER.decode(text))
        records = list(export.records())
    except (ValueError, OverflowError, RecursionError) as err:
        raise TraceError(
            f"cannot read {path}: it begins as an export of the Ascend profiler and is none "
            f"({err}); export or copy it again"
        ) from err
    written = msgspec.json.encode({"schemaVersion": 1, "traceEvents": records})
    trace = trace_of(OpenFile(path, len(text), len(written), iter([written])))
    dropped = {**trace.meta.dropped, **export.dropped}
    num_events = trace.meta.num_events + sum(export.dropped.values())
    notes = (*trace.meta.notes, *export.notes)
    meta = replace(trace.meta, num_events=num_events, dropped=dropped, notes=notes)
    return replace(trace, meta=meta)


@dataclass
class _Export:
    """All events of a file."""

    events: Sequence[_Event]

    def __post_init__(self) -> None:
        self.dropped = Counter[str]()

    @property
    def notes(self) -> tuple[str, ...]:
        """What answers lack, after the records were told."""
        count = sum(self.dropped[f"of the process {name!r}"] for name in _COLLECTIVES)
        if not count:
            return ()
        return (f"{count:,} records of HCCL's collectives are not read: waiting for them is idle",)

    @cached_property
    def processes(self) -> Mapping[int | str, str]:
        """What each process is."""
        return {
            one.pid: str(one.args.get("name", ""))
            for one in self.events
            if one.ph == "M" and one.name == "process_name" and isinstance(one.args, dict)
        }

    @cached_property
    def calls(self) -> tuple[_Event, ...]:
        """The runtime's calls that no other call holds, by thread, then time."""
        every = [one for one in self.events if one.ph == "X" and self._is_of(one, _CALLS)]
        every.sort(key=lambda one: (str(one.tid), one.begin_ns, -one.end_ns))
        outer: list[_Event] = []
        for one in every:
            if outer and outer[-1].tid == one.tid and one.begin_ns < outer[-1].end_ns:
                self.dropped["calls inside calls"] += 1
            else:
                outer.append(one)
        return tuple(outer)

    def records(self) -> Iterator[dict[str, Any]]:
        """The events in Kineto's words."""
        python = next((pid for pid, name in self.processes.items() if name == _PYTHON), 0)
        asked = self._asked()
        numbers = {place: number for number, place in enumerate(dict.fromkeys(asked.values()), 1)}
        external = {place: numbers[source] for place, source in asked.items()}
        launches = self._launches()
        operators = {one.place: one.name for one in self.events if one.cat == OPERATOR}
        correlation: dict[_Place, int] = {}
        late_ns = 0  # by which the device's clock lags behind the host's: nothing runs unlaunched
        for at, call in enumerate(self.calls):
            begun_ns = call.begin_ns
            moments = [*launches.get(at, ()), (call.end_ns, None)]
            source = asked.get(moments[0][1].place) if moments[0][1] is not None else None
            if source is not None and source[0] != call.tid:  # another thread launches for it
                name = operators.get(source, "")
                yield _record(OPERATOR, call, python, {}) | {"name": name}
            for (at_ns, target), (next_ns, _) in zip(
                [(begun_ns, None), *moments], moments, strict=False
            ):
                if target is None:
                    text = f"{call.name} {PREPARES}" if len(moments) > 1 else call.name
                    yield _call(text, call, (at_ns, next_ns), python, {})
                    continue
                correlation[target.place] = len(correlation) + 1
                late_ns = max(late_ns, at_ns - target.begin_ns)
                told = {
                    "correlation": correlation[target.place],
                    **_external(external.get(target.place)),
                }
                yield _call(call.name, call, (at_ns, next_ns), python, told)
        for one in self.events:
            if one.ph == "X" and self._is_of(one, _HARDWARE):
                yield from self._on_device(
                    one, late_ns, correlation.get(one.place), external.get(one.place)
                )
            elif one.cat in _AS_KINETO:
                yield _as_kineto(one, numbers.get(one.place))
            elif one.ph == "X" and not self._is_of(one, _CALLS):
                what = self.processes.get(one.pid, "no category")
                self.dropped[one.cat or f"of the process {what!r}"] += 1

    def _is_of(self, one: _Event, name: str) -> bool:
        return self.processes.get(one.pid, "").startswith(name)

    def _on_device(
        self, one: _Event, late_ns: int, correlation: int | None, external: int | None
    ) -> Iterator[dict[str, Any]]:
        if _WAITS.search(one.name):
            self.dropped["waits of streams"] += 1
            return
        told = {"device": 0, "stream": one.tid, **_external(external)}
        if correlation is not None:
            told["correlation"] = correlation
        begin_ns = one.begin_ns + late_ns
        yield _record(KERNEL, one, 0, told) | {"ts": _micros(begin_ns)}

    def _launches(self) -> dict[int, list[tuple[int, _Event]]]:
        """By position of the call: when it launched which device operations, in time order."""
        begins: dict[int | str, list[tuple[int, int]]] = {}
        for at, call in enumerate(self.calls):
            begins.setdefault(call.tid, []).append((call.begin_ns, at))
        found: dict[int, list[tuple[int, _Event]]] = {}
        for source, target in self._arrows("HostToDevice"):
            rows = begins.get(source.tid, [])
            row = bisect_right(rows, (source.begin_ns, len(self.calls))) - 1
            if row >= 0 and source.begin_ns <= self.calls[rows[row][1]].end_ns:
                found.setdefault(rows[row][1], []).append((source.begin_ns, target))
        for every in found.values():
            every.sort(key=lambda one: (one[0], one[1].begin_ns))
        return found

    def _asked(self) -> dict[_Place, _Place]:
        """Which operator asked for each device operation."""
        return {target.place: source.place for source, target in self._arrows("async_npu")}

    def _arrows(self, category: str) -> Iterator[tuple[_Event, _Event]]:
        ours = [one for one in self.events if one.cat == category]
        begun = {one.id: one for one in ours if one.ph == "s"}
        return ((begun[one.id], one) for one in ours if one.ph == "f" and one.id in begun)


def _call(
    name: str, call: _Event, ns: tuple[int, int], pid: int | str, args: Mapping[str, Any]
) -> dict[str, Any]:
    """A part of a call: what precedes its launches, or one of them."""
    times = {"ts": _micros(ns[0]), "dur": _micros(ns[1] - ns[0])}
    return _record(RUNTIME, call, pid, args) | times | {"name": name}


def _external(number: int | None) -> dict[str, Any]:
    return {} if number is None else {"External id": number}


def _as_kineto(one: _Event, external: int | None) -> dict[str, Any]:
    """An operator, annotation or arrow as it stands, but for steps, which are annotations."""
    args = one.args if isinstance(one.args, dict) else {}
    category = ANNOTATION if one.name.startswith(STEP_MARK) else one.cat
    told = _record(category, one, one.pid, {**args, **_external(external)})
    return told if one.ph == "X" else {**told, "ph": one.ph, "id": one.id, "bp": one.bp or "e"}


def _record(category: str, one: _Event, pid: int | str, args: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": one.name, "pid": pid, "tid": one.tid, "ts": one.ts,
        "dur": one.dur, "args": args,
    }  # fmt: skip


def _micros(time_ns: int) -> str:
    whole, rest = divmod(time_ns, 1000)
    return f"{whole}.{rest:03d}"


def _nanoseconds(micros: str | float) -> int:
    """Decimal microseconds, as a text without the rounding of a float."""
    if isinstance(micros, str):
        whole, _, rest = micros.partition(".")
        return int(whole or 0) * 1000 + int((rest + "000")[:3])
    return round(micros * 1000)
