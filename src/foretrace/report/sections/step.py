"""Where the step's time goes: the four components, over all and per rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from foretrace.analyze import COLOUR_OF_COMPONENT, COMPONENTS, Parts
from foretrace.answer import (
    Chart,
    ChartKind,
    Column,
    Series,
    Share,
    ShareBar,
    Table,
    Unit,
    component_text,
    duration_text,
)
from foretrace.report.document import Section
from foretrace.validate import RankReplay, ReplayReport

_SIDES = ("measured", "replayed")


def step_section(replay: ReplayReport) -> Section:
    """Measured beside replayed: means over all, then every rank."""
    table = replay.components_table()
    return Section(
        key="step",
        title="Where the time goes",
        short="Breakdown",
        lead="Mean over all steps and ranks; measured above, replayed below.",
        parts=(
            *(_bar(replay, side) for side in _SIDES),
            replace(table, title="", colours=tuple(COLOUR_OF_COMPONENT.values())),
            *_per_rank(replay),
        ),
        note=(
            "Communication counts from the moment a rank is ready for it, so it holds the wait for "
            "other ranks. A step runs from its host mark to the later of its host end and the end "
            "of the last device operation launched in it; the four parts sum to it exactly."
        ),
    )


def _bar(replay: ReplayReport, side: str) -> ShareBar:
    step_ns = max(replay.measured_ns, 1.0)
    shares = []
    for name, *times_ns in replay.component_means():
        time_ns = times_ns[_SIDES.index(side)]
        text, colour = duration_text(time_ns), COLOUR_OF_COMPONENT[name]
        shares.append(Share(component_text(name), 100 * time_ns / step_ns, text, colour))
    return ShareBar(side, tuple(shares))


def _per_rank(replay: ReplayReport) -> tuple[Table, ...]:
    """Means over steps per rank; one rank alone is the bar above."""
    by_rank: dict[int, list[RankReplay]] = {}
    for row in replay.rows:
        by_rank.setdefault(row.rank, []).append(row)
    if len(by_rank) == 1:
        return ()
    columns = [(side, name) for side in _SIDES for name in COMPONENTS]
    return (
        Table(
            key="rank-components",
            title="Per rank",
            lead="Mean over steps; measured above replayed, which is paler.",
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
                    *_means(row.measured_parts for row in of_rank),
                    *_means(row.replayed_parts for row in of_rank),
                )
                for rank, of_rank in sorted(by_rank.items())
            ),
            chart=Chart(
                kind=ChartKind.BARS,
                label="time of every rank in four components, measured and replayed",
                category="rank",
                category_unit=Unit.RANK,
                series=tuple(
                    Series(
                        f"{side}_{name}_ns",
                        component_text(name),
                        COLOUR_OF_COMPONENT[name],
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
    found = [one.as_json() for one in parts]
    return tuple(fmean(one[name] for one in found) for name in COMPONENTS)
