"""Many files become many traces (first version)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from foretrace.trace.columns import Trace
from foretrace.trace.read import read_trace


def load_traces(paths: Iterable[Path | str], **_: object) -> tuple[Trace, ...]:
    """The traces of these files."""
    return tuple(read_trace(Path(path)) for path in paths)
