"""What a description states, number by number, told with the documents that say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from foretrace.answer.parts import Sentences, Told
from foretrace.answer.plain import Json
from foretrace.answer.tables import Column, Shown, Table
from foretrace.answer.units import Unit
from foretrace.base import Citation


class Stated(Protocol):
    """One statement of a description."""

    @property
    def key(self) -> str:
        """What it is about: "peak.bf16"."""

    @property
    def text(self) -> str:
        """As written, with its unit."""

    @property
    def source(self) -> Citation | None:
        """The document that says so."""

    @property
    def assumed(self) -> str:
        """Why it is believed where no document says so in full; else ""."""

    @property
    def note(self) -> str:
        """What else is to know."""


def stated_json(one: Stated) -> dict[str, Json]:
    """A statement and its source, as plain values."""
    return {
        "key": one.key,
        "text": one.text,
        "source": one.source.title if one.source else None,
        "url": one.source.url if one.source else None,
        "assumed": one.assumed or None,
        "note": one.note or None,
    }


def stated_parts(groups: Iterable[tuple[str, Sequence[Stated]]]) -> tuple[Told, ...]:
    """A table for every titled group, then the documents, numbered as the tables cite them."""
    listed = [(title, group) for title, group in groups if group]
    cited = (one.source for _, group in listed for one in group if one.source is not None)
    marks = {source: f"[{at}]" for at, source in enumerate(dict.fromkeys(cited), 1)}
    tables = [
        Table.of(
            f"statements{at or ''}",
            group,
            Column("key", "number", Unit.WORD),
            Column("text", "value"),
            Column("mark", "source", Unit.WORD, lambda one: marks.get(one.source, "")),
            Column("words", "note", value=_words),
            Column("source", value=lambda one: one.source and one.source.title, shown=Shown.FILES),
            Column("url", value=lambda one: one.source and one.source.url, shown=Shown.FILES),
            title=title,
        )
        for at, (title, group) in enumerate(listed)
    ]
    texts = (f"{mark} {source.title}, {source.url}" for source, mark in marks.items())
    return *tables, Sentences.of("sources", (text.removesuffix(", ") for text in texts))


def _words(one: Stated) -> str:
    if one.source is None and not one.assumed:
        return "no source given"
    assumed = f"assumed: {one.assumed}" if one.assumed else ""
    return "; ".join(each for each in (assumed, one.note) if each)
