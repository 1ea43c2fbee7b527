"""What would help most, beside what is wrong."""

from __future__ import annotations

from dataclasses import replace

from foretrace.analyze import ALL_RANKS, Cause, Diagnosis, IdleCauses, WhatHelps
from foretrace.answer import (
    Sentences,
    SideBySide,
    Stretch,
    duration_text,
    percent_text,
    tables_in,
)
from foretrace.report.document import Section
from foretrace.whatif import Remedies

NUM_SENTENCES = 5
_MEASURED_NOTE = (
    "Every kernel keeps the time it was measured with, also where communication slowed it down."
)


def help_section(
    helps: WhatHelps | None,
    lost: Diagnosis | None = None,
    *,
    idle: IdleCauses | None = None,
    remedies: Remedies | None = None,
    side: str = "replayed",
    note: str = _MEASURED_NOTE,
) -> Section | None:
    """What shortens the step most, and where time is lost; `None` without a step.

    Args:
        idle: the intervals that `lost` is the sum of.
        remedies: real changes that were tried; they stand first.
        side: what the timeline that was simulated is called.
        note: what the other durations are.
    """
    if helps is None:
        return None
    best = tuple(one.sentence for one in helps.rows[:NUM_SENTENCES])
    none = (("Nothing alone shortens the step.", "Other work is as long beside every lever."),)
    lists = [Sentences("Shorten the step by", best or none, is_numbered=bool(best))]
    if remedies is not None and remedies.rows:
        lists = [Sentences("Changes that pay", _paying(remedies), is_numbered=True)]
    if lost is not None and (told := lost.told(NUM_SENTENCES)):
        texts = tuple(("", one.sentence) for one in told)
        stretches = tuple(_stretch(one, idle) for one in told)
        title = "Where devices lose time"
        lists.append(Sentences(title, texts, is_numbered=True, stretches=stretches))
    charts = (replace(one, key="help-most") for one in tables_in(helps.parts()) if one.rows)
    return Section(
        key="help",
        title="What would help most",
        short="What helps",
        lead=(
            f"How much shorter the step ({helps.step_name}: {duration_text(helps.step_ns)}, "
            f"{side}) becomes when one thing takes less time."
        ),
        parts=(SideBySide(tuple(lists)), *charts),
        note=f"{helps.note} {note} All levers, and how far each is linear, are under Sensitivity.",
    )


def _paying(remedies: Remedies) -> tuple[tuple[str, str], ...]:
    """Changes that pay, then the best of them together."""
    told = []
    for one in (*remedies.rows[:NUM_SENTENCES], *remedies.together[-1:]):
        saved = f"{one.name}: -{percent_text(100 * one.share)}"
        interval = f"{duration_text(one.low_ns)} to {duration_text(one.high_ns)}"
        rest = f"({duration_text(one.step_ns)}, {interval}); takes {one.effort}, if {one.needs}"
        told.append((saved, rest))
    return tuple(told)


def _stretch(cause: Cause, idle: IdleCauses | None) -> Stretch | None:
    """The longest of the intervals that a cause is the sum of."""
    if idle is None:
        return None
    if cause.rank == ALL_RANKS:
        return idle.longest(cause.cause)
    blamed = idle.longest(cause.cause, culprit_rank=cause.rank)
    return blamed or idle.longest(cause.cause, rank=cause.rank)
