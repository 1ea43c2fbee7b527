"""`ReportPage`: a job, its replay and every answer about them, as one HTML file.

The file holds its style, its scripts and its data: it opens offline and asks for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import jinja2
import msgspec
import numpy as np
from markupsafe import Markup

from foretrace.analyze import (
    NO_RANK,
    BusyFraction,
    CollectiveTable,
    CriticalPath,
    NodeLabels,
    StepTable,
)
from foretrace.base import written_beside
from foretrace.graph import Timeline
from foretrace.report.answers import Answers
from foretrace.report.cells import cell_text, readable
from foretrace.report.document import MAX_KEPT_ROWS, Section, Table, Unit, tables_of
from foretrace.report.replay_rows import glance
from foretrace.report.sections import (
    attention_section,
    block_section,
    collective_section,
    hang_section,
    help_section,
    idle_section,
    memory_section,
    operator_section,
    path_section,
    recording_section,
    roofline_section,
    sensitivity_section,
    step_section,
    straggler_section,
    timeline_section,
    trust_section,
)
from foretrace.report.strip import Drawn, PathSpans, strip
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport

NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
BUSY_POINTS = 600  # about one for every two pixels of the page's width
SCRIPTS = ("vendor/echarts.min.js", "page.js", "charts.js", "timeline.js")
_CLASS_OF_UNIT = {Unit.TEXT: "t", Unit.WORD: "w"}  # others are numbers


@dataclass(frozen=True)
class ReportPage:
    """Everything the page shows; made by `foretrace.api`."""

    title: str
    version: str  # of foretrace
    replay: ReplayReport
    metas: tuple[TraceMeta, ...]
    timeline_by_title: Mapping[str, Timeline]  # "measured" and "replayed", of one graph
    collectives_by_title: Mapping[str, CollectiveTable]
    steps_by_title: Mapping[str, StepTable]
    busy_by_title: Mapping[str, BusyFraction]
    labels: NodeLabels  # of the graph
    answers: Answers
    left_out: tuple[str, ...] = ()  # classes of dependency that this replay does without


def write_page(path: Path, page: ReportPage) -> None:
    """Write the page as one self-contained HTML file."""
    html = _environment().get_template("report.html.j2").render(_content(page))
    with written_beside(path) as beside:
        beside.write_text(html, encoding="utf-8")


def sections_of(page: ReportPage) -> tuple[Section, ...]:
    """The page's answers, those first that a reader asks first; without those that are missing."""
    answers = page.answers
    found = (
        hang_section(answers.hang),
        step_section(page.replay),
        help_section(answers.helps, answers.lost),
        timeline_section(),
        path_section(answers.path_by_title),
        idle_section(answers.idle_by_title.get("replayed")),
        straggler_section(answers.stragglers),
        collective_section(page.collectives_by_title["measured"]),
        block_section(answers.blocks, answers.block_evidence),
        operator_section(answers.operators),
        roofline_section(answers.roofline),
        attention_section(answers.attention),
        memory_section(answers.memory),
        sensitivity_section(answers.sensitivity),
        trust_section(page.replay),
        recording_section(
            page.replay,
            page.timeline_by_title["measured"].graph,
            page.metas,
            refusals=answers.refusals,
        ),
    )
    return tuple(section for section in found if section is not None)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("foretrace.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        # a number and its unit stay on one line
        "cell": lambda value, unit: (
            value if isinstance(value, str) else cell_text(value, unit).replace(" ", NO_BREAK_SPACE)
        ),
        "cell_class": lambda unit: _CLASS_OF_UNIT.get(unit, "n"),
        "kind": lambda part: type(part).__name__,
    }
    return environment


def _content(page: ReportPage) -> dict[str, object]:
    sections = sections_of(page)
    return {
        "title": readable(page.title),
        "version": page.version,
        "left_out": page.left_out,
        "summary": page.replay.summary,
        "glance": glance(page.replay, page.metas),
        "sections": sections,
        "style": _asset("page.css"),
        "theme_script": _asset("theme.js"),
        "scripts": tuple(map(_asset, SCRIPTS)),
        "max_kept_rows": MAX_KEPT_ROWS,
        "data": _embedded(_data(page, tables_of(sections))),
    }


def _data(page: ReportPage, tables: tuple[Table, ...]) -> dict[str, object]:
    """What the scripts draw, and what a reader may download."""
    drawn_by_title = {
        title: Drawn(
            timeline=timeline,
            collectives=page.collectives_by_title[title],
            steps=page.steps_by_title[title],
            path=_path_spans(page.answers.path_by_title.get(title)),
            idle=page.answers.idle_by_title.get(title),
        )
        for title, timeline in page.timeline_by_title.items()
    }
    return {
        "title": readable(page.title),
        "tables": {
            table.key: {
                "columns": [asdict(column) for column in table.columns],
                "rows": table.rows[:MAX_KEPT_ROWS],
                "colours": table.colours,
            }
            for table in tables
        },
        "charts": {table.key: asdict(table.chart) for table in tables if table.chart},
        "strip": strip(
            drawn_by_title, page.labels, first_ranks=_ranks_on_path(page.answers.path_by_title)
        ).as_json(),
        "busy": [_busy(page.busy_by_title[title]) for title in page.timeline_by_title],
    }


def _path_spans(path: CriticalPath | None) -> PathSpans | None:
    return None if path is None else PathSpans(path.node, path.begin_ns, path.end_ns)


def _ranks_on_path(path_by_title: Mapping[str, CriticalPath]) -> tuple[int, ...]:
    """The ranks on the replayed critical path, those with the most time on it first."""
    if not path_by_title:
        return ()
    labels = (share.label for share in path_by_title["replayed"].by_rank())
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
    """JSON that may stand inside a script element: no `<` survives."""
    text = msgspec.json.encode(value).decode().replace("<", "\\u003c")
    return Markup(text)  # noqa: S704  escaped above
