"""Any answer as one HTML file that opens offline: figures, tables and drawings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path

from foretrace.answer import Answer, Facts, Paragraph, Sentences, Table, Told, html_of
from foretrace.base import write_whole

_STYLE = (
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin-top:8px}"
    "td,th{padding:2px 14px 2px 0;text-align:right}td:first-child,th:first-child{text-align:left}"
    # Numbers stay whole, words (which have a style of their own) wrap: a wide table is scrolled.
    "td{white-space:nowrap}td[style]{white-space:normal;min-width:12ch}"
    "th{font-weight:600}svg{max-width:100%;height:auto}section{overflow-x:auto}"
    ".figure.long{font-size:1rem}"
)
_LONG_FIGURE = 24  # letters of a card: words, not a number
_LONG = 8  # rows of a table that one would rather look for than read
_SIEVE = (
    '<p><label>rows with <input type="search" class="sieve" aria-label="rows with"></label></p>'
)
# Hides rows that lack one of the words that are typed above their table.
_SIFTED = (
    'document.querySelectorAll(".sieve").forEach((box)=>box.addEventListener("input",()=>{'
    "const words=box.value.toLowerCase().split(/\\s+/);"
    'box.closest("section").querySelectorAll("table tr").forEach((row)=>{'
    "const told=row.textContent.toLowerCase();"
    "row.hidden=row.rowIndex>0&&!words.every((word)=>told.includes(word))})}))"
)


def write_answer_page(
    path: Path,
    title: str,
    found: Answer,
    *,
    parts: Iterable[Told] | None = None,
    drawings: Iterable[tuple[str, str]] = (),
    drawn: Iterable[Table] = (),
    behind: Iterable[Told] = (),
) -> None:
    """Write an answer as one self-contained HTML file.

    Args:
        path: of the file.
        title: above all.
        found: what the page is about; its headline stands below the title.
        parts: what to show; all that the answer tells, if left out. Figures become cards.
        drawings: SVG documents of ours, with their titles.
        drawn: tables that drawings show, folded.
        behind: what stands behind all, for drawings to lead to.
    """
    shown = found.parts() if parts is None else parts
    text = answer_html(title, found.headline, shown, drawings=drawings, drawn=drawn, behind=behind)
    write_whole(path, text)


def answer_html(
    title: str,
    subject: str,
    parts: Iterable[Told],
    *,
    drawings: Iterable[tuple[str, str]] = (),
    drawn: Iterable[Table] = (),
    behind: Iterable[Told] = (),
) -> str:
    """The page's text."""
    style = (files("foretrace.report") / "templates" / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}{_STYLE}</style></head><body><main>"
        f'<header><h1>{escape(title)}</h1><p class="subject">{escape(subject)}</p>'
        f"</header>{''.join(map(_part, parts))}"
        f"{''.join(_drawing(*each) for each in drawings)}"
        f"{''.join(map(_folded, drawn))}"
        f"{''.join(_part(part, has_sieve=False) for part in behind)}"
        f"</main><script>{_SIFTED}</script></body></html>\n"
    )


def _part(part: Told, *, has_sieve: bool = True) -> str:
    if isinstance(part, Facts):
        cards = "".join(
            f'<div class="card"><div class="label">{escape(fact.name)}</div>'
            f'<div class="figure{" long" * (len(fact.value) > _LONG_FIGURE)}">'
            f"{escape(fact.value)}</div><div>{escape(fact.remark)}</div></div>"
            for fact in part.facts
        )
        return f'<section class="glance">{cards}</section>'
    if not isinstance(part, Table | Sentences | Paragraph):
        return ""
    told = _untitled(part)
    title = f"<h2>{_begun(part.title)}</h2>" if part.title else ""
    if not told:
        return ""
    if not isinstance(part, Table):
        return f"<section>{title}{told}</section>"
    sieve = _SIEVE if has_sieve and len(part.rows) >= _LONG else ""
    return f'<section id="{escape(part.key.replace(" ", "-"))}">{title}{sieve}{told}</section>'


def _folded(part: Table) -> str:
    summary = f"<summary>{_begun(part.title)}, as a table</summary>"
    return f"<section><details>{summary}{_untitled(part)}</details></section>"


def _untitled(part: Table | Sentences | Paragraph) -> str:
    return html_of("", (replace(part, title=""),))


def _drawing(title: str, drawn: str) -> str:
    return f"<section><h2>{_begun(title)}</h2><figure>{drawn}</figure></section>"


def _begun(title: str) -> str:
    """A heading begins with a capital."""
    return escape(title[:1].upper() + title[1:])
