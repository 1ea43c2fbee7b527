"""`WhatHelps`: a step's levers in order of what a change that someone could make would gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretrace.analyze.attributes import attribute
from foretrace.analyze.levers import LeverKind, nodes_of
from foretrace.analyze.sensitivity import FASTER, Sensitivity, SensitivityRow
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Plain,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    duration_text,
    short_name,
    signed_percent_text,
)
from foretrace.base import Bools, Int64s
from foretrace.graph import ExecutionGraph

_ORDER = tuple(LeverKind)
# Levers that say where in the model time goes, which is nothing that one makes faster as such.
_PLACES = frozenset({LeverKind.PART, LeverKind.PHASE, LeverKind.LAYER})
_LEAST_SHARE = 0.0005  # of the step; less reads as 0.0%
_MAX_LABEL = 48
_MAX_COMPARED = 16  # levers whose overlaps are looked at: one bit each, all combinations counted

_CHART = Chart(
    kind=ChartKind.BARS,
    label="how much shorter the step becomes with each lever",
    category="what",
    series=(
        Series("gain_share", "20 % faster, or made", "path"),
        Series("free_share", "free", "path", is_faint=True),
    ),
    unit=Unit.SHARE,
)


@dataclass(frozen=True)
class Help(Plain):
    """One change and what it gains."""

    json_names: ClassVar = {"row": "lever"}

    text: str  # "gemm 20% faster: step -6.1%"
    change: str  # as `effect` reads it; "" where no text says it
    gain_ns: float  # time the step loses, above 0
    share: float  # of the step
    inside: tuple[str, ...]  # labels of other rows whose work holds all of this one's
    row: SensitivityRow

    @property
    def free_share(self) -> float | None:
        """Of the step, what is gained if the lever takes no time; None if it is made or not."""
        if self.row.faster_ns is None:
            return None
        return -self.share * self.row.free_ns / self.gain_ns

    @property
    def sentence(self) -> tuple[str, str]:
        """What to do, and what it gains."""
        inside = f"; part of {', '.join(self.inside)}" if self.inside else ""
        free = self.free_share
        and_free = "" if free is None else f"; free: {signed_percent_text(-100 * free)}"
        return self.text, f"({duration_text(self.gain_ns)} less{and_free}{inside})"


@dataclass(frozen=True, repr=False)
class WhatHelps(Answer):
    """Changes by gain; gains of rows that share work do not add up."""

    note = (
        "Each is simulated again with all that waits for it, and holds alone: gains do not add up."
    )

    json_names: ClassVar = {"step_name": "step"}

    step_name: str
    step_ns: int
    rows: tuple[Help, ...]

    @property
    def headline(self) -> str:
        """Which step, and what shortens it most."""
        best = self.rows[0].text if self.rows else "nothing that was tried shortens the step"
        return f"{self.step_name}: {duration_text(self.step_ns)}; {best}"

    def parts(self) -> tuple[Told, ...]:
        """The changes, best first."""
        return (
            Table.of(
                "rows",
                self.rows,
                Column("what", "what would help most", Unit.NAME, _what),
                Column("change", shown=Shown.FILES),
                Column("share", "step", Unit.SIGNED_SHARE, lambda one: -one.share),
                Column("gain_ns", "gains ms"),
                Column("free_share", "if free", Unit.SHARE, shown=Shown.WIDE),
                Column("inside", "part of", Unit.NAME, lambda one: ", ".join(one.inside)),
                Column("text", shown=Shown.FILES),
                Column("gain_share", value="share", shown=Shown.FILES),
                chart=_CHART,
            ),
        )


def _what(one: Help) -> str:
    return one.text.split(": step")[0]


def what_helps(sensitivity: Sensitivity, *, top: int = 10) -> WhatHelps:
    """The changes that shorten the step most, best first; ties in the order of kinds, then labels.

    Every lever but parts, phases and layers 20% faster; synchronisations removed; every rank's
    compute as fast as its fastest equal's. Of levers that are the same work only the first counts.
    What gains less than 0.05% of the step is left out, so there may be fewer than `top`.
    """
    least_ns = _LEAST_SHARE * sensitivity.step_ns
    gains = [(row, -row.change_ns) for row in sensitivity.rows if row.kind not in _PLACES]
    helping = sorted(
        ((row, gain_ns) for row, gain_ns in gains if gain_ns >= least_ns),
        key=lambda one: (-one[1], _ORDER.index(one[0].kind), one[0].label),
    )[:_MAX_COMPARED]
    rows = [row for row, _ in helping]
    inside = _inside(sensitivity.timeline.graph, rows)
    kept = [place for place in range(len(rows)) if not _is_repeated(place, inside)][:top]
    return WhatHelps(
        step_name=sensitivity.span.step_name,
        step_ns=sensitivity.step_ns,
        rows=tuple(
            _help(
                rows[place],
                helping[place][1],
                sensitivity.step_ns,
                inside=tuple(_short(rows[other].label) for other in kept if inside[place, other]),
            )
            for place in kept
        ),
    )


def _help(row: SensitivityRow, gain_ns: float, step_ns: int, *, inside: tuple[str, ...]) -> Help:
    """A change in words."""
    share = gain_ns / step_ns
    percent = f"{100 * (1 - FASTER):.0f}%"
    how = f" {percent} {'shorter' if row.kind == LeverKind.LATENCY else 'faster'}"
    change = f"{row.selection}={FASTER:g}"
    if row.faster_ns is None:
        how, change = "", f"{row.selection}=removed" if row.select else ""
    text = f"{_short(row.label)}{how}: step {-100 * share:+.1f}%"
    return Help(text, change, gain_ns, share, inside, row)


def _short(label: str) -> str:
    """A label that fits into a sentence; names of kernels are longer than any line."""
    return short_name(label, _MAX_LABEL)


def _is_repeated(place: int, inside: Bools) -> bool:
    """Whether a row before this one is about the same nodes."""
    return bool((inside[place, :place] & inside[:place, place]).any())


def _inside(graph: ExecutionGraph, rows: Sequence[SensitivityRow]) -> Bools:
    """Whether each row's nodes are all among another's; bool[rows, rows], False with itself.

    Rows on edges, and stragglers, are inside nothing.
    """
    on_work = [
        place
        for place, row in enumerate(rows)
        if row.derivative_ns is not None and row.kind != LeverKind.LATENCY
    ]
    fields = {field for place in on_work for field, _ in rows[place].select}
    attributes = {field: attribute(graph, field) for field in sorted(fields)}
    bits: Int64s = np.zeros(graph.num_nodes, np.int64)
    for place in on_work:
        bits |= nodes_of(rows[place].select, attributes).astype(np.int64) << place
    combinations = np.flatnonzero(np.bincount(bits, minlength=1))
    member = (combinations[:, None] >> np.arange(len(rows)) & 1).astype(np.bool_)
    inside = np.zeros((len(rows), len(rows)), np.bool_)
    for place in on_work:
        inside[place, on_work] = member[member[:, place]][:, on_work].all(axis=0)
    np.fill_diagonal(inside, val=False)
    return inside
