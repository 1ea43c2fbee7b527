"""One Kineto file, event by event: only members that are known to be harmless stay.

Times move by one constant for all files of a run, so that no date is left; differences stay
exact, because decimals are never turned into binary fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import msgspec

from foretrace.base import NS_PER_US
from foretrace.exchange.anonymised.replacements import DimensionScale, Names, numbers_in

Record: TypeAlias = dict[str, object]

FIRST_MICROS = 1_000_000  # where the earliest event is put: 0 could be taken for no time at all
_CONTROL_BYTES = bytes(range(0x20))
_TO_BLANKS = bytes.maketrans(_CONTROL_BYTES, b" " * len(_CONTROL_BYTES))
# Members of the file: settings and versions. `distributedInfo` and devices are looked into.
_MEMBERS = frozenset((
    "schemaVersion", "displayTimeUnit", "record_shapes", "with_flops", "with_modules",
    "with_stack", "profile_memory", "cuda_runtime_version", "cuda_driver_version", "cupti_version",
    "roctracer_version", "hip_runtime_version", "hip_driver_version",
))  # fmt: skip
VERSIONS = tuple(sorted(name for name in _MEMBERS if name.endswith("_version")))
_INFO = ("rank", "world_size", "pg_count", "nccl_version")
_GROUP_MEMBERS = ("pg_size", "ranks", "backend_id")
_EVENT = frozenset(("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s", "args"))
_NUMBERS = frozenset((
    "External id", "external id", "Record function id", "Ev Idx", "Sequence number",
    "Fwd thread id", "Seq", "Group size", "Op count", "Trace iteration", "Profiler Event Index",
    "cbid", "correlation", "queued", "device", "context", "stream", "registers per thread",
    "shared memory", "Global rank stride", "Global rank start", "Src Rank", "Dst Rank",
    "wait_on_stream", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id", "Device Id",
    "Device Type", "Python id", "Python parent id", "Python module id", "finished", "cid",
    "memory bandwidth (GB/s)", "Process Group ID", "Device", "sort_index", "priority",
))  # fmt: skip
_SIZES = frozenset((
    "In msg nelems", "Out msg nelems", "bytes", "Bytes", "size", "Total Reserved",
    "Total Allocated",
))  # fmt: skip
_SHAPES = frozenset(("Input Dims",))
# What a scaled shape contradicts is left out with it.
_OF_SHAPE = frozenset((
    "grid", "block", "blocks per SM", "warps per SM", "est. achieved occupancy %",
    "Input Strides",
))  # fmt: skip
_LABELS = frozenset(("CPU", *(f"GPU {device}" for device in range(64))))
_FRAMES = ("python_function",)
_DEVICE_CATEGORIES = frozenset(
    ("kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset", "mtia_ccp_events")
)


class _Glance(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: object = None


@dataclass(frozen=True)
class KinetoFile:
    """A file taken apart: events stay bytes until each one's turn."""

    members: Mapping[str, object]  # all but the events
    events: tuple[msgspec.Raw, ...]

    @property
    def base_ns(self) -> int:
        """What the file's timestamps are relative to."""
        base = self.members.get("baseTimeNanoseconds")
        return int(base) if isinstance(base, int | str) and str(base).isdigit() else 0


def taken_apart(text: bytes) -> KinetoFile:
    """A Kineto file's members and events."""
    try:
        return _parts(text)
    except msgspec.DecodeError:  # some profilers leave line ends in the middle of texts
        return _parts(text.translate(_TO_BLANKS))


def _parts(text: bytes) -> KinetoFile:
    if text.lstrip()[:1] == b"[":
        return KinetoFile({}, tuple(msgspec.json.decode(text, type=list[msgspec.Raw])))
    raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    events = msgspec.json.decode(raw.pop("traceEvents", b"[]"), type=list[msgspec.Raw])
    return KinetoFile(
        {name: msgspec.json.decode(value) for name, value in raw.items()}, tuple(events)
    )


def glance(file: KinetoFile) -> tuple[Decimal | None, set[str]]:
    """The earliest moment of a file in micros since 1970 or its clock's zero; ATen's operators."""
    decoder = msgspec.json.Decoder(_Glance, strict=False, float_hook=Decimal)
    earliest: Decimal | None = None
    operators: set[str] = set()
    for raw in file.events:
        event = decoder.decode(raw)
        if event.name.startswith("aten::"):
            operators.add(event.name.removeprefix("aten::"))
        at = _micros(event.ts)
        if event.ph != "M" and at and (earliest is None or at < earliest):
            earliest = at
    if earliest is None:
        return None, operators
    return earliest + Decimal(file.base_ns) / NS_PER_US, operators


def _micros(value: object) -> Decimal | None:
    if isinstance(value, Decimal):
        return value
    return Decimal(value) if isinstance(value, int) else None


class KinetoAnonymiser:
    """Writes Kineto files anew with neutral names; the same for all files of a run."""

    def __init__(self, names: Names, scale: DimensionScale, earliest: Decimal) -> None:
        self._names = names
        self._scale = scale
        self._shift = Decimal(int(earliest) - FIRST_MICROS)
        self.shapes: set[int] = set()  # dimensions as they are written
        self._texts: dict[str, Callable[[str], str]] = {
            "Collective name": names.collective,
            "Process Group Name": names.group,
            "Process Group Description": names.group,
            "Process Group Ranks": names.numbers,
            "In split size": names.numbers,
            "Out split size": names.numbers,
            "dtype": names.type,
            "cuda_sync_kind": names.operator,
            "Process Group ID": names.group,
        }

    def pieces(self, file: KinetoFile) -> Iterator[bytes]:
        """The file's text."""
        encoder = msgspec.json.Encoder(decimal_format="number")
        decoder = msgspec.json.Decoder(Record, float_hook=Decimal)
        yield encoder.encode(self._members(file.members))[:-1]
        yield b',\n"traceEvents":[\n'
        shift = self._shift - Decimal(file.base_ns) / NS_PER_US
        for place, raw in enumerate(file.events):
            event = self._event(decoder.decode(raw), shift)
            yield (b",\n" if place else b"") + encoder.encode(event)
        yield b"\n]}\n"

    def _members(self, members: Mapping[str, object]) -> Record:
        kept: Record = {"schemaVersion": 1, "baseTimeNanoseconds": 0}
        for name, value in members.items():
            if name in _MEMBERS and not isinstance(value, list | dict):
                kept[name] = value
            elif name == "deviceProperties" and isinstance(value, list):
                kept[name] = [self._device(one) for one in value if isinstance(one, dict)]
            elif name == "distributedInfo" and isinstance(value, dict):
                kept[name] = self._distributed(value)
            elif name != "baseTimeNanoseconds":
                self._names.remove(name, value)
        return kept

    def _device(self, device: Mapping[str, object]) -> Record:
        kept: Record = {}
        for name, value in device.items():
            if name == "name" and isinstance(value, str):
                kept[name] = self._names.device(value)
            elif isinstance(value, int | float):
                kept[name] = value
            else:  # a serial number, a place on the bus
                self._names.remove(name, value)
        return kept

    def _distributed(self, info: Mapping[str, object]) -> Record:
        kept: Record = {name: info[name] for name in _INFO if name in info}
        if isinstance(backend := info.get("backend"), str):
            kept["backend"] = self._names.group(backend)
        if isinstance(groups := info.get("pg_config"), list):
            kept["pg_config"] = [self._group(one) for one in groups if isinstance(one, dict)]
        return kept

    def _group(self, group: Mapping[str, object]) -> Record:
        kept: Record = {name: group[name] for name in _GROUP_MEMBERS if name in group}
        for name in ("pg_name", "pg_desc"):
            value = group.get(name)
            if value is not None:
                kept[name] = self._names.group(value) if isinstance(value, str) else value
        self._names.remove("backend_config", group.get("backend_config"))
        return kept

    def _event(self, event: Record, shift: Decimal) -> Record:
        phase, category = event.get("ph"), event.get("cat")
        kept = {name: value for name, value in event.items() if name in _EVENT}
        if phase == "M":
            return self._named_lane(kept)
        for name in ("pid", "tid"):
            value = kept.get(name)
            if isinstance(value, str) and value.strip() not in ("", "Spans", "Traces"):
                kept[name] = self._names.numbers(value)
        if (at := _micros(event.get("ts"))) is not None:
            moved = at - shift
            kept["ts"] = int(moved) if moved == moved.to_integral_value() else moved
        name = str(event.get("name", ""))
        kept["name"] = self._name(name, category)
        arguments = event.get("args")
        if isinstance(arguments, dict):
            kept["args"] = self.arguments(arguments)
        return kept

    def _name(self, name: str, category: object) -> str:
        if category in _FRAMES:
            return self._names.frame(name)
        if category in _DEVICE_CATEGORIES:
            return self._names.kernel(name)
        return self._names.operator(name)

    def _named_lane(self, event: Record) -> Record:
        """A record that names a process or a thread: only its number is left."""
        kept = {**event, "ts": 0}
        arguments = event.get("args")
        if not isinstance(arguments, dict):
            return kept
        if "sort_index" in arguments:
            kept["args"] = {"sort_index": arguments["sort_index"]}
        elif arguments.get("labels") in _LABELS:
            kept["args"] = {"labels": arguments["labels"]}
        else:
            what = "process" if event.get("name") == "process_name" else "lane"
            self._names.remove("name", arguments)
            kept["args"] = {"name": f"{what} {event.get('tid', 0)}"}
        return kept

    def arguments(self, arguments: Mapping[str, object]) -> Record:
        """What is left of an event's `args`."""
        kept: Record = {}
        for name, value in arguments.items():
            if name in _NUMBERS and not isinstance(value, str | list | dict):
                kept[name] = value
            elif name in self._texts and isinstance(value, str):
                kept[name] = self._texts[name](value)
            elif name in _SIZES and isinstance(value, int):
                kept[name] = self._scale.size(value) if self._scale.is_on else value
            elif name in _SHAPES:
                kept[name] = self._shape(value)
            elif name == "Input type" and isinstance(value, list):
                kept[name] = [self._names.type(one) for one in value if isinstance(one, str)]
            elif name == "Concrete Inputs" and isinstance(value, list):
                kept[name] = [self._value(one) for one in value]
            elif name in _OF_SHAPE and not self._scale.is_on and not isinstance(value, str):
                kept[name] = value
            else:
                self._names.remove(name, value)
        return kept

    def _shape(self, value: object) -> object:
        scaled = self._scale.sizes(value) if self._scale.is_on else value
        self.shapes.update(numbers_in(scaled))
        return scaled

    def _value(self, value: object) -> object:
        if not isinstance(value, str):
            return value
        # Sizes are written out here once more.
        if self._scale.is_on and any(letter.isdigit() for letter in value):
            return ""
        return self._names.value(value)
