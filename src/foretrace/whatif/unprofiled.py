"""`unprofiled`: a recording as it would have been without the profiler.

A profiler costs time in two ways, and the steps that the recorder timed before it switched the
profiler on tell both.

1. It does something for every event that it records: one time per recorded host event. Kineto
   takes its time stamps after it has looked at a call's inputs and before it files the event: most
   of that time lies in the gap before an event, so it is taken from there first, and what the gap
   does not hold from the event itself. How much it is follows from the quickest recorded step,
   which has least of everything else: without it, that step takes as long as steps did before.
2. It disturbs: what it keeps makes the allocator hand memory back, so that some calls of an
   operator take many times as long as others of the same shapes (seen on a CPU: a softmax of 4 MB
   in 0.6 ms or, with its pages fetched anew, in 13.5 ms). So calls are cut to so many times the
   quickest one alike: the most that makes the mean step as long as steps were before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from foretrace.analyze import windows
from foretrace.answer import duration_text, percent_text
from foretrace.base import Int64s, ScenarioError, numbered_rows
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Recording
from foretrace.simulate import simulate

_EVENT_KINDS = (NodeKind.OPERATOR, NodeKind.CALL, NodeKind.LAUNCH)
# Of what one event may cost: far more than any profiler takes (1 to 100 us by our measurements).
_MOST_NS = 1_000_000
_MOST_TIMES = 4_096.0  # that a call may take of the quickest alike
_DISTORTING = 0.1  # of a step without the profiler: what it costs is said from here on
_NUM_HALVINGS = 24  # of the logarithm of that factor: to a millionth of it


@dataclass(frozen=True)
class ProfilerCost:
    """How much longer a step took for being recorded."""

    cost_ns: float
    without_ns: float  # median over ranks

    @property
    def sentence(self) -> str:
        """Both, and why."""
        with_ns = self.without_ns + self.cost_ns
        return (
            f"a step takes {duration_text(with_ns)} with it and {duration_text(self.without_ns)} "
            f"without, {percent_text(100 * self.cost_ns / self.without_ns)} more: recording costs "
            "the host time at every call"
        )


def profiler_cost(recording: Recording, step_ns: float) -> ProfilerCost | None:
    """What the profiler costs, where it distorts a step of this length; None: not, or not known."""
    known_ns = [ns for ns in recording.unprofiled_step_ns.values() if ns]
    without_ns = median(known_ns) if known_ns else 0
    if not without_ns or step_ns / without_ns - 1 < _DISTORTING:
        return None
    return ProfilerCost(step_ns - without_ns, without_ns)


@dataclass(frozen=True)
class Unprofiled:
    """A recording whose durations have lost what the profiler added."""

    recording: Recording
    event_ns: int  # taken away for each recorded host event; 0: steps were no longer with it
    num_events: int  # on all ranks, in steps and outside
    profiled_step_ns: int  # replayed, mean
    step_ns: int  # the same without the profiler
    target_ns: int  # median of the steps that were timed without it


def unprofiled(recording: Recording) -> Unprofiled:
    """The recording without what its profiler cost.

    Args:
        recording: made by `foretrace.record`, which times steps without the profiler too.

    Raises:
        ScenarioError: if no step was timed without the profiler, or none is marked.
    """
    target_ns = _target_ns(recording)
    graph = recording.graph
    event, gap = _events(graph)
    profiled = _steps_ns(graph, graph.measured_ns)
    low, high = 0, _MOST_NS if profiled.min() > target_ns else 0
    # The step falls as the time per event rises: the least that meets the target.
    while low < high:
        middle = (low + high) // 2
        if _steps_ns(graph, _without(graph, event, gap, middle)).min() <= target_ns:
            high = middle
        else:
            low = middle + 1
    duration_ns = _calmed(graph, _without(graph, event, gap, low), target_ns)
    return Unprofiled(
        recording=replace(recording, graph=replace(graph, measured_ns=duration_ns)),
        event_ns=low,
        num_events=len(event),
        profiled_step_ns=round(float(profiled.mean())),
        step_ns=round(float(_steps_ns(graph, duration_ns).mean())),
        target_ns=target_ns,
    )


def _calmed(graph: ExecutionGraph, duration_ns: Int64s, target_ns: int) -> Int64s:
    """Durations with calls cut to so many times the quickest alike that steps meet the target."""
    if _steps_ns(graph, duration_ns).mean() <= target_ns:
        return duration_ns
    calls = graph.nodes_of(NodeKind.OPERATOR)
    alike = numbered_rows((graph.name[calls], graph.operator_signature[calls]))
    quickest = np.full(int(alike.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(quickest, alike, duration_ns[calls])
    quickest_ns = quickest[alike]

    def cut(times: float) -> Int64s:
        found = duration_ns.copy()
        found[calls] = np.minimum(found[calls], np.rint(quickest_ns * times).astype(np.int64))
        return found

    low, high = 0.0, math.log(_MOST_TIMES)
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        if _steps_ns(graph, cut(math.exp(middle))).mean() <= target_ns:
            low = middle
        else:
            high = middle
    return cut(math.exp(low))


def _target_ns(recording: Recording) -> int:
    """Step of the job without the profiler: all ranks end a step together, or nearly so."""
    times = recording.unprofiled_step_ns
    missing = sorted(set(recording.graph.ranks) - set(times))
    if missing:
        raise ScenarioError(
            f"how long steps take without the profiler was not recorded on rank {missing[0]} "
            f"({len(missing)} of {len(recording.graph.ranks)} ranks lack it): record with "
            "foretrace.record(..., unprofiled=5), or predict profiled steps"
        )
    return round(float(np.mean(list(times.values()))))


def _events(graph: ExecutionGraph) -> tuple[Int64s, Int64s]:
    """Every recorded host event, and the gap before it; -1 where there is none."""
    event = graph.nodes_of(*_EVENT_KINDS)
    target = graph.edge_target
    is_gap = (graph.edge_kind == EdgeKind.HOST_ORDER) & (
        graph.kind[graph.predecessor] == NodeKind.HOST_SEGMENT
    )
    gap_of_node = np.full(graph.num_nodes, -1, np.int64)
    gap_of_node[target[is_gap]] = graph.predecessor[is_gap]
    return event, gap_of_node[event]


def _without(graph: ExecutionGraph, event: Int64s, gap: Int64s, event_ns: int) -> Int64s:
    """Duration of every node without so much for each event; nothing falls below zero."""
    found = graph.measured_ns.copy()
    has_gap = gap >= 0
    taken = np.zeros(len(event), np.int64)
    taken[has_gap] = np.minimum(found[gap[has_gap]], event_ns)
    found[gap[has_gap]] -= taken[has_gap]
    found[event] = np.maximum(found[event] - (event_ns - taken), 0)
    return found


def _steps_ns(graph: ExecutionGraph, duration_ns: Int64s) -> Int64s:
    """Length of every step of the job with these durations; int64[steps]."""
    steps = windows(simulate(graph, duration_ns))
    if not len(steps):
        raise ScenarioError(
            "the recording has no marked steps, so nothing can be compared with steps that were "
            "timed without the profiler: call recorder.step() at the end of each"
        )
    return steps.duration_ns
