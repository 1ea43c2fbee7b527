"""`Deviations`: how far two forms of an operator are from what is right, over formats and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, product
from typing import ClassVar

import numpy as np

from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Sentences,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    number_text,
)
from foretrace.base import WorkloadError
from foretrace.numerics.distances import Deviation, distance_between
from foretrace.numerics.formats import FloatFormat, float_format
from foretrace.numerics.pairs import OPERATOR_PAIRS, Case, OperatorPair, taken

_SAME = "same"  # statistics in the format itself

_KEYS = ("largest", "mean", "wasserstein", "bias")


@dataclass(frozen=True, kw_only=True)
class DeviationRow:
    """One format, length and tile; the mean over seeds."""

    format: str
    statistics: str
    length: int
    tile: int
    baseline: Deviation
    other: Deviation

    @property
    def num_tiles(self) -> int:
        """How many pieces the other form works in."""
        return -(-self.length // self.tile)

    @property
    def ratio(self) -> float:
        """Largest deviation of the other form over the baseline's."""
        return self.other.largest / self.baseline.largest if self.baseline.largest else math.nan


@dataclass(frozen=True, kw_only=True)
class DeviationTrend:
    """How the other form's deviation goes with something."""

    format: str
    statistics: str
    over: str
    slope: float  # of the logarithms: 1 is "as many times more"
    is_monotone: bool  # whether none falls as the quantity rises
    num_points: int


@dataclass(frozen=True, repr=False)
class Deviations(Answer):
    """A pair of operators over formats, statistics, lengths and tiles."""

    note = (
        "Deviations are from the baseline in fp64, the mean over seeds; ratio is the largest "
        "deviation in tiles over the baseline's own."
    )

    json_names: ClassVar = {"rows": "deviations"}

    name: str
    rows: tuple[DeviationRow, ...]
    trends: tuple[DeviationTrend, ...]
    num_seeds: int

    @property
    def headline(self) -> str:
        """The range of the ratio."""
        ratios = [one.ratio for one in self.rows if one.ratio == one.ratio]
        said = f"{number_text(min(ratios))} to {number_text(max(ratios))}" if ratios else "no"
        return (
            f"{self.name} in tiles is {said} times as far from fp64 as the baseline, over "
            f"{count_text(len(self.rows), 'case')} with {count_text(self.num_seeds, 'seed')} each"
        )

    def parts(self) -> tuple[Told, ...]:
        """Cases, then how they go."""
        table = Table.of(
            "deviations",
            self.rows,
            Column("format", unit=Unit.WORD),
            Column("statistics", unit=Unit.WORD),
            Column("length", unit=Unit.COUNT),
            Column("tile", unit=Unit.COUNT),
            Column("num_tiles"),
            Column("ratio", unit=Unit.NUMBER),
            *(_distance(side, key) for side in ("other", "baseline") for key in _KEYS),
        )
        trends = Table.of(
            "trends",
            self.trends,
            Column("format", unit=Unit.WORD),
            Column("statistics", unit=Unit.WORD),
            Column("over"),
            Column("slope", "slope (log-log)", Unit.NUMBER),
            Column("is_monotone", "never falls"),
            Column("num_points", shown=Shown.FILES),
            title="how the deviation goes",
        )
        return table, self._drawn(), trends, Sentences.of("to know", self._notes())

    def _drawn(self) -> Table:
        """Deviation over the number of tiles, of every format and kind of statistics."""
        kinds = list(dict.fromkeys((one.format, one.statistics) for one in self.rows))
        tiles = sorted({one.num_tiles for one in self.rows})
        longest = max(one.length for one in self.rows)
        by_place = {
            (one.format, one.statistics, one.num_tiles): one.other.largest
            for one in self.rows
            if one.length == longest
        }
        columns = [
            (Column(f"{kind}_{kept}", f"{kind}, {kept}", Unit.NUMBER),
             [by_place.get((kind, kept, number)) for number in tiles])
            for kind, kept in kinds
        ]  # fmt: skip
        colours = ("compute", "communication", "overlapped", "idle")
        series = tuple(
            Series(column.key, column.title, colours[at % len(colours)])
            for at, (column, _) in enumerate(columns)
        )
        number = Column("num_tiles", "tiles", Unit.COUNT)
        rows = tuple(zip(tiles, *(values for _, values in columns), strict=True))
        label = f"Largest deviation of {self.name} over the number of tiles, length {longest}"
        chart = Chart(
            ChartKind.CURVES, label, "num_tiles", series, Unit.NUMBER, category_unit=Unit.COUNT
        )
        whole = (number, *(column for column, _ in columns))
        return Table("by_tiles", "", whole, rows, chart=chart, shown=Shown.FILES)

    def _notes(self) -> Iterator[str]:
        yield (
            "a ratio holds for these statistics alone: running sums in fp32, as kernels keep them, "
            "bring it below 1"
        )


def _distance(side: str, key: str) -> Column:
    title = f"{'tiles' if side == 'other' else side} {key}"
    shown = Shown.EVERYWHERE if key == "largest" else Shown.FILES
    return Column(f"{side}_{key}", title, Unit.NUMBER, f"{side}.{key}", shown=shown)


def deviate(
    pair: str | OperatorPair,
    *,
    formats: Sequence[str] = ("bf16", "fp16"),
    statistics: Sequence[str] = (_SAME, "fp32"),
    lengths: Sequence[int] = (512, 2048),
    tiles: Sequence[int] = (16, 64, 256),
    num_seeds: int = 3,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Deviations:
    """How far two forms of an operator are from fp64.

    Args:
        pair: one of `OPERATOR_PAIRS`, or `pair_of` two functions.
        formats: of inputs and of what is kept between steps.
        statistics: formats of running sums; "same" is the format itself.
        lengths: what is summed over.
        tiles: pieces of it.
        num_seeds: inputs of each case.
        seed: of the first.
        progress: called with cases done and cases in all.

    Raises:
        WorkloadError: if the pair or a format is unknown, or a size is none.
    """
    chosen = pair if isinstance(pair, OperatorPair) else _pair_named(pair)
    if min(*lengths, *tiles, num_seeds) < 1:
        raise WorkloadError(
            f"lengths {list(lengths)}, tiles {list(tiles)} and {num_seeds} seeds cannot be run: "
            "all have to be 1 or more"
        )
    known = [float_format(one) for one in formats]
    kept = [None if one == _SAME else float_format(one) for one in statistics]
    cases = list(product(known, kept, lengths, sorted({*tiles})))
    rows = []
    for done, (kind, sums, length, tile) in enumerate(cases):
        if progress is not None:
            progress(done, len(cases))
        rows.append(_row(chosen, kind, sums or kind, (length, tile), range(seed, seed + num_seeds)))
    return Deviations(chosen.name, tuple(rows), tuple(_trends(rows)), num_seeds)


def _pair_named(name: str) -> OperatorPair:
    if name not in OPERATOR_PAIRS:
        raise WorkloadError(
            f"no pair of operators is called {name!r}: expected one of {', '.join(OPERATOR_PAIRS)}"
        )
    return OPERATOR_PAIRS[name]


def _row(
    pair: OperatorPair,
    kind: FloatFormat,
    sums: FloatFormat,
    size: tuple[int, int],
    seeds: Iterable[int],
) -> DeviationRow:
    length, tile = size
    found: list[tuple[Deviation, Deviation]] = []
    for seed in seeds:
        case = Case(format=kind, statistics=sums, length=length, tile=tile, seed=seed)
        inputs = taken(pair.inputs(case), case)
        golden = pair.baseline(taken(inputs, case.golden), case.golden)
        sides = (pair.baseline(inputs, case), pair.other(inputs, case))
        found.append((distance_between(sides[0], golden), distance_between(sides[1], golden)))
    return DeviationRow(
        format=kind.name,
        statistics=sums.name,
        length=length,
        tile=tile,
        baseline=_mean(one for one, _ in found),
        other=_mean(one for _, one in found),
    )


def _mean(distances: Iterable[Deviation]) -> Deviation:
    listed = list(distances)
    return Deviation(*(float(np.mean([getattr(one, key) for one in listed])) for key in _KEYS))


def _trends(rows: Sequence[DeviationRow]) -> Iterator[DeviationTrend]:
    """Over tiles of the longest length, and over lengths in the smallest tiles."""

    def kind(row: DeviationRow) -> tuple[str, str]:
        return row.format, row.statistics

    for (name, sums), group in groupby(sorted(rows, key=kind), kind):
        held = list(group)
        longest = max(one.length for one in held)
        smallest = min(one.tile for one in held)
        for over, points in (
            ("tiles", [(one.num_tiles, one) for one in held if one.length == longest]),
            ("length", [(one.length, one) for one in held if one.tile == smallest]),
        ):
            points.sort(key=lambda point: point[0])
            sizes = [size for size, _ in points]
            values = [one.other.largest for _, one in points]
            if len(set(sizes)) > 1 and min(values) > 0:
                yield DeviationTrend(
                    format=name,
                    statistics=sums,
                    over=over,
                    slope=float(np.polyfit(np.log(sizes), np.log(values), 1)[0]),
                    is_monotone=all(a <= b for a, b in pairwise(values)),
                    num_points=len(points),
                )
