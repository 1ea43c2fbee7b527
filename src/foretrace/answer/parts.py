"""What an answer is told with beside its tables: sentences, figures, bars; without markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from foretrace.answer.tables import Shown, Stretch, Table


@dataclass(frozen=True)
class Fact:
    """One figure of several that matter most."""

    name: str
    value: str
    remark: str = ""
    is_first: bool = False  # the one that was asked for
    is_missing: bool = False  # `value` says so


@dataclass(frozen=True)
class Facts:
    """The figures that matter most: cards on a page, lines elsewhere."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Share:
    """One stretch of a bar whose whole is 100 %."""

    name: str
    percent: float
    value: str  # in words, with its unit
    colour: str
    text: str = ""


@dataclass(frozen=True)
class ShareBar:
    """A whole in its shares; drawn on pages, where a table beside it says the same."""

    title: str
    shares: tuple[Share, ...]
    is_thin: bool = False


@dataclass(frozen=True)
class Legend:
    """What the colours of the bars above mean, with the shares' values of the last bar."""

    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Paragraph:
    """Words above the next part."""

    title: str
    text: str


@dataclass(frozen=True)
class Sentences:
    """A list, most important first."""

    title: str
    texts: tuple[tuple[str, str], ...]  # what stands out, the rest
    is_numbered: bool = False
    shown: Shown = Shown.EVERYWHERE
    stretches: tuple[Stretch | None, ...] = ()  # of each text, or none at all

    @classmethod
    def of(cls, title: str, texts: Iterable[str], *, shown: Shown = Shown.EVERYWHERE) -> Sentences:
        """Sentences of which nothing stands out."""
        return cls(title, tuple(("", text) for text in texts), shown=shown)


@dataclass(frozen=True)
class SideBySide:
    """Parts that stand beside each other where there is room."""

    parts: tuple[Table | Sentences, ...]


@dataclass(frozen=True)
class TimelineDrawing:
    """Where a page's timeline stands."""


Told: TypeAlias = (
    Table | Facts | ShareBar | Legend | Paragraph | Sentences | SideBySide | TimelineDrawing
)


def tables_in(parts: Iterable[Told]) -> tuple[Table, ...]:
    """Every table of these parts, in their order."""
    found: list[Table] = []
    for part in parts:
        inner = part.parts if isinstance(part, SideBySide) else (part,)
        found += [one for one in inner if isinstance(one, Table)]
    return tuple(found)
