"""Plots of steps: how often which time, quantiles and gains against scale; curves of tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import cycle

import numpy as np

from foretrace.answer import ChartKind, Table
from foretrace.base import NS_PER_MS
from foretrace.estimate import Packings
from foretrace.risk import StepDistribution

_WIDTH, _HEIGHT = 640, 240  # pixels, of the plot inside its axes
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 16, 24, 44
_NUM_BINS = 60
_LINE = 14  # of text
_NUM_TICKS = 5
MOST_NAMED = 12  # places of curves that are written below them
# Of Okabe and Ito's colours, which people of all kinds of sight can tell apart.
_FILL, _MARK, _LOW, _MIDDLE, _HIGH = "#56b4e9", "#d55e00", "#009e73", "#0072b2", "#d55e00"


def distribution_plot(found: StepDistribution) -> str:
    """An SVG document: a histogram, with quantiles and the point estimate marked."""
    values = found.step_ns.ravel() / NS_PER_MS
    low, high = float(values.min()), float(values.max())
    fixed = found.fixed_ns / NS_PER_MS
    low, high = min(low, fixed), max(high, fixed)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(values, bins=_NUM_BINS, range=(low, high))

    def place(value: float) -> float:
        return (value - low) / (high - low) * _WIDTH

    def drawn() -> Iterator[str]:
        tallest = max(int(counts.max()), 1)
        width = _WIDTH / _NUM_BINS
        for at, count in enumerate(counts.tolist()):
            height = _HEIGHT * count / tallest
            yield (
                f'<rect x="{place(float(edges[at])):.1f}" y="{_HEIGHT - height:.1f}" '
                f'width="{width:.2f}" height="{height:.1f}" fill="{_FILL}"/>'
            )
        marks = [(fixed, "every duration at its mean", "4 3")]
        marks += [
            (found.quantile(share).step_ns / NS_PER_MS, f"{100 * share:.0f} %", "")
            for share in (0.05, 0.5, 0.95)
        ]
        for row, (value, name, dash) in enumerate(marks):
            x = place(value)
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}" stroke="{_MARK}" '
                f'stroke-dasharray="{dash}"/>'
            )
            side = "end" if x > _WIDTH / 2 else "start"
            shift = -4 if side == "end" else 4
            yield (
                f'<text x="{x + shift:.1f}" y="{12 + 14 * row}" text-anchor="{side}">'
                f"{escape(name)}</text>"
            )
        yield from _across(low, high)
        yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 36}" text-anchor="middle">step, ms</text>'

    return _document(drawn())


def scale_plot(found: StepDistribution) -> str:
    """An SVG document: quantiles of steps against the number of GPUs that wait for each other."""
    scales = found.scales
    gpus = [one.num_ranks for one in scales]
    lines = {
        "5 %": (_LOW, [one.p5_ns / NS_PER_MS for one in scales]),
        "50 %": (_MIDDLE, [one.p50_ns / NS_PER_MS for one in scales]),
        "95 %": (_HIGH, [one.p95_ns / NS_PER_MS for one in scales]),
    }
    return _curves(gpus, lines, "GPUs; step upwards, ms")


def gain_plot(found: Packings) -> str:
    """An SVG document: what the best packer gains against the length of the window."""
    windows = found.windows
    lines = {
        "at least": (_LOW, [one.low for one in windows]),
        "same work": (_MIDDLE, [one.gain for one in windows]),
        "at most": (_HIGH, [one.high for one in windows]),
    }
    label = "tokens of the window; times as fast for the same work upwards"
    return _curves([one.window for one in windows], lines, label)


def table_plot(table: Table) -> str:
    """An SVG document: a table's chart of curves; nothing if it is drawn as anything else."""
    chart = table.chart
    if chart is None or chart.kind not in {ChartKind.CURVES, ChartKind.STEPS} or not table.rows:
        return ""
    rows = table.as_json()
    lines = {
        series.title: (colour, [float(row[series.column] or 0) for row in rows])
        for series, colour in zip(chart.series, cycle((_MIDDLE, _HIGH, _LOW)))
    }
    places = [float(row[chart.category] or 0) for row in rows]
    return _curves(places, lines, chart.label)


def _curves(
    places: Sequence[float], lines: Mapping[str, tuple[str, list[float]]], label: str
) -> str:
    """Curves with their colours over a quantity, logarithmic where few places are named."""
    low = min(min(values) for _, values in lines.values())
    high = max(max(values) for _, values in lines.values())
    margin = (high - low) * 0.1 or 0.5
    low, high = max(low - margin, 0.0) if low >= 0 else low - margin, high + margin
    is_named = len(places) <= MOST_NAMED and places[0] > 0
    scaled: Callable[[float], float] = math.log if is_named else float
    first, last = scaled(places[0]), scaled(places[-1])

    def across(place: float) -> float:
        return (scaled(place) - first) / ((last - first) or 1.0) * _WIDTH

    def up(value: float) -> float:
        return _HEIGHT * (1 - (value - low) / (high - low))

    heights = _apart({name: up(values[-1]) - 6 for name, (_, values) in lines.items()})

    def drawn() -> Iterator[str]:
        for name, (colour, values) in lines.items():
            points = " ".join(
                f"{across(place):.1f},{up(value):.1f}"
                for place, value in zip(places, values, strict=True)
            )
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            yield (
                f'<text x="{_WIDTH - 4}" y="{heights[name]:.1f}" text-anchor="end" '
                f'style="fill:{colour}">{escape(name)}</text>'
            )
        if not is_named:
            yield from _across(places[0], places[-1])
        for place in places if is_named else ():
            yield (
                f'<text x="{across(place):.1f}" y="{_HEIGHT + 18}" text-anchor="middle">'
                f"{_number(place) if place % 1 else f'{place:,.0f}'}</text>"
            )
        for value in _ticks(low, high):
            yield (
                f'<text x="-8" y="{up(value) + 4:.1f}" text-anchor="end">{_number(value)}</text>'
            )
        yield (f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 36}" text-anchor="middle">{label}</text>')

    return _document(drawn())


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """Where names of curves stand, one line of text apart, from the lowest up."""
    found: dict[str, float] = {}
    free = math.inf
    for name in sorted(heights, key=lambda each: -heights[each]):
        found[name] = min(heights[name], free)
        free = found[name] - _LINE
    return found


def _ticks(low: float, high: float) -> Sequence[float]:
    found: list[float] = np.linspace(low, high, _NUM_TICKS).tolist()
    return found


def _across(low: float, high: float) -> Iterator[str]:
    for at, value in enumerate(_ticks(low, high)):
        x = at / (_NUM_TICKS - 1) * _WIDTH
        yield f'<text x="{x:.1f}" y="{_HEIGHT + 18}" text-anchor="middle">{_number(value)}</text>'


def _number(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"  # noqa: PLR2004  four digits


def _document(parts: Iterator[str]) -> str:
    width, height = _WIDTH + _LEFT + _RIGHT, _HEIGHT + _TOP + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">'
        "<style>.s text{font:12px system-ui,sans-serif;fill:currentColor}</style>"
        f'<g class="s" transform="translate({_LEFT},{_TOP})">'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="currentColor" '
        f'stroke-opacity=".3"/>{"".join(parts)}</g></svg>\n'
    )
