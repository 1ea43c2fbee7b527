"""Labels of points: the phase of each, from what is around it; and from points to all nodes.

A scope says most: autograd's evaluations, an optimizer's mark, a loader's. What stays unknown
follows from its thread, from carrying an autograd sequence number (forward work does), and from
the phases of its neighbours: after a step's last backward work everything updates.

The end of a communication has the label of its begin; where all ranks come together, what all
have in common. Host work belongs to what its thread does next: the time before a launch prepares
it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s, used_positions
from foretrace.graph.assembly import DraftNodes
from foretrace.graph.blocks.facts import ScopeFacts, is_update_kernel
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.nodes import (
    HOST_KINDS,
    NO_COLLECTIVE,
    NO_LAYER,
    NO_MICROBATCH,
    NodeKind,
    Part,
    Phase,
)
from foretrace.trace import NO_ID, RuntimeRole, runtime_role_at

# Of kernels of a pass, by PyTorch, cuDNN, FlashAttention and Triton's compiler.
_BACKWARD_NAME = re.compile(r"backward|bwd|dgrad|wgrad")
_FORWARD_NAME = re.compile(r"forward|fwd")
_ENDS = (Phase.OPTIMIZER, Phase.UNKNOWN)
_BACKWARDS = (Phase.BACKWARD, Phase.RECOMPUTE)

_NEUTRAL = (int(Part.UNKNOWN), int(Phase.UNKNOWN), NO_LAYER, NO_MICROBATCH)


def phases_of_points(points: WorkPoints, facts: ScopeFacts, names: Sequence[str]) -> UInt8s:
    """The phase of each point, uint8[points]; UNKNOWN where nothing tells."""
    phase = facts.phase[points.scope].copy()
    is_unknown = phase == Phase.UNKNOWN
    phase[is_unknown & _is_update(points, names)] = Phase.OPTIMIZER
    if not np.isin(phase, _BACKWARDS).any():
        phase = _by_names(points, phase, names)
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


def _by_names(points: WorkPoints, phase: UInt8s, names: Sequence[str]) -> UInt8s:
    """Phases where names of kernels alone tell a backward pass, else as they are.

    So it is in CUDA graphs, and in files of profilers that know no framework. From one kernel of
    a backward pass to the next all is backward; what else lies before the last one is forward.
    """
    said = np.full(len(names), Phase.UNKNOWN, np.uint8)
    for index in used_positions(points.name, len(names)).tolist():
        if _BACKWARD_NAME.search(names[index].lower()):
            said[index] = Phase.BACKWARD
        elif _FORWARD_NAME.search(names[index].lower()):
            said[index] = Phase.FORWARD
    told = np.where(phase == Phase.UNKNOWN, said[points.name], Phase.UNKNOWN)
    before, after = neighbours(_segments(points), told != Phase.UNKNOWN)
    padded = np.append(told, np.uint8(Phase.UNKNOWN))
    is_between = (padded[before] == Phase.BACKWARD) & (padded[after] == Phase.BACKWARD)
    segment = _segments(points)
    is_free = _is_before_last(segment, told == Phase.BACKWARD) & (phase == Phase.UNKNOWN)
    return np.where(is_free, np.where(is_between, Phase.BACKWARD, Phase.FORWARD), phase).astype(
        np.uint8
    )


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


@dataclass(frozen=True)
class Labels:
    """Part, phase, layer and microbatch of points, or of nodes."""

    part: UInt8s  # uint8[rows], Part
    phase: UInt8s  # uint8[rows], Phase
    layer: Int64s  # int64[rows], NO_LAYER
    microbatch: Int64s  # int64[rows], NO_MICROBATCH


def spread_labels(
    nodes: DraftNodes,
    points: WorkPoints,
    labels: Labels,
    *,
    facts: ScopeFacts,
    scope: Int32s,
    met_nodes: tuple[Int64s, Int64s, Int64s],
    names: Sequence[str],
) -> DraftNodes:
    """Nodes with labels.

    Args:
        nodes: collected.
        points: of work, each a node.
        labels: of points.
        facts: of scopes.
        scope: innermost scope of each node.
        met_nodes: arrivals, finishes in the same rows, and hubs by collective.
        names: of nodes.
    """
    arrive, finish, hub = met_nodes
    columns = nodes.columns
    spread = [np.full(len(nodes), neutral, np.int64) for neutral in _NEUTRAL]
    sources = (
        labels.part.astype(np.int64),
        labels.phase.astype(np.int64),
        labels.layer,
        labels.microbatch,
    )
    for target, source in zip(spread, sources, strict=True):
        target[points.node] = source
        target[finish] = target[arrive]
    _onto_host(nodes, points, sources, spread, names)
    kind = columns["kind"]
    is_host = np.isin(kind, [int(one) for one in HOST_KINDS])
    is_loading = is_host & (facts.phase[scope] == Phase.DATA) & (kind != NodeKind.OPERATOR)
    for target, value in zip(
        spread, (int(Part.DATA), int(Phase.DATA), NO_LAYER, NO_MICROBATCH), strict=True
    ):
        target[is_loading] = value
    collective = columns["collective"][finish].astype(np.int64)
    for target, neutral in zip(spread, _NEUTRAL, strict=True):
        _onto_hubs(target, collective, finish, hub, neutral)
    changed = dict(zip(("part", "phase", "layer", "microbatch"), spread, strict=True))
    return DraftNodes({**columns, **changed})


def _onto_host(
    nodes: DraftNodes,
    points: WorkPoints,
    sources: tuple[Int64s, ...],
    spread: list[Int64s],
    names: Sequence[str],
) -> None:
    """Host nodes take the label of the next point of their thread in the step, else the last.

    Of inputs they take it only where no kernel is launched between: those of a CUDA graph that is
    being captured are launched, and are no points.
    """
    columns = nodes.columns
    lane = columns["host_lane"].astype(np.int64)
    is_taken = np.zeros(len(nodes), np.bool_)
    is_taken[points.node] = True
    kind = columns["kind"]
    is_host = np.isin(kind, [int(one) for one in HOST_KINDS if one != NodeKind.OPERATOR])
    rows = np.flatnonzero(is_host & (lane >= 0) & ~is_taken)
    if not len(rows):
        return
    by_lane = np.argsort(points.lane, kind="stable")
    lanes = points.lane[by_lane].astype(np.int64)
    at_ns = columns["host_ns"][rows].astype(np.int64)
    low = np.searchsorted(lanes, lane[rows], side="left")
    high = np.searchsorted(lanes, lane[rows], side="right")
    next_point = _first_not_before(points.at_ns[by_lane], low, high, at_ns)
    size = len(by_lane)
    step = columns["step"][rows]
    steps = points.step[by_lane]
    is_next = (next_point < high) & (steps[np.minimum(next_point, size - 1)] == step)
    previous = next_point - 1
    is_previous = (previous >= low) & (steps[np.maximum(previous, 0)] == step)
    chosen = np.where(is_next, next_point, np.where(is_previous, previous, -1))
    is_known = chosen >= 0
    point = by_lane[chosen[is_known]]
    for target, source in zip(spread, sources, strict=True):
        target[rows[is_known]] = source[point]
    known = rows[is_known]
    loads = sources[1][point] == Phase.DATA
    launches = _launches_of_nothing(nodes, names)
    if not loads.any() or not len(launches):
        return
    known, until_ns = known[loads], points.at_ns[point[loads]]
    low = np.searchsorted(lane[launches], lane[known], side="left")
    high = np.searchsorted(lane[launches], lane[known], side="right")
    launched_ns = columns["host_ns"][launches].astype(np.int64)
    first = _first_not_before(launched_ns, low, high, columns["host_ns"][known].astype(np.int64))
    behind = _first_not_before(launched_ns, low, high, until_ns)
    computes = known[first < behind]
    values = (int(Part.UNKNOWN), int(Phase.FORWARD), NO_LAYER, NO_MICROBATCH)
    for target, value in zip(spread, values, strict=True):
        target[computes] = value


def _launches_of_nothing(nodes: DraftNodes, names: Sequence[str]) -> Int64s:
    """Calls that launch kernels, of which none was recorded; by lane and time."""
    columns = nodes.columns
    lane, name = columns["host_lane"].astype(np.int64), columns["name"].astype(np.int64)
    calls = np.flatnonzero((columns["kind"] == NodeKind.CALL) & (lane >= 0))
    found = calls[runtime_role_at(names, name[calls]) == RuntimeRole.LAUNCH]
    in_order: Int64s = found[np.lexsort((columns["host_ns"][found], lane[found]))]
    return in_order


def _first_not_before(at_ns: Int64s, low: Int64s, high: Int64s, wanted: Int64s) -> Int64s:
    """First place in `at_ns[low:high]`, rising inside, with at least `wanted`; `high`: none."""
    low, high = low.copy(), high.copy()
    while (low < high).any():
        middle = (low + high) // 2
        safe = np.minimum(middle, len(at_ns) - 1)
        is_open = low < high
        is_below = is_open & (at_ns[safe] < wanted)
        low = np.where(is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low


def _onto_hubs(
    target: Int64s, collective: Int64s, finish: Int64s, hub: Int64s, neutral: int
) -> None:
    """Hubs take what all members have in common."""
    if not len(hub):
        return
    rows = np.flatnonzero(collective != NO_COLLECTIVE)
    high, low = np.full((2, len(hub)), neutral, np.int64)
    low[:] = np.iinfo(np.int64).max
    np.maximum.at(high, collective[rows], target[finish[rows]])
    np.minimum.at(low, collective[rows], target[finish[rows]])
    target[hub] = np.where(high == low, high, neutral)
