"""`EstimatePage`: an estimate and every answer about it, as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrace.analyze import BusyFraction, CollectiveTable, NodeLabels, StepTable
from foretrace.analyze.questions import critical_path, idle, operators, sensitivity
from foretrace.answer import Sentences
from foretrace.estimate import (
    Estimate,
    certainty_lead,
    certainty_parts,
    figures,
    memory_lead,
    memory_parts,
    plan_parts,
    step_parts,
    subject_text,
)
from foretrace.report.answers import Answers
from foretrace.report.document import Section, card_of, section_of, section_with, told_section
from foretrace.report.sections import (
    help_section,
    timeline_section,
)
from foretrace.report.sheet import Sheet, path_spans, write_sheet
from foretrace.report.strip import DrawnTimeline

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
    drawn = DrawnTimeline(
        timeline=page.estimate.timeline,
        collectives=page.collectives,
        steps=page.steps,
        path=path_spans(critical),
        idle=page.answers.idle_by_title.get(ESTIMATED),
    )
    sheet = Sheet(
        title=page.title,
        kind="Training step estimate",
        subject=subject_text(page.estimate),
        version=page.version,
        cards=tuple(map(card_of, figures(page.estimate))),
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
        _step(found),
        _uneven(found),
        help_section(answers.helps, answers.lost, side=ESTIMATED, note=_DURATIONS_NOTE),
        timeline_section((ESTIMATED,)),
        _memory(found),
        _certainty(found),
        section_of(critical_path, answers.path_by_title.get(ESTIMATED)),
        section_of(idle, answers.idle_by_title.get(ESTIMATED)),
        section_of(operators, answers.by_question.get("operators")),
        told_section("roofline", ("Roofline", ""), answers.roofline),
        section_of(sensitivity, answers.by_question.get("sensitivity")),
        section_with("plan-section", "Plan", plan_parts(found)),
        _refused(answers),
    )
    return tuple(section for section in sections if section is not None)


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


def _uneven(found: Estimate) -> Section | None:
    """Steps of unequal microbatches and of experts."""
    if not found.uneven:
        return None
    return section_with("uneven", "Uneven work", found.uneven)


def _step(found: Estimate) -> Section:
    """Where the step's time goes."""
    return section_with(
        "step",
        "Where the time goes",
        step_parts(found),
        short="Breakdown",
        lead=(
            f"Mean over {found.plan.num_ranks:,} ranks, of which {len(found.where.rows):,} were "
            "simulated, each for those that do the same."
        ),
        note=(
            "Exposed: a transfer with no computation beside it, under the group whose transfer "
            "ends last before computation goes on. Waiting: neither, because another stage is not "
            "ready; in a pipeline this is its bubble. The parts sum to the step exactly."
        ),
    )


def _memory(found: Estimate) -> Section | None:
    """Memory by stage; `None` where it is not known."""
    memory = found.footprint
    if memory is None:
        return None
    return section_with(
        "memory",
        "Memory",
        memory_parts(memory),
        lead=memory_lead(memory),
        note="; ".join(memory.notes),
        warning="It does not fit." if memory.fits is False else "",
    )


def _certainty(found: Estimate) -> Section:
    """How wide the interval is and why, and where durations come from."""
    return section_with(
        "certainty",
        "How sure is it?",
        certainty_parts(found),
        short="Certainty",
        lead=certainty_lead(found),
        note="To first order: by what of a family lies on the critical path.",
    )
