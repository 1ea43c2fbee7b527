"""One file becomes one `Trace`."""

from __future__ import annotations

from pathlib import Path

from foretrace.trace.assemble import assembled
from foretrace.trace.columns import Trace
from foretrace.trace.meta import described, trace_meta
from foretrace.trace.scan import scanned
from foretrace.trace.source import Source, content_key, opened_source


def read_trace(path: Path, *, key: str | None = None) -> Trace:
    """The trace in one Kineto file: JSON, gzip of it, or a tar archive with one file.

    Timestamps come out absolute, in ns since the clock's own zero: a file's
    `baseTimeNanoseconds` is added, so ranks of one job compare even where their bases differ.

    Args:
        path: the file.
        key: its `content_key`, if it is known already.

    Raises:
        TraceError: if the file cannot be read or holds no list of trace events.
    """
    key = content_key(path) if key is None else key
    with opened_source(path) as source:
        return trace_of(source, key)


def trace_of(source: Source, key: str) -> Trace:
    """The trace in an open file whose `content_key` is `key`."""
    scan = scanned(source)
    told = described(scan.members)
    meta = trace_meta(scan, told, path=source.path, content_key=key, file_bytes=source.file_bytes)
    return assembled(scan, meta, told.base_ns)
