"""Effective time as a plot and as a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np

from foretrace.answer import Column, Fact, Facts, Table
from foretrace.report import answer_html, sweep_plot
from foretrace.risk import CampaignSweep

SWEEP = CampaignSweep(
    "checkpoint interval",
    "s",
    np.array([1.0, 10.0, 100.0]),
    {"linear": np.array([0.0, 0.5, 1.0]), "<renewal>": np.array([1.0, 1.0, 0.25])},
)


def polylines(svg: str) -> list[list[tuple[float, float]]]:
    root = ET.fromstring(svg)  # noqa: S314  our own text
    lines = root.iter("{http://www.w3.org/2000/svg}polyline")
    return [
        [
            (float(x), float(y))
            for x, y in (pair.split(",") for pair in line.attrib["points"].split())
        ]
        for line in lines
    ]


def test_points_stand_where_their_values_are() -> None:
    first, second = polylines(sweep_plot(SWEEP, title="a & b"))

    # Equal factors are equal distances, and 0 to 1 is the whole height.
    assert [x for x, _ in first] == [0.0, 320.0, 640.0]
    assert [y for _, y in first] == [320.0, 160.0, 0.0]
    assert [y for _, y in second] == [0.0, 0.0, 240.0]


def test_one_point_is_drawn_too() -> None:
    one = CampaignSweep("GPUs", "", np.array([8.0]), {"a": np.array([0.5])})

    assert polylines(sweep_plot(one)) == [[(0.0, 160.0)]]


def test_axes_have_the_names_that_fit() -> None:
    gpus = CampaignSweep("GPUs", "", np.array([800.0, 20_000.0]), {"a": np.array([0.5, 0.4])})

    assert ">1 min<" in sweep_plot(SWEEP)
    assert ">10,000<" in sweep_plot(gpus)
    assert ">500<" not in sweep_plot(gpus)  # outside of what was tried


def test_a_page_escapes_its_words_and_asks_for_nothing() -> None:
    table = Table("shares", "shares", (Column("what"), Column("share")), (("<b>", 0.05),))
    facts = Facts((Fact("figure", "1 < 2"),))

    text = answer_html(
        "A & B",
        "subject",
        (facts, table),
        drawings=(("plot", sweep_plot(SWEEP, has_ground=False)),),
    )

    assert "<b>" not in text
    assert "A &amp; B" in text
    assert "1 &lt; 2" in text
    assert "<polyline" in text
    assert not re.search(r"(src|href)=", text)
