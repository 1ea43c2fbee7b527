"""`ReportPage`: a job, its replay and every answer about them, as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foretrace.analyze import BusyFraction, CollectiveTable, NodeLabels, StepTable
from foretrace.analyze.questions import idle, stragglers
from foretrace.answer import Unit, cell_text
from foretrace.graph import Timeline
from foretrace.report.answers import Answers
from foretrace.report.document import Card, Section, section_of
from foretrace.report.replay_rows import glance
from foretrace.report.sections import (
    attention_section,
    block_section,
    collective_section,
    hang_section,
    help_section,
    memory_section,
    operator_section,
    path_section,
    recording_section,
    roofline_section,
    sensitivity_section,
    step_section,
    timeline_section,
    trust_section,
)
from foretrace.report.sheet import NO_BREAK_SPACE, Sheet, path_spans, write_sheet
from foretrace.report.strip import Drawn
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport


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
    paths = page.answers.path_by_title
    sheet = Sheet(
        title=page.title,
        kind="Training step report",
        subject=glance(page.replay, page.metas).subject,
        version=page.version,
        cards=_cards(page),
        sections=sections_of(page),
        drawn_by_title={
            title: Drawn(
                timeline=timeline,
                collectives=page.collectives_by_title[title],
                steps=page.steps_by_title[title],
                path=path_spans(paths.get(title)),
                idle=page.answers.idle_by_title.get(title),
            )
            for title, timeline in page.timeline_by_title.items()
        },
        busy_by_title=page.busy_by_title,
        labels=page.labels,
        path=paths.get("replayed"),
        warning=f"Replayed without: {', '.join(page.left_out)}." if page.left_out else "",
    )
    write_sheet(path, sheet)


def _cards(page: ReportPage) -> tuple[Card, ...]:
    view, summary = glance(page.replay, page.metas), page.replay.summary
    return (
        Card(
            "Measured step of a rank",
            _shown(view.measured_ns, Unit.NS),
            "mean over steps and ranks, with the profiler on",
        ),
        Card(
            "Replayed step of a rank",
            _shown(view.replayed_ns, Unit.NS),
            "rebuilt from dependencies alone",
        ),
        Card(
            "Error of the step's end",
            _shown(summary.mean_step_error_percent, Unit.PERCENT),
            "mean of absolute errors; worst "
            f"{_shown(summary.worst_step_error_percent, Unit.PERCENT)}",
        ),
        _unprofiled(view.unprofiled_ns, view.profiler_cost_percent),
    )


def _unprofiled(unprofiled_ns: float | None, cost_percent: float | None) -> Card:
    label = "Step without profiler"
    if unprofiled_ns is None:
        remark = "foretrace.record measures it beside the trace"
        return Card(label, "not recorded", remark, is_missing=True)
    cost = _shown(cost_percent, Unit.SIGNED_PERCENT)
    remark = f"median over ranks; profiling costs {cost} on the host"
    return Card(label, _shown(unprofiled_ns, Unit.NS), remark)


def _shown(value: float | None, unit: Unit) -> str:
    return cell_text(value, unit).replace(" ", NO_BREAK_SPACE)


def sections_of(page: ReportPage) -> tuple[Section, ...]:
    """The page's answers, those first that a reader asks first; without those that are missing."""
    answers = page.answers
    found = (
        hang_section(answers.hang),
        step_section(page.replay),
        help_section(answers.helps, answers.lost),
        timeline_section(),
        path_section(answers.path_by_title),
        section_of(idle, answers.idle_by_title.get("replayed")),
        section_of(stragglers, answers.stragglers),
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
