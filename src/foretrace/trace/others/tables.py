"""Recordings that are SQLite files: opened for reading alone, packed or not, whatever they hold."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from foretrace.base import TraceError
from foretrace.trace.archives import archive_of, is_database
from foretrace.trace.source import whole_bytes

_MOST_PACKED_BYTES = 2 * 10**9  # a packed file is unpacked into memory


class RecordedTables:
    """The tables of one file; a column that another version does not have is read as None."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        self._columns: dict[str, tuple[str, ...]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of tables and views."""
        kinds = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        return tuple(str(name) for (name,) in self._asked(kinds))

    def count(self, table: str) -> int:
        """How many rows a table has; none if there is no such table."""
        if not self._columns_of(table):
            return 0
        return int(next(self._asked(f"SELECT count(*) FROM {_quoted(table)}"))[0])  # noqa: S608

    def rows(
        self, table: str, columns: Sequence[str], texts: Sequence[str] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of a table with these columns; nothing without the table.

        A column that is not there is None, and a value that is no whole number, or of columns
        in `texts` no text: SQLite puts anything anywhere.

        Raises:
            TraceError: if the file is damaged.
        """
        known = self._columns_of(table)
        if not known:
            return
        asked = ", ".join(
            f"CASE typeof({_quoted(one)}) WHEN '{'text' if one in texts else 'integer'}' "
            f"THEN {_quoted(one)} END"
            if one in known
            else "NULL"
            for one in columns
        )
        yield from self._asked(f"SELECT {asked} FROM {_quoted(table)}")  # noqa: S608  quoted

    def _columns_of(self, table: str) -> tuple[str, ...]:
        if table not in self._columns:
            found = self._asked(f"PRAGMA table_info({_quoted(table)})")
            self._columns[table] = tuple(str(row[1]) for row in found)
        return self._columns[table]

    def _asked(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self._connection.execute(query):  # noqa: UP028  that would close it late
                yield row
        except (
            sqlite3.Error,
            OverflowError,
            UnicodeError,
        ) as err:  # errors quote names as they are
            raise TraceError(
                f"cannot read {self.path}: the SQLite file is damaged ({err}); export it again"
            ) from err


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened_tables(path: Path) -> Iterator[RecordedTables]:
    """The tables of a file.

    Raises:
        TraceError: if it cannot be read, is no SQLite file, or too large to be unpacked.
    """
    with closing(_connected(path)) as connection:
        yield RecordedTables(path, connection)


def database_part(path: Path, processes: Counter[int]) -> int | None:
    """The process that a path names, as `report.sqlite/4711`, else the only one there is.

    Raises:
        TraceError: if a path names one that is not there.
    """
    holder = archive_of(path)
    if holder is None or not is_database(holder[0]):
        return next(iter(processes)) if len(processes) == 1 else None
    for process in processes:
        if str(process) == holder[1]:
            return process
    raise TraceError(
        f"cannot read {path}: {holder[0]} holds no process {holder[1]!r} with device work, but "
        f"{', '.join(map(str, sorted(processes)[:16]))}"
    )


def place_of(process: int, processes: Counter[int]) -> tuple[int | None, int | None]:
    """Rank and size of the job that a file of several processes shows; of one alone nobody says."""
    if len(processes) == 1:
        return None, None
    return list(processes).index(process), len(processes)


def refused_parts(path: Path, processes: Counter[int]) -> NoReturn:
    """Several processes, where one was expected."""
    told = ", ".join(f"{one} ({count:,} operations)" for one, count in processes.most_common(16))
    raise TraceError(
        f"cannot read {path}: {len(processes)} processes used devices in it: {told}; name the "
        "unpacked file, which is then a rank for each, or one of them as FILE/PROCESS"
    )


def _connected(path: Path) -> sqlite3.Connection:
    holder = archive_of(path)
    path = holder[0] if holder is not None and is_database(holder[0]) else path
    if path.is_file() and is_database(path):
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    unpacked = whole_bytes(path, _MOST_PACKED_BYTES, instead="unpack it first")
    connection = sqlite3.connect(":memory:")
    connection.deserialize(unpacked)
    return connection
