"""`Table`: rows under headings with units; the one form of what an answer holds.

A chart is a table that is drawn too: what it shows can always be read, copied and downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from foretrace.answer.units import Cell, Unit, title_of, unit_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

MAX_ROWS = 40  # of a table, or bars of a chart, in a page

_KIND_OF_UNIT = {
    **dict.fromkeys((Unit.TEXT, Unit.NAME, Unit.WORD), str),
    **dict.fromkeys((Unit.IDENTIFIER, Unit.RANK, Unit.COUNT, Unit.NS, Unit.MS, Unit.BYTES), int),
    Unit.FLAG: bool,
}


class Shown(StrEnum):
    """Where a column or a table is shown."""

    EVERYWHERE = "everywhere"
    WIDE = "wide"  # where there is room: pages, notebooks, wide terminals
    FILES = "files"  # in JSON, CSV and Parquet alone


@dataclass(frozen=True)
class Column:
    """One column of a table; title and unit follow from the key where it states them."""

    key: str  # in files: its values' meaning and unit, `wait_ns`
    title: str = ""
    unit: Unit = Unit.TEXT
    value: Callable[[Any], Cell] | str = ""  # of an item, or its attribute; "": the key's
    shown: Shown = Shown.EVERYWHERE

    def __post_init__(self) -> None:
        """Say what the key says."""
        if self.unit is Unit.TEXT:
            object.__setattr__(self, "unit", unit_of(self.key))
        if not self.title:
            object.__setattr__(self, "title", title_of(self.key, self.unit))

    def values(self, items: Sequence[object]) -> Iterable[Cell]:
        """What it holds of every item."""
        if callable(self.value):
            return map(self.value, items)
        return map(attrgetter(self.value or self.key), items)


def columns_of(kind: type, *also: str, without: Collection[str] = ()) -> tuple[Column, ...]:
    """A column for every field of a dataclass, for files: its name is key and attribute.

    Args:
        kind: the items' class.
        also: other attributes of the items.
        without: fields that hold more than one value.
    """
    names = [one.name for one in fields(kind) if one.name not in without]
    return tuple(map(Column, (*names, *also)))


@dataclass(frozen=True)
class Series:
    """One column of a chart's table as bars, a curve or points."""

    column: str  # key of the values
    title: str
    # A meaning that a page's style has a colour for: "compute", "idle", ...; "none": it only
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
class Stretch:
    """A span of one rank's time: where, on a page's timeline, a finding can be looked at."""

    rank: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Table:
    """Rows under headings, drawn too if there is a chart."""

    key: str  # unique in an answer; in a file's name, and the key in JSON
    title: str  # heading; "" if what stands above says it
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]  # most important first
    chart: Chart | None = None
    lead: str = ""
    note: str = ""
    max_rows: int = MAX_ROWS  # in a page
    strong_rows: frozenset[int] = frozenset()  # rows set apart
    colours: tuple[str, ...] = ()  # of the first rows: what the rest of a page draws them in
    shown: Shown = Shown.EVERYWHERE
    stretches: tuple[Stretch | None, ...] = ()  # of each row, or none at all

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the columns."""
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(
                f"table {self.key!r} has {len(self.columns)} columns, but {len(wrong)} of its "
                f"rows do not, the first of them {wrong[0]!r}"
            )

    @classmethod
    def of(
        cls,
        key: str,
        items: Iterable[object],
        *columns: Column,
        title: str = "",
        is_strong: Callable[[Any], bool] | None = None,
        **rest: Any,
    ) -> Table:
        """A row for every item, each column's value taken from it."""
        listed = list(items)
        strong = [at for at, one in enumerate(listed) if is_strong is not None and is_strong(one)]
        rows = tuple(zip(*(column.values(listed) for column in columns), strict=True))
        return cls(key, title, columns, rows, strong_rows=frozenset(strong), **rest)

    @classmethod
    def of_columns(cls, key: str, *columns: tuple[Column, Iterable[Any]], title: str = "") -> Table:
        """The columns as they are: lists, or arrays of any integer or float."""
        listed = (values.tolist() if hasattr(values, "tolist") else values for _, values in columns)
        return cls(key, title, tuple(one for one, _ in columns), tuple(zip(*listed, strict=True)))

    def beside(self, other: Table, title: str) -> Table:
        """The same with what another table has under the same names, drawn paler.

        Args:
            other: with the same columns; of it, what the chart draws is taken.
            title: what it is: "measured".
        """
        chart = self.chart
        if chart is None:
            return self
        keys = [column.key for column in self.columns]
        name, value = keys.index(chart.category), keys.index(chart.series[0].column)
        others = {row[name]: row[value] for row in other.rows}
        empty = {label: self._empty(name, label) for label in others}
        rows = {row[name]: row for row in self.rows}
        column = self.columns[value]
        key = f"{title}_{column.key}"
        added = Column(key, f"{title}, {column.title}", column.unit)
        series = Series(key, title, chart.series[0].colour, is_faint=True)
        return replace(
            self,
            columns=(*self.columns, added),
            rows=tuple(
                (*row, others.get(label, 0)) for label, row in {**rows, **empty, **rows}.items()
            ),
            chart=replace(chart, series=(*chart.series, series)),
        )

    def _empty(self, name: int, label: Cell) -> tuple[Cell, ...]:
        """A row of nothing under a name."""
        return tuple(
            label if at == name else "" if column.unit.is_text else 0
            for at, column in enumerate(self.columns)
        )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def as_json(self) -> list[dict[str, Cell]]:
        """One mapping per row, by the columns' keys."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]

    def to_polars(self) -> pl.DataFrame:
        """A data frame, its values as they are: times in ns, sizes in bytes."""
        import polars as pl  # on demand: it takes longer to import than most answers to find

        types = {str: pl.String, bool: pl.Boolean, int: pl.Int64, float: pl.Float64}
        values = list(zip(*self.rows, strict=True)) or [()] * len(self.columns)
        kinds = [_kind(column, held) for column, held in zip(self.columns, values, strict=True)]
        return pl.DataFrame(
            [
                pl.Series(column.key, held, dtype=types[kind], strict=False)
                for column, held, kind in zip(self.columns, values, kinds, strict=True)
            ]
        )

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame of pandas, which has to be installed."""
        return self.to_polars().to_pandas()

    def to_arrow(self) -> pa.Table:
        """The same as a table of Arrow; pyarrow has to be installed."""
        return self.to_polars().to_arrow()


def _kind(column: Column, values: Sequence[Cell]) -> type:
    """The type that holds all values; of none, what the unit tells."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return _KIND_OF_UNIT.get(column.unit, float)
    if bool in kinds:
        return bool
    if kinds <= {int, float}:
        return float if float in kinds else int
    return str
