"""Idle and waiting: every nanosecond in which a rank got nothing done, with its cause."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.analyze import IdleCauses, IdleRow, Stillness
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Sentences,
    Series,
    SideBySide,
    Table,
    Told,
    Unit,
    duration_text,
)
from foretrace.report.document import Section
from foretrace.report.subjects import shortened

NUM_SENTENCES = 5
MAX_BARS = 12

_WORDS = {
    Stillness.IDLE: ("Idle", "idle", "no compute and no communication runs"),
    Stillness.WAITING: ("Waiting", "wait", "inside collectives, for other ranks"),
}


def idle_section(idle: IdleCauses | None, *, side: str = "replayed") -> Section | None:
    """Idle time by cause and by what was responsible; `None` without any.

    Args:
        side: what a timeline that was not measured is called.
    """
    if idle is None or not len(idle):
        return None
    rows = idle.rows()
    charts = [_by_cause(idle, kind) for kind in Stillness if idle.total_ns(kind)]
    parts: list[Told] = [
        SideBySide(tuple(charts)),
        Sentences("Longest", tuple(("", row.sentence) for row in rows[:NUM_SENTENCES])),
        _rows(rows),
    ]
    return Section(
        key="idle",
        title="Idle and waiting",
        short="Idle",
        lead=(
            "Every nanosecond in which a rank got nothing done, under the one cause that the "
            "dependencies give for it, over all ranks and steps"
            f"{'' if idle.is_measured else f', {side}'}: "
            f"{duration_text(idle.total_ns(Stillness.IDLE))} idle and "
            f"{duration_text(idle.total_ns(Stillness.WAITING))} waiting inside collectives."
        ),
        parts=tuple(parts),
    )


def _by_cause(idle: IdleCauses, kind: Stillness) -> Table:
    title, colour, meaning = _WORDS[kind]
    total_ns = idle.total_ns(kind)
    return Table(
        key=f"{title.lower()}-by-cause",
        title=f"{title}: {meaning}",
        columns=(
            Column("cause", "cause"),
            Column("lost_ns", "lost ms", Unit.MS),
            Column("share_percent", "share", Unit.PERCENT),
        ),
        rows=tuple(
            (cause.words, lost_ns, 100 * lost_ns / total_ns)
            for cause, lost_ns in idle.by_cause(kind).items()
        ),
        chart=Chart(
            kind=ChartKind.BARS,
            label=f"{title.lower()} time by cause",
            category="cause",
            series=(Series("lost_ns", "lost", colour),),
            unit=Unit.NS,
            max_rows=MAX_BARS,
        ),
    )


def _rows(rows: Sequence[IdleRow]) -> Table:
    cells: list[tuple[Cell, ...]] = [
        (
            row.step_name,
            row.rank,
            row.kind.name.lower(),
            row.cause.words,
            row.culprit_rank if row.culprit_rank >= 0 else None,
            shortened(row.subject),
            row.lost_ns,
            row.num_intervals,
        )
        for row in rows
    ]
    return Table(
        key="idle-rows",
        title="By rank, cause and what was responsible",
        columns=(
            Column("step", "step", Unit.WORD),
            Column("rank", "rank", Unit.IDENTIFIER),
            Column("kind", "kind", Unit.WORD),
            Column("cause", "cause", Unit.WORD),
            Column("culprit_rank", "of rank", Unit.IDENTIFIER),
            Column("subject", "operator or call"),
            Column("lost_ns", "lost ms", Unit.MS),
            Column("num_intervals", "times", Unit.COUNT),
        ),
        rows=tuple(cells),
        max_rows=10,
    )
