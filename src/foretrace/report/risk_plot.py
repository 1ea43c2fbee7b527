"""Effective training time as a plot: against the checkpoint interval, or the number of GPUs.

The axis of values is logarithmic; the other one goes from 0 to 1, so that nothing looks larger
than it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape

from foretrace.answer import number_text
from foretrace.risk import CampaignSweep, SilentCorruption

_WIDTH, _HEIGHT = 640, 320  # pixels, of the plot inside its axes
_LEFT, _TOP, _RIGHT, _BOTTOM = 48, 40, 24, 44
# Okabe and Ito's colours, which people of all kinds of sight can tell apart; and four dashes.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_DASHES = ("", "7 3", "2 2", "9 3 2 3")
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_TIMES = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36000, "10 h"),
    (86400, "1 d"), (864000, "10 d"),
)  # fmt: skip
_SIZE = f"{_WIDTH + _LEFT + _RIGHT} {_HEIGHT + _TOP + _BOTTOM}"


def sweep_plot(sweep: CampaignSweep, *, title: str = "", has_ground: bool = True) -> str:
    """An SVG document; without a ground of its own it takes the page's colours."""
    return _document(title or sweep.quantity, _drawn(sweep, title), has_ground=has_ground)


def corruption_plot(found: SilentCorruption) -> str:
    """Every check by what it takes of a step, and what it leaves: SVG in the page's colours."""
    return _document("silent corruptions", _checks_drawn(found), has_ground=False)


def _document(label: str, drawn: Iterable[str], *, has_ground: bool) -> str:
    width, height = _SIZE.split()
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>' if has_ground else ""
    ink = "#1b1f24" if has_ground else "currentColor"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(label)}">'
        f"<style>.e text{{font:12px system-ui,sans-serif;fill:{ink}}} .e .grid{{stroke:{ink};"
        f"stroke-opacity:.15}} .e polyline{{fill:none;stroke-width:2}}</style>{ground}"
        f'<g class="e" transform="translate({_LEFT},{_TOP})">{"".join(drawn)}'
        "</g></svg>\n"
    )


def _checks_drawn(found: SilentCorruption) -> Iterator[str]:
    widest = max(*(row.check.overhead for row in found.rows), 0.01)
    most = max(row.silent_per_month for row in found.rows) or 1.0
    for share in _SHARES:
        x, y = _WIDTH * share, _HEIGHT * (1 - share)
        yield f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{number_text(most * share)}</text>'
        yield (
            f'<text x="{x:.1f}" y="{_HEIGHT + 18}" text-anchor="middle">'
            f"{100 * widest * share:.3g}</text>"
        )
    yield (
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 36}" text-anchor="middle">'
        "percent of a step; silent corruptions a month upwards</text>"
    )
    for index, row in enumerate(found.rows):
        x = _WIDTH * row.check.overhead / widest
        y = _HEIGHT * (1 - row.silent_per_month / most)
        side = "end" if x > _WIDTH / 2 else "start"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_COLOURS[index % len(_COLOURS)]}"/>'
            f'<text x="{x + (8 if side == "start" else -8):.1f}" y="{y - 6:.1f}" '
            f'text-anchor="{side}">{escape(row.check.name)}</text>'
        )


def _drawn(sweep: CampaignSweep, title: str) -> Iterator[str]:
    if title:
        yield f'<text x="0" y="-24" style="font-weight:600">{escape(title)}</text>'
    low, high = math.log(min(sweep.values)), math.log(max(sweep.values))
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return (math.log(value) - low) / span * _WIDTH

    for share in _SHARES:
        y = _HEIGHT * (1 - share)
        yield f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{share:.1f}</text>'
    for value, name in _ticks(sweep):
        if low - 1e-9 <= math.log(value) <= high + 1e-9:
            x = place(value)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}"/>'
            yield f'<text x="{x:.1f}" y="{_HEIGHT + 18}" text-anchor="middle">{name}</text>'
    yield (
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 36}" text-anchor="middle">'
        f"{escape(sweep.quantity)}; effective time upwards</text>"
    )
    for index, (name, line) in enumerate(sweep.lines.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        look = f'stroke="{colour}" stroke-dasharray="{_DASHES[index % len(_DASHES)]}"'
        points = " ".join(
            f"{place(value):.1f},{_HEIGHT * (1 - share):.1f}"
            for value, share in zip(sweep.values.tolist(), line.tolist(), strict=True)
        )
        yield f'<polyline {look} points="{points}"/>'
        x = index * _WIDTH / len(sweep.lines)
        yield f'<line {look} stroke-width="2" x1="{x:.0f}" x2="{x + 26:.0f}" y1="-9" y2="-9"/>'
        yield f'<text x="{x + 32:.0f}" y="-5">{escape(name)}</text>'


def _ticks(sweep: CampaignSweep) -> Iterator[tuple[float, str]]:
    if sweep.unit == "s":
        yield from _TIMES
        return
    for power in range(8):
        for first in (1, 2, 5):
            yield first * 10.0**power, f"{first * 10**power:,}"
