"""Predicted beside measured kernel times as a plot: one panel per family, GPU and format.

Both axes are logarithmic and alike, so a point on the diagonal is right, and the dashed lines are
a quarter too long and too short everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from foretrace.validate import CostPoints

_COLUMNS = 4
_PANEL, _MARGIN = 200, 34  # pixels
_MOST_POINTS = 400  # of a panel, taken evenly
_OFF = 1.25
_TICKS_NS = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11)
_TICK_NAMES = ("1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s")


def cost_plot(points: Sequence[CostPoints]) -> str:
    """An SVG document."""
    rows = -(-len(points) // _COLUMNS)
    cell = _PANEL + 2 * _MARGIN
    size = f'width="{_COLUMNS * cell}" height="{rows * cell}"'
    style = (
        "text{font:10px sans-serif} line{stroke:#999} .off{stroke-dasharray:3} circle{fill:#06c}"
    )
    panels = (
        f'<g transform="translate({at % _COLUMNS * cell + _MARGIN},{at // _COLUMNS * cell + 20})">'
        + "".join(_panel(one))
        + "</g>"
        for at, one in enumerate(points)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
        f'<rect {size} fill="#fff"/>{"".join(panels)}</svg>\n'
    )


def standalone_html(drawing: str) -> str:
    """A page that shows an SVG document and nothing else."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>predicted and measured</title></head><body>{drawing}</body></html>\n"
    )


def _panel(points: CostPoints) -> Iterator[str]:
    times = np.concatenate([points.measured_ns, points.predicted_ns])
    low, high = np.log(times.min() / _OFF), np.log(times.max() * _OFF)

    def place(time_ns: float) -> float:
        return float((np.log(time_ns) - low) / (high - low) * _PANEL)

    yield f'<text x="0" y="-6">{escape(points.label)}</text>'
    yield f'<rect width="{_PANEL}" height="{_PANEL}" fill="none" stroke="#999"/>'
    for factor, kind in ((1.0, "right"), (_OFF, "off"), (1 / _OFF, "off")):
        # A factor is a shift along a logarithmic axis.
        up = float(np.log(factor) / (high - low) * _PANEL)
        first, last = max(0.0, -up), min(_PANEL, _PANEL - up)
        ends = f'x1="{first:.1f}" x2="{last:.1f}"'
        heights = f'y1="{_PANEL - first - up:.1f}" y2="{_PANEL - last - up:.1f}"'
        yield f'<line class="{kind}" {ends} {heights}/>'
    for time_ns, name in zip(_TICKS_NS, _TICK_NAMES, strict=True):
        if low < np.log(time_ns) < high:
            yield f'<text x="{place(time_ns):.1f}" y="{_PANEL + 12}">{name}</text>'
    yield f'<text x="0" y="{_PANEL + 26}">measured; predicted upwards</text>'
    every = max(1, len(points.measured_ns) // _MOST_POINTS)
    pairs = zip(
        points.measured_ns[::every].tolist(), points.predicted_ns[::every].tolist(), strict=True
    )
    for measured_ns, predicted_ns in pairs:
        x, y = place(measured_ns), _PANEL - place(predicted_ns)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1"/>'
