"""`WhatHelps`: a step's levers in order of what a change that someone could make would gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze.attributes import attribute
from foretrace.analyze.levers import LeverKind, nodes_of
from foretrace.analyze.sensitivity import FASTER, Sensitivity, SensitivityRow
from foretrace.answer import short_name
from foretrace.base import NS_PER_MS, Bools, Int64s
from foretrace.graph import ExecutionGraph

if TYPE_CHECKING:
    import polars as pl

_ORDER = tuple(LeverKind)
# Levers that say where in the model time goes, which is nothing that one makes faster as such.
_PLACES = frozenset({LeverKind.PART, LeverKind.PHASE, LeverKind.LAYER})
_LEAST_SHARE = 0.0005  # of the step; less reads as 0.0%
_MAX_LABEL = 48
_MAX_COMPARED = 16  # levers whose overlaps are looked at: one bit each, all combinations counted


@dataclass(frozen=True)
class Help:
    """One change and what it gains."""

    text: str  # "gemm 20% faster: step -6.1%"
    change: str  # as `effect` reads it; "" where no text says it
    gain_ns: float  # time the step loses, above 0
    share: float  # of the step
    inside: tuple[str, ...]  # labels of other rows whose work holds all of this one's
    row: SensitivityRow

    def as_json(self) -> dict[str, object]:
        """Everything; times in ns."""
        return {
            "text": self.text,
            "change": self.change,
            "gain_ns": self.gain_ns,
            "share": self.share,
            "inside": list(self.inside),
            "lever": self.row.as_json(),
        }


@dataclass(frozen=True)
class WhatHelps:
    """Changes by gain; gains of rows that share work do not add up."""

    step_name: str
    step_ns: int
    rows: tuple[Help, ...]

    def to_frame(self) -> pl.DataFrame:
        """One row per change."""
        import polars as pl  # on demand: it takes longer to import than this analysis to run

        return pl.DataFrame(
            {
                "text": [one.text for one in self.rows],
                "change": [one.change for one in self.rows],
                "gain_ns": [one.gain_ns for one in self.rows],
                "share": [one.share for one in self.rows],
                "inside": [", ".join(one.inside) for one in self.rows],
            },
            schema_overrides={"gain_ns": pl.Float64, "share": pl.Float64},
        )

    def as_json(self) -> dict[str, object]:
        """The step and its changes; times in ns."""
        return {
            "step": self.step_name,
            "step_ns": self.step_ns,
            "rows": [one.as_json() for one in self.rows],
        }

    def __str__(self) -> str:
        """One sentence per change."""
        lines = [f"{self.step_name}: {self.step_ns / NS_PER_MS:,.3f} ms"]
        lines += [
            one.text + (f" (part of {', '.join(one.inside)})" if one.inside else "")
            for one in self.rows
        ]
        return "\n".join(lines)


def what_helps(sensitivity: Sensitivity, *, top: int = 10) -> WhatHelps:
    """The changes that shorten the step most, best first; ties in the order of kinds, then labels.

    Every lever but parts, phases and layers 20% faster; synchronisations removed; every rank's
    compute as fast as its fastest equal's. Of levers that are the same work only the first counts.
    What gains less than 0.05% of the step is left out, so there may be fewer than `top`.
    """
    least_ns = _LEAST_SHARE * sensitivity.step_ns
    gains = [(row, -_effect_ns(row)) for row in sensitivity.rows if row.kind not in _PLACES]
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


def _effect_ns(row: SensitivityRow) -> float:
    """What the step grows by under the change that stands for a lever."""
    return row.free_ns if row.faster_ns is None else row.faster_ns


def _help(row: SensitivityRow, gain_ns: float, step_ns: int, *, inside: tuple[str, ...]) -> Help:
    """A change in words."""
    share = gain_ns / step_ns
    percent = f"{100 * (1 - FASTER):.0f}%"
    how = f" {percent} {'shorter' if row.kind == LeverKind.LATENCY else 'faster'}"
    change = f"{row.selection}:{FASTER:g}"
    if row.faster_ns is None:
        how, change = "", f"{row.selection}:removed" if row.select else ""
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
    fields = {condition.field for place in on_work for condition in rows[place].select}
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
