"""What a prediction tells: what changes, by edit and by cause, and what the answer rests on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.analyze import COLOUR_OF_SHOWN, Comparison, RankChange, RankTime
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Sentences,
    Series,
    Share,
    ShareBar,
    Shown,
    Table,
    Told,
    Unit,
    bytes_text,
    duration_text,
)
from foretrace.cost import source_parts
from foretrace.whatif.summary import (
    ORIGINS,
    DifferenceRow,
    before_text,
    difference_rows,
    edited_rows,
    reason_texts,
    short_sentence,
)

if TYPE_CHECKING:
    from foretrace.whatif.prediction import Memory, Prediction

MAX_BARS = 16
MAX_REASONS = 6  # sentences; `--json` has them all
_COLOUR_OF_TIME = (
    ("compute_ns", "compute", "compute"),
    ("transfer_ns", "transfer", "communication"),
    ("wait_ns", "waiting", "wait"),
    ("idle_ns", "idle", "idle"),
)
# How much of the span that steps fill stays free before the least of them.
_ROOM = 0.35
_LEAST_ROOM = 0.02  # of the longest step
_LEAST_SHARE = 0.0005  # it would be shown as nothing
_HELD = ("parameters", "gradients", "optimizer", "activations", "buffers", "context", "total")


def change_parts(found: Prediction) -> tuple[Told, ...]:
    """The step before and after in its components; nothing of a recording without steps."""
    rows = difference_rows(found)
    if not rows:
        return ()
    *parts, whole = rows
    longest_ns = max(whole.before_ns, whole.after_ns, 1)
    before = _bar("before", parts, [row.before_ns for row in parts], longest_ns)
    after = _bar("after", parts, [row.after_ns for row in parts], longest_ns)
    by_rank = () if found.comparison is None else _by_rank(found.comparison)
    return (before, after, _components(rows), *by_rank)


def _bar(title: str, rows: list[DifferenceRow], times_ns: list[int], longest_ns: int) -> ShareBar:
    shares = tuple(
        Share(row.text, 100 * time_ns / longest_ns, duration_text(time_ns),
              COLOUR_OF_SHOWN[row.name])
        for row, time_ns in zip(rows, times_ns, strict=True)
    )  # fmt: skip
    return ShareBar(title, shares)


def _components(rows: tuple[DifferenceRow, ...]) -> Table:
    whole_ns = max(rows[-1].before_ns, 1)
    return Table.of(
        "components",
        rows,
        Column("component", " ", Unit.WORD, "text"),
        Column("before_ns", "before ms", Unit.MS),
        Column("after_ns", "after ms", Unit.MS),
        Column("difference_ns", "difference ms", Unit.SIGNED_MS),
        Column(
            "difference_share",
            "of the step",
            Unit.SIGNED_SHARE,
            lambda row: row.difference_ns / whole_ns,
        ),
        title="where the difference goes, mean over ranks; idle until the job's step ends",
        is_strong=lambda row: row is rows[-1],
        colours=tuple(COLOUR_OF_SHOWN[row.name] for row in rows[:-1]),
    )


def _by_rank(found: Comparison) -> tuple[Table, ...]:
    """Every rank's mean step on both sides; one rank alone is the bars above."""
    if len(found.ranks) == 1:
        return ()
    sides = ("before", "after")
    return (
        Table(
            key="rank-times",
            title="per rank",
            shown=Shown.WIDE,
            lead="After; what was before is paler.",
            columns=(
                Column("rank"),
                *(
                    Column(f"{side}_{key}", f"{title} {side}, ms", Unit.MS)
                    for side in sides
                    for key, title, _ in _COLOUR_OF_TIME
                ),
            ),
            rows=tuple(_rank_row(one) for one in found.ranks),
            chart=Chart(
                kind=ChartKind.BARS,
                label="time of every rank by what it does, before and after",
                category="rank",
                category_unit=Unit.RANK,
                series=tuple(
                    Series(f"{side}_{key}", title, colour, group=side, is_faint=side == "before")
                    for side in sides
                    for key, title, colour in _COLOUR_OF_TIME
                ),
                unit=Unit.NS,
                max_rows=MAX_BARS,
            ),
        ),
    )


def _rank_row(one: RankChange) -> tuple[Cell, ...]:
    return (one.rank, *_times(one.before), *_times(one.after))


def _times(time: RankTime | None) -> tuple[Cell, ...]:
    return tuple(None if time is None else getattr(time, key) for key, _, _ in _COLOUR_OF_TIME)


def effect_parts(found: Prediction) -> tuple[Told, ...]:
    """What each edit does to the step, one after the other; nothing without edits."""
    if not found.effects:
        return ()
    return (_waterfall(found), *_edited(found))


def _waterfall(found: Prediction) -> Table:
    """Steps from the one before to the one after, each change a bar between two steps."""
    rows: list[tuple[Cell, ...]] = [_whole("before", found.replayed_step_ns)]
    step_ns = found.replayed_step_ns
    for one in found.effects:
        rows.append(
            (
                short_sentence(one.sentence),
                one.step_ns,
                one.change_ns,
                one.change_ns / max(step_ns, 1),
                min(step_ns, one.step_ns),
                None,
                one.change_ns if one.change_ns > 0 else None,
                -one.change_ns if one.change_ns < 0 else None,
            )
        )
        step_ns = one.step_ns
    rows.append(_whole("after", found.step_ns))
    steps = [found.replayed_step_ns, *(one.step_ns for one in found.effects)]
    minimum_ns = _minimum_ns(min(steps), max(steps))
    return Table(
        key="effects",
        title="edits, each made after those before it",
        columns=(
            Column("edit", "edit"),
            Column("step_ns", "step ms"),
            Column("change_ns", "change ms", Unit.SIGNED_MS),
            Column("change_share", "of the step", Unit.SIGNED_SHARE),
            Column("from_ns", shown=Shown.FILES),
            Column("whole_ns", shown=Shown.FILES),
            Column("longer_ns", shown=Shown.FILES),
            Column("shorter_ns", shown=Shown.FILES),
        ),
        rows=tuple(rows),
        strong_rows=frozenset({0, len(rows) - 1}),
        chart=Chart(
            kind=ChartKind.BARS,
            label="the step after every edit, from the one before to the one after",
            category="edit",
            series=(
                Series("from_ns", "from", "none", group="step"),
                Series("whole_ns", "step", "constant", group="step"),
                Series("longer_ns", "longer", "communication", group="step"),
                Series("shorter_ns", "shorter", "overlapped", group="step"),
            ),
            unit=Unit.NS,
            minimum=minimum_ns,
        ),
        note=f"The axis begins at {duration_text(minimum_ns)}." if minimum_ns else "",
    )


def _minimum_ns(least_ns: int, most_ns: int) -> float:
    """Where the axis begins, so that changes can be seen: a round number below the least step."""
    room_ns = max(_ROOM * (most_ns - least_ns), _LEAST_ROOM * most_ns, 1)
    unit_ns = 10.0 ** math.floor(math.log10(room_ns))
    return max(0.0, math.floor((least_ns - room_ns) / unit_ns) * unit_ns)


def _whole(name: str, step_ns: int) -> tuple[Cell, ...]:
    return (name, step_ns, None, None, None, step_ns, None, None)


def _edited(found: Prediction) -> tuple[Table, ...]:
    """Sizes, plan and machine that differ; changes of durations have none."""
    rows = edited_rows(found)
    if not rows:
        return ()
    columns = (
        Column("key", "key", Unit.WORD),
        Column("before", "before"),
        Column("after", "after"),
    )
    return (
        Table(
            key="edited", title="what is different", columns=columns, rows=rows, shown=Shown.WIDE
        ),
    )


def cause_parts(prediction: Prediction) -> tuple[Told, ...]:
    """The difference by class of work, and in sentences; nothing without steps."""
    found = prediction.comparison
    if found is None:
        return ()
    (table,) = found.views_told(("class",))
    chart = Chart(
        kind=ChartKind.BARS,
        label="difference of the step by class of work",
        category="label",
        series=(Series("difference_ns", "difference", "communication"),),
        unit=Unit.SIGNED_NS,
        max_rows=MAX_BARS,
    )
    colours = tuple(
        "communication" if row.difference_ns > 0 else "overlapped"
        for row in found.view("class").rows
        if row.difference_ns
    )
    drawn = replace(table, chart=chart, colours=colours, shown=Shown.WIDE)
    return Sentences.of("why", reason_texts(prediction)[:MAX_REASONS]), drawn


def memory_change_parts(memory: Memory | None) -> tuple[Told, ...]:
    """Memory of the fullest rank on both sides; nothing where no model was stated."""
    if memory is None:
        return ()
    before, after = memory.before.peak, memory.after.peak
    return (
        Table.of(
            "memory-parts",
            [(name, getattr(before, name), getattr(after, name)) for name in _HELD],
            Column("part", "fullest rank", Unit.WORD, lambda row: row[0]),
            Column("before_bytes", "before", value=lambda row: row[1]),
            Column("after_bytes", "after", value=lambda row: row[2]),
            title="memory",
            is_strong=lambda row: row[0] == "total",
        ),
    )


def memory_change_lead(memory: Memory) -> str:
    """How much is needed on both sides, and whether it fits."""
    before, after = memory.before.peak, memory.after.peak
    lead = f"{bytes_text(before.total)} before, {bytes_text(after.total)} after"
    if memory.after.margin is not None and memory.after.capacity is not None:
        says = "to spare" if memory.after.margin >= 0 else "too much"
        left = bytes_text(abs(memory.after.margin))
        lead += f", of {bytes_text(memory.after.capacity)}: {left} {says}"
    return f"Of the fullest rank at its worst moment, by the model's sizes: {lead}."


def ground_parts(found: Prediction) -> tuple[Told, ...]:
    """Where durations come from, and what must be known."""
    sources = source_parts(
        found.share_by_source,
        of="critical path",
        title="the critical path after rests on",
        meanings=ORIGINS,
        least_share=_LEAST_SHARE,
    )
    return *sources, Sentences.of("notes", found.notes)


def ground_lead(found: Prediction) -> str:
    """How wide the interval is, and how good the replay it starts from."""
    return (
        f"The middle 80 % of what is expected: {duration_text(found.low_ns)} to "
        f"{duration_text(found.high_ns)}. The step before is {before_text(found)}."
    )
