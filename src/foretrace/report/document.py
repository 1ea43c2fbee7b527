"""What a page is made of: cards, and sections of what answers tell; still without markup."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from foretrace.answer import (
    Answer,
    Fact,
    Question,
    Sentences,
    SideBySide,
    Table,
    Told,
    number_text,
    tables_in,
)

NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
# Rows that a page holds for downloads: 40 tables of so many stay below 5 MB with the rest.
MAX_KEPT_ROWS = 1_000
_DURATION = re.compile(r"(?<![\d.,])\d[\d,]*\.\d+(?= (?:s|ms|us|ns)\b)")
# Sections for those who want to know more, by their keys.
FOLDED = frozenset({"sensitivity", "throughput"})


@dataclass(frozen=True)
class Card:
    """One figure at the top of a page."""

    label: str
    value: str
    remark: str
    is_missing: bool = False  # `value` says so


def three_digits(text: str) -> str:
    """A text whose durations have three digits: `615 ms` of `615.140 ms`."""
    return _DURATION.sub(lambda found: number_text(float(found[0].replace(",", ""))), text)


def card_of(fact: Fact) -> Card:
    """A fact as it stands at the top; a number and its unit stay on one line."""
    value = three_digits(fact.value).replace(" ", NO_BREAK_SPACE)
    return Card(_begun(fact.name), value, fact.remark, is_missing=fact.is_missing)


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
    is_folded: bool = False  # shown where a reader asks for it


def section_with(
    key: str,
    title: str,
    parts: tuple[Told, ...],
    *,
    short: str = "",
    lead: str = "",
    note: str = "",
    warning: str = "",
) -> Section:
    """A section of parts; their tables' keys are unique already, titles begin as headings do."""
    told = tuple(_titled(part) for part in parts)
    return Section(key, title, short or title, told, lead, note, warning)


def section_of(
    question: Question[Any, Any, ..., Any],
    found: Answer | None,
    *,
    beside: Answer | None = None,
    note: str = "",
) -> Section | None:
    """The section of an answer; `None` where there is none, or nothing to tell.

    Args:
        beside: the answer about what was measured, drawn paler.
        note: beside the answer's own.
    """
    place = question.place
    if place is None:
        return None
    key = question.name.replace("_", "-")
    return told_section(key, (place.title, place.short), found, beside=beside, note=note)


def told_section(
    name: str,
    titles: tuple[str, str],
    found: Answer | None,
    *,
    beside: Answer | None = None,
    note: str = "",
) -> Section | None:
    """As `section_of`, of an answer to no question about a run; titles: heading, and short."""
    if found is None or found.is_empty:
        return None
    return Section(
        key=name,
        title=titles[0],
        short=titles[1] or titles[0],
        parts=tuple(_keyed(part, name) for part in _beside(found.parts(), beside)),
        lead=_begun(found.lead),
        note=" ".join(filter(None, (note, found.note))),
        warning=found.warning,
        is_folded=name in FOLDED,
    )


def _beside(parts: tuple[Told, ...], other: Answer | None) -> tuple[Told, ...]:
    """Parts with what another answer says to the same."""
    if other is None:
        return parts
    others = {table.key: table for table in other.tables()}

    def with_other(part: Told) -> Told:
        if isinstance(part, SideBySide):
            return SideBySide(tuple(map(with_other, part.parts)))  # type: ignore[arg-type]
        is_both = isinstance(part, Table) and part.key in others
        return part.beside(others[part.key], "measured") if is_both else part  # type: ignore[union-attr]

    return tuple(map(with_other, parts))


def _keyed(part: Told, name: str) -> Told:
    """A part whose tables' keys are unique in the page, their titles as headings are written."""
    if isinstance(part, SideBySide):
        return SideBySide(tuple(_keyed(one, name) for one in part.parts))  # type: ignore[misc]
    if isinstance(part, Table):
        return replace(part, key=f"{name}-{part.key}", title=_begun(part.title))
    return replace(part, title=_begun(part.title)) if isinstance(part, Sentences) else part


def _titled(part: Told) -> Told:
    return replace(part, title=_begun(part.title)) if isinstance(part, Table | Sentences) else part


def _begun(text: str) -> str:
    """A text as a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def tables_of(sections: tuple[Section, ...]) -> tuple[Table, ...]:
    """Every table of the page, in its order."""
    return tuple(table for section in sections for table in tables_in(section.parts))
