"""Parsed columns on disk, by the content of the file they came from.

An entry is one file: a line of identification, a header in JSON, then every column as it lies in
memory, on 64-byte boundaries. It is mapped, not read, so columns that nobody touches cost
nothing and the system may drop the others when memory is short. (polars 2.1 reads an Arrow file
into memory as a whole: 8 ms and twice the size where mapping takes under 1 ms.)
"""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Shown,
    Table,
    Told,
    Unit,
    bytes_text,
    count_text,
)
from foretrace.base import NS_PER_S, OutputError, remove_abandoned, written_beside
from foretrace.trace.columns import (
    CollectiveColumns,
    FlowColumns,
    Lanes,
    MemoryColumns,
    SyncColumns,
    Trace,
    TraceMeta,
)

ENDING = ".columns"
DEFAULT_MAX_BYTES = 20 * 10**9
_MAGIC = b"foretrace columns 1\n"
_PREFIX_BYTES = len(_MAGIC) + 26  # and the header's length and checksum
_ALIGNMENT = 64
_BLOCK_BYTES = 1 << 20
_TABLES = {
    "lanes": Lanes,
    "collectives": CollectiveColumns,
    "syncs": SyncColumns,
    "memory": MemoryColumns,
    "flows": FlowColumns,
}
_NOT_COLUMNS = ("meta", "strings", *_TABLES)


class _Column(msgspec.Struct):
    name: str
    dtype: str
    offset: int  # from the end of the header
    length: int


class _Header(msgspec.Struct):
    meta: TraceMeta
    strings: tuple[str, ...]
    columns: list[_Column]
    data_bytes: int
    data_crc: int


def _path_of(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(kind)


def _text_of(value: object) -> str:
    """A path as text; bytes of a name that are no UTF-8 are spelled out, JSON has no form for them.

    A reader puts the path it was asked for in its place.
    """
    return os.fsencode(str(value)).decode("utf-8", "backslashreplace")


# Made once, by the thread that imports this: files are read by many threads, and msgspec describes
# a type to itself without a lock, so that threads which all do it first end the process.
_HEADERS = msgspec.json.Decoder(_Header, dec_hook=_path_of)
_TO_JSON = msgspec.json.Encoder(enc_hook=_text_of)


class DamagedEntryError(Exception):
    """A cache entry that is not what was written; never leaves this folder."""


@cache
def reader_revision() -> str:
    """Changes with the reader's own code, so an entry of another version is never used."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def entry_path(folder: Path, content_key: str) -> Path:
    """Where the columns of a file with this content lie."""
    return folder / f"{content_key}-{reader_revision()}{ENDING}"


def write_entry(trace: Trace, path: Path) -> None:
    """Write a trace's columns; the entry is whole or absent.

    Raises:
        OutputError: if the folder cannot be written to.
    """
    columns: list[_Column] = []
    blocks: list[memoryview] = []
    offset = crc = 0
    for name, array in _named_columns(trace):
        data = np.ascontiguousarray(array).view(np.uint8).data
        padding = bytes(-len(data) % _ALIGNMENT)
        columns.append(_Column(name, array.dtype.str, offset, len(array)))
        for block in (data, memoryview(padding)):
            blocks.append(block)
            crc = isal_zlib.crc32(block, crc)
            offset += len(block)
    header = _TO_JSON.encode(_Header(trace.meta, trace.strings, columns, offset, crc))
    prefix = _MAGIC + b"%016x %08x\n" % (len(header), isal_zlib.crc32(header))
    header += b" " * (-(len(prefix) + len(header)) % _ALIGNMENT)
    prefix = _MAGIC + b"%016x %08x\n" % (len(header), isal_zlib.crc32(header))
    with written_beside(path) as beside, beside.open("wb") as file:
        file.write(prefix + header)
        for block in blocks:
            file.write(block)


def read_entry(path: Path) -> Trace | None:
    """The trace in an entry, its columns mapped and read-only; None if there is no entry.

    Raises:
        DamagedEntryError: if the entry is not what was written.
    """
    try:
        with path.open("rb") as file:
            prefix = file.read(_PREFIX_BYTES)
            header = _read_header(prefix, file, path.stat().st_size)
            begin = file.tell()
            crc = num_bytes = 0
            # Checked by reading, not through the map, so that checking maps no page.
            while block := file.read(_BLOCK_BYTES):
                crc = isal_zlib.crc32(block, crc)
                num_bytes += len(block)
            if (num_bytes, crc) != (header.data_bytes, header.data_crc):
                raise DamagedEntryError(f"{num_bytes:,} bytes of columns with a wrong checksum")
            with suppress(OSError):  # a folder that is only readable keeps its order
                os.utime(path)  # used now: `prune` removes what was used longest ago
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise DamagedEntryError(str(err.strerror or err)) from err
    arrays = {
        column.name: np.frombuffer(mapped, column.dtype, column.length, begin + column.offset)
        for column in header.columns
    }
    return _trace_of(header, arrays)


def _read_header(prefix: bytes, file: BinaryIO, entry_bytes: int) -> _Header:
    if len(prefix) != _PREFIX_BYTES or not prefix.startswith(_MAGIC):
        raise DamagedEntryError("not an entry of this format")
    try:
        length, crc = (int(word, 16) for word in prefix[len(_MAGIC) :].split())
        raw = file.read(min(length, entry_bytes))
        if len(raw) != length or isal_zlib.crc32(raw) != crc:
            raise DamagedEntryError("a header with a wrong checksum")
        return _HEADERS.decode(raw)
    except (ValueError, msgspec.DecodeError) as err:
        raise DamagedEntryError(f"a header that cannot be read ({err})") from err


def _named_columns(trace: Trace) -> list[tuple[str, NDArray[np.generic]]]:
    """Every column of a trace, by the name of its field, those of tables as table.field."""
    own = [
        (field.name, getattr(trace, field.name))
        for field in fields(trace)
        if field.name not in _NOT_COLUMNS
    ]
    of_tables = [
        (f"{table}.{field.name}", getattr(getattr(trace, table), field.name))
        for table in _TABLES
        for field in fields(_TABLES[table])
    ]
    return own + of_tables


def _trace_of(header: _Header, arrays: dict[str, NDArray[np.generic]]) -> Trace:
    tables = {
        name: kind(**{field.name: arrays[f"{name}.{field.name}"] for field in fields(kind)})
        for name, kind in _TABLES.items()
    }
    own = {name: array for name, array in arrays.items() if "." not in name}
    return Trace(meta=header.meta, strings=header.strings, **tables, **own)  # type: ignore[arg-type]


def mapped_or_same(trace: Trace, folder: Path) -> Trace:
    """Keep a trace in the cache and give it back mapped; the same trace if that fails.

    A failure is told in the trace's notes: a full disk must not cost the reader its result.
    """
    path = entry_path(folder, trace.meta.content_key)
    try:
        write_entry(trace, path)
        mapped = read_entry(path)
    except (OutputError, DamagedEntryError) as err:
        return with_note(trace, f"the cache entry {path} could not be written: {err}")
    return trace if mapped is None else mapped


def with_note(trace: Trace, note: str) -> Trace:
    """The same trace with one more note."""
    return replace(trace, meta=replace(trace.meta, notes=(*trace.meta.notes, note)))


@dataclass(frozen=True)
class CachedTrace(Plain):
    """One file's columns on disk."""

    file: str  # the trace as it was named; "" of an entry that another version wrote
    num_bytes: int
    used_at_ns: int  # when it was used last, since 1970
    is_current: bool  # whether this version would use it


@dataclass(frozen=True, repr=False)
class TraceCache(Answer):
    """What a folder of parsed columns holds; used last, first."""

    folder: Path
    max_bytes: int
    entries: tuple[CachedTrace, ...]

    @property
    def num_bytes(self) -> int:
        """Of all entries."""
        return sum(one.num_bytes for one in self.entries)

    @property
    def headline(self) -> str:
        """How full it is."""
        count = count_text(len(self.entries), "trace")
        held, limit = bytes_text(self.num_bytes), bytes_text(self.max_bytes)
        return f"{self.folder}: {count}, {held} of at most {limit}"

    def parts(self) -> tuple[Told, ...]:
        """The entries."""
        entries = Table.of(
            "entries",
            self.entries,
            Column("file", value=lambda one: one.file or "not known"),
            Column("num_bytes", "size", Unit.BYTES),
            Column("used", "last used", Unit.WORD, _day_of),
            Column("used_at_ns", unit=Unit.COUNT, shown=Shown.FILES),
            Column("is_current", "this version's"),
        )
        return (entries,)


def _day_of(entry: CachedTrace) -> str:
    moment = datetime.fromtimestamp(entry.used_at_ns / NS_PER_S, tz=UTC)
    return moment.strftime("%Y-%m-%d %H:%M")


def cached_traces(folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> TraceCache:
    """What a cache holds; nothing where there is no such folder."""
    found = []
    for path in folder.glob(f"*{ENDING}"):
        try:
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                header = _read_header(file.read(_PREFIX_BYTES), file, stat.st_size)
            name = str(header.meta.path)
        except FileNotFoundError:  # another process prunes
            continue
        except (OSError, DamagedEntryError):
            stat, name = path.stat(), ""
        is_current = path.name.endswith(f"-{reader_revision()}{ENDING}")
        found.append(CachedTrace(name, stat.st_size, stat.st_mtime_ns, is_current))
    found.sort(key=lambda one: (-one.used_at_ns, one.file))
    return TraceCache(folder, max_bytes, tuple(found))


def prune(folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> int:
    """Remove the entries used longest ago until the rest fits; bytes removed.

    So are entries that were never finished, once they are a day old. Entries that other processes
    have mapped stay readable to them on POSIX systems.
    """
    removed = remove_abandoned(folder, time.time_ns())
    entries = []
    for path in folder.glob(f"*{ENDING}"):
        try:
            found = path.stat()
        except FileNotFoundError:  # another process prunes too
            continue
        entries.append((found.st_mtime_ns, found.st_size, path))
    excess = sum(size for _, size, _ in entries) - max_bytes
    freed = 0
    for _, size, path in sorted(entries):
        if freed >= excess:
            break
        path.unlink(missing_ok=True)
        freed += size
    return removed + freed
