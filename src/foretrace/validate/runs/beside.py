"""`SideTable`: what is known of rows of a table of runs from another table, as of configurations.

A table of measured runs often prints less than decides a run's time; the configurations that were
run are published elsewhere. A line there belongs to a row if it names the same things, and agrees
in as many further columns as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from foretrace.base import DescriptionKey, Text, Whole, WorkloadError

BESIDE_KEYS = (
    DescriptionKey("table", Text, is_required=True, expected="the name of a CSV file"),
    DescriptionKey("same", list[str], is_required=True, expected="a list of columns"),
    DescriptionKey("alike", list[str], expected="a list of columns"),
    DescriptionKey("most_different", Whole),
)
_NOTHING = ("", "1")  # what stands where a degree is not used


@dataclass(frozen=True)
class SideTable:
    """A table of which at most one line belongs to a row."""

    same: tuple[str, ...]  # columns that have to fit; lines hold patterns, `*` for any text
    alike: tuple[str, ...]  # columns of which as many as can be agree
    most_different: int  # of these
    lines: tuple[Mapping[str, str], ...]

    def line_of(self, row: Mapping[str, str]) -> Mapping[str, str]:
        """What the line says of a row beyond what both have; nothing if no line belongs to it."""
        fitting = [line for line in self.lines if self._fits(line, row)]
        if not fitting:
            return {}
        line = min(fitting, key=lambda one: self._differences(one, row))
        if self._differences(line, row) > self.most_different:
            return {}
        both = {*self.same, *self.alike}
        return {column: text for column, text in line.items() if text and column not in both}

    def _fits(self, line: Mapping[str, str], row: Mapping[str, str]) -> bool:
        return all(
            fnmatchcase(row.get(column, "").lower(), line[column].lower()) for column in self.same
        )

    def _differences(self, line: Mapping[str, str], row: Mapping[str, str]) -> int:
        def differ(one: str, other: str) -> bool:
            return one != other and not (one in _NOTHING and other in _NOTHING)

        return sum(differ(line[column], row.get(column, "")) for column in self.alike)


def read_side_table(stated: Mapping[str, Any], folder: Path) -> SideTable:
    """The table that a description states, in a file beside it.

    Raises:
        WorkloadError: if there is no such file, or it lacks a column.
    """
    import polars as pl  # on demand: it takes longer to import than most commands take

    path = folder / stated["table"]
    try:
        lines = pl.read_csv(path, infer_schema=False).fill_null("").to_dicts()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as err:
        raise WorkloadError(
            f"{str(path)!r} cannot be read as a table beside runs ({err}): give a CSV file there."
        ) from err
    same, alike = tuple(stated["same"]), tuple(stated.get("alike", ()))
    missing = [column for column in (*same, *alike) if lines and column not in lines[0]]
    if missing:
        raise WorkloadError(
            f"{str(path)!r} lacks the columns {', '.join(missing)}, by which its lines are found: "
            "add them, or name others under [[beside]]."
        )
    return SideTable(same, alike, stated.get("most_different", len(alike)), tuple(lines))
