"""Where the critical path switches as a lever's time shrinks, by exact intersections.

The end of a step, E(s), with one lever's time scaled by s, is a maximum of straight lines: convex.
Its line through s = 1 lies below it everywhere. From s = 0 the search goes along the line that E
has there until that meets the first, and looks again from the meeting point; each point lies
further up, on another piece, until E is on the first line: there the path switches. A step's
length is the difference of two such ends: straight while both are, and on where both leave their
lines together, by the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from foretrace.analyze.effects import step_times
from foretrace.analyze.levers import LeverTable, nodes_of
from foretrace.analyze.selection import selected_edges
from foretrace.analyze.spans import BEGIN_GOAL, END_GOAL
from foretrace.base import Bools, Float64s, Int32s, Int64s
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.simulate import BatchEnds, Scaling, passes_at_once, simulate_batch

_TOGETHER = 8  # levers simulated side by side
_MAX_ROUNDS = 40  # simulations of the search; the factor reached by then is sure, not the lowest
# Ends of long ways carry rounding from factors that are no binary fractions.
_ROUNDING_NS = 1e-6
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Switches:
    """What simulating each lever again showed."""

    faster_ns: Float64s  # float64[levers], length of the step with the lever faster
    free_ns: Float64s  # float64[levers], length of the step with the lever free
    linear_to: Float64s  # float64[levers], factor down to which the step is straight


class Study:
    """The levers of one step, ready to be simulated at any factor."""

    def __init__(self, timeline: Timeline, goal: Int32s, table: LeverTable) -> None:
        self._timeline = timeline
        self._goal = goal
        self._table = table
        self._duration_ns = timeline.duration_ns.astype(np.float64)
        slopes = [one.slope_ns for one in table.levers]
        self._slope_ns = np.array(slopes, np.float64).reshape(-1, 2)
        self._base_ns = self._simulated_base()
        # A lever on neither way has a slope of 0 at 1, and ends only fall with s: all is 0.
        self._moving = np.flatnonzero((self._slope_ns != 0).any(axis=1))

    def switches(self, faster: float) -> Switches:
        """The step's length at `faster` and at 0, and where it leaves its line.

        A lever that is straight down to `faster` is not simulated there: its line tells.
        """
        count = len(self._slope_ns)
        ends, slope_ns = np.tile(self._base_ns, (2, count, 1)), np.zeros((count, 2))
        groups = self._grouped(self._moving)
        self._run(groups, self._moving, (np.zeros(count), ends[0], slope_ns))
        linear_to = self._searched(groups, (ends[0], slope_ns))
        base_ns = step_times(self._base_ns[None, :])
        derivative_ns = self._slope_ns[:, END_GOAL] - self._slope_ns[:, BEGIN_GOAL]
        faster_ns = np.maximum(base_ns + derivative_ns * (faster - 1), 0)
        bent = self._moving[linear_to[self._moving] > faster]
        self._run(self._grouped(bent), bent, (np.full(count, faster), ends[1], slope_ns))
        faster_ns[bent] = step_times(ends[1][bent])
        return Switches(faster_ns=faster_ns, free_ns=step_times(ends[0]), linear_to=linear_to)

    def _searched(self, groups: Groups, free: tuple[Float64s, Float64s]) -> Float64s:
        """The factor at which the step leaves its line, from below; float64[levers]."""
        search = _Search.begun(self._base_ns, self._slope_ns, free)
        rows = self._moving
        for _ in range(_MAX_ROUNDS):
            rows = search.advanced(rows)
            if not len(rows):
                break
            used = [group for group in groups if np.isin(group.rows, rows).any()]
            if len(used) > 1 + len(rows) // _TOGETHER:
                used = self._grouped(rows)
            groups = used
            self._run(groups, rows, (search.factor, search.end_ns, search.slope_ns))
        search.factor[rows] = search.anchor[rows]
        return search.factor

    def _run(self, groups: Groups, rows: Int64s, at: tuple[Float64s, Float64s, Float64s]) -> None:
        """Simulate some levers at their factors; ends and slopes are written, levers by goals."""
        factor, end_ns, slope_ns = at
        jobs = [(group, np.isin(group.rows, rows)) for group in groups]

        def run(job: tuple[_Group, Bools]) -> tuple[Int64s, BatchEnds]:
            group, chosen = job
            which = group.rows[chosen]
            scaling = group.scaling(np.flatnonzero(chosen), factor[which])
            ends = simulate_batch(
                self._timeline.graph,
                scaling,
                self._goal,
                duration_ns=self._duration_ns,
                workers=1,
            )
            return which, ends

        threads = passes_at_once(self._timeline.graph.num_nodes)
        for which, ends in _mapped(run, [job for job in jobs if job[1].any()], threads):
            end_ns[which], slope_ns[which] = ends.end_ns, ends.slope_ns

    def _simulated_base(self) -> Float64s:
        """Ends without any change; float64[goals]."""
        label = np.zeros(len(self._duration_ns), np.int32)
        scaling = Scaling(label=label, factor=np.ones((1, 1)))
        ends = simulate_batch(
            self._timeline.graph, scaling, self._goal, duration_ns=self._duration_ns, workers=1
        )
        base_ns: Float64s = ends.end_ns[0]
        return base_ns

    def _grouped(self, rows: Int64s) -> Groups:
        """Levers in groups of one pass each; those on edges apart."""
        is_on_edges = np.array([self._table.levers[row].is_on_edges for row in rows], np.bool_)
        return [
            _group(self._timeline.graph, part[first : first + _TOGETHER], self._table)
            for part in (rows[~is_on_edges], rows[is_on_edges])
            for first in range(0, len(part), _TOGETHER)
        ]


@dataclass(frozen=True)
class _Search:
    """Where the search stands, for every lever; its arrays are written to.

    Lines hold for both ends from `anchor` down; an end is looked at from `factor` up.
    """

    free: tuple[Float64s, Float64s]  # ends and slopes with the lever free
    anchor: Float64s  # float64[levers], down to which the step is surely straight
    line_ns: Float64s  # float64[levers, goals], ends at the anchor
    line_slope_ns: Float64s  # float64[levers, goals], on their lines from there down
    factor: Float64s  # float64[levers]
    end_ns: Float64s  # float64[levers, goals], ends at `factor`
    slope_ns: Float64s  # float64[levers, goals]
    meets: Float64s  # float64[levers, goals], where each end met its line when last off it; or -1
    slope_off_ns: Float64s  # float64[levers, goals], slope when last off

    @staticmethod
    def begun(base_ns: Float64s, slope_ns: Float64s, free: tuple[Float64s, Float64s]) -> _Search:
        """Lines through the ends as they are, looked at from levers that are free."""
        count = len(slope_ns)
        return _Search(
            free=free,
            anchor=np.ones(count),
            line_ns=np.tile(base_ns, (count, 1)),
            line_slope_ns=slope_ns.copy(),
            factor=np.zeros(count),
            end_ns=free[0].copy(),
            slope_ns=free[1].copy(),
            meets=np.full((count, 2), -1.0),
            slope_off_ns=np.zeros((count, 2)),
        )

    def advanced(self, rows: Int64s) -> Int64s:
        """Move these levers' factors to where their ends may meet their lines.

        Returns those that must be simulated there; the others' factors are found.
        """
        to_run = [rows[:0]]
        while len(rows):
            line_ns = self.line_ns[rows] + self.line_slope_ns[rows] * self._down(rows)
            excess_ns = self.end_ns[rows] - line_ns
            is_off = excess_ns > self._rounding_ns(rows)
            arrived = rows[~is_off.any(axis=1)]
            gap_ns = np.maximum(self.line_slope_ns[rows] - self.slope_ns[rows], _ROUNDING_NS)
            meets = np.where(is_off, self.factor[rows][:, None] + excess_ns / gap_ns, -1)
            is_going = is_off.any(axis=1)
            going = rows[is_going]
            self.meets[going] = meets[is_going]
            self.slope_off_ns[going] = self.slope_ns[going]
            self.factor[going] = np.minimum(meets[is_going].max(axis=1), self.anchor[going])
            to_run.append(going[self.factor[going] < self.anchor[going]])
            rows = arrived[self._leaves_together(arrived)]
            self._lower_anchor(rows)
        return np.sort(np.concatenate(to_run))

    def _down(self, rows: Int64s) -> Float64s:
        """Factors from the anchors; float64[rows, 1]."""
        down: Float64s = (self.factor[rows] - self.anchor[rows])[:, None]
        return down

    def _rounding_ns(self, rows: Int64s) -> Float64s:
        """What an end may be off its line by without leaving it; float64[rows, goals]."""
        return _ROUNDING_NS + _ROUNDING * self.line_ns[rows]

    def _leaves_together(self, rows: Int64s) -> Bools:
        """Where both ends leave their lines at one factor and their difference stays straight.

        So it is when the way to the step's begin is part of the way to its end, and switches.
        """
        meets, slope_ns = self.meets[rows], self.slope_off_ns[rows]
        gap_ns = self.line_slope_ns[rows] - slope_ns
        apart_ns = np.abs(meets[:, 0] - meets[:, 1])[:, None] * gap_ns
        is_one = (apart_ns <= self._rounding_ns(rows)).all(axis=1)
        both: Bools = (meets >= 0).all(axis=1) & is_one & (gap_ns[:, 0] == gap_ns[:, 1])
        return both

    def _lower_anchor(self, rows: Int64s) -> None:
        """Go on from where both ends left their lines, along the new ones."""
        self.anchor[rows] = self.factor[rows]
        self.line_ns[rows] = self.end_ns[rows]
        self.line_slope_ns[rows] = self.slope_off_ns[rows]
        self.factor[rows] = 0
        self.end_ns[rows], self.slope_ns[rows] = self.free[0][rows], self.free[1][rows]
        self.meets[rows] = -1


@dataclass(frozen=True)
class _Group:
    """Levers that share one pass: which of them each node is in, as bits, or each kind of edge."""

    rows: Int64s  # int64[levers]
    label: Int32s  # int32[nodes], bit k set: in the k-th lever
    kinds: Bools | None  # bool[levers, edge kinds]; None: levers on nodes

    def scaling(self, chosen: Int64s, factor: Float64s) -> Scaling:
        """One sample for each chosen lever of the group, at its factor."""
        if self.kinds is not None:
            is_in = self.kinds[chosen]
            return Scaling(
                label=self.label,
                factor=np.ones((len(chosen), 1)),
                lag_factor=np.where(is_in, factor[:, None], 1),
                lag_weight=is_in.astype(np.float64),
            )
        is_in = (np.arange(1 << _TOGETHER)[None, :] >> chosen[:, None] & 1).astype(np.bool_)
        return Scaling(
            label=self.label,
            factor=np.where(is_in, factor[:, None], 1),
            weight=is_in.astype(np.float64),
        )


def _group(graph: ExecutionGraph, rows: Int64s, table: LeverTable) -> _Group:
    """What each lever of a group is about."""
    levers = [table.levers[row] for row in rows]
    label = np.zeros(graph.num_nodes, np.int32)
    if levers[0].is_on_edges:
        kinds = np.stack([selected_edges(lever.select[0][1]) for lever in levers])
        return _Group(rows, label, kinds)
    for bit, lever in enumerate(levers):
        label[nodes_of(lever.select, table.attributes)] |= 1 << bit
    return _Group(rows, label, None)


def _mapped(run: Callable[[_Job], _Found], jobs: Sequence[_Job], threads: int) -> list[_Found]:
    """Results of jobs, on some threads."""
    if min(len(jobs), threads) <= 1:
        return [run(job) for job in jobs]
    with ThreadPoolExecutor(min(len(jobs), threads)) as pool:
        return list(pool.map(run, jobs))


Groups: TypeAlias = list[_Group]
_Job: TypeAlias = tuple[_Group, Bools]
_Found: TypeAlias = tuple[Int64s, BatchEnds]
