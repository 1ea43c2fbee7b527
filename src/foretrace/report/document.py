"""What a page is made of: sections of tables, charts and sentences, still without markup.

A chart is a table that is drawn too: what it shows can always be read, copied and downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Cell: TypeAlias = str | int | float | None

MAX_ROWS = 40  # of a table, or bars of a chart, in the page
# Rows that a page holds for downloads: 40 tables of so many stay below 5 MB with the rest.
MAX_KEPT_ROWS = 1_000


class Unit(StrEnum):
    """How a column's values are shown; a download holds them as they are."""

    TEXT = "text"
    WORD = "word"  # a text that stays on one line
    IDENTIFIER = "identifier"  # a rank, a position: a number that is not counted with
    COUNT = "count"
    NUMBER = "number"
    NS = "ns"
    SIGNED_NS = "signed_ns"
    MS = "ms"  # values in ns too, shown in ms without the unit, for columns of steps
    BYTES = "bytes"
    PERCENT = "percent"
    SIGNED_PERCENT = "signed_percent"
    FLOPS = "flops"
    FLOPS_PER_S = "flops_per_s"
    BYTES_PER_S = "bytes_per_s"
    FLOPS_PER_BYTE = "flops_per_byte"


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str  # in a download: its values' meaning and unit, `wait_ns`
    title: str
    unit: Unit = Unit.TEXT


@dataclass(frozen=True)
class Series:
    """One column of a chart's table as bars, a curve or points."""

    column: str  # key of the values
    title: str
    # A meaning that the page's style has a colour for: "compute", "idle", ...; "none": it only
    # holds the place below what stands on it.
    colour: str
    group: str = ""  # bars of one group and one category stand on each other
    is_faint: bool = False  # drawn behind, as what the other series is compared with


@dataclass(frozen=True)
class Level:
    """A line across a chart that points are held against: a roof, a limit."""

    title: str
    points: tuple[tuple[float, float], ...]  # (x, y), rising x
    colour: str = "ink"


class ChartKind(StrEnum):
    """How a chart is drawn."""

    BARS = "bars"  # one bar, or one per group, for every row
    COLUMNS = "columns"  # the same, upright: categories in an order that means something
    CURVES = "curves"  # values over a quantity
    STEPS = "steps"  # the same, each value holding until the next
    POINTS = "points"  # one point per row, both axes logarithmic


@dataclass(frozen=True)
class Chart:
    """How a table is drawn."""

    kind: ChartKind
    label: str  # one sentence on what is shown, for those who cannot see it
    category: str  # key of the bars' names, or of x
    series: tuple[Series, ...]
    unit: Unit  # of the values
    category_unit: Unit = Unit.TEXT
    name: str = ""  # key of the points' names
    colour_by: str = ""  # key of a text column that points are coloured by
    size_by: str = ""  # key of what the points' areas stand for
    levels: tuple[Level, ...] = ()
    max_rows: int = MAX_ROWS  # drawn; the table has more of them, the download all
    minimum: float = 0.0  # where the values' axis begins, of bars


@dataclass(frozen=True)
class Table:
    """Rows under headings, drawn too if there is a chart."""

    key: str  # unique in the page; the downloads' file name
    title: str  # heading; "" if the section's says it
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]  # most important first: the page holds MAX_KEPT_ROWS
    chart: Chart | None = None
    lead: str = ""
    note: str = ""
    max_rows: int = MAX_ROWS
    strong_rows: frozenset[int] = frozenset()  # rows set apart
    colours: tuple[str, ...] = ()  # of the first rows: what the rest of the page draws them in

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the columns."""
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(
                f"table {self.key!r} has {len(self.columns)} columns, but {len(wrong)} of its "
                f"rows do not, the first of them {wrong[0]!r}"
            )


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
    """A whole in its shares."""

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


@dataclass(frozen=True)
class SideBySide:
    """Parts that stand beside each other where the page is wide enough."""

    parts: tuple[Table | Sentences, ...]


@dataclass(frozen=True)
class TimelineDrawing:
    """Where the timeline stands."""


Part: TypeAlias = Table | ShareBar | Legend | Paragraph | Sentences | SideBySide | TimelineDrawing


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
    parts: tuple[Part, ...]
    lead: str = ""
    note: str = ""
    warning: str = ""


def tables_of(sections: tuple[Section, ...]) -> tuple[Table, ...]:
    """Every table of the page, in its order."""
    found: list[Table] = []
    for section in sections:
        for part in section.parts:
            inner = part.parts if isinstance(part, SideBySide) else (part,)
            found += [one for one in inner if isinstance(one, Table)]
    return tuple(found)
