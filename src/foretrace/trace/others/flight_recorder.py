"""Dumps of PyTorch's flight recorder: what a rank's process groups were given, how far they got.

`TORCH_FR_DUMP_TEMP_FILE` names them (`nccl_trace_rank_0`), a pickle of plain values, or JSON.
Members as torch/csrc/distributed/c10d/FlightRecorderDetail.hpp writes them, versions 2.1 to
2.10. Every entry is a call that issues communication; what has ended is an operation of the device
as well, so that `foretrace hang` tells who waits for whom as in a profiler's recording. A pickle is
read without running anything: one that names a class or a function is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from foretrace.base import TraceError
from foretrace.trace.columns import Trace
from foretrace.trace.others.words import (
    ANNOTATION,
    KERNEL,
    OPERATOR,
    RUNTIME,
    RecordingFacts,
    ToldEvent,
    Value,
    on_device,
    trace_in_words,
)
from foretrace.trace.source import whole_bytes

_PICKLES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_MOST_BYTES = 10**9  # a ring of some thousand entries is a few MB
_PEERS = re.compile(r"(?:\w+:)?(send|recv) (\d+)(?:->|<-)(\d+)")
_CALL_NS = 1_000  # how long a call is told to take: dumps say when it began alone
_LATER_NS = 2_000_000  # the dump is after all calls: none of them is taken to be open at its end
_OWN_CODE = "/torch/"  # frames in here are PyTorch's

_DECODER = msgspec.json.Decoder(Any)


class FlightEntry(msgspec.Struct, frozen=True):
    """One call, as far as it is read; a member that a version does not write is left out."""

    profiling_name: str
    time_created_ns: int
    process_group: tuple[str, str] = ("", "")
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    is_p2p: bool = False
    state: str = ""
    retired: bool = False
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    input_sizes: list[list[int]] = []
    output_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_dtypes: list[str] = []
    frames: list[dict[str, str | int]] = []

    def told(self, name: str) -> dict[str, Value]:
        """What NCCL tells Kineto of such a call."""
        group, description = self.process_group
        told: dict[str, Value] = {
            "Collective name": name,
            "Process Group Name": group,
            "Process Group Description": description,
            "Seq": self.p2p_seq_id if self.is_p2p else self.collective_seq_id,
            "In msg nelems": sum(map(math.prod, self.input_sizes)),
            "Out msg nelems": sum(map(math.prod, self.output_sizes)),
        }
        return {**told, "dtype": self.input_dtypes[0]} if self.input_dtypes else told


class FlightDump(msgspec.Struct, frozen=True):
    """What one rank's recorder holds."""

    entries: list[FlightEntry] = []
    pg_config: dict[str, dict[str, str]] = {}
    version: str = ""


def recognises_flights(head: bytes) -> bool:
    """Whether a file that begins so is a dump."""
    start = head[:4000]
    if head.startswith(_PICKLES):
        return b"pg_config" in start or b"entries" in start
    return start.lstrip()[:1] == b"{" and b'"collective_seq_id"' in start


def read_flights(path: Path) -> Trace:
    """The calls of one rank.

    Raises:
        TraceError: if the file cannot be read, is damaged, or holds more than plain values.
    """
    dump = _dump(path)
    members = {name: told.get("ranks", "") for name, told in dump.pg_config.items()}
    notes = () if dump.entries else ("the flight recorder holds no call: its ring was empty",)
    return trace_in_words(path, _told(dump, members), RecordingFacts(notes=notes))


def _dump(path: Path) -> FlightDump:
    text = whole_bytes(path, _MOST_BYTES, instead="name the dump of a flight recorder")
    try:
        if text.startswith(_PICKLES):
            value = _PlainValues(io.BytesIO(text), path).load()
        else:
            value = _DECODER.decode(text)
        return msgspec.convert(value, FlightDump)
    except TraceError:
        raise
    except Exception as err:  # a damaged pickle ends in any of a dozen kinds of error
        raise TraceError(
            f"cannot read {path}: it begins as a flight recorder's dump and is none "
            f"({type(err).__name__}: {err}); copy it again, or dump it with "
            "torch.distributed's TORCH_FR_BUFFER_SIZE set"
        ) from err


class _PlainValues(pickle.Unpickler):
    """Reads dictionaries, lists, texts and numbers, and nothing that could run."""

    def __init__(self, file: io.BytesIO, path: Path) -> None:
        super().__init__(file)
        self._path = path

    def find_class(self, module: str, name: str) -> NoReturn:
        raise TraceError(
            f"cannot read {self._path}: its pickle names {module}.{name}, and a flight recorder "
            "writes plain values alone: it is no such dump, and nothing of it was run"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise TraceError(
            f"cannot read {self._path}: its pickle refers to something outside ({pid!r}), which "
            "no flight recorder's dump does"
        )


def _told(dump: FlightDump, members: Mapping[str, str]) -> Iterator[ToldEvent]:
    last = 2 * _LATER_NS + max((one.time_created_ns for one in dump.entries), default=0)
    yield ToldEvent(ANNOTATION, "PyTorch Profiler: dump", last - _LATER_NS, last, 0, 1)
    for number, entry in enumerate(dump.entries):
        begin = entry.time_created_ns
        told = _communication(entry, members)
        where = _own_frame(entry)
        end = begin + _CALL_NS
        if where:
            yield ToldEvent(OPERATOR, where, begin, end, 0, 1)
        yield ToldEvent(OPERATOR, "record_param_comms", begin, end - 1, 0, 1, told)
        call: dict[str, Value] = {"correlation": number}
        yield ToldEvent(RUNTIME, "cudaLaunchKernel", begin, end - 2, 0, 1, call)
        if entry.retired or entry.state == "completed":
            start = entry.time_discovered_started_ns or begin + _CALL_NS
            end = max(start, entry.time_discovered_completed_ns or start)
            name = f"ncclDevKernel_{told['Collective name']}"
            group = entry.process_group[0]
            yield on_device(
                KERNEL, name, (start, end),
                device=0, stream=int(group) if group.isdigit() else 0, correlation=number, **told,
            )  # fmt: skip


def _communication(entry: FlightEntry, members: Mapping[str, str]) -> dict[str, Value]:
    """What Kineto says of such a call."""
    peers = _PEERS.match(entry.profiling_name)
    group = entry.process_group[0]
    told = entry.told(peers[1] if peers else entry.profiling_name.rpartition(":")[2])
    if members.get(group, "[]") != "[]":
        told["Process Group Ranks"] = members[group]
    if peers:
        ends = (int(peers[2]), int(peers[3]))
        source, goal = ends if peers[1] == "send" else ends[::-1]
        told["Src Rank"], told["Dst Rank"] = source, goal
    return told


def _own_frame(entry: FlightEntry) -> str:
    """Where the program made the call: its innermost frame outside of PyTorch."""
    for frame in entry.frames:
        file = str(frame.get("filename", ""))
        if file and _OWN_CODE not in file and "site-packages" not in file:
            return f"{Path(file).name}:{frame.get('line', 0)} {frame.get('name', '')}"
    return ""
