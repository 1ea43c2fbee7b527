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
from foretrace.analyze.questions import idle
from foretrace.graph import Timeline
from foretrace.report.document import Card, Section, section_of
from foretrace.report.sections import (
    cause_section,
    change_section,
    effects_section,
    ground_section,
    help_section,
    memory_change_section,
    path_section,
    timeline_section,
)
from foretrace.report.sheet import NO_BREAK_SPACE, Sheet, path_spans, write_sheet
from foretrace.report.strip import Drawn
from foretrace.report.whatif_rows import whatif_facts, whatif_subject
from foretrace.whatif import Prediction

BEFORE, AFTER = "before", "after"  # titles of the two timelines
_DURATIONS_NOTE = "Of the edited job; all other durations stay as they were predicted."


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
        subject=whatif_subject(page.prediction),
        version=page.version,
        cards=_cards(page.prediction),
        sections=whatif_sections_of(page),
        drawn_by_title={
            title: Drawn(
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
        change_section(found),
        effects_section(found),
        timeline_section((BEFORE, AFTER)),
        cause_section(found),
        memory_change_section(found.memory),
        ground_section(found),
        path_section({} if after.path is None else {AFTER: after.path}, side=AFTER),
        help_section(page.helps, side=AFTER, note=_DURATIONS_NOTE),
        section_of(idle, after.idle),
    )
    return tuple(section for section in sections if section is not None)


def _cards(found: Prediction) -> tuple[Card, ...]:
    return tuple(
        Card(
            f"{fact.name[0].upper()}{fact.name[1:]}",
            fact.value.replace(" ", NO_BREAK_SPACE),
            fact.remark,
        )
        for fact in whatif_facts(found)
    )
