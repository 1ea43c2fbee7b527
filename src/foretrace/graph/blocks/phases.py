"""The phase of every point: from the scopes around it, else from what comes before and after.

A scope says most: autograd's evaluations, an optimizer's mark, a loader's. What stays unknown
follows from its thread, from carrying an autograd sequence number (forward work does), and from
the phases of its neighbours: after a step's last backward work everything updates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Bools, Int64s, UInt8s, used_positions
from foretrace.graph.blocks.facts import ScopeFacts, is_update_kernel
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.nodes import NodeKind, Phase
from foretrace.trace import NO_ID

_ENDS = (Phase.OPTIMIZER, Phase.UNKNOWN)
_BACKWARDS = (Phase.BACKWARD, Phase.RECOMPUTE)


def phases_of_points(points: WorkPoints, facts: ScopeFacts, names: Sequence[str]) -> UInt8s:
    """The phase of each point, uint8[points]; UNKNOWN where nothing tells."""
    phase = facts.phase[points.scope].copy()
    is_unknown = phase == Phase.UNKNOWN
    phase[is_unknown & _is_update(points, names)] = Phase.OPTIMIZER
    is_backward = np.isin(phase, _BACKWARDS)
    phase[(phase == Phase.UNKNOWN) & _is_backward_lane(points, phase)] = Phase.BACKWARD
    has_sequence = facts.sequence[points.scope] != NO_ID
    if not is_backward.any():
        phase[(phase == Phase.UNKNOWN) & _is_input_copy(points, names)] = Phase.DATA
        phase[phase == Phase.UNKNOWN] = Phase.FORWARD
        return phase
    phase[(phase == Phase.UNKNOWN) & has_sequence] = Phase.FORWARD
    segment = _segments(points)
    is_late = ~_is_before_last(segment, np.isin(phase, _BACKWARDS))
    has_backward = _any_in(segment, np.isin(phase, _BACKWARDS))
    is_tail = is_late & has_backward & (facts.phase[points.scope] == Phase.UNKNOWN)
    phase[is_tail & ~np.isin(phase, _BACKWARDS)] = Phase.OPTIMIZER
    is_input = (phase == Phase.UNKNOWN) & _is_input_copy(points, names)
    phase[is_input] = Phase.DATA
    return _from_neighbours(points, phase, segment)


def _segments(points: WorkPoints) -> Int64s:
    """A rising number for every stretch of points of one rank and step."""
    changes = (points.rank[1:] != points.rank[:-1]) | (points.step[1:] != points.step[:-1])
    return np.append(0, np.cumsum(changes))[: len(points)].astype(np.int64)


def _is_update(points: WorkPoints, names: Sequence[str]) -> Bools:
    is_update = np.zeros(len(names), np.bool_)
    for index in used_positions(points.name, len(names)).tolist():
        is_update[index] = is_update_kernel(names[index])
    return is_update[points.name]


def _is_input_copy(points: WorkPoints, names: Sequence[str]) -> Bools:
    """Copies from the host to the device."""
    is_input = np.zeros(len(names), np.bool_)
    for index in used_positions(points.name, len(names)).tolist():
        is_input[index] = "HtoD" in names[index] or "Host -> Device" in names[index]
    is_copy: Bools = is_input[points.name] & (points.kind == NodeKind.MEMCPY)
    return is_copy


def _is_backward_lane(points: WorkPoints, phase: UInt8s) -> Bools:
    """Points on threads that do nothing else: the autograd engine's."""
    if not len(points):
        return np.zeros(0, np.bool_)
    size = int(points.lane.max()) + 1
    known = np.bincount(points.lane[phase != Phase.UNKNOWN], minlength=size)
    backward = np.bincount(points.lane[np.isin(phase, _BACKWARDS)], minlength=size)
    is_backward: Bools = (backward > 0) & (2 * backward > known)
    others = np.bincount(points.lane[np.isin(phase, (Phase.FORWARD, Phase.DATA))], minlength=size)
    # Where forward runs on the same thread too, an unknown point may belong to either.
    is_alone: Bools = is_backward & (others == 0) & _has_other_lane(points)
    return is_alone[points.lane]


def _has_other_lane(points: WorkPoints) -> Bools:
    """Lanes of ranks that have another lane with points, bool[lanes]."""
    size = int(points.lane.max()) + 1
    lanes, first = np.unique(points.lane, return_index=True)
    rank = points.rank[first]
    count = np.bincount(rank)
    has_other = np.zeros(size, np.bool_)
    has_other[lanes] = count[rank] > 1
    return has_other


def _is_before_last(segment: Int64s, is_marked: Bools) -> Bools:
    """Points at or before their segment's last marked one."""
    last = np.full(int(segment.max(initial=-1)) + 1, -1, np.int64)
    marked = np.flatnonzero(is_marked)
    last[segment[marked]] = marked
    is_before: Bools = np.arange(len(segment)) <= last[segment]
    return is_before


def _any_in(segment: Int64s, is_marked: Bools) -> Bools:
    """Points of segments that have a marked one."""
    has = np.zeros(int(segment.max(initial=-1)) + 1, np.bool_)
    has[segment[is_marked]] = True
    return has[segment]


def _from_neighbours(points: WorkPoints, phase: UInt8s, segment: Int64s) -> UInt8s:
    """Unknown points from the known ones before and after them in their rank and step."""
    phase = phase.copy()
    is_comm = points.is_communication
    none = np.uint8(Phase.UNKNOWN)
    for rows in (
        np.flatnonzero((phase == none) & ~is_comm),
        np.flatnonzero((phase == none) & is_comm),
    ):
        before, after = neighbours(segment, (phase != none) & (phase != Phase.DATA))
        padded = np.append(phase, none)
        earlier, later = padded[before[rows]], padded[after[rows]]
        is_back = np.isin(earlier, _BACKWARDS)
        found = np.full(len(rows), Phase.FORWARD, np.uint8)
        # Computing between two backward passes is the next microbatch's forward pass.
        is_inside = is_back & np.isin(later, _BACKWARDS) & is_comm[rows]
        found[is_inside] = Phase.BACKWARD
        found[is_back & np.isin(later, _ENDS)] = Phase.OPTIMIZER
        found[(earlier == Phase.OPTIMIZER) & (later != Phase.FORWARD)] = Phase.OPTIMIZER
        # A fill without an operator before the first forward work zeroes gradients.
        is_fill = (points.kind[rows] == NodeKind.MEMSET) & (points.scope[rows] < 0)
        found[is_fill & np.isin(earlier, _ENDS)] = Phase.OPTIMIZER
        phase[rows] = found
    return phase


def neighbours(segment: Int64s, is_known: Bools) -> tuple[Int64s, Int64s]:
    """The nearest known row before and after each row in its segment; -1: none.

    A known row is its own neighbour.
    """
    size = len(segment)
    rows = np.arange(size)
    before = np.maximum.accumulate(np.where(is_known, rows, -1))
    after = np.minimum.accumulate(np.where(is_known, rows, size)[::-1])[::-1]
    before = np.where((before >= 0) & (segment[before] == segment), before, -1)
    safe = np.minimum(after, size - 1)
    after = np.where((after < size) & (segment[safe] == segment), after, -1)
    return before, after
