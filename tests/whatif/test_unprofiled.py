"""What the profiler costs is taken from events, not from time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import ScenarioError
from foretrace.graph import NodeKind, Recording
from foretrace.simulate import simulate
from foretrace.whatif import Unprofiled, unprofiled
from tests.graphs import GraphBuilder, recording_of

GAP_NS, SHORT_NS, LONG_NS = 1_000, 2_000, 100_000


def recording(operators_ns: list[int], *, step_ns: dict[int, int]) -> Recording:
    """Two steps of one thread: operators of these times, a gap before each."""
    build = GraphBuilder()
    last: list[int] = []
    for step in ("ProfilerStep#1", "ProfilerStep#2"):
        last = [build.add(NodeKind.STEP_BEGIN, step=step, after=last)]
        for takes_ns in operators_ns:
            gap = build.add(NodeKind.HOST_SEGMENT, takes_ns=GAP_NS, after=last, step=step)
            last = [build.add(NodeKind.OPERATOR, takes_ns=takes_ns, after=[gap], step=step)]
        last = [build.add(NodeKind.STEP_END, step=step, after=last)]
    graph = build.graph()
    replayed = simulate(graph)
    return replace(recording_of(graph, replayed), unprofiled_step_ns=step_ns)


def times_ns(found: Unprofiled, kind: NodeKind) -> list[int]:
    graph = found.recording.graph
    return [int(each) for each in graph.measured_ns[graph.kind == kind]][: len(graph.kind) // 4]


def test_every_event_loses_the_same_whatever_it_takes() -> None:
    profiled_ns = 2 * GAP_NS + SHORT_NS + LONG_NS

    found = unprofiled(recording([SHORT_NS, LONG_NS], step_ns={0: profiled_ns - 1_200}))

    assert (found.event_ns, found.num_events) == (600, 4)
    assert found.step_ns == found.target_ns == profiled_ns - 1_200
    assert times_ns(found, NodeKind.HOST_SEGMENT)[:2] == [400, 400]
    assert times_ns(found, NodeKind.OPERATOR)[:2] == [SHORT_NS, LONG_NS]


def test_what_a_gap_does_not_hold_comes_from_the_event_itself() -> None:
    profiled_ns = 2 * GAP_NS + SHORT_NS + LONG_NS

    found = unprofiled(recording([SHORT_NS, LONG_NS], step_ns={0: profiled_ns - 3_000}))

    assert times_ns(found, NodeKind.HOST_SEGMENT)[:2] == [0, 0]
    assert times_ns(found, NodeKind.OPERATOR)[:2] == [SHORT_NS - 500, LONG_NS - 500]


def test_nothing_takes_less_than_nothing() -> None:
    profiled_ns = 2 * GAP_NS + SHORT_NS + LONG_NS

    found = unprofiled(recording([SHORT_NS, LONG_NS], step_ns={0: profiled_ns - 50_000}))

    assert found.step_ns <= found.target_ns == profiled_ns - 50_000
    assert times_ns(found, NodeKind.OPERATOR)[0] == 0
    assert simulate(found.recording.graph).end_ns.min() >= 0


def test_a_recording_that_is_no_slower_keeps_its_times() -> None:
    profiled_ns = 2 * GAP_NS + SHORT_NS + LONG_NS
    before = recording([SHORT_NS, LONG_NS], step_ns={0: profiled_ns + 10})

    found = unprofiled(before)

    assert found.event_ns == 0
    assert found.recording.graph.measured_ns.tolist() == before.graph.measured_ns.tolist()


def test_more_events_cost_more() -> None:
    """Twice the operators lose twice as much by the time that one event costs."""
    once, twice = ([LONG_NS] * count for count in (3, 6))
    per_event_ns = unprofiled(recording(once, step_ns={0: 3 * (GAP_NS + LONG_NS) - 900})).event_ns

    found = unprofiled(recording(twice, step_ns={0: 6 * (GAP_NS + LONG_NS) - 1_800}))

    assert found.event_ns == per_event_ns == 300


def test_a_recording_without_steps_timed_before_says_how_to_get_them() -> None:
    with pytest.raises(ScenarioError, match="unprofiled=5"):
        unprofiled(recording([SHORT_NS], step_ns={}))
