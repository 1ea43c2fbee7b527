"""Kernels that begin while the one before them on their stream drains."""

from __future__ import annotations

import numpy as np

from foretrace.graph import EdgeKind, NodeKind
from foretrace.simulate import simulate
from tests.graph.recorded import edges_of, file_text, kernel, launch, nodes_of, recording_of_files

EARLY_US, TAKES_US, NUM_KERNELS = 4, 100, 20


def test_a_programmatic_launch_follows_its_stream_by_a_lag_below_zero() -> None:
    launches = [launch(10 * index, 5, correlation=index + 1) for index in range(NUM_KERNELS)]
    starts = [30 + index * (TAKES_US - EARLY_US) for index in range(NUM_KERNELS)]
    kernels = [
        kernel("k", start, TAKES_US, correlation=index + 1) for index, start in enumerate(starts)
    ]

    recording = recording_of_files([file_text([*launches, *kernels])])

    graph = recording.graph
    assert len(edges_of(graph, EdgeKind.PROGRAMMATIC)) == NUM_KERNELS - 1
    assert edges_of(graph, EdgeKind.STREAM) == []
    lag_ns = {constant.kind: constant.lag_ns for constant in graph.constants}
    assert lag_ns[EdgeKind.PROGRAMMATIC] == -EARLY_US * 1_000
    nodes = nodes_of(graph, NodeKind.KERNEL)
    before = simulate(graph).start_ns[nodes]
    assert np.diff(before).tolist() == [(TAKES_US - EARLY_US) * 1_000] * (NUM_KERNELS - 1)
    longer_ns = graph.measured_ns.copy()
    longer_ns[nodes[7]] += 50_000
    moved_ns = simulate(graph, longer_ns).start_ns[nodes] - before
    assert moved_ns.tolist() == [0] * 8 + [50_000] * (NUM_KERNELS - 8)
