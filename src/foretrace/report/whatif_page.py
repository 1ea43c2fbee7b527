"""`WhatifPage`: a prediction and every answer about it, as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foretrace.analyze import (
    BusyFraction,
    CollectiveTable,
    CriticalPath,
    IdleCauses,
    NodeLabels,
    StepTable,
    WhatHelps,
)
from foretrace.analyze.questions import critical_path, idle
from foretrace.answer import Told, signed_percent_text
from foretrace.graph import Timeline
from foretrace.report.document import Section, card_of, section_of, section_with
from foretrace.report.sections import (
    help_section,
    timeline_section,
)
from foretrace.report.sheet import Sheet, path_spans, write_sheet
from foretrace.report.strip import DrawnTimeline
from foretrace.whatif import (
    Prediction,
    cause_parts,
    change_parts,
    effect_parts,
    figures,
    ground_lead,
    ground_parts,
    memory_change_lead,
    memory_change_parts,
    subject_text,
)

BEFORE, AFTER = "before", "after"  # titles of the two timelines
_DURATIONS_NOTE = "Of the edited job; all other durations stay as they were predicted."

_FOLDED = " After is an estimate: one rank stands for all that do the same."


@dataclass(frozen=True)
class WhatifSide:
    """One timeline, and what analyses found in it."""

    timeline: Timeline
    collectives: CollectiveTable
    steps: StepTable
    busy: BusyFraction
    labels: NodeLabels
    path: CriticalPath | None  # `None` without steps, as what follows
    idle: IdleCauses | None


@dataclass(frozen=True)
class WhatifPage:
    """Everything the page shows; made by `foretrace.api`."""

    title: str
    version: str  # of foretrace
    prediction: Prediction
    side_by_title: Mapping[str, WhatifSide]  # BEFORE and AFTER
    helps: WhatHelps | None  # of the edited job


def write_whatif_page(path: Path, page: WhatifPage) -> None:
    """Write the page as one self-contained HTML file."""
    sides = page.side_by_title
    sheet = Sheet(
        title=page.title,
        kind="What-if report",
        subject=subject_text(page.prediction),
        version=page.version,
        cards=tuple(map(card_of, figures(page.prediction))),
        sections=whatif_sections_of(page),
        drawn_by_title={
            title: DrawnTimeline(
                timeline=side.timeline,
                collectives=side.collectives,
                steps=side.steps,
                path=path_spans(side.path),
                idle=side.idle,
                labels=side.labels,
            )
            for title, side in sides.items()
        },
        busy_by_title={title: side.busy for title, side in sides.items()},
        labels=sides[BEFORE].labels,
        path=sides[AFTER].path,
    )
    write_sheet(path, sheet)


def whatif_sections_of(page: WhatifPage) -> tuple[Section, ...]:
    """The page's answers, those first that a reader asks first; without those that are missing."""
    found, after = page.prediction, page.side_by_title[AFTER]
    sections = (
        _change(found),
        _effects(found),
        timeline_section((BEFORE, AFTER)),
        _causes(found),
        _memory(found),
        _ground(found),
        section_of(critical_path, after.path),
        help_section(page.helps, side=AFTER, note=_DURATIONS_NOTE),
        section_of(idle, after.idle),
    )
    return tuple(section for section in sections if section is not None)


def _change(found: Prediction) -> Section | None:
    """The step before and after; `None` of a recording without steps."""
    folded = "" if found.method != "scaled" else _FOLDED
    return _section_of_parts(
        "step",
        "Before and after",
        change_parts(found),
        short="Before, after",
        lead=(
            "Mean over ranks and steps: the recording replayed, and the same job edited; percent "
            "are of the longer step."
        ),
        note=(
            "Communication counts from the moment a rank is ready for it, so it holds the wait for "
            f"other ranks. The four parts sum to the step exactly, on both sides.{folded}"
        ),
    )


def _effects(found: Prediction) -> Section | None:
    """What each edit does."""
    lead = "Each made after those before it; in another order they may share it otherwise."
    title = "What each edit does"
    return _section_of_parts("effects", title, effect_parts(found), short="Edits", lead=lead)


def _causes(found: Prediction) -> Section | None:
    """By class of work; `None` without steps."""
    lead = (
        "Every moment of the step belongs to one class of work, so the differences sum to the "
        f"step's {signed_percent_text(found.percent)}."
    )
    title = "Where the difference comes from"
    return _section_of_parts("causes", title, cause_parts(found), short="Causes", lead=lead)


def _memory(found: Prediction) -> Section | None:
    """Of the fullest rank; `None` where no model was stated."""
    if found.memory is None:
        return None
    return _section_of_parts(
        "memory",
        "Memory",
        memory_change_parts(found.memory),
        lead=memory_change_lead(found.memory),
        warning="It does not fit." if found.memory.after.fits is False else "",
    )


def _ground(found: Prediction) -> Section | None:
    """What durations rest on."""
    title, parts = "What it rests on", ground_parts(found)
    return _section_of_parts("ground", title, parts, short="Certainty", lead=ground_lead(found))


def _section_of_parts(key: str, title: str, parts: tuple[Told, ...], **rest: str) -> Section | None:
    return section_with(key, title, parts, **rest) if parts else None
