"""An answer as HTML, for a notebook, and as Markdown, for a comment or a page of notes."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from html import escape

from foretrace.answer.parts import Facts, Paragraph, Sentences, SideBySide, Told
from foretrace.answer.tables import Shown, Table
from foretrace.answer.units import cell_text
from foretrace.base import visible

MAX_HTML_ROWS = 20
_CODE = re.compile(r"`([^`]+)`")

MAX_ROWS = 16
_MARKUP = re.compile(r"([\\`*_\[\]<>|#])")


def html_of(headline: str, parts: Iterable[Told], *, note: str = "") -> str:
    """The headline, then every part; charts and bars are left to pages."""
    begin = f"<p><b>{_html_text(headline)}</b></p>" if headline else ""
    return "".join([begin, *map(_part_html, parts)]) + (
        f"<p><small>{_html_text(note)}</small></p>" if note else ""
    )


def _part_html(part: Told) -> str:
    if isinstance(part, Table):
        return _table_html(part)
    if isinstance(part, Facts):
        rows = [(fact.name, fact.value, fact.remark) for fact in part.facts]
        return f"<table>{_html_rows(rows, 'td')}</table>"
    if isinstance(part, Sentences):
        items = "".join(f"<li>{_html_text(f'{a} {b}'.strip())}</li>" for a, b in part.texts)
        return f"{_titled(part.title)}<ul>{items}</ul>" if items else ""
    if isinstance(part, Paragraph):
        return f"{_titled(part.title)}<p>{_html_text(part.text)}</p>"
    return "".join(map(_part_html, part.parts)) if isinstance(part, SideBySide) else ""


def _table_html(table: Table) -> str:
    if not table.rows:
        return ""
    shown = [at for at, one in enumerate(table.columns) if one.shown is not Shown.FILES]
    rows = [
        [cell_text(row[at], table.columns[at].unit) for at in shown]
        for row in table.rows[:MAX_HTML_ROWS]
    ]
    told = [at for at in range(len(shown)) if any(row[at] for row in rows)]
    columns = [table.columns[shown[at]] for at in told]
    is_text = [one.unit.is_text for one in columns]
    more = len(table.rows) - MAX_HTML_ROWS
    rest = f"<p>and {more:,} more rows</p>" if more > 0 else ""
    head = _html_rows([[one.title for one in columns]], "th", is_text)
    kept = [[row[at] for at in told] for row in rows]
    body = _html_rows(kept, "td", is_text, strong=table.strong_rows)
    return f"{_titled(table.title)}<table><thead>{head}</thead><tbody>{body}</tbody></table>{rest}"


def _titled(title: str) -> str:
    return f"<p>{_html_text(title)}</p>" if title else ""


def _html_rows(
    rows: Iterable[Sequence[str]],
    tag: str,
    is_text: Sequence[bool] = (),
    *,
    strong: Container[int] = (),
) -> str:
    """Rows of cells; columns of text are set to the left, whatever a page does with numbers.

    Rows that are set apart have the class that pages tint.
    """
    begins = [f'<{tag} style="text-align:left">' if one else f"<{tag}>" for one in is_text]
    return "".join(
        ('<tr class="own">' if at in strong else "<tr>")
        + "".join(
            f"{begin}{_html_text(cell)}</{tag}>"
            for begin, cell in zip(begins or [f"<{tag}>"] * len(row), row, strict=True)
        )
        + "</tr>"
        for at, row in enumerate(rows)
    )


def _html_text(text: str) -> str:
    return with_code(escape(visible(text)))


def with_code(escaped: str) -> str:
    """Escaped text with what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escaped)


def markdown_of(
    headline: str,
    parts: Iterable[Told],
    *,
    title: str = "",
    note: str = "",
    top: int | None = MAX_ROWS,
) -> str:
    """The headline, then every part; tables with a title are folded, charts are left to pages.

    Args:
        title: what it is about, a heading above it.
        note: small words below.
        top: rows of each table, and sentences of each list; None: all.
    """
    pieces = [f"### {_escaped(title)}"] if title else []
    pieces += [f"**{_escaped(headline)}**"] if headline else []
    pieces += [piece for part in parts for piece in _part_markdown(part, top)]
    pieces += [f"<sub>{_escaped(note)}</sub>"] if note else []
    return "\n\n".join(pieces)


def _part_markdown(part: Told, top: int | None) -> Iterator[str]:
    if isinstance(part, Table):
        yield from _table_markdown(part, top)
    elif isinstance(part, Facts):
        rows = [(one.name, one.value, one.remark) for one in part.facts]
        if rows:
            yield _lines(("", "", ""), rows, ("left", "right", "left"))
    elif isinstance(part, Sentences):
        items = [f"- {_escaped(f'{first} {rest}'.strip())}" for first, rest in part.texts[:top]]
        if items:
            yield "\n".join([*_heading(part.title), *items])
    elif isinstance(part, Paragraph):
        yield "\n".join([*_heading(part.title), _escaped(part.text)])
    elif isinstance(part, SideBySide):
        for one in part.parts:
            yield from _part_markdown(one, top)


def _table_markdown(table: Table, top: int | None) -> Iterator[str]:
    chosen = [at for at, one in enumerate(table.columns) if one.shown is Shown.EVERYWHERE]
    if not table.rows or not chosen:
        return
    rows = [
        [cell_text(row[at], table.columns[at].unit) for at in chosen] for row in table.rows[:top]
    ]
    sides = ["left" if table.columns[at].unit.is_text else "right" for at in chosen]
    text = _lines([table.columns[at].title for at in chosen], rows, sides)
    more = len(table.rows) - len(rows)
    rest = f"\n\nand {more:,} more" if more > 0 else ""
    if not table.title:
        yield f"{text}{rest}"
        return
    yield f"<details><summary>{_escaped(table.title)}</summary>\n\n{text}{rest}\n\n</details>"


def _heading(title: str) -> list[str]:
    return [f"**{_escaped(title[:1].upper() + title[1:])}**\n"] if title else []


def _lines(heads: Sequence[str], rows: Iterable[Sequence[str]], sides: Sequence[str]) -> str:
    rule = ["---:" if side == "right" else "---" for side in sides]
    escaped = ([_escaped(cell) for cell in row] for row in (heads, *rows))
    head, *body = (f"| {' | '.join(row)} |" for row in escaped)
    return "\n".join([head, f"| {' | '.join(rule)} |", *body])


def _escaped(text: str) -> str:
    """Text in which nothing is markup, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(visible(text).split()))
