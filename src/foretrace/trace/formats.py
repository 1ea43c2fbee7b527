"""Every kind of file: by which first text it is told, and what reads it.

A format that foretrace does not know yet is a file or folder beside this one with two functions,
and a line in `PROFILES`: see "Add a trace format" in CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from foretrace.base import NS_PER_S, TraceError
from foretrace.trace import chakra, execution, others, read, sidecar
from foretrace.trace.better_recordings import ANY, NSIGHT, PYTORCH, ROCPROF, XLA, HowToRecord
from foretrace.trace.chakra import ChakraTrace
from foretrace.trace.columns import NO_STRING, Trace
from foretrace.trace.source import opened_bytes

Read = TypeVar("Read", Trace, ChakraTrace, None)
_LONGEST_NS = 2**53  # beyond, float64, which shares and means are made in, is not exact
_NS_PER_DAY = 24 * 3600 * NS_PER_S
JSON_ENDINGS = (".json", ".json.gz", ".tgz", ".tar.gz")


@dataclass(frozen=True)
class TraceFormat(Generic[Read]):
    """One kind of file."""

    name: str  # "Kineto trace"
    recognises: Callable[[bytes], bool]  # its first text, decompressed
    read: Callable[[Path], Read]
    # Of its files in a folder: where some end so, others of the format are another run's.
    endings: tuple[str, ...] = JSON_ENDINGS
    how_to_record: HowToRecord = PYTORCH  # what it must be told to record more


def _nothing(path: Path) -> None:
    """Told apart, so that it can be counted beside the traces; no run stands in it."""


def _is_kineto(head: bytes) -> bool:
    """Whether it is Kineto's; a bare list may be the Ascend profiler's, which has its words."""
    is_list = head.lstrip()[:1] == b"["
    return read.recognises(head) and not (is_list and others.recognises_ascend(head))


KINETO = TraceFormat("Kineto trace", _is_kineto, read.read_trace)
# Formats that become columns as a profiler's events do. The first one is taken of a file that is
# named and that no format recognises, and says what is wrong with it.
PROFILES: tuple[TraceFormat[Trace], ...] = (
    KINETO,
    TraceFormat(
        "export of the Ascend profiler",
        lambda head: others.recognises_ascend(head),  # noqa: PLW0108  as below
        lambda path: others.read_ascend(path),  # noqa: PLW0108  as below
    ),
    TraceFormat(
        "report of Nsight Systems",
        lambda head: others.recognises_nsight(head),  # noqa: PLW0108  as below
        lambda path: others.read_nsight(path),  # noqa: PLW0108  as below
        (".sqlite", ".sqlite.gz"),
        NSIGHT,
    ),
    TraceFormat(
        "file of rocprofv3",
        lambda head: others.recognises_rocprof(head),  # noqa: PLW0108  as below
        lambda path: others.read_rocprof(path),  # noqa: PLW0108  as below
        how_to_record=ROCPROF,
    ),
    TraceFormat(
        "database of rocprofv3",
        lambda head: others.recognises_rocpd(head),  # noqa: PLW0108  as below
        lambda path: others.read_rocpd(path),  # noqa: PLW0108  as below
        (".db", ".db.gz"),
        ROCPROF,
    ),
    TraceFormat(
        "profile of XLA",
        lambda head: others.recognises_xplane(head),  # noqa: PLW0108  as below
        lambda path: others.read_xplane(path),  # noqa: PLW0108  as below
        (".xplane.pb", ".xplane.pb.gz"),
        XLA,
    ),
    TraceFormat(
        "Perfetto trace",
        lambda head: others.recognises_perfetto(head),  # noqa: PLW0108  as below
        lambda path: others.read_perfetto(path),  # noqa: PLW0108  as below
        (".pftrace", ".pftrace.gz", ".perfetto-trace"),
        ANY,
    ),
    TraceFormat(
        "dump of a flight recorder",
        lambda head: others.recognises_flights(head),  # noqa: PLW0108  as below
        lambda path: others.read_flights(path),  # noqa: PLW0108  as below
        (*"0123456789", ".json", ".pickle", ".pkl"),  # `nccl_trace_rank_0`
        HowToRecord(),
    ),
)
EXECUTION: TraceFormat[ChakraTrace] = TraceFormat(
    "execution trace file",
    lambda head: execution.recognises(head),  # noqa: PLW0108  loaded when called
    lambda path: chakra.read_linked(path),  # noqa: PLW0108  loaded when called
)
# Formats that state who waits for whom themselves.
GRAPHS: tuple[TraceFormat[ChakraTrace], ...] = (
    TraceFormat(
        "Chakra file",
        chakra.recognises,
        lambda path: chakra.read_chakra(path),  # noqa: PLW0108  loaded when called
        (".et", ".et.gz", ".et.tar.gz"),
    ),
    TraceFormat(
        "file of a Chakra feeder",
        chakra.recognises_feeder,
        lambda path: chakra.read_feeder(path),  # noqa: PLW0108  loaded when called
    ),
    EXECUTION,
    TraceFormat(
        "file of a Chakra jsonizer",
        chakra.recognises_jsonized,
        lambda path: chakra.read_jsonized(path),  # noqa: PLW0108  loaded when called
    ),
)
BESIDE: tuple[TraceFormat[None], ...] = (
    TraceFormat("file of step times", sidecar.recognises, _nothing),
)
AnyFormat: TypeAlias = TraceFormat[Trace] | TraceFormat[ChakraTrace] | TraceFormat[None]


def known_formats() -> tuple[AnyFormat, ...]:
    """All formats; the first that recognises a file is its own."""
    return (*PROFILES, *BESIDE, *GRAPHS)


def format_of(path: Path) -> AnyFormat | None:
    """What a file is by its first text; None if it can be read and is of no known format.

    Raises:
        TraceError: if it cannot be read.
    """
    with opened_bytes(path) as pieces:
        head = next(pieces, b"")
    return next((one for one in known_formats() if one.recognises(head)), None)


def read_profile(path: Path) -> Trace:
    """The file of a format that becomes columns.

    Raises:
        TraceError: if the file cannot be read, is of no such format, or has an event that outlasts
            any recording: it is damage, and would be all that answers tell.
    """
    found = format_of(path)
    for one in PROFILES:
        if one is found or found is None:
            trace = one.read(path)
            _refuse_endless(trace, path)
            return trace
    raise _refused(path, found, PROFILES)


def _refuse_endless(trace: Trace, path: Path) -> None:
    if not trace.num_events or trace.duration_ns.max() <= _LONGEST_NS:
        return
    at = int(np.argmax(trace.duration_ns))
    name = trace.strings[trace.name[at]] if trace.name[at] != NO_STRING else ""
    duration_ns = int(trace.duration_ns[at])
    raise TraceError(
        f"cannot use {str(path)!r}: its event {name!r} lasts {duration_ns // 1000:,} us "
        f"({duration_ns // _NS_PER_DAY:,} days), and none of a recording lasts more than "
        f"{_LONGEST_NS // _NS_PER_DAY} days. Durations are in microseconds: record again, or "
        "divide those that were written in another unit"
    )


def read_graph(path: Path) -> ChakraTrace:
    """The file of a format that states who waits for whom.

    Raises:
        TraceError: if the file cannot be read, or is of no such format.
    """
    found = format_of(path)
    for one in GRAPHS:
        if one is found:
            return one.read(path)
    raise _refused(path, found, GRAPHS)


def _refused(path: Path, found: AnyFormat | None, wanted: Sequence[AnyFormat]) -> TraceError:
    what = "of no known format" if found is None else f"of the format {found.name!r}"
    names = ", ".join(one.name for one in wanted)
    return TraceError(
        f"cannot read {path}: it is {what}, expected one of: {names}; name such a file of the same "
        "run, or load this one without files of other formats"
    )
