"""`unprofiled`: a recording as it would have been without the profiler.

A profiler does something for every event that it records, so what it costs is modelled as one
time per recorded host event. Kineto takes its time stamps after it has looked at a call's inputs
and before it files the event: most of that time lies in the gap before an event, so it is taken
from there first, and what the gap does not hold from the event itself. How much it is per event
follows from the steps that the recorder timed before it switched the profiler on: the replay
without it takes as long as they did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Int64s, ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Recording, Timeline
from foretrace.simulate import simulate

_EVENT_KINDS = (NodeKind.OPERATOR, NodeKind.CALL, NodeKind.LAUNCH)
# Of what one event may cost: far more than any profiler takes (1 to 30 us by our measurements).
_MOST_NS = 1_000_000


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
    profiled_ns = _step_ns(simulate(graph))
    low, high = 0, _MOST_NS
    if profiled_ns <= target_ns:
        high = 0
    # The step falls as the time per event rises: the least that meets the target.
    while low < high:
        middle = (low + high) // 2
        if _step_ns(simulate(graph, _without(graph, event, gap, middle))) <= target_ns:
            high = middle
        else:
            low = middle + 1
    duration_ns = _without(graph, event, gap, low)
    return Unprofiled(
        recording=replace(recording, graph=replace(graph, measured_ns=duration_ns)),
        event_ns=low,
        num_events=len(event),
        profiled_step_ns=profiled_ns,
        step_ns=_step_ns(simulate(graph, duration_ns)),
        target_ns=target_ns,
    )


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
    event = np.flatnonzero(np.isin(graph.kind, _EVENT_KINDS))
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.first_edge))
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


def _step_ns(timeline: Timeline) -> int:
    steps = windows(timeline)
    if not len(steps):
        raise ScenarioError(
            "the recording has no marked steps, so nothing can be compared with steps that were "
            "timed without the profiler: call recorder.step() at the end of each"
        )
    return round(float(np.mean(steps.duration_ns)))
