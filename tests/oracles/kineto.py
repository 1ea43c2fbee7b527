"""Oracle of the Kineto reader: the standard library's JSON and one Python dict per event.

It states the same rules as the compiled loop in the plainest words, and gives a trace as sorted
lists of tuples of texts and numbers, which `flat` makes of a `Trace`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from foretrace.trace import NO_ID, NO_STRING, Category, LaneKind, Trace

Event = dict[str, Any]
Lane = tuple[int, int, int, int]  # kind, process, device, number

CATEGORIES = {
    "cpu_op": Category.OPERATOR,
    "Operator": Category.OPERATOR,
    "user_annotation": Category.ANNOTATION,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "Runtime": Category.RUNTIME,
    "mtia_runtime": Category.RUNTIME,
    "python_function": Category.PYTHON,
    "kernel": Category.KERNEL,
    "Kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "Memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "Memset": Category.MEMSET,
    "cuda_sync": Category.SYNC,
    "gpu_user_annotation": Category.DEVICE_ANNOTATION,
}
SIGNATURE = (
    ("dims", "Input Dims"),
    ("types", "Input type"),
    ("strides", "Input Strides"),
    ("inputs", "Concrete Inputs"),
    ("grid", "grid"),
    ("block", "block"),
)


@dataclass(frozen=True)
class Flat:
    """A trace as sorted lists of tuples."""

    events: list[tuple[Any, ...]]
    memory: list[tuple[int, ...]]
    flows: list[tuple[Any, ...]]
    dropped: dict[str, int]
    num_events: int
    rank: int | None
    world_size: int | None


def flat(trace: Trace) -> Flat:
    """A trace in the oracle's form; its rows must stand in their stated order already."""
    lanes = [
        tuple(int(column[lane]) for column in _lane_columns(trace))
        for lane in range(len(trace.lanes))
    ]
    collectives = _side(
        trace,
        "collectives",
        (
            "collective",
            "group",
            "group_description",
            "group_ranks",
            "dtype",
            "in_splits",
            "out_splits",
        ),
    )
    syncs = _side(trace, "syncs", ("kind",))
    events = [
        (
            int(trace.start_ns[row]),
            int(trace.duration_ns[row]),
            lanes[trace.lane[row]],
            int(trace.correlation[row]),
            int(trace.external[row]),
            trace.strings[trace.name[row]],
            int(trace.category[row]),
            int(trace.record_function[row]),
            int(trace.sequence[row]),
            int(trace.num_bytes[row]),
            _signature_value(_text(trace, int(trace.signature[row]))),
            collectives.get(row),
            syncs.get(row),
        )
        for row in range(trace.num_events)
    ]
    stated = [(row[0], -row[1], *row[2:6]) for row in events]
    assert stated == sorted(stated)
    memory = trace.memory
    flows = trace.flows
    return Flat(
        events=sorted(events, key=repr),
        memory=sorted(
            zip(
                memory.at_ns.tolist(),
                memory.change_bytes.tolist(),
                memory.allocated_bytes.tolist(),
                memory.reserved_bytes.tolist(),
                memory.device_type.tolist(),
                memory.device.tolist(),
                strict=True,
            )
        ),
        flows=sorted(
            (start, end, lanes[first], lanes[last])
            for start, end, first, last in zip(
                flows.from_ns.tolist(),
                flows.to_ns.tolist(),
                flows.from_lane.tolist(),
                flows.to_lane.tolist(),
                strict=True,
            )
        ),
        dropped=dict(trace.meta.dropped),
        num_events=trace.meta.num_events,
        rank=trace.meta.rank,
        world_size=trace.meta.world_size,
    )


def _lane_columns(trace: Trace) -> tuple[np.ndarray[Any, Any], ...]:
    lanes = trace.lanes
    return lanes.kind, lanes.process, lanes.device, lanes.number


def _text(trace: Trace, string: int) -> str | None:
    return None if string == NO_STRING else trace.strings[string]


def _signature_value(text: str | None) -> str | None:
    return None if text is None else repr(json.loads(text, parse_float=Decimal))


def _side(trace: Trace, table: str, texts: tuple[str, ...]) -> dict[int, tuple[Any, ...]]:
    columns = vars(getattr(trace, table))
    rows = {}
    for place, event in enumerate(columns["event"].tolist()):
        rows[event] = tuple(
            _text(trace, int(column[place])) if name in texts else int(column[place])
            for name, column in columns.items()
            if name != "event"
        )
    return rows


def read(text: bytes) -> Flat:
    """What a file with this text says."""
    whole = json.loads(
        text.decode("utf-8", "replace"), strict=False, parse_float=Decimal, parse_constant=str
    )
    members = {} if isinstance(whole, list) else whole
    records = whole if isinstance(whole, list) else whole["traceEvents"]
    base_ns = int(members.get("baseTimeNanoseconds", 0))
    reader = _Reader(base_ns)
    for record in records:
        reader.take(record)
    reader.pair()
    info = members.get("distributedInfo", {})
    return Flat(
        events=sorted(reader.events, key=repr),
        memory=sorted(reader.memory),
        flows=sorted(reader.flows),
        dropped=dict(sorted(reader.dropped.items())),
        num_events=len(records),
        rank=info.get("rank"),
        world_size=info.get("world_size"),
    )


class _Reader:
    """Takes records one by one, in the order of the file."""

    def __init__(self, base_ns: int) -> None:
        self.base_ns = base_ns
        self.events: list[tuple[Any, ...]] = []
        self.memory: list[tuple[int, ...]] = []
        self.flows: list[tuple[Any, ...]] = []
        self.dropped: Counter[str] = Counter()
        self.halves: list[tuple[int, Lane, int, Event | None]] = []
        self.arrows: dict[tuple[int, int], list[tuple[int, Lane]]] = defaultdict(list)

    def take(self, record: object) -> None:
        if not isinstance(record, dict):
            self.dropped["not an object"] += 1
            return
        reason = self._reason_or_keep(record)
        if reason:
            self.dropped[reason] += 1

    def _reason_or_keep(self, record: Event) -> str | None:
        phase = record.get("ph")
        if not isinstance(phase, str) or len(phase) != 1:
            return "no phase"
        reason = _reason_of_phase(record, phase)
        if reason is None and phase in "XB":
            reason = _reason_of_category(record.get("cat"))
        if reason is not None:
            return reason
        start = nanoseconds(record.get("ts"))
        if start is None:
            return "no usable timestamp"
        duration = nanoseconds(record.get("dur"))
        if phase == "X" and duration is None:
            return "no usable duration"
        self._keep(record, phase, start + self.base_ns, duration)
        return None

    def _keep(self, record: Event, phase: str, start: int, duration: int | None) -> None:
        args = arguments(record)
        if phase == "X":
            assert duration is not None
            self.events.append(row_of(record, start, max(duration, 0)))
        elif phase in "iIR":
            self.memory.append(
                (
                    start,
                    identifier(args.get("Bytes"), 0),
                    *(
                        identifier(args.get(name))
                        for name in ("Total Allocated", "Total Reserved", "Device Type")
                    ),
                    identifier(args.get("Device Id")),
                )
            )
        elif phase in "BE":
            lane = lane_of(record) if phase == "B" else host_lane(record)
            self.halves.append((start, lane, int(phase == "E"), record))
        else:
            flow = NO_ID if record.get("id") is None else lane_number(record["id"])
            self.arrows[flow, int(phase == "f")].append((start, host_lane(record)))

    def pair(self) -> None:
        """Join begins to ends and starts of arrows to their ends."""
        stacks: dict[Lane, list[tuple[int, Event]]] = defaultdict(list)
        for start, lane, is_end, record in sorted(self.halves, key=lambda half: half[0]):
            assert record is not None
            if not is_end:
                stacks[lane].append((start, record))
            elif stacks[lane]:
                begin, opened = stacks[lane].pop()
                self.events.append(row_of(opened, begin, start - begin))
                self.dropped["ends, joined to their begins"] += 1
            else:
                self.dropped["ends without a begin that was read"] += 1
        num_open = sum(len(stack) for stack in stacks.values())
        if num_open:
            self.dropped["begins without an end"] += num_open
        num_alone = 0
        for flow in {flow for flow, _ in self.arrows}:
            starts, ends = (sorted(self.arrows[flow, is_end]) for is_end in (0, 1))
            self.flows.extend(
                (start[0], end[0], start[1], end[1])
                for start, end in zip(starts, ends, strict=False)
            )
            num_alone += abs(len(starts) - len(ends))
        if num_alone:
            self.dropped["arrows from forward to backward without their other end"] += num_alone


def _reason_of_phase(record: Event, phase: str) -> str | None:
    if phase == "M":
        return "process and thread names"
    if phase not in "sftiIRXBE":
        return f"records of phase {phase!r}"
    if phase in "iIR" and record.get("name") != "[memory]":
        return "instant marks"
    if phase in "sft" and (record.get("cat") != "fwdbwd" or phase == "t"):
        return "arrows that repeat the correlation ids"
    return None


def _reason_of_category(category: object) -> str | None:
    if category is None:
        return "no category"
    if category == "Trace":
        return "the profiler's own span"
    return None if category in CATEGORIES else f"category {as_text(category)!r}"


def arguments(record: Event) -> Event:
    """The record's arguments."""
    args = record.get("args")
    return args if isinstance(args, dict) else {}


def row_of(record: Event, start: int, duration: int) -> tuple[Any, ...]:
    """One event."""
    args = arguments(record)
    category = CATEGORIES[record["cat"]]
    name = record.get("name")
    external = args.get("External id", args.get("external id"))
    return (
        start,
        duration,
        lane_of(record),
        identifier(args.get("correlation")),
        identifier(external),
        "" if name is None else as_text(name),
        int(category),
        identifier(args.get("Record function id")),
        identifier(args.get("Sequence number")),
        identifier(args.get("bytes", args.get("size"))),
        signature_of(args, category),
        collective_of(args),
        sync_of(args, as_text(name) if name is not None else "", category),
    )


def signature_of(args: Event, category: Category) -> str | None:
    """Shapes, types, strides, scalars and launch grid."""
    members = {label: args[key] for label, key in SIGNATURE if args.get(key) is not None}
    if category not in (Category.OPERATOR, Category.ANNOTATION, Category.KERNEL) or not members:
        return None
    return repr(members)


def collective_of(args: Event) -> tuple[Any, ...] | None:
    """Collective metadata, in the order of `CollectiveColumns`."""
    marks = ("Collective name", "Process Group Name", "Group size")
    if (
        all(args.get(mark) is None for mark in marks[:2])
        and identifier(args.get(marks[2])) == NO_ID
    ):
        return None

    def text(key: str) -> str | None:
        return None if args.get(key) is None else as_text(args[key])

    group = text("Process Group Name")
    return (
        text("Collective name"),
        text("Process Group ID") if group is None else group,
        text("Process Group Description"),
        text("Process Group Ranks"),
        text("dtype"),
        identifier(args.get("Group size")),
        identifier(args.get("Seq")),
        identifier(args.get("In msg nelems")),
        identifier(args.get("Out msg nelems")),
        identifier(args.get("Src Rank")),
        identifier(args.get("Dst Rank")),
        text("In split size"),
        text("Out split size"),
    )


def sync_of(args: Event, name: str, category: Category) -> tuple[Any, ...] | None:
    """What a synchronisation waited for, in the order of `SyncColumns`."""
    if category != Category.SYNC:
        return None
    kind = args.get("cuda_sync_kind")
    keys = (
        "stream",
        "wait_on_stream",
        "wait_on_cuda_event_record_corr_id",
        "wait_on_cuda_event_id",
    )
    values = [identifier(args.get(key)) for key in keys]
    return (
        name if kind is None else as_text(kind),
        *(NO_ID if value == 2**32 - 1 else value for value in values),
    )


def host_lane(record: Event) -> Lane:
    """The thread that a record stands on."""
    process, thread = (
        NO_ID if record.get(key) is None else lane_number(record[key]) for key in ("pid", "tid")
    )
    return (int(LaneKind.HOST), process, NO_ID, thread)


def lane_of(record: Event) -> Lane:
    """The thread or stream that a record stands on."""
    host = host_lane(record)
    if CATEGORIES[record["cat"]] < Category.KERNEL:
        return host
    args = arguments(record)
    device = host[1] if _number(args.get("device")) is None else identifier(args["device"])
    number = host[3] if _number(args.get("stream")) is None else identifier(args["stream"])
    if number == 2**32 - 1:
        number = NO_ID
    if not -1 <= device < 2**31 - 1:
        device = NO_ID
    return (int(LaneKind.DEVICE), NO_ID, device, number)


def lane_number(value: object) -> int:
    """The number that a pid, tid or flow id stands for."""
    number = _number(value)
    if number is not None:
        return number
    text = value if isinstance(value, str) else as_text(value)
    begin, _, end = text.rpartition(" ")
    if text[0:1] == "s" and len(begin) == 6 and end.isdecimal() and len(end) <= 17:
        return int(end)
    digest = 2166136261
    raw = json.dumps(text, ensure_ascii=False)[1:-1] if isinstance(value, str) else text
    for byte in raw.encode():
        digest = ((digest ^ byte) * 16777619) & 0xFFFFFFFF
    return -(digest + 2**32 + 1)


def as_text(value: object) -> str:
    """A value as text: strings as they are, everything else as compact JSON."""
    if isinstance(value, str):
        return "".join(char if not 0xD800 <= ord(char) < 0xE000 else "\ufffd" for char in value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _number(value: object, scale: int = 1, limit: int = 10**18) -> int | None:
    """A number times `scale`, halves up, if it is one below the limit."""
    if isinstance(value, bool) or value is None or isinstance(value, list | dict):
        return None
    if isinstance(value, str):
        stripped = value.removeprefix("-")
        if not stripped or not all(char in "0123456789.eE+-" for char in stripped):
            return None
        if stripped[0] not in "0123456789.":
            return None
        try:
            value = Decimal(value)
        except ArithmeticError:
            return None
    with localcontext(prec=80):
        exact = Decimal(str(value)) * scale
        if not exact.is_finite():
            return None
        rounded = int((exact + Decimal("0.5")).to_integral_value("ROUND_FLOOR"))
    return rounded if abs(rounded) < limit else None


def identifier(value: object, absent: int = NO_ID) -> int:
    """An id or a size, or what stands for its absence."""
    number = _number(value)
    return absent if number is None else number


def nanoseconds(value: object) -> int | None:
    """Decimal microseconds as ns; None if they are none."""
    return _number(value, 1000, 4 * 10**18)
