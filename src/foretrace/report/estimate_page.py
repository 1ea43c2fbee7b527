"""`EstimatePage`: an estimate and every answer about it, as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrace.analyze import BusyFraction, CollectiveTable, NodeLabels, StepTable
from foretrace.analyze.questions import idle
from foretrace.answer import Sentences
from foretrace.estimate import Estimate
from foretrace.report.answers import Answers
from foretrace.report.document import Card, Section, section_of
from foretrace.report.estimate_rows import estimate_facts, estimate_subject
from foretrace.report.sections import (
    certainty_section,
    estimate_section,
    footprint_section,
    help_section,
    operator_section,
    path_section,
    plan_section,
    roofline_section,
    sensitivity_section,
    timeline_section,
)
from foretrace.report.sheet import NO_BREAK_SPACE, Sheet, path_spans, write_sheet
from foretrace.report.strip import Drawn

ESTIMATED = "estimated"  # title of the simulated timeline
_DURATIONS_NOTE = "Other durations stay as predicted, also what communication beside them adds."


@dataclass(frozen=True)
class EstimatePage:
    """Everything the page shows; made by `foretrace.api`."""

    title: str
    version: str  # of foretrace
    estimate: Estimate
    collectives: CollectiveTable
    steps: StepTable
    busy: BusyFraction
    labels: NodeLabels  # of the graph
    answers: Answers  # those about one timeline, under the title `ESTIMATED`


def write_estimate_page(path: Path, page: EstimatePage) -> None:
    """Write the page as one self-contained HTML file."""
    critical = page.answers.path_by_title.get(ESTIMATED)
    drawn = Drawn(
        timeline=page.estimate.timeline,
        collectives=page.collectives,
        steps=page.steps,
        path=path_spans(critical),
        idle=page.answers.idle_by_title.get(ESTIMATED),
    )
    sheet = Sheet(
        title=page.title,
        kind="Training step estimate",
        subject=estimate_subject(page.estimate),
        version=page.version,
        cards=_cards(page.estimate),
        sections=estimate_sections_of(page),
        drawn_by_title={ESTIMATED: drawn},
        busy_by_title={ESTIMATED: page.busy},
        labels=page.labels,
        path=critical,
    )
    write_sheet(path, sheet)


def estimate_sections_of(page: EstimatePage) -> tuple[Section, ...]:
    """The page's answers, those first that a reader asks first; without those that are missing."""
    answers, found = page.answers, page.estimate
    sections = (
        estimate_section(found),
        help_section(answers.helps, answers.lost, side=ESTIMATED, note=_DURATIONS_NOTE),
        timeline_section((ESTIMATED,)),
        footprint_section(found.footprint),
        certainty_section(found),
        path_section(answers.path_by_title, side=ESTIMATED),
        section_of(idle, answers.idle_by_title.get(ESTIMATED)),
        operator_section(answers.operators),
        roofline_section(answers.roofline),
        sensitivity_section(answers.sensitivity),
        plan_section(found),
        _refused(answers),
    )
    return tuple(section for section in sections if section is not None)


def _cards(found: Estimate) -> tuple[Card, ...]:
    return tuple(
        Card(
            f"{fact.name[0].upper()}{fact.name[1:]}",
            fact.value.replace(" ", NO_BREAK_SPACE),
            fact.remark,
        )
        for fact in estimate_facts(found)
    )


def _refused(answers: Answers) -> Section | None:
    if not answers.refusals:
        return None
    texts = tuple(("", text) for text in answers.refusals)
    return Section(
        key="missing",
        title="What is missing",
        short="Missing",
        parts=(Sentences("Without an answer", texts),),
    )
