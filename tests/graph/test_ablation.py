"""What each null model leaves out of a graph, and that it leaves everything else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.graph import Ablation, EdgeKind, NodeKind, Recording, verify, without
from foretrace.simulate import simulate
from tests.graph.recorded import EXACT, edges_of, exact_job, nodes_of, recording_of
from tests.truth import FileStyle, Link
from tests.truth.small import Depend, Launch, Reduce, Synchronize

US = 1_000


@pytest.fixture(scope="module")
def recording() -> Recording:
    config = replace(
        EXACT,
        style=FileStyle(sync_events=True),
        tp_link=Link(latency_ns=70 * US, bytes_per_ns=float("inf")),
    )
    programs = (
        (
            *(Launch(ns * US), Depend(7, 9), Launch(200 * US, 9), Reduce(), Launch(50 * US)),
            *(Synchronize(), Launch(30 * US)),
        )
        for ns in (100, 400)
    )
    return recording_of(exact_job(*programs, config=config))


def kinds_left(recording: Recording, ablation: Ablation) -> set[EdgeKind]:
    graph, _ = without(recording, ablation)
    return {EdgeKind(int(kind)) for kind in np.unique(graph.edge_kind)}


def test_without_inter_stream_only_those_edges_are_gone(recording: Recording) -> None:
    graph, duration_ns = without(recording, Ablation.INTER_STREAM)

    verify(graph)
    assert edges_of(graph, EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED) == []
    for kind in EdgeKind:
        if kind not in (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED):
            assert edges_of(graph, kind) == edges_of(recording.graph, kind)
    np.testing.assert_array_equal(duration_ns, recording.graph.measured_ns)


def test_without_rendezvous_ranks_keep_their_recorded_times(recording: Recording) -> None:
    graph, duration_ns = without(recording, Ablation.RENDEZVOUS)

    finishes = nodes_of(graph, NodeKind.FINISH)
    np.testing.assert_array_equal(duration_ns[finishes], recording.recorded_ns[finishes])
    assert edges_of(graph, EdgeKind.ARRIVAL) == []
    pairs = edges_of(graph, EdgeKind.TRANSFER)
    assert [(graph.rank[one], graph.collective[one]) for one, _ in pairs] == [
        (graph.rank[other], graph.collective[other]) for _, other in pairs
    ]
    # Rank 0 no longer depends on rank 1.
    slower_ns = np.where(graph.rank == 1, duration_ns * 2, duration_ns)
    own = graph.rank == 0
    np.testing.assert_array_equal(
        simulate(graph, slower_ns).end_ns[own], simulate(graph, duration_ns).end_ns[own]
    )


def test_without_the_device_only_the_host_decides(recording: Recording) -> None:
    graph, duration_ns = without(recording, Ablation.DEVICE)

    assert kinds_left(recording, Ablation.DEVICE) == {
        EdgeKind.HOST_ORDER,
        EdgeKind.LAUNCH,
        EdgeKind.TRANSFER,
    }
    on_host = graph.is_of(NodeKind.HOST_SEGMENT, NodeKind.LAUNCH, NodeKind.SYNC)
    slower_ns = np.where(graph.kind == NodeKind.KERNEL, duration_ns * 3, duration_ns)
    np.testing.assert_array_equal(
        simulate(graph, slower_ns).end_ns[on_host], simulate(graph, duration_ns).end_ns[on_host]
    )


@pytest.mark.parametrize("ablation", list(Ablation))
def test_nodes_stay_so_that_timelines_compare(recording: Recording, ablation: Ablation) -> None:
    graph, duration_ns = without(recording, ablation)

    np.testing.assert_array_equal(graph.kind, recording.graph.kind)
    assert len(duration_ns) == graph.num_nodes
    assert simulate(graph, duration_ns).end_ns.min() >= 0
