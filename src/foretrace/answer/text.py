"""An answer as plain text: tables without lines, which stay readable in a log.

Numbers are never cut: columns that have no room are left out from the least important one, and
names and texts give way before them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import TextWrapper

from foretrace.answer.parts import Facts, Paragraph, Sentences, SideBySide, Told
from foretrace.answer.tables import Shown, Table
from foretrace.answer.units import Unit, cell_text, short_name
from foretrace.base import visible

WIDTH = 80
MAX_ROWS = 16
_GAP = 2  # between columns
_BETWEEN = 4  # tables that stand next to each other
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Between a number and its unit no line ends, where lines are long enough for that.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[num]?s\b|[KMGT]i?B\b))")
_GLUE, _LEAST_WHOLE = "\N{NO-BREAK SPACE}", 40
_MAX_NAME = 44
_NAME_LINES = 2
_LEAST_TEXT, _LEAST_NAME = 10, 14  # texts and names give way down to these
_USUAL_NAME = 24  # names before texts down to this, and to it for columns of wide tables only


@dataclass(frozen=True)
class Style:
    """How a terminal sets text apart; not at all, unless told."""

    bold: Callable[[str], str] = str
    dim: Callable[[str], str] = str


def text_of(
    headline: str,
    parts: Iterable[Told],
    *,
    note: str = "",
    top: int | None = MAX_ROWS,
    width: int = WIDTH,
    style: Style = Style(),
) -> str:
    """The headline, then every part, an empty line between them.

    Args:
        top: rows of each table, and sentences of each list; None: all.
        style: how headings and rows are set apart.
    """
    most = sys.maxsize if top is None else top
    shown = [lines for part in parts for lines in _part_lines(part, most, (width, style))]
    pieces = ["\n".join(_wrapped(headline, width)), *("\n".join(lines) for lines in shown if lines)]
    if note:
        pieces.append("\n".join(map(style.dim, _wrapped(note, width))))
    return "\n\n".join(piece for piece in pieces if piece)


def _part_lines(part: Told, top: int, look: tuple[int, Style]) -> Iterator[list[str]]:
    """The lines of a part; nothing of what is for pages."""
    width, _ = look
    if isinstance(part, SideBySide):
        columns = [lines for one in part.parts for lines in _part_lines(one, top, look)]
        yield from _beside(columns, width)
    elif isinstance(part, Table) and part.rows and part.shown is Shown.EVERYWHERE:
        yield _table_lines(part, top, look)
    elif isinstance(part, Sentences) and part.texts and part.shown is Shown.EVERYWHERE:
        texts = (f"{strong} {rest}".strip() for strong, rest in part.texts[:top])
        items = (line for text in texts for line in _item(text, width))
        yield [*_title(part.title, look), *items]
    elif isinstance(part, Facts) and part.facts:
        yield _fact_lines(part, look)
    elif isinstance(part, Paragraph):
        yield [*_title(part.title, look), *_wrapped(part.text, width)]


def _beside(columns: list[list[str]], width: int) -> list[list[str]]:
    """Blocks of lines next to each other where they fit, else one after the other."""
    widths = [max(map(_seen, lines)) for lines in columns]
    if len(columns) < 2 or sum(widths) + _BETWEEN * (len(columns) - 1) > width:  # noqa: PLR2004  beside what
        return columns
    rows = zip_longest(*columns, fillvalue="")
    padded = (
        [line + " " * (wide - _seen(line)) for line, wide in zip(row, widths, strict=True)]
        for row in rows
    )
    return [[(" " * _BETWEEN).join(row).rstrip() for row in padded]]


def _seen(line: str) -> int:
    """The room that a line takes, its colours not counted."""
    return len(_COLOUR.sub("", line))


def _title(title: str, look: tuple[int, Style]) -> list[str]:
    width, style = look
    return list(map(style.bold, _wrapped(title, width)))


def _item(text: str, width: int) -> list[str]:
    return _wrapped(text, width, " - ", "   ")


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Its lines; nothing in it steers a terminal, and no address and no option is cut."""
    wrapper = TextWrapper(width, first, rest, break_on_hyphens=False)
    wrapper.break_long_words = "://" not in text
    if width < _LEAST_WHOLE:
        return wrapper.wrap(visible(text))
    whole = _BEFORE_UNIT.sub(_GLUE, visible(text))
    return [line.replace(_GLUE, " ") for line in wrapper.wrap(whole)]


def _fact_lines(part: Facts, look: tuple[int, Style]) -> list[str]:
    width, style = look
    names = max(len(visible(fact.name)) for fact in part.facts)
    values = max(len(visible(fact.value)) for fact in part.facts)
    lines: list[str] = []
    for fact in part.facts:
        strong = style.bold if fact.is_first else str
        begin = f"{strong(visible(fact.name).ljust(names))}  "
        begin += strong(visible(fact.value).rjust(values))
        rest = _wrapped(fact.remark, max(width - names - values - 2 * _GAP, _LEAST_TEXT)) or [""]
        indent = " " * (names + values + 2 * _GAP)
        lines += [f"{begin}  {rest[0]}".rstrip(), *(indent + line for line in rest[1:])]
    return lines


def _table_lines(table: Table, top: int, look: tuple[int, Style]) -> list[str]:
    width, style = look
    strong = {at for at in table.strong_rows if at < len(table.rows)}
    listed = [at for at in range(len(table.rows)) if at < top or at in strong]
    grid = _Grid.of(table, listed, width)
    lines = [*_title(table.title, look), *map(style.bold, grid.lines(grid.heads, is_head=True))]
    for at, cells in zip(listed, grid.cells, strict=True):
        text = grid.lines(cells)
        lines += map(style.bold, text) if at in strong else text
    if len(table.rows) > len(listed):
        lines.append(style.dim(f"and {len(table.rows) - len(listed):,} more"))
    return lines


@dataclass(frozen=True)
class _Grid:
    """Columns that fit, as text."""

    heads: list[str]
    cells: list[list[str]]
    units: list[Unit]
    widths: list[int]

    @classmethod
    def of(cls, table: Table, listed: Sequence[int], width: int) -> _Grid:
        """The columns that have room, texts giving way."""
        cells_by_column = [
            [visible(cell_text(table.rows[at][place], column.unit)) for at in listed]
            for place, column in enumerate(table.columns)
        ]
        # a column of which nothing is known says nothing
        held = [place for place, cells in enumerate(cells_by_column) if any(cells)]
        needs = [_least(table, cells_by_column, place) for place in range(len(table.columns))]
        order = sorted(held, key=lambda place: table.columns[place].shown is Shown.WIDE)
        chosen: list[int] = []
        for place in order:
            column = table.columns[place]
            if column.shown is Shown.WIDE:  # only where no heading and no usual name gives way
                needs = [
                    max(_least(table, cells_by_column, at, _USUAL_NAME), len(one.title))
                    for at, one in enumerate(table.columns)
                ]
            needed = sum(needs[one] + _GAP for one in (*chosen, place))
            if column.shown is not Shown.FILES and needed - _GAP <= width:
                chosen.append(place)
        chosen.sort()
        units = [table.columns[place].unit for place in chosen]
        columns = [cells_by_column[place] for place in chosen]
        heads = [table.columns[place].title for place in chosen]
        widths = [
            max(len(head), *(len(_natural(cell, unit)) for cell in cells))
            for head, cells, unit in zip(heads, columns, units, strict=True)
        ]
        least = [_least(table, cells_by_column, place) for place in chosen]
        lossless = [unit is not Unit.NAME for unit in units]  # goes on on the next line
        whole = [_longest_word(cells) for cells in columns]  # else a word is cut in two
        while sum(widths) + _GAP * (len(widths) - 1) > width:
            flexible = [at for at in range(len(widths)) if widths[at] > least[at]]
            at = max(
                flexible,
                key=lambda at: (
                    widths[at] > whole[at] if lossless[at] else widths[at] > _USUAL_NAME,
                    widths[at],
                ),
            )
            widths[at] -= 1
        return cls(heads, [list(row) for row in zip(*columns, strict=True)], units, widths)

    def line(self, cells: Sequence[str]) -> str:
        """One line: texts left, numbers right."""
        return (
            (" " * _GAP)
            .join(
                cell.ljust(width) if unit.is_text else cell.rjust(width)
                for cell, unit, width in zip(cells, self.units, self.widths, strict=True)
            )
            .rstrip()
        )

    def lines(self, cells: Sequence[str], *, is_head: bool = False) -> list[str]:
        """A row: texts and headings go on on the next line, names where their words fit."""
        held = [
            _name_lines(cell, width)
            if unit is Unit.NAME and not is_head
            else _wrapped(cell, width) or [""]
            for cell, unit, width in zip(cells, self.units, self.widths, strict=True)
        ]
        return [
            self.line([one[at] if at < len(one) else "" for one in held])
            for at in range(max(map(len, held)))
        ]


def _name_lines(cell: str, width: int) -> list[str]:
    """A name over two lines where each of its words fits, else without its middle."""
    words = short_name(cell, _MAX_NAME).split()
    if len(words) == 1 or max(map(len, words), default=0) > width:
        return [short_name(cell, width)]
    lines = _wrapped(" ".join(words), width)
    return lines if len(lines) <= _NAME_LINES else [short_name(cell, width)]


def _natural(cell: str, unit: Unit) -> str:
    return short_name(cell, _MAX_NAME) if unit is Unit.NAME else cell


def _least(
    table: Table, cells_by_column: Sequence[Sequence[str]], place: int, name: int = _LEAST_NAME
) -> int:
    """The room that a column needs at least, names given `name` of theirs."""
    column = table.columns[place]
    natural = max(len(_natural(cell, column.unit)) for cell in cells_by_column[place])
    if column.unit is Unit.NAME:
        natural = min(natural, name)
    elif column.unit is Unit.TEXT or (column.unit is Unit.WORD and natural > _MAX_NAME):
        longest = _longest_word(cells_by_column[place])
        natural = min(natural, _LEAST_NAME, max(_LEAST_TEXT, longest))
    return max([natural, *map(len, column.title.split())])


def _longest_word(cells: Sequence[str]) -> int:
    return max((len(word) for cell in cells for word in cell.split()), default=0)
