"""An answer as a notebook shows it: small HTML without style of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from foretrace.answer.parts import Facts, Paragraph, Sentences, SideBySide, Told
from foretrace.answer.tables import Shown, Table
from foretrace.answer.units import cell_text
from foretrace.base import visible

MAX_ROWS = 20


def html_of(headline: str, parts: Iterable[Told], *, note: str = "") -> str:
    """The headline, then every part; charts and bars are left to pages."""
    begin = f"<p><b>{_escaped(headline)}</b></p>" if headline else ""
    return "".join([begin, *map(_part_html, parts)]) + (
        f"<p><small>{_escaped(note)}</small></p>" if note else ""
    )


def _part_html(part: Told) -> str:
    if isinstance(part, Table):
        return _table_html(part)
    if isinstance(part, Facts):
        rows = [(fact.name, fact.value, fact.remark) for fact in part.facts]
        return f"<table>{_lines(rows, 'td')}</table>"
    if isinstance(part, Sentences):
        items = "".join(f"<li>{_escaped(f'{a} {b}'.strip())}</li>" for a, b in part.texts)
        return f"{_titled(part.title)}<ul>{items}</ul>" if items else ""
    if isinstance(part, Paragraph):
        return f"{_titled(part.title)}<p>{_escaped(part.text)}</p>"
    return "".join(map(_part_html, part.parts)) if isinstance(part, SideBySide) else ""


def _table_html(table: Table) -> str:
    if not table.rows:
        return ""
    chosen = [at for at, one in enumerate(table.columns) if one.shown is not Shown.FILES]
    heads = [table.columns[at].title for at in chosen]
    rows = [
        [cell_text(row[at], table.columns[at].unit) for at in chosen]
        for row in table.rows[:MAX_ROWS]
    ]
    more = len(table.rows) - MAX_ROWS
    rest = f"<p>and {more:,} more rows</p>" if more > 0 else ""
    head, body = _lines([heads], "th"), _lines(rows, "td")
    return f"{_titled(table.title)}<table><thead>{head}</thead><tbody>{body}</tbody></table>{rest}"


def _titled(title: str) -> str:
    return f"<p>{_escaped(title)}</p>" if title else ""


def _lines(rows: Iterable[Sequence[str]], tag: str) -> str:
    return "".join(
        "<tr>" + "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in row) + "</tr>"
        for row in rows
    )


def _escaped(text: str) -> str:
    return escape(visible(text))
