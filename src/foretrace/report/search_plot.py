"""A search as plots: plans by step and memory, and the best step and the gap over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from foretrace.base import NS_PER_MS
from foretrace.search import Looked, PlanSearch

_WIDTH, _HEIGHT = 640, 280  # pixels, of the plot inside its axes
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 16, 24, 44
_NUM_TICKS = 5
_GB = 1e9
# Of Okabe and Ito's colours, which people of all kinds of sight can tell apart.
_FRONT, _BEST, _LINE = "#0072b2", "#d55e00", "#009e73"
_Point = tuple[float, float]


def search_drawings(found: PlanSearch) -> tuple[tuple[str, str], ...]:
    """SVG documents with their titles; what stands under the pointer names its plan."""
    drawings = [("Step and memory of plans that none is better than in both", _front_plot(found))]
    if len(found.history) > 1:
        drawings.append(("What could still be gained, over time", _gap_plot(found)))
    return tuple(drawings)


def _front_plot(found: PlanSearch) -> str:
    plans = [one for one in (*found.pareto, found.best) if one.peak_bytes is not None]
    points = [(one.step_ns / NS_PER_MS, (one.peak_bytes or 0) / _GB) for one in plans]
    axes = _Axes(points, "step, ms", "memory of the fullest stage, GB")

    def dot(one: Looked, point: _Point) -> str:
        x, y = axes.place(point)
        is_best = one is found.best
        told = f"{one.summary}: {point[0]:,.1f} ms, {point[1]:.1f} GB"
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if is_best else 5}" '
            f'fill="{_BEST if is_best else _FRONT}"><title>{escape(told)}</title></circle>'
        )

    dots = "".join(dot(one, point) for one, point in zip(plans, points, strict=True))
    return axes.drawing(dots, "step and memory of plans")


def _gap_plot(found: PlanSearch) -> str:
    points = [(moment.time_s, 100 * moment.gap) for moment in found.history]
    axes = _Axes([*points, (0.0, 0.0)], "seconds", "gap, %")
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(axes.place, points))
    line = f'<polyline points="{places}" fill="none" stroke="{_LINE}" stroke-width="2"/>'
    return axes.drawing(line, "gap over time")


class _Axes:
    """Two linear axes that hold all points."""

    def __init__(self, points: Sequence[_Point], across: str, up: str) -> None:
        self._titles = (across, up)
        self._low, self._high = zip(
            *(_range([point[axis] for point in points]) for axis in (0, 1)), strict=True
        )

    def place(self, point: _Point) -> _Point:
        """Where a point is drawn."""
        x, y = (
            (value - low) / (high - low)
            for value, low, high in zip(point, self._low, self._high, strict=True)
        )
        return _LEFT + x * _WIDTH, _TOP + (1 - y) * _HEIGHT

    def drawing(self, inside: str, label: str) -> str:
        """An SVG document."""
        width, height = _WIDTH + _LEFT + _RIGHT, _HEIGHT + _TOP + _BOTTOM
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{label}">'
            "<style>text{font:12px system-ui,sans-serif;fill:currentColor}"
            ".grid{stroke:currentColor;stroke-opacity:.15}</style>"
            f"{''.join(self._ticks())}{inside}</svg>\n"
        )

    def _ticks(self) -> Iterator[str]:
        bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
        for at in range(_NUM_TICKS + 1):
            share = at / _NUM_TICKS
            across, up = (
                low + share * (high - low) for low, high in zip(self._low, self._high, strict=True)
            )
            x, y = self.place((across, up))
            yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{up:,.4g}</text>'
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{across:,.5g}</text>'
        across, up = self._titles
        yield f'<text x="{right}" y="{bottom + 36}" text-anchor="end">{across}</text>'
        yield f'<text x="{_LEFT}" y="{_TOP - 4}">{up}</text>'


def _range(values: Sequence[float]) -> _Point:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or max(abs(high) * 0.05, 1e-9)
    return low - room, high + room
