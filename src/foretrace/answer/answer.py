"""`Answer`: what a verb returns, told once; terminal, notebook, page and files follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from foretrace.answer.markup import html_of
from foretrace.answer.parts import Told, tables_in
from foretrace.answer.plain import Plain
from foretrace.answer.tables import Table
from foretrace.answer.text import text_of
from foretrace.base import visible

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Answer(Plain, ABC):
    """A result that says itself: one line, parts in the order of their weight, tables.

    Its subclasses are dataclasses that leave `repr` to this class.
    """

    @property
    @abstractmethod
    def headline(self) -> str:
        """The answer in one line."""

    @property
    def lead(self) -> str:
        """What a page says above the parts: the headline, or more."""
        return self.headline

    @property
    def note(self) -> str:
        """What a reader must know to read the parts; "" if they say it."""
        return ""

    @property
    def warning(self) -> str:
        """What a reader must know before all else; "" if there is nothing."""
        return ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell; a page leaves such an answer out."""
        return False

    @abstractmethod
    def parts(self) -> tuple[Told, ...]:
        """What is told, the most important first."""

    def tables(self) -> tuple[Table, ...]:
        """Every table, the main one first; of the parts, unless there are larger ones."""
        return tables_in(self.parts())

    def table(self, key: str = "") -> Table:
        """The table of this key; the main one without.

        Raises:
            ValueError: if there is none.
        """
        found = self.tables()
        for one in found:
            if not key or one.key == key:
                return one
        have = ", ".join(one.key for one in found) or "none"
        raise ValueError(f"{type(self).__name__} has no table {key!r}: expected one of {have}")

    def to_polars(self, key: str = "") -> pl.DataFrame:
        """A table as a data frame of polars: the main one, or the one of this key."""
        return self.table(key).to_polars()

    def to_pandas(self, key: str = "") -> pd.DataFrame:
        """The same as a data frame of pandas, which has to be installed."""
        return self.table(key).to_pandas()

    def to_arrow(self, key: str = "") -> pa.Table:
        """The same as a table of Arrow; pyarrow has to be installed."""
        return self.table(key).to_arrow()

    def __repr__(self) -> str:
        """One line."""
        return f"<{type(self).__name__}: {visible(' '.join(self.headline.split()))}>"

    def __str__(self) -> str:
        """What a terminal shows."""
        return text_of(self.headline, self.parts(), note=self.note)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html_of(self.headline, self.parts(), note=self.note)


def rows_json(*tables: Table) -> dict[str, object]:
    """Tables by their keys, a list of rows each."""
    return {table.key: table.as_json() for table in tables}
