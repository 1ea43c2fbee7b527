"""What rocprofv3 records of AMD GPUs, as its database (`--output-format rocpd`, `*_results.db`).

Tables as ROCprofiler-SDK's tool makes them (share/rocprofiler-sdk-rocpd, schema version 3): each
name ends in an id of the file's own, views leave it out. `stack_id` joins a call and what it
launched. Ranges of ROCTx are annotations; their words stand beside the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from foretrace.base import TraceError
from foretrace.trace.archives import SQLITE
from foretrace.trace.columns import Trace
from foretrace.trace.others.tables import (
    RecordedTables,
    database_part,
    opened_tables,
    place_of,
    refused_parts,
)
from foretrace.trace.others.words import (
    ANNOTATION,
    COPY,
    KERNEL,
    RUNTIME,
    RecordingFacts,
    ToldEvent,
    on_device,
    trace_in_words,
)

_KERNELS, _COPIES, _REGIONS = "kernel_dispatch", "memory_copy", "region"
_TIMED = ("start", "end", "pid", "event_id")
_NOT_TOLD = {
    "memory_allocate": "allocations of memory",
    "sample": "samples of counters",
    "pmc_event": "counters of kernels",
}
_TEXTS = (
    "string", "extdata", "type", "name", "model_name", "product_name", "display_name",
    "kernel_name",
)  # fmt: skip
_RECORD = "rocprofv3 --kernel-trace --memory-copy-trace --hip-trace --marker-trace"
_HIDDEN = "HSA"  # categories of calls into the driver's runtime begin so
_MARKERS = "MARKER"


def recognises_rocpd(head: bytes) -> bool:
    """Whether a file that begins so is a database of rocprofv3."""
    return head.startswith(SQLITE) and b"rocpd_" in head


class _Said(msgspec.Struct, frozen=True):
    message: str = ""


_SAID = msgspec.json.Decoder(_Said)


@dataclass(frozen=True)
class _Event:
    """What a row's event says."""

    correlation: int | None = None
    category: str = ""
    message: str = ""


class _Database:
    """Rows of one process; names and numbers of what they point to."""

    def __init__(self, tables: RecordedTables, process: int) -> None:
        self.tables, self.process = tables, process
        self.texts = {
            number: text or "" for number, text in _rows(tables, "string", "id", "string")
        }
        self.threads = dict(_rows(tables, "info_thread", "id", "tid"))
        self.pid = dict(_rows(tables, "info_process", "id", "pid")).get(process, process)
        self.events = {
            number: _Event(stack, self.texts.get(category, ""), _message(more))
            for number, stack, category, more in _rows(
                tables, "event", "id", "stack_id", "category_id", "extdata"
            )
        }
        agents = [
            (number, product or model or name or "")
            for number, kind, owner, name, model, product in _rows(
                tables, "info_agent", "id", "type", "pid", "name", "model_name", "product_name"
            )
            if kind == "GPU" and owner == process
        ]
        self.devices = {number: at for at, (number, _) in enumerate(agents)}
        self.device_names = tuple(name for _, name in agents)

    def rows(self, table: str, *columns: str) -> Iterator[tuple[tuple[int, int], _Event, Any]]:
        """Times, event, and other columns of this process' rows that have ended."""
        for start, end, process, event, *rest in _rows(self.tables, table, *_TIMED, *columns):
            if process == self.process and None not in (start, end):
                yield (start, end), self.events.get(event, _Event()), rest


def read_rocpd(path: Path) -> Trace:
    """The one process with device work in a database, or the one that the path names.

    Raises:
        TraceError: if the file cannot be read, holds no such work, or several processes' of it.
    """
    with opened_tables(path) as tables:
        _check_tables(path, tables)
        found = processes_of_rocpd(tables)
        process = _process(path, found)
        database = _Database(tables, process)
        unread = {what: _count(tables, name) for name, what in _NOT_TOLD.items()}
        hidden = sum(event.category.startswith(_HIDDEN) for _, event, _ in database.rows(_REGIONS))
        unread["calls into the runtime of the driver (HSA)"] = hidden
        rank, world_size = place_of(process, found)
        facts = RecordingFacts(
            rank=rank,
            world_size=world_size,
            device_names=database.device_names,
            dropped={what: count for what, count in unread.items() if count},
        )
        return trace_in_words(path, _told(database), facts)


def _check_tables(path: Path, tables: RecordedTables) -> None:
    """Refuse what only mentions rocprofv3, as analyses of rocprof-compute do."""
    if any(name.startswith("rocpd_") for name in tables.names):
        return
    have = ", ".join(sorted(tables.names)[:3]) or "none"
    raise TraceError(
        f"cannot read {path}: it has no table of rocprofv3 (rocpd_...), but {have}. What "
        "rocprof-compute writes counts kernels and has no timeline; record one with "
        f"`{_RECORD}`"
    )


def processes_of_rocpd(tables: RecordedTables) -> Counter[int]:
    """How much device work each process has, by its number in the database."""
    found: Counter[int] = Counter()
    for name in (_KERNELS, _COPIES):
        found.update(one for (one,) in _rows(tables, name, "pid") if one is not None)
    return found


def _process(path: Path, found: Counter[int]) -> int:
    if not found:
        raise TraceError(
            f"cannot read {path}: it is a database of rocprofv3 without device work; record with "
            f"`{_RECORD}`"
        )
    process = database_part(path, found)
    return refused_parts(path, found) if process is None else process


def _told(database: _Database) -> Iterator[ToldEvent]:
    yield from _kernels(database)
    texts, devices = database.texts, database.devices
    columns = ("src_agent_id", "dst_agent_id", "size", "stream_id", "queue_id")
    for times, event, (source, goal, size, stream, queue) in database.rows(_COPIES, *columns):
        side = "".join("D" if end in devices else "H" for end in (source, goal))
        yield on_device(
            COPY, f"Memcpy {side[0]}to{side[1]}", times,
            device=devices.get(goal, devices.get(source, 0)), stream=_either(stream, queue),
            correlation=event.correlation, bytes=size or 0,
        )  # fmt: skip
    for times, event, (name, thread) in database.rows(_REGIONS, "name_id", "tid"):
        words = event.message or texts.get(name, f"call {name}")
        at = (database.pid, database.threads.get(thread) or 0)
        if event.category.startswith(_MARKERS) or not event.category:
            yield ToldEvent(ANNOTATION, words, *times, *at)
        elif not event.category.startswith(_HIDDEN):
            call = {} if event.correlation is None else {"correlation": event.correlation}
            yield ToldEvent(RUNTIME, words, *times, *at, args=call)


def _kernels(database: _Database) -> Iterator[ToldEvent]:
    names = {
        number: (shown or plain or f"kernel {number}").removesuffix(".kd")
        for number, shown, plain in _rows(
            database.tables, "info_kernel_symbol", "id", "display_name", "kernel_name"
        )
    }
    sizes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]
    columns = ("agent_id", "kernel_id", "stream_id", "queue_id", *sizes)
    for times, event, row in database.rows(_KERNELS, *columns):
        agent, kernel, stream, queue, *shape = row
        args = {}
        if None not in shape:  # a grid is counted in threads
            block = shape[3:]
            args = {
                "grid": [
                    -(-all_ // max(1, each)) for all_, each in zip(shape[:3], block, strict=True)
                ],
                "block": block,
            }
        yield on_device(
            KERNEL, names.get(kernel, f"kernel {kernel}"), times,
            device=database.devices.get(agent, 0), stream=_either(stream, queue),
            correlation=event.correlation, **args,
        )  # fmt: skip


def _either(stream: int | None, queue: int | None) -> int:
    return stream if stream is not None else queue or 0


def _message(more: str | None) -> str:
    """What a range of ROCTx says."""
    try:
        return _SAID.decode(more or "{}").message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _rows(tables: RecordedTables, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    return tables.rows(_table(tables, name), columns, _TEXTS)


def _count(tables: RecordedTables, name: str) -> int:
    return tables.count(_table(tables, name))


def _table(tables: RecordedTables, name: str) -> str:
    """The view of a table; without views the table itself, whose name ends in an id."""
    own = f"rocpd_{name}"
    if own in tables.names:
        return own
    with_id = (one for one in tables.names if one.startswith(own) and _is_id(one[len(own) :]))
    return next(with_id, own)


def _is_id(text: str) -> bool:
    digits = text.replace("_", "").replace("-", "")
    return bool(digits) and all(one in "0123456789abcdef" for one in digits.lower())
