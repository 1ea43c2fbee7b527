"""Recordings that are SQLite files: opened for reading alone, packed or not, whatever they hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from foretrace.base import TraceError
from foretrace.trace.source import whole_bytes

SQLITE = b"SQLite format 3\0"
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

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Rows of a table with these columns, None where it has none; nothing without the table.

        Raises:
            TraceError: if the file is damaged.
        """
        known = self._columns_of(table)
        if not known:
            return
        asked = ", ".join(_quoted(one) if one in known else "NULL" for one in columns)
        yield from self._asked(f"SELECT {asked} FROM {_quoted(table)}")  # noqa: S608  quoted

    def _columns_of(self, table: str) -> tuple[str, ...]:
        if table not in self._columns:
            found = self._asked(f"PRAGMA table_info({_quoted(table)})")
            self._columns[table] = tuple(str(row[1]) for row in found)
        return self._columns[table]

    def _asked(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query)
        except (sqlite3.Error, OverflowError) as err:
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


def _connected(path: Path) -> sqlite3.Connection:
    if path.is_file():
        with path.open("rb") as file:
            is_plain = file.read(len(SQLITE)) == SQLITE
        if is_plain:
            return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    unpacked = whole_bytes(path, _MOST_PACKED_BYTES, instead="unpack it first")
    connection = sqlite3.connect(":memory:")
    connection.deserialize(unpacked)
    return connection
