"""How much slower compute runs while communication runs beside it.

A collective's kernel takes processors, memory bandwidth and power from what runs at the same
time. Where a recording has the same kernel alone and beside communication, the ratio is measured;
elsewhere a published mean stands in. A duration that a cost model predicts is that of a kernel
alone: it grows by the factor over the share of it that communication runs beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from foretrace.base import Float64s, Int64s, numbered_rows
from foretrace.graph import (
    ALONE_SHARE,
    LEAST_BESIDE,
    MOSTLY_BESIDE,
    ExecutionGraph,
    NodeKind,
    Timeline,
    beside_communication,
    medians_alone,
    operator_classes,
)

# Lee et al., "Characterizing Compute-Communication Overlap in GPU-Accelerated Distributed Deep
# Learning", arXiv:2507.03114: mean slowdown over GPT and LLaMA models on 4 A100, H100, MI210 and
# MI250; the largest is 1.4.
PUBLISHED_MEAN, PUBLISHED_MOST = 1.189, 1.4


@dataclass(frozen=True)
class Inflation:
    """Time beside communication over time alone, by class of operator; 1: no slower."""

    factor_by_class: Mapping[str, float] = field(default_factory=dict)
    num_kernels_by_class: Mapping[str, int] = field(default_factory=dict)  # behind each factor
    otherwise: float = PUBLISHED_MEAN  # for a class that was not measured

    def factor(self, kind: str) -> float:
        """The factor of a class of operators."""
        return self.factor_by_class.get(kind, self.otherwise)

    def inflated_ns(self, alone_ns: Float64s, kind: str, share: Float64s) -> Float64s:
        """Durations with communication beside them for a share of their time.

        Args:
            alone_ns: float64[kernels].
            kind: class of all of them.
            share: float64[kernels], of the work that is done beside communication; above 1 where
                that takes more processors than it usually does.
        """
        grown_ns: Float64s = alone_ns * (1 + (self.factor(kind) - 1) * np.maximum(share, 0))
        return grown_ns


def measured_inflation(timeline: Timeline) -> Inflation:
    """Factors of every class that a measured timeline has alone and beside communication.

    Each kernel beside communication is compared with the median of the same kernel with the same
    launch on the same rank, alone; a class's factor is total time over total time alone.
    """
    graph = timeline.graph
    kernels = graph.nodes_of(NodeKind.KERNEL)
    share = beside_communication(timeline)[kernels]
    duration_ns = timeline.duration_ns[kernels]
    make = numbered_rows([graph.rank[kernels], graph.name[kernels], graph.signature[kernels]])
    alone_ns = medians_alone(duration_ns, make, share <= ALONE_SHARE)
    is_known = (share > MOSTLY_BESIDE) & (alone_ns > 0)
    label, names = operator_classes(graph, kernels[is_known])
    taken_ns = np.bincount(label, duration_ns[is_known], len(names))
    expected_ns = np.bincount(label, alone_ns[is_known], len(names))
    counts = np.bincount(label, minlength=len(names)).tolist()
    found = [at for at, count in enumerate(counts) if count >= LEAST_BESIDE]
    return Inflation(
        {names[at]: max(1.0, float(taken_ns[at] / expected_ns[at])) for at in found},
        {names[at]: counts[at] for at in found},
    )


def inflated(timeline: Timeline, alone_ns: Int64s, inflation: Inflation) -> Int64s:
    """Durations of all nodes, kernels slowed by what runs beside them, int64[nodes].

    Args:
        timeline: simulated; says which share of each kernel communication runs beside.
        alone_ns: int64[nodes], durations without communication beside.
        inflation: the factors.
    """
    return _grown(timeline.graph, alone_ns, inflation, share=beside_communication(timeline))


def slowed_throughout(graph: ExecutionGraph, alone_ns: Int64s, inflation: Inflation) -> Int64s:
    """Durations of all nodes with communication beside every kernel all the time, int64[nodes]."""
    share = (graph.kind == NodeKind.KERNEL).astype(np.float64)
    return _grown(graph, alone_ns, inflation, share=share)


def _grown(
    graph: ExecutionGraph, alone_ns: Int64s, inflation: Inflation, *, share: Float64s
) -> Int64s:
    beside = np.flatnonzero(share > 0)
    label, names = operator_classes(graph, beside)
    grown_ns = alone_ns.copy()
    for at, name in enumerate(names):
        nodes = beside[label == at]
        slowed_ns = inflation.inflated_ns(alone_ns[nodes].astype(np.float64), name, share[nodes])
        grown_ns[nodes] = np.rint(slowed_ns)
    return grown_ns
