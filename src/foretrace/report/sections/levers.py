"""What would help most, and how the step depends on everything it is made of."""

from __future__ import annotations

from foretrace.analyze import FASTER, Cause, Help, Sensitivity, SensitivityRow, WhatHelps
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Sentences,
    Series,
    SideBySide,
    Table,
    Unit,
    duration_text,
    signed_percent_text,
)
from foretrace.report.document import Section

NUM_SENTENCES = 5
_FASTER_TEXT = f"{100 * (1 - FASTER):.0f}% faster"

_COLUMNS = (
    Column("lever", "lever"),
    Column("kind", "kind", Unit.WORD),
    Column("time_ns", "its time, ms", Unit.MS),
    Column("gain_if_faster_percent", _FASTER_TEXT, Unit.PERCENT),
    Column("gain_if_faster_ns", "in ms", Unit.MS),
    Column("gain_if_free_percent", "free", Unit.PERCENT),
    Column("gain_if_free_ns", "in ms", Unit.MS),
    Column("derivative_ns", "per 100 % of it, ms", Unit.MS),
    Column("linear_to", "linear to", Unit.NUMBER),
    Column("select", "as a change", Unit.WORD),
)


_MEASURED_NOTE = (
    "Every kernel keeps the time it was measured with, also where communication slowed it down."
)


def help_section(
    helps: WhatHelps | None,
    lost: tuple[Cause, ...] = (),
    *,
    side: str = "replayed",
    note: str = _MEASURED_NOTE,
) -> Section | None:
    """What shortens the step most, and where time is lost; `None` without a step.

    Args:
        side: what the timeline that was simulated is called.
        note: what the other durations are.
    """
    if helps is None:
        return None
    best = tuple(_sentence(one) for one in helps.rows[:NUM_SENTENCES])
    none = (("Nothing alone shortens the step.", "Other work is as long beside every lever."),)
    lists = [Sentences("Shorten the step by", best or none, is_numbered=bool(best))]
    if lost:
        texts = tuple(("", one.sentence) for one in lost[:NUM_SENTENCES])
        lists.append(Sentences("Where devices lose time", texts, is_numbered=True))
    return Section(
        key="help",
        title="What would help most",
        short="What helps",
        lead=(
            f"How much shorter {helps.step_name} ({duration_text(helps.step_ns)}, {side}) "
            "becomes when one thing takes less time. Each is simulated again with all that waits "
            "for it, and holds alone: gains do not add up."
        ),
        parts=(SideBySide(tuple(lists)), *([_chart(helps)] if helps.rows else [])),
        note=f"{note} All levers, and how far each is linear, stand under Sensitivity.",
    )


def sensitivity_section(sensitivity: Sensitivity | None) -> Section | None:
    """Every lever with its derivative, its effects and how far it is linear."""
    if sensitivity is None:
        return None
    order = sorted(sensitivity.rows, key=lambda row: (-_gain_ns(row), row.label))
    return Section(
        key="sensitivity",
        title="Sensitivity",
        short="Sensitivity",
        lead=(
            f"Every lever of {sensitivity.span.step_name}: what the step loses if the lever is "
            f"{_FASTER_TEXT} or free. Down to the factor under \u201clinear to\u201d, the step "
            "shrinks in proportion; there the critical path switches, and less is gained."
        ),
        parts=(
            Table(
                key="sensitivity-levers",
                title="",
                columns=_COLUMNS,
                rows=tuple(_cells(row, sensitivity.step_ns) for row in order),
                max_rows=24,
            ),
        ),
        note=(
            "\u201cAs a change\u201d is what foretrace sensitivity --change takes, with a factor "
            "after a colon: class=gemm:0.8."
        ),
    )


def _chart(helps: WhatHelps) -> Table:
    return Table(
        key="help-most",
        title="",
        columns=_COLUMNS,
        rows=tuple(_cells(one.row, helps.step_ns) for one in helps.rows),
        chart=Chart(
            kind=ChartKind.BARS,
            label="how much shorter the step becomes with each lever",
            category="lever",
            series=(
                Series("gain_if_faster_percent", f"{_FASTER_TEXT}, of the step", "path"),
                Series("gain_if_free_percent", "free, or gone", "path", is_faint=True),
            ),
            unit=Unit.PERCENT,
        ),
    )


def _gain_ns(row: SensitivityRow) -> float:
    """What a realistic change gains: the lever 20 % faster, or made where it is made or not."""
    return -(row.free_ns if row.faster_ns is None else row.faster_ns)


def _cells(row: SensitivityRow, step_ns: int) -> tuple[Cell, ...]:
    faster_ns = None if row.faster_ns is None else -row.faster_ns
    return (
        row.label,
        str(row.kind),
        row.time_ns,
        None if faster_ns is None else 100 * faster_ns / step_ns,
        faster_ns,
        -100 * row.free_ns / step_ns,
        -row.free_ns,
        row.derivative_ns,
        row.linear_to,
        row.selection,
    )


def _sentence(one: Help) -> tuple[str, str]:
    inside = f"; part of {', '.join(one.inside)}" if one.inside else ""
    free = signed_percent_text(100 * one.share * one.row.free_ns / one.gain_ns)
    and_free = "" if one.row.faster_ns is None else f"; free: {free}"
    return one.text, f"({duration_text(one.gain_ns)} less{and_free}{inside})"
