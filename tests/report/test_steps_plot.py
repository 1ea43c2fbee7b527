"""Plots of step times: everything drawn lies inside, and says what it is."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np

from foretrace.report import distribution_plot, scale_plot
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
