"""Recorded jobs whose durations were drawn from what is known."""

from __future__ import annotations

import numpy as np

from foretrace.graph import ExecutionGraph, NodeKind
from tests.graphs import GraphBuilder

KERNEL_NS = {"gemm": 1_000_000, "softmax": 300_000, "add": 100_000}


def recorded(
    *,
    ranks: int = 4,
    steps: int = 12,
    layers: int = 3,
    rank_spread: float = 0.0,
    step_spread: float = 0.0,
    kernel_spread: float = 0.0,
    seed: int = 0,
) -> ExecutionGraph:
    """Ranks that compute layer by layer and meet after each."""
    generator = np.random.default_rng(seed)
    build = GraphBuilder()
    of_rank = 1 + rank_spread * generator.standard_normal(ranks)
    last = {rank: build.add(NodeKind.RANK_START, rank=rank) for rank in range(ranks)}
    for step in range(steps):
        of_step = 1 + step_spread * generator.standard_normal()
        name = f"ProfilerStep#{step}"
        for rank in range(ranks):
            last[rank] = build.add(
                NodeKind.STEP_BEGIN, rank=rank, name=name, after=[last[rank]], step=name
            )
        for _ in range(layers):
            for kernel, mean_ns in KERNEL_NS.items():
                for rank in range(ranks):
                    rest = max(0.1, 1 + kernel_spread * generator.standard_normal())
                    last[rank] = build.add(
                        NodeKind.KERNEL,
                        rank=rank,
                        lane="stream 7",
                        name=kernel,
                        operator=f"aten::{kernel}",
                        shapes="[8, 8]",
                        takes_ns=round(mean_ns * of_rank[rank] * of_step * rest),
                        after=[last[rank]],
                        step=name,
                    )
            if ranks > 1:
                last = build.collective(
                    {rank: [node] for rank, node in last.items()}, transfer_ns=50_000, step=name
                )
        for rank in range(ranks):
            last[rank] = build.add(
                NodeKind.STEP_END, rank=rank, name=name, after=[last[rank]], step=name
            )
    return build.graph()
