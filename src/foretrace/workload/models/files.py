"""Model files: TOML, found by name or path, each of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from foretrace.base import (
    Citation,
    Document,
    Shelf,
    WorkloadError,
    as_table,
    check_keys,
    document_names,
    read_sources,
)
from foretrace.workload.models.entries import Entries, Entry, EntryField, read_entries
from foretrace.workload.models.published import PUBLISHED_FIELDS, Published, read_published

PRESETS = Path(__file__).parent / "presets"


class ModelKind(StrEnum):
    """What a file describes."""

    TRANSFORMER = "transformer"
    RECOMMENDER = "recommender"
    DIFFUSION = "diffusion"
    TOTALS = "totals"


MODELS = Shelf(
    noun="model",
    kinds=tuple(kind.value for kind in ModelKind),
    presets=PRESETS,
    error=WorkloadError,
    has_table_sources=True,
)


class ModelFile:
    """The tables of one model file, read as they are asked for."""

    def __init__(self, document: Document, tables: Mapping[str, Sequence[EntryField]]) -> None:
        """Check the names of all tables, and read their entries.

        Args:
            document: the file.
            tables: what each table may hold, besides `[published]` and `[sources]`.

        Raises:
            WorkloadError: for a key, a value or a source that is wrong.
        """
        self.document = document
        known = ("kind", "title", *tables, "published", "sources")
        check_keys(document.table, known, document.where, error=WorkloadError)
        sources = read_sources(document.table.get("sources"), document.where, error=WorkloadError)
        self._tables = {
            name: self._entries(name, fields, sources)
            for name, fields in {**tables, "published": PUBLISHED_FIELDS}.items()
        }

    def _entries(
        self, name: str, fields: Sequence[EntryField], sources: Mapping[str, Citation]
    ) -> Entries:
        where = self.document.where
        written = self.document.table.get(name)
        table = as_table(written, f"[{name}] of {where}", error=WorkloadError)
        if written is None and not any(field.is_required for field in fields):
            return Entries(name, f"[{name}] of {where}", {})
        return read_entries(table, fields, name=name, sources=sources, where=where)

    def __getitem__(self, name: str) -> Entries:
        """The entries of one table; none, if the file lacks it."""
        return self._tables[name]

    @property
    def title(self) -> str:
        """What the model is called in full."""
        return self.document.text("title", self.document.name)

    @property
    def published(self) -> Published:
        """The published totals."""
        return read_published(self["published"])

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that the file states."""
        return tuple(entry for table in self._tables.values() for entry in table.by_key.values())

    def refused(self, sentence: str) -> WorkloadError:
        """The error that these entries do not go together."""
        return WorkloadError(f"{self.document.where}: {sentence}")


def model_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all models, sorted; a user's file hides the preset of its name."""
    return document_names(MODELS, folders)
