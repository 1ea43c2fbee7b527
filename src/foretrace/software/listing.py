"""`known_software`: every release and class that is described."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretrace.answer import Answer, Column, Json, Shown, Table, Told, Unit
from foretrace.software.software import TrainingSoftware, load_software, software_names


@dataclass(frozen=True, repr=False)
class SoftwareList(Answer):
    """Descriptions of software, by class and date."""

    rows: tuple[TrainingSoftware, ...]

    @property
    def headline(self) -> str:
        """How many."""
        classes = {one.family for one in self.rows}
        return f"{len(self.rows)} descriptions of software in {len(classes)} classes"

    def parts(self) -> tuple[Told, ...]:
        """One table."""
        return (
            Table.of(
                "software",
                self.rows,
                Column("name", "software", Unit.WORD),
                Column("family", "class", Unit.WORD),
                Column("version", "release", Unit.WORD),
                Column("date", "date", Unit.WORD),
                Column("num_learned", "learned", value=lambda one: len(one.learned)),
                Column("title", "title", Unit.WORD, shown=Shown.WIDE),
            ),
        )

    def as_json(self) -> Json:
        """Every description."""
        return {"software": [one.as_json() for one in self.rows]}


def known_software(folders: Sequence[Path] = ()) -> SoftwareList:
    """Every description, classes first, releases by date.

    Raises:
        WorkloadError: if a file is wrong.
    """
    found = [load_software(name, folders) for name in software_names(folders)]
    order = sorted(found, key=lambda one: (one.family, one.name != one.family, one.date, one.name))
    return SoftwareList(tuple(order))
