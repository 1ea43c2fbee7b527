"""A job under edits: what changes, by edit and by cause, and what the answer rests on."""

from __future__ import annotations

import math

from foretrace.analyze import Comparison, RankChange, RankTime
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Legend,
    Sentences,
    Series,
    Share,
    ShareBar,
    Table,
    Unit,
    bytes_text,
    duration_text,
    percent_text,
    signed_percent_text,
)
from foretrace.report.document import Section
from foretrace.report.sections.estimate import COLOUR_OF_SOURCE
from foretrace.report.sections.step import COLOUR_OF_COMPONENT
from foretrace.report.whatif_rows import (
    DifferenceRow,
    before_text,
    difference_rows,
    edited_rows,
    origin_text,
    reason_texts,
    short_sentence,
)
from foretrace.whatif import Memory, Prediction

MAX_BARS = 16
_COLOUR_OF_TIME = (
    ("compute_ns", "compute", "compute"),
    ("transfer_ns", "transfer", "communication"),
    ("wait_ns", "waiting", "wait"),
    ("idle_ns", "idle", "idle"),
)
# How much of the span that steps fill stays free before the least of them.
_ROOM = 0.35
_LEAST_ROOM = 0.02  # of the longest step
_FOLDED = " After is an estimate: one rank stands for all that do the same."
_HELD = ("parameters", "gradients", "optimizer", "activations", "buffers", "context", "total")


def change_section(found: Prediction) -> Section | None:
    """The step before and after in its components; `None` of a recording without steps."""
    rows = difference_rows(found)
    if not rows:
        return None
    *parts, whole = rows
    longest_ns = max(whole.before_ns, whole.after_ns, 1)
    before = _bar("before", parts, [row.before_ns for row in parts], longest_ns)
    after = _bar("after", parts, [row.after_ns for row in parts], longest_ns)
    by_rank = () if found.comparison is None else _by_rank(found.comparison)
    return Section(
        key="step",
        title="Before and after",
        short="Before, after",
        lead=(
            "Mean over ranks and steps: the recording replayed, and the same job edited; percent "
            "are of the longer step."
        ),
        parts=(before, after, _components(rows), *by_rank),
        note=(
            "Communication counts from the moment a rank is ready for it, so it holds the wait for "
            "other ranks. The four parts sum to the step exactly, on both sides."
            f"{_FOLDED if found.method == 'scaled' else ''}"
        ),
    )


def _bar(title: str, rows: list[DifferenceRow], times_ns: list[int], longest_ns: int) -> ShareBar:
    shares = tuple(
        Share(row.text, 100 * time_ns / longest_ns, duration_text(time_ns),
              COLOUR_OF_COMPONENT[row.name])
        for row, time_ns in zip(rows, times_ns, strict=True)
    )  # fmt: skip
    return ShareBar(title, shares)


def _components(rows: tuple[DifferenceRow, ...]) -> Table:
    whole_ns = max(rows[-1].before_ns, 1)
    return Table(
        key="components",
        title="",
        columns=(
            Column("component", "component", Unit.WORD),
            Column("before_ns", "before ms", Unit.MS),
            Column("after_ns", "after ms", Unit.MS),
            Column("difference_ns", "difference", Unit.SIGNED_NS),
            Column("difference_percent", "of the step before", Unit.SIGNED_PERCENT),
        ),
        rows=tuple(
            (
                row.text,
                row.before_ns,
                row.after_ns,
                row.difference_ns,
                100 * row.difference_ns / whole_ns,
            )
            for row in rows
        ),
        strong_rows=frozenset({len(rows) - 1}),
        colours=tuple(COLOUR_OF_COMPONENT[row.name] for row in rows[:-1]),
    )


def _by_rank(found: Comparison) -> tuple[Table, ...]:
    """Every rank's mean step on both sides; one rank alone is the bars above."""
    if len(found.ranks) == 1:
        return ()
    sides = ("before", "after")
    return (
        Table(
            key="rank-times",
            title="Per rank",
            lead="After; what was before is paler.",
            columns=(
                Column("rank", "rank", Unit.WORD),
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
    return (f"rank {one.rank}", *_times(one.before), *_times(one.after))


def _times(time: RankTime | None) -> tuple[Cell, ...]:
    return tuple(None if time is None else getattr(time, key) for key, _, _ in _COLOUR_OF_TIME)


def effects_section(found: Prediction) -> Section | None:
    """What each edit does to the step, one after the other; `None` without edits."""
    if not found.effects:
        return None
    return Section(
        key="effects",
        title="What each edit does",
        short="Edits",
        lead="Each made after those before it; in another order they may share it otherwise.",
        parts=(_waterfall(found), *_edited(found)),
    )


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
                100 * one.change_ns / max(step_ns, 1),
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
        key="edit-effects",
        title="",
        columns=(
            Column("edit", "edit"),
            Column("step_ns", "step ms", Unit.MS),
            Column("change_ns", "change", Unit.SIGNED_NS),
            Column("change_percent", "of the step before it", Unit.SIGNED_PERCENT),
            Column("from_ns", "from ms", Unit.MS),
            Column("whole_ns", "step, drawn", Unit.MS),
            Column("longer_ns", "longer by ms", Unit.MS),
            Column("shorter_ns", "shorter by ms", Unit.MS),
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
    return (Table(key="edited", title="What is different", columns=columns, rows=rows),)


def cause_section(prediction: Prediction) -> Section | None:
    """The difference by class of work, and in sentences; `None` without steps."""
    found = prediction.comparison
    if found is None:
        return None
    rows = [row for row in found.view("class").rows if row.difference_ns]
    reasons = tuple(("", text) for text in reason_texts(prediction))
    return Section(
        key="causes",
        title="Where the difference comes from",
        short="Causes",
        lead=(
            "Every moment of the step belongs to one class of work, so the differences sum to the "
            f"step's {signed_percent_text(found.percent)}."
        ),
        parts=(
            Table(
                key="classes",
                title="By class of work",
                columns=(
                    Column("class", "class"),
                    Column("before_ns", "before ms", Unit.MS),
                    Column("after_ns", "after ms", Unit.MS),
                    Column("difference_ns", "difference", Unit.SIGNED_NS),
                    Column("count_effect_ns", "by number of calls", Unit.SIGNED_NS),
                    Column("call_effect_ns", "by their length", Unit.SIGNED_NS),
                    Column("overlap_effect_ns", "by what hides them", Unit.SIGNED_NS),
                ),
                rows=tuple(
                    (
                        row.label,
                        row.before.step_ns,
                        row.after.step_ns,
                        row.difference_ns,
                        row.count_effect_ns,
                        row.call_effect_ns,
                        row.overlap_effect_ns,
                    )
                    for row in rows
                ),
                chart=Chart(
                    kind=ChartKind.BARS,
                    label="difference of the step by class of work",
                    category="class",
                    series=(Series("difference_ns", "difference", "communication"),),
                    unit=Unit.SIGNED_NS,
                    max_rows=MAX_BARS,
                ),
                colours=tuple(
                    "communication" if row.difference_ns > 0 else "overlapped" for row in rows
                ),
            ),
            *((Sentences("In words", reasons),) if reasons else ()),
        ),
    )


def memory_change_section(memory: Memory | None) -> Section | None:
    """Memory of the fullest rank on both sides; `None` where no model was stated."""
    if memory is None:
        return None
    before, after = memory.before.peak, memory.after.peak
    lead = f"{bytes_text(before.total)} before, {bytes_text(after.total)} after"
    if memory.after.margin is not None and memory.after.capacity is not None:
        says = "to spare" if memory.after.margin >= 0 else "too much"
        left = bytes_text(abs(memory.after.margin))
        lead += f", of {bytes_text(memory.after.capacity)}: {left} {says}"
    return Section(
        key="memory",
        title="Memory",
        short="Memory",
        lead=f"Of the fullest rank at its worst moment, by the model's sizes: {lead}.",
        parts=(
            Table(
                key="memory-parts",
                title="",
                columns=(
                    Column("part", "part", Unit.WORD),
                    Column("before_bytes", "before", Unit.BYTES),
                    Column("after_bytes", "after", Unit.BYTES),
                ),
                rows=tuple((name, getattr(before, name), getattr(after, name)) for name in _HELD),
                strong_rows=frozenset({len(_HELD) - 1}),
            ),
        ),
        warning="It does not fit." if memory.after.fits is False else "",
    )


def ground_section(found: Prediction) -> Section:
    """How wide the interval is, and where durations come from."""
    shares = tuple(
        Share(name, 100 * share, percent_text(100 * share), COLOUR_OF_SOURCE.get(name, "idle"),
              origin_text(name))
        for name, share in found.share_by_source.items()
    )  # fmt: skip
    notes = tuple(("", text) for text in found.notes)
    return Section(
        key="ground",
        title="What it rests on",
        short="Certainty",
        lead=(
            f"The middle 80 % of what is expected: {duration_text(found.low_ns)} to "
            f"{duration_text(found.high_ns)}. The step before is {before_text(found)}."
        ),
        parts=(
            ShareBar("critical path", shares, is_thin=True),
            Legend(shares),
            *((Sentences("To know", notes),) if notes else ()),
        ),
    )
