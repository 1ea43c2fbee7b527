"""Fusions, graphs and waits on jobs of a few kernels, whose times are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.analyze import Selection
from foretrace.base import ScenarioError
from foretrace.graph import (
    NO_STEP,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
    verify,
)
from foretrace.simulate import simulate
from foretrace.whatif import (
    CudaGraphs,
    Delay,
    Fuse,
    Lasts,
    MoveSync,
    RemoveSync,
    Speed,
    WorkEdit,
)
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.edits.changed import changed
from tests.graphs import Block, Edge, GraphBuilder
from tests.truth.small import Depend, Instruction, Launch, LaunchGraph, Synchronize, Think
from tests.whatif.edits.jobs import BRIEF, measured_costs, small

ALL = Selection()
US = 1_000


def end_ns(graph: ExecutionGraph, *changes: WorkEdit) -> int:
    """When the last node ends; lags are left out, so that only work counts."""
    arranged, costs = changed(unchanged(graph), measured_costs(graph), changes)
    verify(arranged.graph)
    free = replace(arranged.graph, lag_ns=np.zeros_like(arranged.graph.lag_ns))
    return int(simulate(free, costs.duration_ns).end_ns.max())


def kernels_of(graph: ExecutionGraph) -> int:
    return int((graph.kind == NodeKind.KERNEL).sum())


def in_chain(takes_ns: list[int], *, gap_ns: int, call_ns: int) -> ExecutionGraph:
    """Kernels on one stream, each launched by a call after time of the host."""
    build = GraphBuilder()
    host = build.add(NodeKind.RANK_START)
    host = build.add(NodeKind.STEP_BEGIN, after=[host], step="1")
    kernel = -1
    for length_ns in takes_ns:
        segment = build.add(NodeKind.HOST_SEGMENT, takes_ns=gap_ns, after=[host], step="1")
        host = build.add(NodeKind.LAUNCH, takes_ns=call_ns, after=[segment], step="1")
        after = [Edge(host, EdgeKind.LAUNCH, 2)]
        after += [Edge(kernel, EdgeKind.STREAM, 1)] if kernel >= 0 else []
        kernel = build.add(
            NodeKind.KERNEL,
            lane="stream 7",
            name="gelu",
            takes_ns=length_ns,
            after=after,
            step="1",
            block=Block(),
        )
    wait = build.add(NodeKind.HOST_SEGMENT, takes_ns=1, after=[host], step="1")
    woken: list[int | Edge] = [wait, Edge(kernel, EdgeKind.WAKE, 3)]
    sync = build.add(NodeKind.SYNC, name="cudaStreamSynchronize", after=woken, step="1")
    build.add(NodeKind.STEP_END, after=[sync], step="1")
    graph = build.graph(
        (EdgeKind.LAUNCH, 2), (EdgeKind.STREAM, 1), (EdgeKind.WAKE, 3), (EdgeKind.QUEUE, 0)
    )
    verify(graph)
    return graph


def timed(graph: ExecutionGraph, *changes: WorkEdit) -> tuple[ExecutionGraph, int]:
    """The changed graph, and when it ends."""
    arranged, costs = changed(unchanged(graph), measured_costs(graph), changes)
    verify(arranged.graph)
    return arranged.graph, int(simulate(arranged.graph, costs.duration_ns).end_ns.max())


def test_a_fused_run_is_one_launch_and_one_kernel() -> None:
    graph = in_chain([100, 200, 300], gap_ns=10, call_ns=5)

    fused, length_ns = timed(graph, Fuse(Selection(kernels="gelu"), 0.5))

    # 10 of the host, 5 of the call, 2 until it begins, half of 600, and 3 to wake.
    assert length_ns == 10 + 5 + 2 + 300 + 3
    assert kernels_of(fused) == 1
    assert (fused.kind == NodeKind.LAUNCH).sum() == 1
    assert (fused.kind == NodeKind.HOST_SEGMENT).sum() == 2


def test_fusing_without_a_gain_still_saves_launches_and_gaps() -> None:
    graph = in_chain([1, 1, 1], gap_ns=100, call_ns=50)

    _, before_ns = timed(graph)
    _, after_ns = timed(graph, Fuse(ALL, 1.0))

    assert before_ns == 3 * 150 + 2 + 1 + 3
    assert after_ns == 150 + 2 + 3 + 3


def test_a_single_kernel_can_be_neither_fused_nor_launched_with_others() -> None:
    graph = in_chain([100], gap_ns=10, call_ns=5)

    with pytest.raises(ScenarioError, match="no two kernels that follow each other"):
        timed(graph, Fuse(ALL, 0.1))
    with pytest.raises(ScenarioError, match="no two launches that follow each other"):
        timed(graph, CudaGraphs(ALL))


def test_what_another_stream_waits_for_ends_a_run() -> None:
    graph = small([Launch(100 * US), Launch(100 * US), Depend(7, 9), Launch(50 * US), Launch(9, 9)])

    arranged, _ = changed(unchanged(graph), measured_costs(graph), [Fuse(ALL, 1.0)])

    # The second kernel is awaited on stream 9: it ends the first run, and the third is alone.
    assert kernels_of(graph) == 4
    assert kernels_of(arranged.graph) == 3


def test_a_run_that_waits_for_another_stream_begins_with_the_one_that_waits() -> None:
    graph = small(
        [Launch(10 * US), Launch(80 * US, 9), Depend(9, 7), Launch(20 * US), Launch(30 * US)]
    )

    before_ns = end_ns(graph)
    arranged, _ = changed(unchanged(graph), measured_costs(graph), [Fuse(ALL, 1.0)])

    assert kernels_of(arranged.graph) == 3
    assert end_ns(graph, Fuse(ALL, 1.0)) == before_ns


def test_kernels_of_one_graph_launch_fuse_and_its_launch_stays() -> None:
    graph = small([LaunchGraph((10 * US, 20 * US, 30 * US)), Think(5 * US)])

    arranged, costs = changed(unchanged(graph), measured_costs(graph), [Fuse(ALL, 0.5)])

    verify(arranged.graph)
    is_kernel = arranged.graph.kind == NodeKind.KERNEL
    assert costs.duration_ns[is_kernel].tolist() == [30 * US]
    assert (arranged.graph.kind == NodeKind.LAUNCH).sum() == 1


def test_graphs_leave_the_first_launch_of_a_run() -> None:
    graph = in_chain([1, 1, 1, 1], gap_ns=100, call_ns=50)

    graphed, length_ns = timed(graph, CudaGraphs(ALL))

    # One launch; then four kernels, one after the other.
    assert length_ns == 150 + 2 + 4 * 1 + 3 * 1 + 3
    assert kernels_of(graphed) == 4
    assert graphed.num_nodes == graph.num_nodes
    assert graphed.predecessor.tolist() == graph.predecessor.tolist()


def test_a_wait_in_their_middle_makes_two_graphs() -> None:
    overheads = replace(BRIEF, segment_ns=100 * US, launch_call_ns=50 * US)
    program: list[Instruction] = [Launch(US), Launch(US), Synchronize(7), Launch(US), Launch(US)]
    graph = small(program, overheads=overheads)

    saved_ns = end_ns(graph) - end_ns(graph, CudaGraphs(ALL))

    # Of each pair the second launch goes, with the time before it.
    assert saved_ns == pytest.approx(2 * 150 * US, abs=8 * US)


def test_without_its_wait_the_host_does_not_wait() -> None:
    overheads = replace(BRIEF, segment_ns=10 * US)
    program: list[Instruction] = [
        Launch(500 * US),
        Synchronize(7),
        Think(300 * US),
        Launch(100 * US),
    ]
    graph = small(program, overheads=overheads)

    saved_ns = end_ns(graph) - end_ns(graph, RemoveSync(calls="cudaStream*"))

    # Thinking, and the time before the launch, pass beside the first kernel.
    assert saved_ns == pytest.approx(310 * US, abs=5 * US)


def test_a_wait_moved_by_a_step_waits_for_what_is_long_done() -> None:
    program: list[Instruction] = [Launch(500 * US), Synchronize(7), Think(300 * US)]
    graph = small(program, num_steps=3)
    calls = "cudaStream*"

    moved_ns = end_ns(graph, MoveSync(1, calls=calls))

    # Step by step the device is busy; the last step's thinking is beside its kernel.
    assert end_ns(graph) == pytest.approx(3 * 800 * US, abs=20 * US)
    assert moved_ns == pytest.approx(3 * 500 * US, abs=20 * US)
    assert moved_ns >= end_ns(graph, RemoveSync(calls=calls))


def test_a_wait_moved_by_a_step_still_holds_the_host_to_the_device() -> None:
    program: list[Instruction] = [Launch(500 * US), Synchronize(7), Think(10 * US)]
    graph = small(program, num_steps=4)
    later, _ = timed(graph, MoveSync(1, calls="cudaStream*"))
    free, _ = timed(graph, RemoveSync(calls="cudaStream*"))

    called_ns = [
        simulate(each).start_ns[np.flatnonzero((each.kind == NodeKind.SYNC) & (each.step == 3))[0]]
        for each in (later, free)
    ]

    # In the fourth step the host reads what the third computed: 1.5 ms; freed, it never waits.
    assert called_ns[0] == pytest.approx(1_500 * US, abs=40 * US)
    assert called_ns[1] < 200 * US


def test_a_wait_of_the_first_step_is_not_moved_behind_the_last() -> None:
    program: list[Instruction] = [Launch(500 * US), Synchronize(7), Think(300 * US)]
    graph = small(program, num_steps=2)
    is_outside = (graph.kind == NodeKind.SYNC) & (graph.step == 1)
    graph = replace(graph, step=np.where(is_outside, NO_STEP, graph.step).astype(graph.step.dtype))

    moved_ns = end_ns(graph, MoveSync(1, calls="cudaStream*"))

    assert moved_ns == end_ns(graph, RemoveSync(calls="cudaStream*"))


def test_a_delay_on_the_device_lengthens_kernels_and_on_the_host_the_time_before() -> None:
    graph = in_chain([100, 200], gap_ns=10, call_ns=5)

    on_host = timed(graph, Delay(1_000, ALL, once_per_block=False))[1]
    on_device = timed(graph, Delay(1_000, ALL, once_per_block=False, on_device=True))[1]
    once = timed(graph, Delay(1_000, ALL))[1]

    assert on_host == 2 * 1_015 + 2 + 200 + 3
    assert on_device == 15 + 2 + 1_100 + 1 + 1_200 + 3
    assert once == 1_015 + 2 + 100 + 1 + 200 + 3


def test_nothing_takes_less_than_no_time() -> None:
    graph = in_chain([100, 200], gap_ns=10, call_ns=5)

    _, length_ns = timed(graph, Delay(-1_000, ALL, once_per_block=False))

    assert length_ns == 5 + 2 + 100 + 1 + 200 + 3


def test_lengths_come_before_factors_and_these_before_delays() -> None:
    graph = in_chain([100], gap_ns=10, call_ns=5)
    takes, times = Lasts(50, ALL), Speed(1 / 3.0, ALL)
    later = Delay(7, ALL, once_per_block=False, on_device=True)

    lengths = {timed(graph, *order)[1] for order in ((takes, times, later), (later, times, takes))}

    assert lengths == {15 + 2 + 50 * 3 + 7 + 3}


def test_of_two_stated_lengths_the_last_counts() -> None:
    graph = in_chain([100], gap_ns=10, call_ns=5)

    assert timed(graph, Lasts(50, ALL), Lasts(60, ALL))[1] == 15 + 2 + 60 + 3
    assert timed(graph, Lasts(60, ALL), Lasts(50, ALL))[1] == 15 + 2 + 50 + 3


def test_a_call_at_which_nobody_waits_is_refused_with_those_there_are() -> None:
    graph = in_chain([100], gap_ns=10, call_ns=5)

    with pytest.raises(ScenarioError, match="there are 'cudaStreamSynchronize'"):
        changed(unchanged(graph), measured_costs(graph), [RemoveSync(calls="cudaEvent*")])


def test_waits_are_chosen_by_what_is_waited_for() -> None:
    graph = in_chain([100], gap_ns=10, call_ns=5)
    of_kernel = RemoveSync(of=Selection(kernels="gelu"))
    of_other = RemoveSync(of=Selection(kernels="memcpy*"))

    freed, _ = timed(graph, of_kernel)

    assert not (freed.edge_kind == EdgeKind.WAKE).any()
    with pytest.raises(ScenarioError, match="no wait at"):
        timed(graph, of_other)


def operators(*rows: tuple[str, int, int]) -> ExecutionGraph:
    """Operators on a thread that computes, of one layer each, 100 ns before each."""
    build = GraphBuilder()
    node = build.add(NodeKind.RANK_START)
    for name, takes_ns, layer in rows:
        block = Block(Part.LAYER, Phase.FORWARD, layer, 0)
        node = build.add(NodeKind.HOST_SEGMENT, takes_ns=100, after=[node], block=block)
        node = build.add(
            NodeKind.OPERATOR,
            name=name,
            operator=name,
            takes_ns=takes_ns,
            after=[node],
            block=block,
        )
    return build.graph()


def test_operators_of_a_host_that_computes_fuse_over_views_and_host_time() -> None:
    graph = operators(
        ("aten::mm", 5_000, 0),
        ("aten::mul", 1_000, 0),
        ("aten::view", 7, 0),
        ("aten::tanh", 2_000, 0),
        ("aten::mul", 1_000, 1),  # of another layer: alone
        ("aten::mm", 5_000, 1),
        ("aten::add", 3_000, 1),  # behind a product: alone
    )

    fused_ns = end_ns(graph, Fuse(Selection(named="elementwise"), 0.5))

    saved_ns = (1_000 + 2_000) // 2 + 2 * 100 + 7
    assert end_ns(graph) - fused_ns == saved_ns


def test_a_host_that_computes_one_operator_has_nothing_to_fuse() -> None:
    graph = operators(("aten::mm", 5, 0))

    with pytest.raises(ScenarioError, match="nothing to fuse"):
        changed(unchanged(graph), measured_costs(graph), [Fuse(ALL, 0.5)])
