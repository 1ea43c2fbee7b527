"""Overlap that comes and goes, on jobs of a few kernels."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import Int64s
from foretrace.cost import PUBLISHED_MOST, Inflation, Source
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.simulate import simulate
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.inflation import uninflated
from tests.graphs import Block, Edge, GraphBuilder
from tests.whatif.edits.jobs import measured_costs

ALONE_NS, BESIDE_NS = 100, 150


def steps(*, num_steps: int, beside: bool, together: bool = True) -> ExecutionGraph:
    """Per step two products of one rank, the second as long as a reduction beside it.

    Args:
        num_steps: how many.
        beside: whether the second took longer for it.
        together: whether the reduction runs beside it; else after it.
    """
    build = GraphBuilder()
    last = build.add(NodeKind.RANK_START)
    ends: list[int] = []
    for number in range(num_steps):
        for microbatch in (0, 1):
            is_second = microbatch == 1
            takes_ns = BESIDE_NS if is_second and beside else ALONE_NS
            last = build.add(
                NodeKind.KERNEL,
                lane="stream 7",
                name="ampere_sgemm_nn",
                takes_ns=takes_ns,
                after=[Edge(last, EdgeKind.STREAM), *(Edge(one) for one in ends)],
                step=str(number),
                block=Block(microbatch=microbatch),
            )
            ends = []
            if not is_second:
                first = last
        start = first if together else last
        finish = build.collective(
            {0: [Edge(start, EdgeKind.INTER_STREAM)]}, transfer_ns=BESIDE_NS, step=str(number)
        )
        ends = [finish[0]]
    return build.graph((EdgeKind.STREAM, 0), (EdgeKind.INTER_STREAM, 0))


def corrected(
    before: ExecutionGraph, after: ExecutionGraph, *, inflation: Inflation | None = None
) -> tuple[Int64s, Int64s, Int64s, set[int]]:
    """Durations of `before`'s second products where `after` says what runs beside them.

    Both have the same nodes in the same order. Also both ends, and where they come from.
    """
    arranged, costs = unchanged(before), measured_costs(before)
    timeline = simulate(after)
    moved = type(timeline)(before, timeline.start_ns, timeline.end_ns, is_measured=False)
    found = uninflated(arranged, costs, simulate(before), moved, inflation=inflation)
    second = np.flatnonzero((before.kind == NodeKind.KERNEL) & (before.microbatch == 1))
    sources = set(found.source[second].tolist())
    return found.duration_ns[second], found.low_ns[second], found.high_ns[second], sources


def aligned(graph: ExecutionGraph) -> list[int]:
    kinds: list[int] = graph.kind.tolist()
    return kinds


def test_where_nothing_moved_the_very_same_costs_come_back() -> None:
    graph = steps(num_steps=12, beside=True)
    costs = measured_costs(graph)

    found = uninflated(unchanged(graph), costs, simulate(graph), simulate(graph))

    assert found is costs


def test_what_no_longer_runs_beside_communication_takes_its_time_alone() -> None:
    before = steps(num_steps=12, beside=True)
    after = steps(num_steps=12, beside=True, together=False)
    assert aligned(before) == aligned(after)

    duration_ns, low_ns, high_ns, sources = corrected(before, after)

    assert set(duration_ns.tolist()) == {ALONE_NS}
    assert set(low_ns.tolist()) == set(high_ns.tolist()) == {ALONE_NS}
    assert sources == {Source.MEASURED}


def test_what_newly_does_takes_the_published_time_where_nothing_was_beside() -> None:
    before = steps(num_steps=12, beside=False, together=False)
    after = steps(num_steps=12, beside=False)

    duration_ns, low_ns, high_ns, sources = corrected(before, after)

    assert set(duration_ns.tolist()) == {round(ALONE_NS * Inflation().otherwise)}
    assert set(low_ns.tolist()) == {ALONE_NS}
    assert set(high_ns.tolist()) == {round(ALONE_NS * PUBLISHED_MOST)}
    assert sources == {Source.SCALED}


def test_what_newly_does_takes_the_stated_factor() -> None:
    before = steps(num_steps=12, beside=False, together=False)
    after = steps(num_steps=12, beside=False)

    duration_ns, low_ns, high_ns, sources = corrected(
        before, after, inflation=Inflation({"gemm": 1.3})
    )

    assert set(duration_ns.tolist()) == set(low_ns.tolist()) == set(high_ns.tolist()) == {130}
    assert sources == {Source.MEASURED}


def test_a_kernel_that_was_never_slower_beside_communication_stays_as_it_was() -> None:
    before = steps(num_steps=12, beside=False)
    after = steps(num_steps=12, beside=False, together=False)

    duration_ns, _, _, sources = corrected(before, after)

    assert set(duration_ns.tolist()) == {ALONE_NS}
    assert sources == {Source.MEASURED}


@pytest.mark.parametrize("num_steps", [2, 9])
def test_too_few_kernels_beside_communication_teach_nothing(num_steps: int) -> None:
    before = steps(num_steps=num_steps, beside=True)
    after = steps(num_steps=num_steps, beside=True, together=False)

    duration_ns, _, _, sources = corrected(before, after)

    assert set(duration_ns.tolist()) == {round(BESIDE_NS / Inflation().otherwise)}
    assert sources == {Source.SCALED}
