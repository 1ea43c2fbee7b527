"""`host_stalls`: nodes in which a host thread stood still in what usually takes far less.

A call is held against the same place of the step on other ranks and in other steps (`usual`). A
slow operator is slow each time; a stall strikes one call of many. So what is long at the same
place in most steps of its rank is no stall, but slow work. Garbage collection, the allocator,
locks and the profiler are told by name, however long they take. A thread that lost its core, or
waited for a lock or a page, leaves no name: such stalls are counted, and their cause is not told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from foretrace.analyze.activity import is_compute
from foretrace.analyze.usual import (
    MIN_ALIKE,
    Middle,
    NodesByLane,
    middle_of,
    places_of,
)
from foretrace.base import Bools, Int64s, UInt8s, joined_ranges, numbered_rows
from foretrace.graph import (
    HOST_KINDS,
    NO_STEP,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Phase,
    Timeline,
)
from foretrace.trace import RuntimeRole, runtime_role

STALL_NS = 1_000_000  # what a call must exceed its usual time by: docs/analyses.md
# Iglewicz, Hoaglin, "How to Detect and Handle Outliers" (1993): a modified z-score above 3.5.
_LEAST_SCORE = 3.5
_DEVIATION = 1.4826  # of a normal distribution in median absolute deviations
_LEAST_DEVIATION = 0.25  # of ln: timers and caches alone make a call a quarter longer or shorter
_ALIKE_FACTOR = 3  # a place that is slow in each step takes much the same each time
# A thread is slowed while so many calls in a row take, in the middle, so many times their usual.
_SLOWED_CALLS, _SLOWED_FACTOR = 31, 1.5


class StallKind(IntEnum):
    """Why a host thread stood still, as far as the recording shows it."""

    NONE = 0
    UNTOLD = 1  # it lost its core, waited for a lock or a page: nothing recorded tells which
    GARBAGE_COLLECTION = 2
    ALLOCATOR = 3
    LOCK = 4
    PROFILER = 5
    SLOWED = 6  # all calls of the thread took longer for a while: its core was throttled or shared
    DATA = 7  # the next batch came late
    SYNCHRONISATION = 8  # the host waited for the device longer than it usually does there

    @property
    def words(self) -> str:
        """The kind as a reader sees it."""
        return _WORDS[self]


_WORDS = {
    StallKind.NONE: "",
    StallKind.UNTOLD: "cause not recorded",
    StallKind.GARBAGE_COLLECTION: "garbage collection",
    StallKind.ALLOCATOR: "memory allocation",
    StallKind.LOCK: "lock",
    StallKind.PROFILER: "profiler",
    StallKind.SLOWED: "slowed thread",
    StallKind.DATA: "data loading",
    StallKind.SYNCHRONISATION: "blocking synchronisation",
}
# Names of calls and of what is at work around them, the first that fits.
_NAMED = (
    (StallKind.GARBAGE_COLLECTION, re.compile(r"(?i)^(python )?gc\b|garbage collect|gc\.collect")),
    (StallKind.LOCK, re.compile(r"(?i)\b(mutex|lock\.acquire|_thread\.lock|semaphore)\b")),
    (StallKind.PROFILER, re.compile(r"(?i)profiler_kineto|^activity buffer|^buffer flush|cupti")),
)
_DATA_LOADER = re.compile("DataLoader|dataloader|data_loader")
_BY_NAME = (*(kind for kind, _ in _NAMED), StallKind.ALLOCATOR)
# Kinds that are causes of their own in `idle`.
_TOLD_ELSEWHERE = (StallKind.NONE, StallKind.DATA, StallKind.SYNCHRONISATION)


@dataclass(frozen=True)
class HostStalls:
    """Every node of a host that stalled, by thread, then time."""

    node: Int64s  # int64[rows]
    kind: UInt8s  # uint8[rows], StallKind
    took_ns: Int64s  # int64[rows], its waiting included
    usual_ns: Int64s  # int64[rows]; 0 of what is told by name, which a step need not have
    count: Int64s  # int64[rows], of durations that say what is usual

    def kind_of_nodes(self, num_nodes: int) -> UInt8s:
        """Each node's kind, those that are causes of their own in `idle` left out."""
        found = np.zeros(num_nodes, np.uint8)
        found[self.node] = np.where(np.isin(self.kind, _TOLD_ELSEWHERE), 0, self.kind)
        return found


def host_stalls(timeline: Timeline) -> HostStalls:
    """The stalls of all host threads, inside steps where there are any."""
    return timeline.once(_host_stalls)


def _host_stalls(timeline: Timeline) -> HostStalls:
    graph = timeline.graph
    waits = graph.nodes_of(NodeKind.SYNC)
    took_ns = timeline.duration_ns.copy()
    took_ns[waits] = timeline.end_ns[waits] - item_before_ns(timeline, waits)
    return stalls_among(graph, took_ns)


def stalls_among(graph: ExecutionGraph, node_ns: Int64s) -> HostStalls:
    """The same of a graph's nodes and what each takes, int64[nodes], waiting included or not."""
    is_asked = graph.is_of(*(kind for kind in HOST_KINDS if kind != NodeKind.THREAD_WAIT))
    # Operators of a rank with a device, without the calls that they made: they may wait for it.
    is_asked &= is_compute(graph) | (graph.kind != NodeKind.OPERATOR)
    if (graph.step != NO_STEP).any():
        is_asked &= graph.step != NO_STEP
    places = places_of(graph, np.flatnonzero(is_asked), by_shape=True)
    took_ns = node_ns[places.node]
    middle = places.middle(took_ns)
    kind = _kinds(graph, places, took_ns, middle)
    rows = np.flatnonzero(kind != StallKind.NONE)
    usual_ns = np.where(np.isin(kind, _BY_NAME), 0, middle.usual_ns)[rows]
    return HostStalls(places.node[rows], kind[rows], took_ns[rows], usual_ns, middle.count[rows])


def _kinds(graph: ExecutionGraph, places: NodesByLane, took_ns: Int64s, middle: Middle) -> UInt8s:
    """Each row's StallKind."""
    node = places.node
    is_long = _is_far(took_ns, middle)
    is_long &= ~_recurs(graph, places, took_ns, is_long)
    slowed = ~is_long & _is_slowed(graph, node, took_ns, middle)
    kind = np.select([is_long, slowed], [StallKind.UNTOLD, StallKind.SLOWED]).astype(np.uint8)
    kind[is_long & (graph.kind[node] == NodeKind.SYNC)] = StallKind.SYNCHRONISATION
    kind[is_long & loads_data(graph)[node]] = StallKind.DATA
    named, allocates = _by_name(graph, node)
    own, around = named[graph.name[node]], named[graph.operator[node]]
    own = np.where(allocates[graph.name[node]], StallKind.ALLOCATOR, own)
    told = np.where(own > 0, own, np.where(graph.kind[node] == NodeKind.HOST_SEGMENT, 0, around))
    return np.where(told > 0, told, kind).astype(np.uint8)


def _by_name(graph: ExecutionGraph, node: Int64s) -> tuple[UInt8s, Bools]:
    """What each name tells of a stall, StallKind, and which are allocations; one more: no name."""
    named = np.zeros(len(graph.names) + 1, np.uint8)
    allocates = np.zeros(len(graph.names) + 1, np.bool_)
    used = np.unique(np.concatenate((graph.name[node], graph.operator[node])))
    used = used[used >= 0]
    texts = [graph.names[at] for at in used.tolist()]
    for kind, pattern in reversed(_NAMED):
        named[used[[bool(pattern.search(text)) for text in texts]]] = kind
    allocates[used] = runtime_role(texts) == RuntimeRole.ALLOCATION
    return named, allocates


def _is_far(took_ns: Int64s, middle: Middle) -> Bools:
    """Which durations lie far outside what is usual."""
    deviation = np.maximum(_DEVIATION * middle.spread, _LEAST_DEVIATION)
    score = np.log(np.maximum(took_ns, 1) / np.maximum(middle.usual_ns, 1)) / deviation
    is_known = middle.count >= MIN_ALIKE
    far: Bools = is_known & (score > _LEAST_SCORE) & (took_ns - middle.usual_ns >= STALL_NS)
    return far


def _recurs(graph: ExecutionGraph, places: NodesByLane, took_ns: Int64s, is_long: Bools) -> Bools:
    """Which rows are long alike at their place in most steps of their rank, of two or more."""
    rows = np.flatnonzero(is_long)
    recurs = np.zeros(len(is_long), np.bool_)
    if not len(rows):
        return recurs
    key = numbered_rows((graph.rank[places.node], places.place))
    met = np.bincount(key)[key[rows]]
    long = middle_of(key[rows], took_ns[rows])
    is_often = (long.count > 1) & (2 * long.count > np.maximum(met, len(graph.step_names)))
    recurs[rows] = is_often & (took_ns[rows] <= _ALIKE_FACTOR * long.usual_ns)
    return recurs


def _is_slowed(graph: ExecutionGraph, node: Int64s, took_ns: Int64s, middle: Middle) -> Bools:
    """Which rows are amid many in a row on their thread that all take longer than usual."""
    slowed = np.zeros(len(node), np.bool_)
    is_known = (middle.count >= MIN_ALIKE) & (graph.kind[node] != NodeKind.SYNC)
    rows = np.flatnonzero(is_known)
    if len(rows) < _SLOWED_CALLS:
        return slowed
    over_ns = took_ns[rows] - middle.usual_ns[rows]
    is_slow = took_ns[rows] > _SLOWED_FACTOR * middle.usual_ns[rows]
    first = np.arange(len(rows) - _SLOWED_CALLS + 1)
    last = first + _SLOWED_CALLS - 1
    so_far, so_far_ns = (np.append(0, np.cumsum(one)) for one in (is_slow, over_ns))
    lane = graph.lane[node[rows]]
    is_found = (lane[first] == lane[last]) & (so_far_ns[last + 1] - so_far_ns[first] >= STALL_NS)
    is_found &= 4 * (so_far[last + 1] - so_far[first]) >= 3 * _SLOWED_CALLS
    edge = np.zeros(len(rows) + 1, np.int64)
    edge[first[is_found]] += 1
    edge[first[is_found] + _SLOWED_CALLS] -= 1
    slowed[rows] = (np.cumsum(edge)[:-1] > 0) & is_slow
    return slowed


def loads_data(graph: ExecutionGraph) -> Bools:
    """Host nodes that load data, by their phase, else by the name of what was at work."""
    named = np.array([bool(_DATA_LOADER.search(name)) for name in (*graph.names, "")], np.bool_)
    loads = (graph.phase == Phase.DATA) | named[graph.operator] | named[graph.name]
    found: Bools = loads & graph.is_host
    return found


def item_before_ns(timeline: Timeline, node: Int64s) -> Int64s:
    """When the item before each of some nodes on its own thread had ended."""
    graph = timeline.graph
    before_ns = timeline.start_ns[node].copy()
    num_edges = graph.first_edge[node + 1] - graph.first_edge[node]
    row = np.repeat(np.arange(len(node)), num_edges)
    edge = joined_ranges(graph.first_edge[node], num_edges)
    is_order = graph.edge_kind[edge] == EdgeKind.HOST_ORDER
    before_ns[row[is_order]] = timeline.end_ns[graph.predecessor[edge[is_order]]]
    return before_ns
