"""A step of an engine as an execution graph: what its closed form leaves out, which is little."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph import EdgeKind, NodeKind
from foretrace.serve import ProfileGrid, StepBatch
from foretrace.serve.step_times import EngineStepTimes
from foretrace.simulate import simulate
from tests.graphs import Edge, GraphBuilder

LAYERS = st.lists(st.integers(1, 60_000), min_size=1, max_size=8)


def graph_ns(layer: list[int], num_layers: int, launch_ns: int) -> int:
    """A step as a graph: launches by one thread, kernels in one stream."""
    build = GraphBuilder()
    call, kernel = -1, -1
    for takes_ns in layer * num_layers:
        after = [Edge(call)] if call >= 0 else []
        call = build.add(NodeKind.LAUNCH, lane="thread 1", takes_ns=launch_ns, after=after)
        waits = [Edge(call, EdgeKind.LAUNCH)]
        waits += [Edge(kernel, EdgeKind.STREAM)] if kernel >= 0 else []
        kernel = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=takes_ns, after=waits)
    timeline = simulate(build.graph())
    return int(timeline.end_ns.max())


def closed_ns(layer: list[int], num_layers: int, launch_ns: int) -> int:
    """The same as serving has it: tables over what a step works on."""
    nothing = np.zeros((2, 2))
    grid = ProfileGrid((np.array([0.0, 1.0]), np.array([0.0, 1.0])), nothing)
    axes = tuple(np.array([0.0, 1.0]) for _ in range(4))
    of_layers = float(sum(layer) * num_layers)
    times = EngineStepTimes(
        token_ns=np.array([0.0, of_layers]),
        sequence_ns=np.zeros(2),
        shared_ns=np.zeros(2),
        decode=grid,
        prefill=grid,
        mixed=ProfileGrid(axes, np.zeros((2, 2, 2, 2))),
        num_ranks=1,
        low=1.0,
        high=1.0,
        source="made",
        host_ns=np.array([0.0, float(len(layer) * num_layers * launch_ns)]),
    )
    return times.step_ns(StepBatch(decodes=(1,)))


@given(LAYERS, st.integers(1, 10))
@settings(deadline=None)
def test_kernels_of_a_graph_take_their_sum_to_the_nanosecond(
    layer: list[int], num_layers: int
) -> None:
    assert graph_ns(layer, num_layers, 0) == closed_ns(layer, num_layers, 0)


@given(LAYERS, st.integers(1, 10), st.integers(1, 30_000))
@settings(deadline=None)
def test_kernels_that_are_launched_take_no_more_than_a_layer_longer(
    layer: list[int], num_layers: int, launch_ns: int
) -> None:
    graph, closed = graph_ns(layer, num_layers, launch_ns), closed_ns(layer, num_layers, launch_ns)

    assert closed <= graph <= closed + sum(layer) + len(layer) * launch_ns
