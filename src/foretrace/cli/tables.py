"""Tables without lines, which stay readable in a log and in a narrow terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich.table import Table
from rich.text import Text


def plain_table(*heads: str, text_columns: Collection[int] = (0,)) -> Table:
    """An empty table: numbers stand right, the columns named as text stand left."""
    table = Table(
        box=None, pad_edge=False, show_header=any(heads), header_style="bold", padding=(0, 1)
    )
    for index, head in enumerate(heads):
        is_text = index in text_columns
        table.add_column(head, justify="left" if is_text else "right", overflow="fold")
    return table


def sentences_table(sentences: Iterable[str]) -> Table:
    """A list whose long lines hang under their beginning."""
    table = Table(box=None, pad_edge=True, show_header=False, padding=(0, 1, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for sentence in sentences:
        table.add_row(" -", Text(sentence))
    return table
