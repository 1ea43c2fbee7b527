"""Recordings of a few equal steps with random durations."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from tests.graphs import Edge, GraphBuilder

LAUNCH_LAG_NS = 3


def training_graph(
    kernel_ns: list[dict[int, list[int]]], *, host_ns: int = 5, transfer_ns: int = 7
) -> ExecutionGraph:
    """Per step and rank: a host that launches kernels, and an all-reduce that ends the step.

    Args:
        kernel_ns: for each step, each rank's kernel durations.
        host_ns: host time before each launch.
        transfer_ns: of every all-reduce.
    """
    build = GraphBuilder()
    host = {
        rank: [Edge(build.add(NodeKind.RANK_START, rank=rank, takes_ns=0))] for rank in kernel_ns[0]
    }
    stream: dict[int, list[Edge]] = {rank: [] for rank in kernel_ns[0]}
    for index, by_rank in enumerate(kernel_ns):
        step = f"ProfilerStep#{index}"
        for rank, durations in by_rank.items():
            mark = build.add(NodeKind.STEP_BEGIN, rank=rank, name=step, after=host[rank], step=step)
            at = mark
            for position, takes_ns in enumerate(durations):
                gap = build.add(
                    NodeKind.HOST_SEGMENT, rank=rank, takes_ns=host_ns, after=[at], step=step
                )
                at = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=2, after=[gap], step=step)
                kernel = build.add(
                    NodeKind.KERNEL,
                    rank=rank,
                    lane="stream 7",
                    name=f"kernel {position}",
                    takes_ns=takes_ns,
                    after=[Edge(at, EdgeKind.LAUNCH, LAUNCH_LAG_NS), *stream[rank]],
                    step=step,
                )
                stream[rank] = [Edge(kernel, EdgeKind.STREAM)]
            end = build.add(NodeKind.STEP_END, rank=rank, name=step, after=[at], step=step)
            host[rank] = [Edge(end)]
        finish = build.collective(stream, transfer_ns=transfer_ns, step=step)
        stream = {rank: [Edge(node, EdgeKind.STREAM)] for rank, node in finish.items()}
    return build.graph((EdgeKind.LAUNCH, LAUNCH_LAG_NS))


@st.composite
def training_graphs(draw: st.DrawFn, min_steps: int = 1) -> ExecutionGraph:
    """`training_graph` of any kernel durations, of one to three ranks."""
    num_ranks = draw(st.integers(1, 3))
    num_kernels = draw(st.integers(1, 4))
    durations = st.lists(st.integers(0, 100), min_size=num_kernels, max_size=num_kernels)
    return training_graph(
        [
            {rank: draw(durations) for rank in range(num_ranks)}
            for _ in range(draw(st.integers(min_steps, 5)))
        ]
    )


def noise_ns(
    graph: ExecutionGraph, seed: int, most_ns: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Random additions to durations, 0 to `most_ns`; int64[nodes]."""
    return np.random.default_rng(seed).integers(0, most_ns + 1, graph.num_nodes)
