"""`Sheet`: sections, cards and a timeline as one HTML file.

The file holds its style, its scripts and its data: it opens offline and asks for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import jinja2
import msgspec
import numpy as np
from markupsafe import Markup, escape

from foretrace.analyze import NO_RANK, BusyFraction, CriticalPath, NodeLabels
from foretrace.answer import (
    Cell,
    ChartKind,
    Table,
    Unit,
    cell_text,
    number_text,
    readable,
    with_code,
)
from foretrace.base import NS_PER_MS, visible, write_whole
from foretrace.report.document import (
    MAX_KEPT_ROWS,
    NO_BREAK_SPACE,
    Card,
    Section,
    card_of,
    tables_of,
    three_digits,
)
from foretrace.report.strip import DrawnTimeline, PathSpans, strip

BUSY_POINTS = 600  # about one for every two pixels of the page's width
# A table of more rows than this shows its first ones; the others where a reader asks for them.
FOLDED_ROWS, FIRST_ROWS = 9, 5
MIN_SHARE = 0.004  # of the longest bar; shorter ones are left to the table, as in charts.js
_TIMES = frozenset({Unit.MS, Unit.SIGNED_MS})
_DURATIONS = frozenset({Unit.NS, Unit.SIGNED_NS})
SCRIPTS = ("vendor/echarts.min.js", "page.js", "charts.js", "timeline.js")
_CLASS_OF_UNIT = {
    Unit.TEXT: "t",
    Unit.NAME: "t",
    Unit.WORD: "w",
    Unit.FLAG: "w",
}  # others are numbers

_NOT_EMBEDDED = re.compile("[<\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Sheet:
    """What stands on a page, in order."""

    title: str
    kind: str  # above the title: "Training step report"
    subject: str  # below it
    version: str  # of foretrace
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]
    drawn_by_title: Mapping[str, DrawnTimeline]  # timelines, drawn above each other
    busy_by_title: Mapping[str, BusyFraction]
    labels: NodeLabels  # of the first timeline's graph
    path: CriticalPath | None  # whose ranks are drawn if not all fit
    lead: str = ""  # one sentence, what matters most
    twin: str = ""  # the timeline, and what is drawn paler, that a reader has to ask for
    warning: str = ""


def write_sheet(path: Path, sheet: Sheet) -> None:
    """Write the page as one self-contained HTML file."""
    html = _environment().get_template("report.html.j2").render(_content(sheet))
    write_whole(path, html)


def path_spans(path: CriticalPath | None) -> PathSpans | None:
    """A critical path as it is drawn."""
    return None if path is None else PathSpans(path.node, path.begin_ns, path.end_ns)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("foretrace.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cell": _cell,
        "card": card_of,
        "one_bar": one_bar,
        "prose": prose,
        "stretch": lambda one: f"{one.rank},{one.begin_ns},{one.end_ns}",
        "cell_class": lambda unit: _CLASS_OF_UNIT.get(unit, "n"),
        "kind": lambda part: type(part).__name__,
    }
    return environment


def _shown(value: object) -> object:
    """What a template writes: texts of a recording without what steers who shows them."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def prose(text: str) -> Markup:
    """A sentence on a page: three digits, and what stands between backticks as code."""
    text = str(escape(three_digits(visible(text))))
    return Markup(with_code(text))  # noqa: S704  escaped


def _cell(value: Cell, unit: Unit) -> str:
    """A value with its unit on one line; of times three digits are enough."""
    if isinstance(value, str) or value is None:
        return cell_text(value, unit)
    if unit in _TIMES:
        text = number_text(abs(value) / NS_PER_MS)
        sign = "-" if value < 0 else "+" if unit is Unit.SIGNED_MS and value > 0 else ""
        return f"{sign}{text}"
    text = three_digits(cell_text(value, unit)) if unit in _DURATIONS else cell_text(value, unit)
    return text.replace(" ", NO_BREAK_SPACE)


def one_bar(table: Table) -> str:
    """A chart's only bar as a sentence; "" of charts with several."""
    chart = table.chart
    if chart is None or chart.kind not in {ChartKind.BARS, ChartKind.COLUMNS}:
        return ""
    keys = [column.key for column in table.columns]
    series = [(one, keys.index(one.column)) for one in chart.series if one.colour != "none"]
    lengths = [max((abs(row[at] or 0) for _, at in series), default=0) for row in table.rows]  # type: ignore[arg-type]
    seen = [at for at, length in enumerate(lengths) if length > MIN_SHARE * max(lengths)]
    if len(seen) != 1:
        return ""
    row = table.rows[seen[0]]
    what = cell_text(row[keys.index(chart.category)], chart.category_unit)
    values = [(one.title, row[at]) for one, at in series if row[at] and not one.is_faint]
    told = ", ".join(f"{title} {cell_text(value, chart.unit)}" for title, value in values)
    return f"{what[:1].upper()}{what[1:]}: {told}."


def _content(sheet: Sheet) -> dict[str, object]:
    titles = list(sheet.drawn_by_title)
    return {
        "title": readable(sheet.title),
        "kind": sheet.kind,
        "subject": sheet.subject,
        "lead": sheet.lead,
        "twin": sheet.twin,
        "warning": sheet.warning,
        "version": sheet.version,
        "cards": sheet.cards,
        "sections": sheet.sections,
        "drawn": " above ".join(titles),
        "style": _asset("page.css"),
        "theme_script": _asset("theme.js"),
        "scripts": tuple(map(_asset, SCRIPTS)),
        "max_kept_rows": MAX_KEPT_ROWS,
        "folded_rows": FOLDED_ROWS,
        "first_rows": FIRST_ROWS,
        "data": _embedded(_data(sheet, tables_of(sheet.sections))),
    }


def _data(sheet: Sheet, tables: tuple[Table, ...]) -> dict[str, object]:
    """What the scripts draw, and what a reader may download."""
    return {
        "title": readable(sheet.title),
        "twin": sheet.twin,
        "tables": {
            table.key: {
                "columns": [
                    {"key": one.key, "title": one.title, "unit": one.unit} for one in table.columns
                ],
                "rows": table.rows[:MAX_KEPT_ROWS],
                "colours": table.colours,
            }
            for table in tables
        },
        "charts": {
            table.key: asdict(table.chart) for table in tables if table.chart and not one_bar(table)
        },
        "strip": strip(
            sheet.drawn_by_title, sheet.labels, first_ranks=_ranks_on(sheet.path)
        ).as_json(),
        "busy": [_busy(sheet.busy_by_title[title]) for title in sheet.drawn_by_title],
    }


def _ranks_on(path: CriticalPath | None) -> tuple[int, ...]:
    """The ranks on a critical path, those with the most time on it first."""
    if path is None:
        return ()
    labels = (share.label for share in path.by_rank())
    return tuple(int(label.removeprefix("rank ")) for label in labels if label != NO_RANK)


def _busy(busy: BusyFraction) -> dict[str, object]:
    """How busy the ranks are over time: means over ranks, and over bins narrower than a point."""
    if not busy.num_bins:
        return {"points": []}
    bins_per_point = -(-busy.num_bins // BUSY_POINTS)
    borders = np.append(np.arange(0, busy.num_bins, bins_per_point), busy.num_bins)
    means = np.add.reduceat(busy.fraction.mean(axis=0), borders[:-1]) / np.diff(borders)
    middle_ns = (borders[:-1] + borders[1:]) * busy.bin_ns // 2
    return {"points": list(zip(middle_ns.tolist(), means.round(4).tolist(), strict=True))}


def _asset(name: str) -> Markup:
    """A file of ours, which needs no escaping."""
    text = files("foretrace.report").joinpath("templates", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704  our own file, not a user's text


def _embedded(value: object) -> Markup:
    """JSON that may stand inside a script element: no `<` survives, and nothing that steers."""
    text = msgspec.json.encode(value).decode()
    text = _NOT_EMBEDDED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return Markup(text)  # noqa: S704  escaped above
