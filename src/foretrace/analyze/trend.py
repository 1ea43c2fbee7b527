"""`Trend`: the step time over many runs in their order, and which run changed it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from foretrace.analyze.breakdown import SHOWN_PARTS, breakdown
from foretrace.analyze.compare import CONFIDENCE, compare
from foretrace.analyze.comparison.results import Comparison, Verdict
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Plain,
    Sentences,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    component_text,
    count_text,
    duration_text,
    signed_percent_text,
)
from foretrace.base import GraphError
from foretrace.graph import Timeline


@dataclass(frozen=True)
class TrendRow(Plain):
    """One run beside the one before it."""

    run: str
    step_time_ns: int
    num_steps: int
    num_ranks: int
    change_ns: int | None  # against the run before; None: there is none
    change_percent: float | None
    verdict: str  # whether the spread between steps explains it; "" of the first
    reason: str  # what changed most; "" of the first
    parts_ns: dict[str, float]  # of a rank's own step, mean over ranks and steps


@dataclass(frozen=True, repr=False)
class Trend(Answer):
    """Runs in their order."""

    rows: tuple[TrendRow, ...]
    last: Comparison | None  # of the last run with the one before

    @property
    def percent(self) -> float:
        """How much longer the last run's step is than the first's."""
        first_ns = max(self.rows[0].step_time_ns, 1)
        return 100 * (self.rows[-1].step_time_ns / first_ns - 1)

    @property
    def headline(self) -> str:
        """From the first run to the last, and the runs at which the step changed."""
        first, last = (duration_text(self.rows[at].step_time_ns) for at in (0, -1))
        changed = sum(one.verdict == Verdict.BEYOND_NOISE.value for one in self.rows)
        return (
            f"{count_text(len(self.rows), 'run')}: {first} to {last} "
            f"({signed_percent_text(self.percent)}), {count_text(changed, 'change')} beyond the "
            "spread between steps"
        )

    def parts(self) -> tuple[Told, ...]:
        """A run a row, then why the step changed where it did."""
        told = (
            f"{one.run}: {signed_percent_text(one.change_percent or 0)}: {one.reason}"
            for one in self.rows
            if one.reason and one.verdict == Verdict.BEYOND_NOISE.value
        )
        return self._rows_table(), Sentences.of("what changed", told)

    def _rows_table(self) -> Table:
        return Table.of(
            "rows",
            self.rows,
            Column("run", unit=Unit.NAME),
            Column("step_time_ns"),
            Column("change_percent", "change", Unit.SIGNED_PERCENT),
            Column("change_ns", unit=Unit.SIGNED_MS, shown=Shown.WIDE),
            Column("verdict", "against the run before"),
            Column("num_steps"),
            Column("num_ranks", shown=Shown.WIDE),
            *(
                Column(
                    f"{part}_ns",
                    f"{component_text(part)} ms",
                    value=_part(part),
                    shown=Shown.WIDE,
                )
                for part in SHOWN_PARTS
            ),
            Column("reason", shown=Shown.FILES),
            title="",
            chart=Chart(
                kind=ChartKind.COLUMNS,
                label="step time of every run, in their order",
                category="run",
                series=(Series("step_time_ns", "step time", "compute"),),
                unit=Unit.NS,
            ),
        )


def _part(name: str) -> Callable[[TrendRow], float]:
    return lambda one: one.parts_ns[name]


def trend(runs: Iterable[tuple[str, Timeline]], *, confidence: float = CONFIDENCE) -> Trend:
    """The step time over many runs, each held against the one before.

    Args:
        runs: each with its name, in their order; only two of them are held at once.
        confidence: with which a difference must exceed the spread between steps, 0 to 1.

    Raises:
        GraphError: if there are fewer than two runs.
    """
    rows: list[TrendRow] = []
    before: Timeline | None = None
    compared: Comparison | None = None
    for name, timeline in runs:
        if before is not None:
            compared = compare(before, timeline, confidence=confidence)
        rows.append(_row(name, timeline, compared))
        before = timeline
    if len(rows) < 2:  # noqa: PLR2004  a trend has two ends
        raise GraphError(
            f"a trend needs two runs at least, and there are {len(rows)}: give a folder that holds "
            "a folder for each run, or each run's own path"
        )
    return Trend(tuple(rows), compared)


def _row(name: str, timeline: Timeline, compared: Comparison | None) -> TrendRow:
    split = breakdown(timeline)
    count = max(len(split.rows), 1)
    reasons = () if compared is None else compared.reasons
    return TrendRow(
        run=name,
        step_time_ns=split.step_time_ns,
        num_steps=len(timeline.graph.step_names),
        num_ranks=len(timeline.graph.ranks),
        change_ns=None if compared is None else compared.difference_ns,
        change_percent=None if compared is None else compared.percent,
        verdict="" if compared is None else compared.noise.verdict.value,
        reason=reasons[0].sentence if reasons else "",
        parts_ns={part: part_ns / count for part, part_ns in split.overall.shown().items()},
    )
