"""Plots of step times: everything drawn lies inside, and says what it is."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np

from foretrace.answer import Chart, ChartKind, Column, Series, Table, Unit
from foretrace.report import MOST_NAMED, distribution_plot, scale_plot, table_plot
from foretrace.risk import Scale, StepDistribution


def found(step_ns: np.ndarray) -> StepDistribution:
    return StepDistribution(
        title="a job",
        fixed_ns=95e6,
        step_ns=step_ns,
        num_ranks=64,
        method="every rank",
        sources={},
        scales=tuple(
            Scale(n, 8 * n, (100 + n) * 1e6, 9e7, 1e8, 1.1e8 + n * 1e6) for n in (1, 2, 8)
        ),
    )


def test_bars_hold_every_sample_and_marks_lie_inside() -> None:
    drawn = distribution_plot(found(np.random.default_rng(1).normal(1e8, 1e6, (2, 50, 2))))

    root = ET.fromstring(drawn)  # noqa: S314  our own text
    bars = [one for one in root.iterfind(".//{*}rect") if one.get("fill") != "none"]
    marks = [float(one.get("x1", "nan")) for one in root.iterfind(".//{*}line")]
    assert len(bars) == 60
    assert max(float(one.get("height", "0")) for one in bars) == 240
    assert len(marks) == 4
    assert all(0 <= x <= 640 for x in marks)
    assert "every duration at its mean" in drawn


def test_steps_that_do_not_vary_can_be_drawn() -> None:
    drawn = distribution_plot(found(np.full((2, 3, 1), 95e6)))

    assert "nan" not in drawn
    ET.fromstring(drawn)  # noqa: S314  our own text


def test_quantiles_are_lines_over_the_number_of_gpus() -> None:
    drawn = scale_plot(found(np.full((2, 3, 1), 95e6)))

    lines = re.findall(r'<polyline points="([^"]+)"', drawn)
    assert len(lines) == 3
    for line in lines:
        across = [float(point.split(",")[0]) for point in line.split()]
        assert across[0] == 0
        assert across[-1] == 640
    assert ">64<" in drawn


def curves(rates: list[float], kind: ChartKind = ChartKind.CURVES) -> Table:
    rows = tuple((rate, 10 * rate, 3.0) for rate in rates)
    chart = Chart(
        kind, "times by rate", "rate", (Series("a", "first", "idle"), Series("b", "last", "idle")),
        Unit.NUMBER, Unit.NUMBER,
    )  # fmt: skip
    columns = (Column("rate"), Column("a"), Column("b"))
    return Table("points", "points", columns, rows, chart=chart)


def test_curves_of_a_table_are_drawn_within_its_values() -> None:
    few, many = curves([0.5, 1, 2]), curves([float(at) for at in range(MOST_NAMED + 1)])

    for table in (few, many):
        lines = re.findall(r'<polyline points="([^"]+)"', table_plot(table))
        points = [tuple(map(float, point.split(","))) for line in lines for point in line.split()]
        assert len(lines) == 2
        assert len(points) == 2 * len(table)
        assert all(0 <= x <= 640 and 0 <= y <= 240 for x, y in points)
    assert ">0.5<" in table_plot(few)
    assert "times by rate" in table_plot(many)


def test_a_table_that_is_drawn_as_bars_is_no_curve() -> None:
    assert not table_plot(curves([1, 2], ChartKind.BARS))


def test_names_of_curves_that_end_together_stand_apart() -> None:
    drawn = table_plot(curves([0.2, 0.3]))

    heights = [
        float(found) for found in re.findall(r'y="([-\d.]+)" text-anchor="end" style', drawn)
    ]
    assert len(heights) == len(set(heights)) > 1
    assert np.diff(sorted(heights)).min() >= 14
