from __future__ import annotations

import pytest

from foretrace.analyze import Bound, bound, breakdown, idle
from foretrace.graph import EdgeKind, NodeKind, Timeline
from foretrace.simulate import simulate
from tests.graphs import Edge, GraphBuilder


def two_ranks(*, host_ns: int, kernel_ns: int, transfer_ns: int) -> Timeline:
    """A step of two ranks; rank 1 has host work, then computes, before they meet."""
    build = GraphBuilder()
    ready = {}
    ends = []
    for rank, own_ns in ((0, 1_000), (1, host_ns)):
        begin = build.add(NodeKind.STEP_BEGIN, rank=rank, step="a")
        work = build.add(NodeKind.HOST_SEGMENT, rank=rank, takes_ns=own_ns, after=[begin], step="a")
        launch = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=1_000, after=[work], step="a")
        ready[rank] = [
            build.add(
                NodeKind.KERNEL,
                rank=rank,
                lane="stream 7",
                takes_ns=kernel_ns,
                after=[Edge(launch, EdgeKind.LAUNCH, 0)],
                step="a",
            )
        ]
        ends.append((rank, launch))
    build.collective(ready, transfer_ns=transfer_ns, step="a")
    for rank, launch in ends:
        build.add(NodeKind.STEP_END, rank=rank, after=[launch], step="a")
    return simulate(build.graph())


def of(timeline: Timeline) -> Bound:
    found = bound(breakdown(timeline), idle(timeline), is_on_device=True)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("host_ns", "kernel_ns", "transfer_ns", "words"),
    [
        (
            8_000_000,
            1_000_000,
            1_000_000,
            "Host-bound: GPUs compute 10 %, wait for late ranks 40 %",
        ),
        (1_000, 8_000_000, 1_000_000, "Compute-bound: GPUs compute 89 %, transfer 11 %"),
        (1_000, 1_000_000, 8_000_000, "Communication-bound: GPUs compute 11 %, transfer 89 %"),
    ],
)
def test_what_holds_most_of_the_step_bounds_it(
    host_ns: int, kernel_ns: int, transfer_ns: int, words: str
) -> None:
    timeline = two_ranks(host_ns=host_ns, kernel_ns=kernel_ns, transfer_ns=transfer_ns)

    found = of(timeline)

    assert found.sentence.startswith(words)
    assert found.compute + found.waiting + found.transfer + found.idle == pytest.approx(1)


def test_waiting_for_a_late_host_is_the_hosts() -> None:
    found = of(two_ranks(host_ns=8_000_000, kernel_ns=1_000_000, transfer_ns=1_000_000))

    assert found.by == "host"
    assert found.share == pytest.approx(0.8, abs=0.01)
    assert found.busy == pytest.approx(0.2, abs=0.01)


def test_without_steps_nothing_is_bound() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5)
    timeline = simulate(build.graph())

    assert bound(breakdown(timeline), idle(timeline), is_on_device=True) is None
