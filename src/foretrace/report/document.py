"""What a page is made of: cards, and sections of what answers tell; still without markup."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.answer import Table, Told, tables_in

# Rows that a page holds for downloads: 40 tables of so many stay below 5 MB with the rest.
MAX_KEPT_ROWS = 1_000


@dataclass(frozen=True)
class Card:
    """One figure at the top of a page."""

    label: str
    value: str
    remark: str
    is_missing: bool = False  # `value` says so


@dataclass(frozen=True)
class Section:
    """One answer."""

    key: str  # anchor
    title: str
    short: str  # in the page's list of sections
    parts: tuple[Told, ...]
    lead: str = ""
    note: str = ""
    warning: str = ""


def tables_of(sections: tuple[Section, ...]) -> tuple[Table, ...]:
    """Every table of the page, in its order."""
    return tuple(table for section in sections for table in tables_in(section.parts))
