"""`process_paths`: databases of profilers that hold several processes, as a path for each."""

from __future__ import annotations

from pathlib import Path

from foretrace.trace.archives import is_database
from foretrace.trace.others.nsight import processes_of_nsight
from foretrace.trace.others.rocpd import processes_of_rocpd
from foretrace.trace.others.tables import opened_tables


def process_paths(path: Path) -> list[Path]:
    """The file, or where several processes used devices in it, one path for each: their ranks.

    Raises:
        TraceError: if it is a damaged database.
    """
    if not is_database(path):
        return [path]
    with opened_tables(path) as tables:
        found = processes_of_nsight(tables) or processes_of_rocpd(tables)
    return [path / str(one) for one in found] if len(found) > 1 else [path]
