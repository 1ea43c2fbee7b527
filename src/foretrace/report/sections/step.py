"""Where the step's time goes: the four components, over all and per rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean

from foretrace.analyze import COMPONENTS, Parts
from foretrace.answer import (
    Cell,
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
from foretrace.report.replay_rows import ComponentRow, component_rows, rank_rows
from foretrace.validate import RankReplay, ReplayReport

COLOUR_OF_COMPONENT = {
    "exposed_compute": "compute",
    "overlapped": "overlapped",
    "exposed_communication": "communication",
    "idle": "idle",
}


def step_section(replay: ReplayReport) -> Section:
    """Measured beside replayed: means over all, then every rank."""
    rows = component_rows(replay)
    return Section(
        key="step",
        title="Where the time goes",
        short="Breakdown",
        lead="Mean over all steps and ranks; measured above, replayed below.",
        parts=(
            _bar("measured", rows, lambda row: (row.measured_percent, row.measured_ns)),
            _bar("replayed", rows, lambda row: (row.replayed_percent, row.replayed_ns)),
            _components(rows),
            *_per_rank(replay),
        ),
        note=(
            "Communication counts from the moment a rank is ready for it, so it holds the wait for "
            "other ranks. A step runs from its host mark to the later of its host end and the end "
            "of the last device operation launched in it; the four parts sum to it exactly."
        ),
    )


def _bar(
    title: str,
    rows: Iterable[ComponentRow],
    percent_and_ns: Callable[[ComponentRow], tuple[float, float]],
) -> ShareBar:
    shares = []
    for row in rows:
        percent, duration_ns = percent_and_ns(row)
        colour = COLOUR_OF_COMPONENT[row.name]
        shares.append(Share(component_text(row.name), percent, duration_text(duration_ns), colour))
    return ShareBar(title, tuple(shares))


def _components(rows: list[ComponentRow]) -> Table:
    cells: list[tuple[Cell, ...]] = [
        (
            component_text(row.name),
            row.measured_ns,
            row.replayed_ns,
            row.measured_percent,
            row.error_percent,
        )
        for row in rows
    ]
    total = [sum(row.measured_ns for row in rows), sum(row.replayed_ns for row in rows)]
    error_percent = sum(row.error_percent for row in rows)
    cells.append(("step", *total, 100.0, error_percent))
    return Table(
        key="components",
        title="",
        columns=(
            Column("component", "component", Unit.WORD),
            Column("measured_ns", "measured ms", Unit.MS),
            Column("replayed_ns", "replayed ms", Unit.MS),
            Column("share_percent", "share of step", Unit.PERCENT),
            Column("error_percent", "error, of the step", Unit.SIGNED_PERCENT),
        ),
        rows=tuple(cells),
        strong_rows=frozenset({len(rows)}),
        colours=tuple(COLOUR_OF_COMPONENT[row.name] for row in rows),
    )


def _per_rank(replay: ReplayReport) -> tuple[Table, ...]:
    """Means over steps per rank; one rank alone is the bar above."""
    by_rank: dict[int, list[RankReplay]] = {}
    for row in rank_rows(replay):
        by_rank.setdefault(row.rank, []).append(row)
    if len(by_rank) == 1:
        return ()
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            f"rank {rank}",
            *_means(row.measured_parts for row in of_rank),
            *_means(row.replayed_parts for row in of_rank),
        )
        for rank, of_rank in sorted(by_rank.items())
    )
    return (
        Table(
            key="rank-components",
            title="Per rank",
            lead="Mean over steps; measured above replayed, which is paler.",
            columns=(
                Column("rank", "rank", Unit.WORD),
                *(
                    Column(f"{side}_{name}_ns", f"{component_text(name)} {side}, ms", Unit.MS)
                    for side in ("measured", "replayed")
                    for name in COMPONENTS
                ),
            ),
            rows=rows,
            chart=Chart(
                kind=ChartKind.BARS,
                label="time of every rank in four components, measured and replayed",
                category="rank",
                series=tuple(
                    Series(
                        f"{side}_{name}_ns",
                        component_text(name),
                        COLOUR_OF_COMPONENT[name],
                        group=side,
                        is_faint=side == "replayed",
                    )
                    for side in ("measured", "replayed")
                    for name in COMPONENTS
                ),
                unit=Unit.NS,
            ),
        ),
    )


def _means(parts: Iterable[Parts]) -> tuple[float, ...]:
    found = [one.as_json() for one in parts]
    return tuple(fmean(one[name] for one in found) for name in COMPONENTS)
