"""What the columns of a table of runs mean, read from a description of its sources.

A table prints a GPU, a model's name and software; which host that is, whose kind of layers, which
kernels, the description says. Code knows no source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, TypeVar

from foretrace.base import (
    DescriptionKey,
    Document,
    Shelf,
    Table,
    Text,
    Whole,
    WorkloadError,
    read_document,
    read_keys,
)
from foretrace.software import TrainingSoftware, load_software, software_called
from foretrace.validate.runs.logged_memory import logged_memory
from foretrace.workload import PlanDraft, draft_of, software_draft

BESIDE_KEYS = (
    DescriptionKey("table", Text, is_required=True, expected="the name of a CSV file"),
    DescriptionKey("same", list[str], is_required=True, expected="a list of columns"),
    DescriptionKey("alike", list[str], expected="a list of columns"),
    DescriptionKey("most_different", Whole),
)
_NOTHING = ("", "1")  # what stands where a degree is not used

T = TypeVar("T")
Row = Mapping[str, str]  # texts by column; "" where nothing was printed

_RULES = ("software", "plans", "refused", "beside")  # own ones count before those of a base
_KEYS = (
    DescriptionKey("kind", str),
    DescriptionKey("title", str),
    DescriptionKey("hosts", dict[str, str | dict[str, str]], expected="a table of hosts"),
    DescriptionKey("models", dict[str, str], expected="a table of texts"),
    *(
        DescriptionKey(name, list[dict[str, object]], expected="a list of tables")
        for name in (*_RULES, "scalings")
    ),
    DescriptionKey("rival", dict[str, object], expected="a table"),
    DescriptionKey("columns", dict[str, object], expected="a table"),
)
_WHERE = DescriptionKey("where", dict[str, str], is_required=True, expected="a table of texts")
_SOFTWARE_KEYS = (_WHERE, DescriptionKey("is", Text, is_required=True))
_PLAN_KEYS = (
    _WHERE,
    DescriptionKey("plan", dict[str, object], is_required=True, expected="a table"),
)
_REFUSED_KEYS = (_WHERE, DescriptionKey("because", Text, is_required=True))
_HOST_KEYS = (DescriptionKey("host", Text, is_required=True), DescriptionKey("chip", Text))


@dataclass(frozen=True)
class SideTable:
    """What is known of rows from another table, as of configurations.

    A table of measured runs often prints less than decides a run's time; the configurations that
    were run are published elsewhere. A line there belongs to a row if it names the same things, and
    agrees in as many further columns as any other; at most one does.
    """

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


@dataclass(frozen=True)
class RowRule(Generic[T]):
    """What is so of rows whose columns fit patterns (`*` for any text, without regard to case)."""

    where: Mapping[str, str]
    says: T

    def fits(self, row: Row) -> bool:
        """Whether every pattern fits the row's column."""
        return all(
            fnmatchcase(row.get(column, "").lower(), pattern.lower())
            for column, pattern in self.where.items()
        )


@dataclass(frozen=True, kw_only=True)
class RunsDescription:
    """What tables of some sources mean."""

    title: str = ""
    hosts: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # host and chip by GPU
    models: Mapping[str, str] = field(default_factory=dict)  # whose layers, by begin of name
    software: tuple[RowRule[TrainingSoftware], ...] = ()
    plans: tuple[RowRule[PlanDraft], ...] = ()
    refused: tuple[RowRule[str], ...] = ()  # why
    beside: tuple[SideTable, ...] = ()  # what is known of rows elsewhere

    def known_beside(self, row: Row) -> Row:
        """What tables beside say of a row, by column; a row's own cells count first."""
        found: dict[str, str] = {}
        for table in self.beside:
            found = {**table.line_of(row), **found}
        return {**found, **{column: text for column, text in row.items() if text}}

    def software_of(self, row: Row) -> TrainingSoftware:
        """What the first rule that fits says; else what is called so, as far as that is known."""
        ruled = next((rule.says for rule in self.software if rule.fits(row)), None)
        return ruled or software_called(row.get("software", ""))

    def stated_plan(self, row: Row) -> PlanDraft:
        """What a row says of its plan outside its own columns."""
        found = PlanDraft()
        for rule in reversed(self.plans):  # the first that says a key counts
            if rule.fits(row):
                found = found.with_fields(rule.says.stated)
        return found

    def looks_at(self) -> frozenset[str]:
        """Columns that rules and tables beside look at."""
        columns = {
            column
            for rules in (self.software, self.plans, self.refused)
            for rule in rules
            for column in rule.where
        }
        return frozenset(columns.union(*((*one.same, *one.alike) for one in self.beside)))

    def refusal(self, row: Row) -> str | None:
        """Why such rows are not predicted."""
        return next((rule.says for rule in self.refused if rule.fits(row)), None)

    def model_like(self, name: str) -> str | None:
        """The model whose kind of layers a model of that name has."""
        fitting = [begin for begin in self.models if name.startswith(begin)]
        return self.models[max(fitting, key=len)] if fitting else None


def read_runs_document(path: Path) -> Document:
    """A description's file with what it extends.

    Raises:
        WorkloadError: if there is none, or it is no description.
    """
    shelf = Shelf(
        noun="description of runs",
        kinds=("runs", "scalings"),
        presets=path.parent,
        folder="",
        error=WorkloadError,
        joined_lists=_RULES,
    )
    return read_document(path, shelf)


def read_description(path: Path) -> RunsDescription:
    """The description in a file; software that it names stands in `software/` beside it.

    Raises:
        WorkloadError: if it cannot be read, or says what no table has.
    """
    return description_of(read_runs_document(path))


def stated_tables(document: Document) -> dict[str, Any]:
    """What the file of a description states, by key.

    Raises:
        WorkloadError: for an unknown key, or a value that it cannot hold.
    """
    return read_keys(document.table, _KEYS, document.where, error=WorkloadError)


def description_of(document: Document) -> RunsDescription:
    """The description that a file holds, whatever else is in it.

    Raises:
        WorkloadError: if it says what no table has.
    """
    where, folder = document.where, document.path.parent
    table = stated_tables(document)

    def entries(name: str, keys: tuple[DescriptionKey, ...]) -> list[dict[str, Any]]:
        place = f"[[{name}]] of {where}"
        return [read_keys(entry, keys, place, error=WorkloadError) for entry in table.get(name, ())]

    return RunsDescription(
        title=table.get("title", ""),
        hosts={gpu: _host(gpu, entry, where) for gpu, entry in table.get("hosts", {}).items()},
        models=table.get("models", {}),
        software=tuple(
            RowRule(one["where"], _software(one["is"], folder))
            for one in entries("software", _SOFTWARE_KEYS)
        ),
        plans=tuple(
            RowRule(one["where"], draft_of(one["plan"])) for one in entries("plans", _PLAN_KEYS)
        ),
        refused=tuple(
            RowRule(one["where"], one["because"]) for one in entries("refused", _REFUSED_KEYS)
        ),
        beside=tuple(read_side_table(one, folder) for one in entries("beside", BESIDE_KEYS)),
    )


def _software(name: str, folder: Path) -> TrainingSoftware:
    """The software described beside the table; what is wrong with it is said before any run."""
    found = load_software(name, (folder / "software",))
    software_draft(found)
    logged_memory(found)
    return found


def _host(gpu: str, entry: str | Table, where: str) -> tuple[str, str]:
    """Host and chip ("": the host's own): of `"dgx-a100"` or of a table of both."""
    if isinstance(entry, str):
        return entry, ""
    stated = read_keys(entry, _HOST_KEYS, f"{gpu!r} of [hosts] of {where}", error=WorkloadError)
    return stated["host"], stated.get("chip", "")
