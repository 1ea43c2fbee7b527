"""Where the step's time goes: its parts, over all ranks and on each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from foretrace.analyze import COLOUR_OF_SHOWN, SHOWN_PARTS, Parts
from foretrace.answer import (
    Chart,
    ChartKind,
    Column,
    Legend,
    Series,
    Share,
    ShareBar,
    Table,
    TimelineDrawing,
    Unit,
    component_text,
    duration_text,
)
from foretrace.report.document import Section
from foretrace.validate import RankReplay, ReplayReport

_SIDES = ("measured", "replayed")
_WAITING = SHOWN_PARTS.index("waiting_for_ranks")


def step_section(replay: ReplayReport) -> Section:
    """What was measured: means over all, then every rank, the replay beside it where asked for."""
    shares = _shares(replay)
    return Section(
        key="step",
        title="Where the time goes",
        short="Breakdown",
        lead=(
            f"Measured: shares of a rank's own step, {duration_text(replay.measured_ns)} in the "
            f"mean over ranks and steps; the job's step time is "
            f"{duration_text(replay.step_time_ns)}."
        ),
        parts=(ShareBar("", shares), Legend(shares), *_per_rank(replay)),
        note=(
            "Waiting for ranks: this one is in a collective, and another has not come. A step of a "
            "rank runs from its host mark, or where its device was done with the step before, to "
            "the later of its host end and the end of the last device operation launched in it; "
            "the parts sum to it exactly."
        ),
    )


def _shares(replay: ReplayReport) -> tuple[Share, ...]:
    step_ns = max(replay.measured_ns, 1.0)
    return tuple(
        Share(
            component_text(name),
            100 * measured_ns / step_ns,
            f"{100 * measured_ns / step_ns:.1f} %",
            COLOUR_OF_SHOWN[name],
            duration_text(measured_ns),
        )
        for name, measured_ns, _ in replay.component_means()
    )


def _per_rank(replay: ReplayReport) -> tuple[Table, ...]:
    """Means over steps per rank; one rank alone is the bar above."""
    by_rank: dict[int, list[RankReplay]] = {}
    for row in replay.rows:
        by_rank.setdefault(row.rank, []).append(row)
    if len(by_rank) == 1:
        return ()
    columns = [(side, name) for side in _SIDES for name in SHOWN_PARTS]
    order, lead = sorted(by_rank), "Mean over steps."
    if len(order) > Chart.max_rows:
        order.sort(key=lambda rank: _means(row.measured_parts for row in by_rank[rank])[_WAITING])
        lead = "Mean over steps; first those that wait least, whom others wait for."
    return (
        Table(
            key="rank-components",
            title="Per rank",
            lead=lead,
            columns=(
                Column("rank"),
                *(
                    Column(f"{side}_{name}_ns", f"{component_text(name)} {side}, ms")
                    for side, name in columns
                ),
            ),
            rows=tuple(
                (
                    rank,
                    *_means(row.measured_parts for row in by_rank[rank]),
                    *_means(row.replayed_parts for row in by_rank[rank]),
                )
                for rank in order
            ),
            chart=Chart(
                kind=ChartKind.BARS,
                label="time of every rank in its parts, measured and replayed",
                category="rank",
                category_unit=Unit.RANK,
                series=tuple(
                    Series(
                        f"{side}_{name}_ns",
                        component_text(name),
                        COLOUR_OF_SHOWN[name],
                        group=side,
                        is_faint=side == "replayed",
                    )
                    for side, name in columns
                ),
                unit=Unit.NS,
            ),
        ),
    )


def _means(parts: Iterable[Parts]) -> tuple[float, ...]:
    found = [one.shown() for one in parts]
    return tuple(fmean(one[name] for one in found) for name in SHOWN_PARTS)


def timeline_section(titles: Sequence[str] = ("measured", "replayed")) -> Section:
    """The timeline of all ranks.

    Args:
        titles: of what is drawn, one above the other.
    """
    return Section(
        key="timeline-section",
        title="Timeline",
        short="Timeline",
        lead=(
            "Per rank: what its host threads were inside of, their calls, compute, communication, "
            f"and why nothing was done; {' above '.join(titles)}."
        ),
        parts=(TimelineDrawing(),),
    )
