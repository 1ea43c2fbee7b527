"""Copies that hold the host: their recorded time is waiting, and is simulated as waiting."""

from __future__ import annotations

import pytest

from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Recording
from foretrace.simulate import simulate
from tests.graph.recorded import (
    Event,
    call,
    file_text,
    kernel,
    launch,
    named_edges,
    nodes_of,
    recording_of_files,
    replayed_step_ns,
    step,
)

US = 1_000


def recording_with_copy(copy_call: str, copy: str, *, begin: int, takes: int) -> Recording:
    """A kernel of 800 us, then a copy whose call returns when the copy is done, then a kernel.

    Other launches take 5 us, so that a copy's call has something to be compared with.
    """
    end = begin + takes
    events: list[Event] = [
        step(1, 0, 2_000),
        *(launch(10 * index, 5, correlation=index) for index in range(1, 6)),
        *(kernel("early", 10 * index + 7, 2, correlation=index) for index in range(1, 6)),
        launch(100, 5, correlation=10),
        kernel("work", 107, 800, correlation=10),
        call(copy_call, 200, end + 4 - 200, correlation=11),
        kernel(copy, begin, takes, correlation=11, category="gpu_memcpy"),
        launch(end + 20, 5, correlation=12),
        kernel("after", end + 27, 100, correlation=12),
        call("cudaDeviceSynchronize", end + 30, 102, correlation=13),
    ]
    return recording_of_files([file_text(events)])


def node(graph: ExecutionGraph, kind: NodeKind, name: str) -> int:
    (found,) = nodes_of(graph, kind, name=name)
    return found


@pytest.mark.parametrize(
    ("copy_call", "copy"),
    [
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)"),
        ("cudaMemcpy", "Memcpy DtoH (Device -> Pinned)"),
        ("cudaMemcpy", "Memcpy HtoD (Pinned -> Device)"),
        ("hipMemcpyWithStream", "Memcpy DtoH (Device -> Host)"),
    ],
)
def test_a_copy_that_returns_when_it_is_done_waits(copy_call: str, copy: str) -> None:
    recording = recording_with_copy(copy_call, copy, begin=908, takes=50)

    graph = recording.graph
    wait = node(graph, NodeKind.SYNC, "copy wait")
    assert (copy, "copy wait") in named_edges(graph, EdgeKind.WAKE)
    assert graph.measured_ns[wait] == 0
    assert graph.measured_ns[node(graph, NodeKind.LAUNCH, copy_call)] <= 5 * US
    assert recording.recorded_ns[wait] > 700 * US

    faster_ns = graph.measured_ns.copy()
    faster_ns[node(graph, NodeKind.KERNEL, "work")] = 300 * US
    before, after = simulate(graph), simulate(graph, faster_ns)
    last = node(graph, NodeKind.KERNEL, "after")
    assert before.start_ns[last] - after.start_ns[last] == 500 * US
    assert before.end_ns[wait] - after.end_ns[wait] == 500 * US


def test_an_asynchronous_copy_holds_nobody() -> None:
    copy = "Memcpy DtoH (Device -> Pinned)"
    events = [
        *(step(1, 0, 2_000), launch(10, 5, correlation=1), kernel("work", 20, 800, correlation=1)),
        call("cudaMemcpyAsync", 30, 6, correlation=2),
        kernel(copy, 821, 50, correlation=2, category="gpu_memcpy"),
        *(launch(60, 5, correlation=3), kernel("other", 70, 5, correlation=3, stream=9)),
    ]

    recording = recording_of_files([file_text(events)])

    graph = recording.graph
    assert nodes_of(graph, NodeKind.SYNC) == []
    assert recording.recorded_ns[node(graph, NodeKind.LAUNCH, "cudaMemcpyAsync")] == 6 * US


def test_staging_a_copy_from_pageable_memory_stays_host_work() -> None:
    # The copy begins while the call still stages: the call is over when its host work is.
    events = [
        step(1, 0, 2_000),
        *(launch(10 * index, 5, correlation=index) for index in range(1, 6)),
        *(kernel("early", 10 * index + 7, 2, correlation=index) for index in range(1, 6)),
        call("cudaMemcpyAsync", 100, 400, correlation=7),
        kernel("Memcpy HtoD (Pageable -> Device)", 120, 390, correlation=7, category="gpu_memcpy"),
        *(launch(520, 5, correlation=8), kernel("after", 530, 100, correlation=8)),
        call("cudaDeviceSynchronize", 530, 105, correlation=9),
    ]

    recording = recording_of_files([file_text(events)])

    graph = recording.graph
    (copy_node,) = nodes_of(graph, NodeKind.MEMCPY)
    (after,) = nodes_of(graph, NodeKind.KERNEL, name="after")
    replayed = simulate(graph)
    assert replayed_step_ns(recording) == pytest.approx([2_000 * US], abs=5 * US)
    assert replayed.start_ns[copy_node] == pytest.approx(120 * US, abs=20 * US)
    assert replayed.start_ns[after] == pytest.approx(530 * US, abs=5 * US)
    # A faster copy does not make the host's staging faster.
    faster_ns = graph.measured_ns.copy()
    faster_ns[copy_node] = 100 * US
    assert simulate(graph, faster_ns).start_ns[after] == replayed.start_ns[after]
