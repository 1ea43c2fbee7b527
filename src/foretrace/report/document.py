"""What a page is made of: cards, and sections of what answers tell; still without markup."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from foretrace.answer import Answer, Question, Sentences, SideBySide, Table, Told, tables_in

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


def section_of(
    question: Question[Any, Any, ..., Any], found: Answer | None, *, note: str = ""
) -> Section | None:
    """The section of an answer; `None` where there is none, or nothing to tell.

    Args:
        note: beside the answer's own.
    """
    place = question.place
    if found is None or found.is_empty or place is None:
        return None
    name = question.name.replace("_", "-")
    return Section(
        key=name,
        title=place.title,
        short=place.short or place.title,
        parts=tuple(_keyed(part, name) for part in found.parts()),
        lead=_begun(found.lead),
        note=" ".join(filter(None, (note, found.note))),
        warning=found.warning,
    )


def _keyed(part: Told, name: str) -> Told:
    """A part whose tables' keys are unique in the page, their titles as headings are written."""
    if isinstance(part, SideBySide):
        return SideBySide(tuple(_keyed(one, name) for one in part.parts))  # type: ignore[misc]
    if isinstance(part, Table):
        return replace(part, key=f"{name}-{part.key}", title=_begun(part.title))
    return replace(part, title=_begun(part.title)) if isinstance(part, Sentences) else part


def _begun(text: str) -> str:
    """A text as a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def tables_of(sections: tuple[Section, ...]) -> tuple[Table, ...]:
    """Every table of the page, in its order."""
    return tuple(table for section in sections for table in tables_in(section.parts))
