"""Answers about failures as one HTML file that opens offline: figures, tables and plots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from foretrace.base import written_beside
from foretrace.report.risk_plot import sweep_plot
from foretrace.risk import CampaignSweep

_STYLE = (
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin-top:8px}"
    "td,th{padding:2px 14px 2px 0;text-align:right}td:first-child,th:first-child{text-align:left}"
    "th{font-weight:600}svg{max-width:100%;height:auto}"
)


@dataclass(frozen=True)
class RiskTable:
    """Rows under a title."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class RiskPage:
    """Everything the page shows, as words."""

    title: str
    subject: str  # what it is about, in a line
    figures: tuple[tuple[str, str], ...]  # what matters first: name and value
    tables: tuple[RiskTable, ...]
    sweeps: tuple[tuple[str, CampaignSweep], ...] = ()  # with their titles
    notes: tuple[str, ...] = ()
    drawings: tuple[tuple[str, str], ...] = ()  # SVG documents of ours, with their titles


def write_risk_page(path: Path, page: RiskPage) -> None:
    """Write the page as one self-contained HTML file."""
    with written_beside(path) as beside:
        beside.write_text(risk_html(page), encoding="utf-8")


def risk_html(page: RiskPage) -> str:
    """The page's text."""
    style = (files("foretrace.report") / "templates" / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{style}{_STYLE}</style></head><body><main>"
        f'<header><h1>{escape(page.title)}</h1><p class="subject">{escape(page.subject)}</p>'
        f"</header>{_cards(page.figures)}{''.join(map(_table, page.tables))}"
        f"{''.join(_plot(title, sweep) for title, sweep in page.sweeps)}"
        f"{''.join(_drawing(*each) for each in page.drawings)}{_notes(page.notes)}"
        "</main></body></html>\n"
    )


def _cards(figures: Sequence[tuple[str, str]]) -> str:
    cards = "".join(
        f'<div class="card"><div class="label">{escape(name)}</div>'
        f'<div class="figure">{escape(value)}</div></div>'
        for name, value in figures
    )
    return f'<section class="glance">{cards}</section>'


def _table(table: RiskTable) -> str:
    rows = html_table(table.head, table.rows)
    return f"<section><h2>{escape(table.title)}</h2>{rows}</section>"


def _plot(title: str, sweep: CampaignSweep) -> str:
    drawn = sweep_plot(sweep, has_ground=False)
    return f"<section><h2>{escape(title)}</h2><figure>{drawn}</figure></section>"


def _drawing(title: str, drawn: str) -> str:
    return f"<section><h2>{escape(title)}</h2><figure>{drawn}</figure></section>"


def _notes(notes: Sequence[str]) -> str:
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<section><h2>to know</h2><ul>{listed}</ul></section>" if listed else ""


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose every cell is escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"
