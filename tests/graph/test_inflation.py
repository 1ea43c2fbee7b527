"""How much slower an operation ran beside communication, from the same operation alone."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph import NodeKind, Recording
from tests.graph.recorded import (
    Event,
    file_text,
    kernel,
    launch,
    nodes_of,
    recording_of_files,
    step,
)

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_sgemm_128x64_nn"


def recording_with(spans: list[tuple[int, int]], communication: tuple[int, int]) -> Recording:
    """Kernels of one make, and one communication beside some of them."""
    events: list[Event] = [step(1, 0, 10_000)]
    for index, (begin, end) in enumerate(spans, start=1):
        events += [
            launch(index * 3, 2, correlation=index),
            kernel(GEMM, begin, end - begin, correlation=index, grid=[8, 1, 1], block=[64, 1, 1]),
        ]
    begin, end = communication
    events += [
        launch(begin - 10, 2, correlation=100),
        kernel(ALL_REDUCE, begin, end - begin, correlation=100, stream=20),
    ]
    return recording_of_files([file_text(events)])


def factors(recording: Recording) -> list[float]:
    graph = recording.graph
    nodes = nodes_of(graph, NodeKind.KERNEL, name=GEMM)
    in_time = sorted(nodes, key=lambda node: int(recording.measured.start_ns[node]))
    return [round(float(graph.inflation[node]), 3) for node in in_time]


def test_a_kernel_beside_communication_is_compared_with_those_alone() -> None:
    alone = [(100, 200), (210, 312), (320, 418)]  # 100, 102, 98: the middle one is the measure
    beside = [(1_000, 1_130), (1_200, 1_400)]

    recording = recording_with([*alone, *beside], (950, 1_500))

    assert factors(recording) == [1.0, 1.0, 1.0, 1.3, 2.0]


def test_without_one_alone_there_is_nothing_to_compare_with() -> None:
    recording = recording_with([(1_000, 1_130), (1_200, 1_400)], (950, 1_500))

    assert factors(recording) == [1.0, 1.0]


def test_little_overlap_is_no_inflation() -> None:
    recording = recording_with([(100, 200), (900, 1_030)], (1_000, 1_500))

    assert factors(recording) == [1.0, 1.0]


def test_only_compute_is_inflated() -> None:
    recording = recording_with([(100, 200), (1_000, 1_130)], (950, 1_500))

    graph = recording.graph
    others = graph.kind != NodeKind.KERNEL
    np.testing.assert_array_equal(graph.inflation[others], 1)
    assert graph.inflation.max() == pytest.approx(1.3)
