"""Tables without lines, which stay readable in a log and in a narrow terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from foretrace.answer import short_name
from foretrace.base import visible

_MAX_NAME = 44


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
        table.add_row(" -", Text(visible(sentence)))
    return table


def print_section(console: Console, title: str, table: Table) -> None:
    """Print a table under its title, unless it is empty."""
    if table.row_count:
        console.print(f"\n{title}" if title else "", style="bold")
        console.print(Padding(table, (0, 0, 0, 1), expand=False) if title else table)


def print_sentences(console: Console, title: str, sentences: Iterable[str]) -> None:
    """Print sentences as a list under its title, unless there are none."""
    listed = list(sentences)
    if listed:
        console.print(f"\n{title}", style="bold")
        console.print(sentences_table(listed))


def name_text(name: str, width: int = _MAX_NAME) -> str:
    """A name as a column has room for it."""
    return short_name(name, width)


def share_text(share: float) -> str:
    """A share of 1 as percent for a column: `4.8 %`, `0.1 %`."""
    return f"{100 * share:.1f} %"
