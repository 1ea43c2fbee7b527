"""Edges become a graph: one lag per kind, and an order of nodes or what waits for itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import CircleError
from foretrace.graph import EdgeKind
from foretrace.graph.assembly import Edges, node_order
from foretrace.graph.dependencies import DEFAULT_NS, fitted_constant
from tests.graph.recorded import EXACT, exact_job, recording_of
from tests.truth import FileStyle, Overheads
from tests.truth.small import Depend, Launch, Synchronize, Think

US = 1_000


@given(st.lists(st.integers(-5_000, 50_000), min_size=1, max_size=40))
def test_the_lag_is_the_median_within_its_tenths(samples: list[int]) -> None:
    constant = fitted_constant(EdgeKind.LAUNCH, np.array(samples, np.int64))

    assert constant.lag_ns in samples
    assert sum(each < constant.lag_ns for each in samples) <= len(samples) / 2
    assert sum(each > constant.lag_ns for each in samples) <= len(samples) / 2
    assert constant.low_ns <= constant.lag_ns <= constant.high_ns
    assert constant.num_samples == len(samples)


@pytest.mark.parametrize("kind", list(DEFAULT_NS))
def test_without_samples_the_stated_default_stands_in(kind: EdgeKind) -> None:
    constant = fitted_constant(kind, np.zeros(0, np.int64))

    assert (constant.lag_ns, constant.num_samples) == (DEFAULT_NS[kind], 0)


@pytest.mark.parametrize("has_sync_events", [True, False])
def test_the_machines_constants_are_recovered(has_sync_events: bool) -> None:
    costs = Overheads(
        launch_latency_ns=3_300,
        stream_gap_ns=900,
        handover_ns=4_100,
        wake_ns=6_500,
        lag_jitter_ns=0,
        sync_call_ns=0,
    )
    rounds = [
        each
        for _ in range(12)
        for each in (
            *(Launch(200 * US), Launch(100 * US), Depend(7, 9), Launch(150 * US, 9)),
            *(Launch(80 * US), Depend(9, 7), Launch(60 * US), Synchronize(), Think(90 * US)),
        )
    ]
    style = FileStyle(sync_events=has_sync_events)
    job = exact_job(rounds, config=replace(EXACT, overheads=costs, style=style))

    graph = recording_of(job).graph

    lag_ns = {constant.kind: constant.lag_ns for constant in graph.constants}
    between = EdgeKind.INTER_STREAM if has_sync_events else EdgeKind.INTER_STREAM_INFERRED
    assert lag_ns[EdgeKind.LAUNCH] == 3_300
    assert lag_ns[EdgeKind.STREAM] == 900
    assert lag_ns[between] == 4_100
    assert lag_ns[EdgeKind.WAKE] == 6_500


def test_a_circle_names_its_first_nodes_briefly() -> None:
    edges = Edges.of(EdgeKind.STREAM, np.array([0, 1, 2]), np.array([1, 2, 1]))
    names = ("begin", "void kernel<" + 2_000 * "Policy, " + ">", "end")

    with pytest.raises(CircleError, match="2 of 3 nodes wait for each other") as refused:
        node_order(3, edges, names, np.arange(3, dtype=np.int32))

    assert "'end'" in str(refused.value)
    assert len(str(refused.value)) < 400
    assert refused.value.stuck in str(refused.value)
