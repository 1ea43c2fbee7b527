"""A search as plots: plans by step and memory, and the best step and the gap over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from operator import itemgetter

from foretrace.answer import Column, Table, Unit
from foretrace.base import NS_PER_MS
from foretrace.search import Looked, PlanSearch, Worth

_WIDTH, _HEIGHT = 640, 280  # pixels, of the plot inside its axes
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 16, 24, 44
_NUM_TICKS = 5
_GB = 1e9
# Of Okabe and Ito's colours, which people of all kinds of sight can tell apart.
_FRONT, _BEST, _LINE = "#0072b2", "#d55e00", "#009e73"
_LABEL, _ROW = 150, 19  # pixels, of a bar's name and height
_TEXT = "text{font:12px system-ui,sans-serif;fill:currentColor}"
_Point = tuple[float, float]


def search_drawings(found: PlanSearch) -> tuple[tuple[str, str], ...]:
    """SVG documents with their titles; what stands under the pointer names its plan."""
    drawings = [("Step and memory of plans that none is better than in both", _front_plot(found))]
    if len(found.history) > 1:
        drawings.append(("What could still be gained, over time", _gap_plot(found)))
    if found.worth:
        drawings.append(("The best step with one variable held", _worth_plot(found.worth)))
    return tuple(drawings)


def plan_pages(found: PlanSearch) -> tuple[Table, ...]:
    """What is known of every plan that the plots show, each at an anchor of its own."""
    return tuple(
        Table.of(
            _anchor(one),
            tuple(_rows(one)),
            Column("name", "key", Unit.WORD, value=itemgetter(0)),
            Column("value", unit=Unit.TEXT, value=itemgetter(1)),
            title=f"Plan {one.number}: {one.summary}",
        )
        for one in _plotted(found)
    )


def _plotted(found: PlanSearch) -> list[Looked]:
    """Plans of the front and the leaders, each once, as it is known best."""
    by_number = {one.number: one for one in (*found.pareto, *found.leaders)}
    return [by_number[number] for number in sorted(by_number)]


def _anchor(one: Looked) -> str:
    return f"plan-{one.number}"


def _rows(one: Looked) -> Iterator[tuple[str, str]]:
    yield "step", f"{one.step_ns / NS_PER_MS:,.2f} ms"
    if one.low_ns is not None and one.high_ns is not None:
        low, high = one.low_ns / NS_PER_MS, one.high_ns / NS_PER_MS
        yield "middle 80 %", f"{low:,.2f} to {high:,.2f} ms"
    if one.peak_bytes is not None:
        yield "memory of the fullest stage", f"{one.peak_bytes / _GB:.1f} GB"
    for part, ns in (one.parts or {}).items():
        yield part, f"{ns / NS_PER_MS:,.2f} ms"
    for table, keys in one.plan_keys.items():
        yield table, ", ".join(f"{key} {value}" for key, value in keys.items())


def _front_plot(found: PlanSearch) -> str:
    plans = [one for one in _plotted(found) if one.peak_bytes is not None]
    if not plans:
        return _note("memory is not known without a model and a machine")
    points = [(one.step_ns / NS_PER_MS, (one.peak_bytes or 0) / _GB) for one in plans]
    axes = _Axes(points, "step, ms", "memory of the fullest stage, GB")

    def dot(one: Looked, point: _Point) -> str:
        x, y = axes.place(point)
        is_best = one.number == found.best.number
        told = f"{one.summary}: {point[0]:,.1f} ms, {point[1]:.1f} GB"
        return (
            f'<a href="#{_anchor(one)}"><circle cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{7 if is_best else 5}" fill="{_BEST if is_best else _FRONT}">'
            f"<title>{escape(told)}</title></circle></a>"
        )

    dots = "".join(dot(one, point) for one, point in zip(plans, points, strict=True))
    return axes.drawing(dots, "step and memory of plans")


def _gap_plot(found: PlanSearch) -> str:
    points = [(moment.time_s, 100 * moment.gap) for moment in found.history]
    axes = _Axes([*points, (0.0, 0.0)], "seconds", "gap, %")
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(axes.place, points))
    line = f'<polyline points="{places}" fill="none" stroke="{_LINE}" stroke-width="2"/>'
    return axes.drawing(line, "gap over time")


def _worth_plot(worth: Sequence[Worth]) -> str:
    """A bar for every value of every variable: its best step; pale where only a bound is known."""
    known = [ns for one in worth if (ns := one.step_ns or one.bound_ns)]
    shortest, longest = min(known, default=0), max(known, default=1)
    rows, room = [], _WIDTH - 2 * _LABEL
    for at, one in enumerate(worth):
        ns = one.step_ns or one.bound_ns or 0
        y, wide = at * _ROW, max(room * ns / longest, 1.0)
        colour = _BEST if one.step_ns == shortest else _FRONT
        opacity = 1 if one.step_ns is not None else 0.35
        least = "" if one.step_ns is not None else "at least "
        length = f"{least}{ns / NS_PER_MS:,.1f} ms" if ns else "not known yet"
        told = f"{one.variable} {one.value}: {length}, of {one.num_plans:,}"
        rows.append(
            f'<g><title>{escape(told)} plans</title><text x="{_LABEL - 8}" y="{y + 13}" '
            f'text-anchor="end">{escape(f"{one.variable} {one.value}")}</text>'
            f'<rect x="{_LABEL}" y="{y + 3}" width="{wide:.1f}" height="{_ROW - 6}" '
            f'fill="{colour}" fill-opacity="{opacity}"/>'
            f'<text x="{_LABEL + wide + 6:.1f}" y="{y + 13}">{length}</text>'
            "</g>"
        )
    height = len(worth) * _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="worth of variables">'
        f"<style>{_TEXT}</style>{''.join(rows)}</svg>\n"
    )


def _note(text: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 24" role="img" '
        f'aria-label="note"><style>{_TEXT}</style><text x="0" y="16">{escape(text)}</text></svg>\n'
    )


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
            f"<style>{_TEXT}"
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
