"""What the columns of a table of runs mean, read from a description of its sources.

A table prints a GPU, a model's name and software; which host that is, whose kind of layers, which
kernels, and what other sources taught of such runs, the description says. Code knows no source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from foretrace.base import (
    Document,
    Shelf,
    Table,
    WorkloadError,
    as_table,
    check_keys,
    read_document,
)
from foretrace.estimate import UNMODELLED
from foretrace.validate.runs.software import TrainingSoftware, load_software
from foretrace.workload import PlanDraft, draft_of

T = TypeVar("T")
Row = Mapping[str, str]  # texts by column; "" where nothing was printed

_KEYS = (
    *("kind", "title", "default_software", "hosts", "models", "software", "plans", "refused"),
    *("taught", "unmodelled_without"),
)
_FIGURE_KEYS = ("rival", "columns", "scalings")
# What a generation of chips without runs of its own is taken to be like.
_OLDER = {"Blackwell Ultra": "Blackwell", "Blackwell": "Hopper", "Hopper": "Ampere"}


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


@dataclass(frozen=True)
class Taught:
    """What the runs of one source say of one generation of chips."""

    source: str
    architecture: str
    num_runs: int
    products: float  # time of 16-bit products in steps, of that under lasting load


@dataclass(frozen=True, kw_only=True)
class RunsDescription:
    """What tables of some sources mean."""

    title: str = ""
    hosts: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # host and chip by GPU
    models: Mapping[str, str] = field(default_factory=dict)  # whose layers, by begin of name
    default_software: TrainingSoftware = field(default_factory=TrainingSoftware)
    software: tuple[RowRule[TrainingSoftware], ...] = ()
    plans: tuple[RowRule[PlanDraft], ...] = ()
    refused: tuple[RowRule[str], ...] = ()  # why
    taught: tuple[Taught, ...] = ()
    unmodelled_without: Mapping[str, float] = field(default_factory=dict)  # by source

    def described_software(self, row: Row) -> TrainingSoftware | None:
        """What the first rule that fits says; `None`: nothing describes the row's software."""
        return next((rule.says for rule in self.software if rule.fits(row)), None)

    def stated_plan(self, row: Row) -> PlanDraft:
        """What a row says of its plan outside its own columns."""
        found = PlanDraft()
        for rule in self.plans:
            if rule.fits(row):
                found = found.with_fields(rule.says.stated)
        return found

    def refusal(self, row: Row) -> str | None:
        """Why such rows are not predicted."""
        return next((rule.says for rule in self.refused if rule.fits(row)), None)

    def model_like(self, name: str) -> str | None:
        """The model whose kind of layers a model of that name has."""
        fitting = [begin for begin in self.models if name.startswith(begin)]
        return self.models[max(fitting, key=len)] if fitting else None

    def products_factor(self, architecture: str, source: str) -> float:
        """How much longer 16-bit products take in steps, as all sources but one say.

        A generation that no other source ran on takes what is known of the one before.
        """
        known = [
            one.products
            for one in self.taught
            if one.architecture == architecture and one.source != source
        ]
        if known:
            return float(np.exp(np.mean(np.log(known))))
        older = _OLDER.get(architecture)
        return self.products_factor(older, source) if older is not None else 1.0

    def unmodelled_spread(self, source: str) -> float:
        """Width of what is unmodelled, as all sources but one say."""
        return self.unmodelled_without.get(source, UNMODELLED)


def read_runs_document(path: Path) -> Document:
    """A description's file with what it extends.

    Raises:
        WorkloadError: if there is none, or it holds an unknown key.
    """
    shelf = Shelf(
        noun="description of runs",
        kinds=("runs", "scalings"),
        presets=path.parent,
        folder="",
        error=WorkloadError,
    )
    document = read_document(path, shelf)
    check_keys(document.table, (*_KEYS, *_FIGURE_KEYS), document.where, error=WorkloadError)
    return document


def read_description(path: Path) -> RunsDescription:
    """The description in a file; software that it names stands in `software/` beside it.

    Raises:
        WorkloadError: if it cannot be read, or says what no table has.
    """
    return description_of(read_runs_document(path))


def description_of(document: Document) -> RunsDescription:
    """The description that a file holds, whatever else is in it.

    Raises:
        WorkloadError: if it says what no table has.
    """
    table, where, folder = document.table, document.where, document.path.parent
    reader = _Reader(where)
    default = document.text("default_software")
    return RunsDescription(
        title=document.text("title"),
        hosts=_hosts(reader.table(table, "hosts"), where),
        models=reader.texts(reader.table(table, "models"), "[models]"),
        default_software=load_software(default, folder) if default else TrainingSoftware(),
        software=tuple(
            RowRule(patterns, load_software(reader.text(entry, "is"), folder))
            for patterns, entry in reader.rules(table, "software", "is")
        ),
        plans=tuple(
            RowRule(patterns, draft_of(reader.table(entry, "plan")))
            for patterns, entry in reader.rules(table, "plans", "plan")
        ),
        refused=tuple(
            RowRule(patterns, reader.text(entry, "because"))
            for patterns, entry in reader.rules(table, "refused", "because")
        ),
        taught=tuple(
            Taught(
                source=reader.text(entry, "source"),
                architecture=reader.text(entry, "architecture"),
                num_runs=round(reader.number(entry, "num_runs")),
                products=reader.number(entry, "products"),
            )
            for entry in reader.tables(table, "taught")
        ),
        unmodelled_without={
            source: reader.number(widths, source)
            for widths in (reader.table(table, "unmodelled_without"),)
            for source in widths
        },
    )


@dataclass(frozen=True)
class _Reader:
    """Entries of one description by kind, with its name in what is refused."""

    where: str

    def table(self, table: Table, key: str) -> Table:
        return as_table(table.get(key), f"[{key}] of {self.where}", error=WorkloadError)

    def tables(self, table: Table, key: str) -> Sequence[Table]:
        found = table.get(key, [])
        if not isinstance(found, list):
            raise WorkloadError(f"{key!r} of {self.where} is {found!r}: write [[{key}]] tables")
        return [as_table(one, f"[[{key}]] of {self.where}", error=WorkloadError) for one in found]

    def rules(self, table: Table, key: str, says: str) -> Sequence[tuple[Row, Table]]:
        found = []
        for entry in self.tables(table, key):
            place = f"[[{key}]] of {self.where}"
            check_keys(entry, ("where", says), place, error=WorkloadError)
            found.append((self.texts(self.table(entry, "where"), place), entry))
        return found

    def texts(self, table: Table, place: str) -> dict[str, str]:
        return {name: self.text(table, name, f"{place} of {self.where}") for name in table}

    def text(self, table: Table, key: str, place: str = "") -> str:
        found = table.get(key)
        if not isinstance(found, str):
            raise WorkloadError(
                f"{key!r} of {place or self.where} is {found!r}, where a text is expected"
            )
        return found

    def number(self, table: Table, key: str) -> float:
        found = table.get(key)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise WorkloadError(f"{key!r} of {self.where} is {found!r}, where a number is expected")
        return float(found)


def _hosts(table: Table, where: str) -> dict[str, tuple[str, str]]:
    """Host and chip ("": the host's own) by GPU: of `"dgx-a100"` or of a table of both."""
    reader, found = _Reader(where), {}
    for gpu, entry in table.items():
        both = entry if isinstance(entry, Mapping) else {"host": entry}
        check_keys(both, ("host", "chip"), f"{gpu!r} of [hosts] of {where}", error=WorkloadError)
        chip = reader.text(both, "chip") if "chip" in both else ""
        found[gpu] = (reader.text(both, "host"), chip)
    return found
