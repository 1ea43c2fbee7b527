"""`ReportPage`: a job, its replay and every answer about them, as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrace.analyze import BusyFraction, CollectiveTable, NodeLabels, StepTable, questions
from foretrace.answer import Facts, Question, count_text
from foretrace.graph import Timeline
from foretrace.report.answers import Answers
from foretrace.report.document import Card, Section, card_of, section_of, told_section
from foretrace.report.sections import (
    collective_section,
    help_section,
    recording_section,
    step_section,
    timeline_section,
    trust_section,
)
from foretrace.report.sheet import Sheet, path_spans, write_sheet
from foretrace.report.strip import Drawn
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport

_MEASURED_PATH = (
    "Paler: on the measured timeline, where unexplained time is time that no dependency explains."
)


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
        subject=_subject(page),
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


def _subject(page: ReportPage) -> str:
    """Ranks, steps and devices: `8 ranks of 8, 1 step, NVIDIA A100-SXM4-80GB`."""
    num_ranks = len({row.rank for row in page.replay.rows})
    world_sizes = {meta.world_size for meta in page.metas if meta.world_size}
    text = count_text(num_ranks, "rank")
    if len(world_sizes) == 1 and world_sizes != {num_ranks}:
        text += f" of {world_sizes.pop()}"
    devices = sorted({name for meta in page.metas for name in meta.device_names})
    return ", ".join([text, count_text(len(page.replay.steps), "step"), *devices[:3]])


def _cards(page: ReportPage) -> tuple[Card, ...]:
    facts = [fact for part in page.replay.parts() if isinstance(part, Facts) for fact in part.facts]
    wanted = {
        "measured step of a rank",
        "replayed step of a rank",
        "error of the step's end",
        "step without profiler",
    }
    return tuple(map(card_of, (fact for fact in facts if fact.name in wanted)))


def sections_of(page: ReportPage) -> tuple[Section, ...]:
    """The page's answers, those first that a reader asks first; without those that are missing."""
    answers = page.answers
    placed = [
        (0, told_section("hang", ("This run hangs", "Hang"), answers.hang)),
        (10, step_section(page.replay)),
        (20, help_section(answers.helps, answers.lost)),
        (30, timeline_section()),
        (80, collective_section(page.collectives_by_title["measured"])),
        (90, told_section("blocks", ("Blocks", ""), answers.blocks)),
        (110, told_section("roofline", ("Roofline", ""), answers.roofline)),
        (130, told_section("memory", ("Memory", ""), answers.memory)),
        (150, trust_section(page.replay)),
        (160, recording_section(page.replay, page.metas, refusals=answers.refusals)),
    ]
    for name, found in answers.by_question.items():
        question: Question[Any, Any, ..., Any] = getattr(questions, name)
        path = answers.path_by_title.get("measured") if name == "critical_path" else None
        section = section_of(question, found, beside=path, note=_MEASURED_PATH if path else "")
        placed.append((question.place.order if question.place else 0, section))
    placed.sort(key=lambda one: one[0])
    return tuple(section for _, section in placed if section is not None)
