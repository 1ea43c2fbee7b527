"""One file becomes one `Trace`."""

from __future__ import annotations

from pathlib import Path

from foretrace.trace.assemble import assembled
from foretrace.trace.columns import Trace
from foretrace.trace.meta import described, trace_meta
from foretrace.trace.scan import scanned
from foretrace.trace.source import OpenFile, opened_source

# Words of a Kineto file's head. The list of events may begin far behind them.
_WORDS = (b'"traceEvents"', b'"ph"', b'"deviceProperties"', b'"schemaVersion"')


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a Kineto trace."""
    return head.lstrip()[:1] in (b"{", b"[") and any(word in head for word in _WORDS)


def read_trace(path: Path) -> Trace:
    """The trace in one Kineto file: JSON, gzip of it, or a tar archive with one file.

    Timestamps come out absolute, in ns since the clock's own zero: a file's
    `baseTimeNanoseconds` is added, so ranks of one job compare even where their bases differ.

    Raises:
        TraceError: if the file cannot be read or holds no list of trace events.
    """
    with opened_source(path) as source:
        return trace_of(source)


def trace_of(source: OpenFile) -> Trace:
    """The trace in an open file, or in any text of this form."""
    scan = scanned(source)
    told = described(scan.members)
    meta = trace_meta(scan, told, path=source.path, file_bytes=source.file_bytes)
    return assembled(scan, meta, told.base_ns)
