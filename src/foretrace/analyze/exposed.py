"""`ExposedTransfers`: which communication a rank's exposed transfer time belongs to.

Exposed communication of a breakdown is waiting (its causes: `idle`) and transfers. Where
several transfers run at once, a moment belongs to the one that ends last before computation goes
on: without the others, the pause would be as long. One that outlasts the pause did not hold
computation up, so it has a moment only where no other transfer runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretrace.analyze.activity import Participations, activity_by_rank, participations
from foretrace.analyze.idle.stretches import complement
from foretrace.analyze.intervals import Intervals
from foretrace.analyze.steps import StepTable, steps
from foretrace.answer import Answer, Column, Plain, Table, Told, duration_text
from foretrace.base import Int32s, Int64s, joined_ranges
from foretrace.graph import Timeline

_NOBODY = -1


@dataclass(frozen=True)
class ExposedRow(Plain):
    """Exposed transfers of one kind on one rank in one step."""

    json_names: ClassVar = {"step_name": "step"}

    step_name: str
    rank: int
    group: str  # process group
    name: str  # of the collective
    time_ns: int


@dataclass(frozen=True, repr=False)
class ExposedTransfers(Answer):
    """Rows by step, rank, then longest first; those of no length are left out."""

    rows: tuple[ExposedRow, ...]

    def of_rank(self, rank: int) -> dict[str, int]:
        """Time of one rank by group, in ns, most first."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.rank == rank:
                found[row.group] = found.get(row.group, 0) + row.time_ns
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def headline(self) -> str:
        """How long transfers are alone on all ranks."""
        return f"{duration_text(sum(row.time_ns for row in self.rows))} of transfers alone"

    def parts(self) -> tuple[Told, ...]:
        """One row per step, rank, group and collective."""
        return (
            Table.of(
                "rows",
                self.rows,
                Column("step", value="step_name"),
                *map(Column, ("rank", "group", "name", "time_ns")),
            ),
        )


def exposed_transfers(timeline: Timeline) -> ExposedTransfers:
    """Exposed transfer time of every step and rank, by process group and collective."""
    graph = timeline.graph
    table, pairs = steps(timeline), participations(graph)
    each = graph.collectives.each(lambda one: (one.group, one.name))
    kinds = list(dict.fromkeys(each))
    number = {kind: at for at, kind in enumerate(kinds)}
    kind_of = np.array([number[kind] for kind in each], np.int32)
    order = np.argsort(pairs.rank, kind="stable")
    rank_of = pairs.rank[order]
    found: list[ExposedRow] = []
    for rank, activity in activity_by_rank(timeline).items():
        low, high = np.searchsorted(rank_of, [rank, rank + 1])
        own = order[low:high]
        begin_ns, end_ns = _transfers(timeline, pairs, own)
        pauses = complement(activity.compute, 0, int(end_ns.max(initial=0)))
        owner = _owned(pauses, begin_ns, end_ns)
        kind = kind_of[pairs.collective[own]]
        found += _rows(table, rank, owner, kinds=kinds, kind=kind)
    place = {name: at for at, name in enumerate(table.step_names)}
    return ExposedTransfers(
        tuple(sorted(found, key=lambda row: (place[row.step_name], row.rank, -row.time_ns)))
    )


def _transfers(timeline: Timeline, pairs: Participations, own: Int64s) -> tuple[Int64s, Int64s]:
    """Begin and end of transfers, waiting left out."""
    arrive_ns = timeline.start_ns[pairs.arrive[own]]
    begin_ns = np.maximum(timeline.start_ns[pairs.finish[own]], arrive_ns)
    return begin_ns, timeline.end_ns[pairs.finish[own]]


@dataclass(frozen=True)
class _Owned:
    """Disjoint rising stretches, each of one transfer."""

    begin_ns: Int64s
    end_ns: Int64s
    transfer: Int64s


def _owned(pauses: Intervals, begin_ns: Int64s, end_ns: Int64s) -> _Owned:
    """To which transfer every moment of a pause belongs; pauses without one are left out."""
    # 1. transfers are cut at the borders of pauses
    first = np.searchsorted(pauses.end_ns, begin_ns, side="right")
    count = np.maximum(np.searchsorted(pauses.start_ns, end_ns, side="left") - first, 0)
    transfer = np.repeat(np.arange(len(begin_ns)), count)
    pause = joined_ranges(first, count)
    piece_begin_ns = np.maximum(begin_ns[transfer], pauses.start_ns[pause])
    piece_end_ns = np.minimum(end_ns[transfer], pauses.end_ns[pause])
    # 2. the later in this order, the stronger; pauses do not meet, so they may share one order
    outlasts = end_ns[transfer] > pauses.end_ns[pause]
    order = np.lexsort((transfer, end_ns[transfer], ~outlasts))
    strength = np.empty(len(order), np.int64)
    strength[order] = np.arange(len(order))
    # 3. each stretch between two borders goes to the strongest piece over it
    borders = np.unique(np.concatenate((piece_begin_ns, piece_end_ns)))
    low = np.searchsorted(borders, piece_begin_ns)
    count = np.searchsorted(borders, piece_end_ns) - low
    strongest = np.full(max(len(borders) - 1, 0), _NOBODY, np.int64)
    stretch = joined_ranges(low, count)
    np.maximum.at(strongest, stretch, np.repeat(strength, count))
    kept = np.flatnonzero(strongest != _NOBODY)
    return _Owned(borders[kept], borders[kept + 1], transfer[order[strongest[kept]]])


def _rows(
    table: StepTable, rank: int, owned: _Owned, *, kinds: list[tuple[str, str]], kind: Int32s
) -> list[ExposedRow]:
    """What lies in each of the rank's steps, by kind."""
    found = []
    label = kind[owned.transfer]
    for row in np.flatnonzero(table.rank == rank).tolist():
        begin_ns = np.maximum(owned.begin_ns, table.begin_ns[row])
        end_ns = np.minimum(owned.end_ns, table.end_ns[row])
        # Whole numbers below 2**53, so sums in float64 are exact.
        time_ns = np.bincount(label, np.maximum(end_ns - begin_ns, 0), len(kinds))
        name = table.step_names[int(table.step[row])]
        found += [
            ExposedRow(name, rank, *kinds[at], time_ns=int(time_ns[at]))
            for at in np.flatnonzero(time_ns).tolist()
        ]
    return found
