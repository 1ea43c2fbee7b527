"""Edges between streams, stated by the trace or inferred from what started when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from tests.graph.recorded import (
    EXACT,
    edges_of,
    exact_job,
    nodes_of,
    recording_of,
    replayed_step_ns,
)
from tests.truth import FileStyle, Job
from tests.truth.small import Depend, Instruction, Launch

US = 1_000
BETWEEN = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED)


def job_of(*program: Instruction, has_sync_events: bool) -> Job:
    style = FileStyle(sync_events=has_sync_events)
    return exact_job(program, config=replace(EXACT, style=style))


def stream_edges(graph: ExecutionGraph) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Edges between streams; each end as stream and place on it."""
    places: dict[int, tuple[int, int]] = {}
    count: dict[int, int] = {}
    for node in nodes_of(graph, NodeKind.KERNEL):
        stream = graph.lanes[graph.lane[node]].number
        places[node] = (stream, count.get(stream, 0))
        count[stream] = count.get(stream, 0) + 1
    return sorted((places[one], places[other]) for one, other in edges_of(graph, *BETWEEN))


def test_a_wait_passes_through_a_stream_without_operations() -> None:
    job = job_of(
        *(Launch(500 * US), Depend(7, 9), Depend(9, 13), Launch(100 * US, 13)),
        has_sync_events=True,
    )

    recording = recording_of(job)

    assert stream_edges(recording.graph) == [((7, 0), (13, 0))]
    assert replayed_step_ns(recording) == job.step_ns[0].tolist()


def test_a_wait_passes_through_a_stream_with_operations_elsewhere() -> None:
    job = job_of(
        *(Launch(500 * US), Depend(7, 9), Depend(9, 13), Launch(100 * US, 13)),
        *(Depend(13, 9), Launch(50 * US, 9)),
        has_sync_events=True,
    )

    recording = recording_of(job)

    edges = stream_edges(recording.graph)
    assert ((7, 0), (13, 0)) in edges
    assert ((13, 0), (9, 0)) in edges
    assert replayed_step_ns(recording) == job.step_ns[0].tolist()


def test_an_event_stands_for_what_was_launched_before_it() -> None:
    job = job_of(
        *(Launch(500 * US), Depend(7, 9), Launch(400 * US), Launch(100 * US, 9)),
        has_sync_events=True,
    )

    recording = recording_of(job)

    assert stream_edges(recording.graph) == [((7, 0), (9, 0))]


def test_a_second_wait_for_the_same_adds_no_edge() -> None:
    job = job_of(
        *(Launch(500 * US), Depend(7, 9), Launch(100 * US, 9), Depend(7, 9), Launch(90 * US, 9)),
        has_sync_events=True,
    )

    assert stream_edges(recording_of(job).graph) == [((7, 0), (9, 0))]


@pytest.mark.parametrize("has_sync_events", [True, False])
def test_streams_that_never_wait_have_no_edges(has_sync_events: bool) -> None:
    launches = [Launch((100 + 37 * index % 90) * US, 7 + 2 * (index % 3)) for index in range(30)]
    job = job_of(*launches, Depend(40, 41), has_sync_events=has_sync_events)

    recording = recording_of(job)

    assert stream_edges(recording.graph) == []
    assert replayed_step_ns(recording) == job.step_ns[0].tolist()


def test_inferred_edges_are_marked_as_such_and_equal_the_stated_ones() -> None:
    program = [
        each
        for index in range(10)
        for each in (
            *(Launch(300 * US), Depend(7, 9), Launch((150 + 20 * index) * US, 9)),
            *(Launch(200 * US), Depend(9, 7), Launch(60 * US)),
        )
    ]

    stated = recording_of(job_of(*program, has_sync_events=True)).graph
    inferred = recording_of(job_of(*program, has_sync_events=False)).graph

    assert edges_of(stated, EdgeKind.INTER_STREAM_INFERRED) == []
    assert edges_of(inferred, EdgeKind.INTER_STREAM) == []
    # Where the side branch ended long before, nothing in the times shows the join.
    shown, known = set(stream_edges(inferred)), set(stream_edges(stated))
    assert shown <= known
    assert {((7, 3 * index), (9, index)) for index in range(10)} <= shown
