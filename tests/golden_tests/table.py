"""`Table`: many cases and their kept numbers, one line each; what differs is named.

A table is a file of `tests/golden/`. A number that moves fails with its case, its field, what it
was and what it is. Where that is meant, it is listed in `tests/golden/changes.md` with the reason,
and `pytest --update-golden` writes it; what is not listed is not written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"
LISTED = FOLDER / "changes.md"
SHOWN = 12  # differing fields that a failure tells
ABSENT = "absent"


@dataclass(frozen=True)
class Change:
    """A row of `changes.md`: fields of cases of a table that were meant to move, and why.

    Table, case and field may hold `*`.
    """

    table: str
    case: str
    field: str
    reason: str

    def covers(self, table: str, case: str, field: str) -> bool:
        """Whether this row speaks of a field."""
        asked = ((table, self.table), (case, self.case), (field, self.field))
        return all(_matches(name, pattern) for name, pattern in asked)


def listed_changes() -> tuple[Change, ...]:
    """The rows of `changes.md`, without the head of its table."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    rows = [
        Change(*(cell.strip().strip("`") for cell in line.strip("| ").split("|")))
        for line in lines
        if line.startswith("| ")
    ]
    return tuple(row for row in rows if row.table not in {"table", "---"})


@dataclass(frozen=True)
class Table:
    """Kept values of many cases."""

    name: str
    is_update: bool = False

    @property
    def path(self) -> Path:
        """Where they are kept."""
        return FOLDER / f"{self.name}.json"

    def kept(self) -> dict[str, object]:
        """Values by case."""
        if not self.path.exists():
            return {}
        found: dict[str, object] = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    def check(self, case: str, value: object) -> None:
        """Compare a case's value with the kept one; under `--update-golden` keep what is listed."""
        found = rounded(value)
        differences = _differences(self.kept().get(case), found)
        if self.is_update:
            is_new = case not in self.kept()
            differences = {} if is_new else self._unlisted(case, differences)
            if not differences:
                self._keep(case, found)
        assert not differences, self._told(case, differences)

    def _unlisted(
        self, case: str, differences: dict[str, tuple[object, object]]
    ) -> dict[str, tuple[object, object]]:
        changes = listed_changes()
        return {
            field: pair
            for field, pair in differences.items()
            if not any(change.covers(self.name, case, field) for change in changes)
        }

    def _keep(self, case: str, value: object) -> None:
        folder = os.open(FOLDER, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # tests that run side by side write one file
            beside = self.path.with_suffix(f".{os.getpid()}")
            beside.write_text(as_lines(self.kept() | {case: value}), encoding="utf-8")
            beside.replace(self.path)
        finally:
            os.close(folder)

    def _told(self, case: str, differences: dict[str, tuple[object, object]]) -> str:
        lines = [
            f"  {field}: was {_short(was)}, is {_short(now)}"
            for field, (was, now) in sorted(differences.items())[:SHOWN]
        ]
        return "\n".join(
            (
                f"{self.path.name}, case {case!r}: {len(differences)} fields differ",
                *lines,
                *(("  ...",) if len(differences) > SHOWN else ()),
                f"if that is meant: a row with the reason in {LISTED.name}, then --update-golden",
            )
        )


def as_lines(kept: Mapping[str, object]) -> str:
    """A JSON object with one line per case, in order of their names."""
    lines = (
        f"{json.dumps(case)}: {json.dumps(value, separators=(',', ':'), sort_keys=True)}"
        for case, value in sorted(kept.items())
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def rounded(value: object) -> object:
    """JSON with floats at nine significant digits, below which processors differ."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {str(key): rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value


def fields(value: object, path: str = "") -> dict[str, object]:
    """Scalars, and empty containers, by path."""
    if isinstance(value, Mapping) and value:
        parts = {f"{path}.{key}" if path else str(key): one for key, one in value.items()}
    elif isinstance(value, list) and value:
        parts = {f"{path}[{index}]": one for index, one in enumerate(value)}
    else:
        return {path: value}
    return {name: one for key, part in parts.items() for name, one in fields(part, key).items()}


def _differences(was: object, now: object) -> dict[str, tuple[object, object]]:
    old, new = ({} if each is None else fields(each) for each in (was, now))
    pairs = {key: (old.get(key, ABSENT), new.get(key, ABSENT)) for key in old | new}
    return {key: (a, b) for key, (a, b) in pairs.items() if type(a) is not type(b) or a != b}


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:160]}..."
