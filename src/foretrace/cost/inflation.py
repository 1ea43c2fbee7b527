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

from foretrace.base import Bools, Float64s, Int32s, Int64s, rows_by_value
from foretrace.graph import ExecutionGraph, NodeKind, Timeline
from foretrace.operators import operator_class

# Lee et al., "Characterizing Compute-Communication Overlap in GPU-Accelerated Distributed Deep
# Learning", arXiv:2507.03114: mean slowdown over GPT and LLaMA models on 4 A100, H100, MI210 and
# MI250; the largest is 1.4.
PUBLISHED_MEAN, PUBLISHED_MOST = 1.189, 1.4

_MIN_SHARE = 0.5  # of a kernel's time beside communication to count as inflated
_ALONE_SHARE = 0.01  # and so little to count as alone
_LEAST_KERNELS = 10  # of one class beside communication; fewer tell a class little


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
            share: float64[kernels], from 0 to 1, of the work that is done beside communication.
        """
        grown_ns: Float64s = alone_ns * (1 + (self.factor(kind) - 1) * np.clip(share, 0, 1))
        return grown_ns


def measured_inflation(timeline: Timeline) -> Inflation:
    """Factors of every class that a measured timeline has alone and beside communication.

    Each kernel beside communication is compared with the median of the same kernel with the same
    launch on the same rank, alone; a class's factor is total time over total time alone.
    """
    graph = timeline.graph
    kernels = graph.nodes_of(NodeKind.KERNEL)
    share = _shares(timeline, kernels)
    duration_ns = timeline.duration_ns[kernels]
    columns = (graph.rank[kernels], graph.name[kernels], graph.signature[kernels])
    _, make = np.unique(np.stack(columns), axis=1, return_inverse=True)
    make = make.reshape(-1)
    alone_ns = _medians(duration_ns, make, share <= _ALONE_SHARE)
    is_known = (share > _MIN_SHARE) & (alone_ns > 0)
    label, names = _classes(graph, kernels[is_known])
    taken_ns = np.bincount(label, duration_ns[is_known], len(names))
    expected_ns = np.bincount(label, alone_ns[is_known], len(names))
    counts = np.bincount(label, minlength=len(names)).tolist()
    found = [at for at, count in enumerate(counts) if count >= _LEAST_KERNELS]
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
    kernels = timeline.graph.nodes_of(NodeKind.KERNEL)
    return _grown(timeline.graph, alone_ns, inflation, kernels, _shares(timeline, kernels))


def slowed_throughout(graph: ExecutionGraph, alone_ns: Int64s, inflation: Inflation) -> Int64s:
    """Durations of all nodes with communication beside every kernel all the time, int64[nodes]."""
    kernels = graph.nodes_of(NodeKind.KERNEL)
    return _grown(graph, alone_ns, inflation, kernels, np.ones(len(kernels)))


def _grown(
    graph: ExecutionGraph,
    alone_ns: Int64s,
    inflation: Inflation,
    kernels: Int64s,
    share: Float64s,
) -> Int64s:
    beside = np.flatnonzero(share > 0)
    label, names = _classes(graph, kernels[beside])
    grown_ns = alone_ns.copy()
    for at, name in enumerate(names):
        rows = beside[label == at]
        nodes = kernels[rows]
        slowed_ns = inflation.inflated_ns(alone_ns[nodes].astype(np.float64), name, share[rows])
        grown_ns[nodes] = np.rint(slowed_ns)
    return grown_ns


def beside_communication(timeline: Timeline) -> Float64s:
    """Share of each kernel's time with communication of its rank beside it, float64[nodes].

    0 of all that is no kernel.
    """
    kernels = timeline.graph.nodes_of(NodeKind.KERNEL)
    share = np.zeros(timeline.graph.num_nodes)
    share[kernels] = _shares(timeline, kernels)
    return share


def _classes(graph: ExecutionGraph, nodes: Int64s) -> tuple[Int32s, list[str]]:
    """Class of each node; distinct kernels are classed once."""
    pairs, inverse = np.unique(
        np.stack([graph.name[nodes], graph.operator[nodes]]), axis=1, return_inverse=True
    )
    classes = [
        str(operator_class(graph.names[name], graph.names[operator] if operator >= 0 else ""))
        for name, operator in pairs.T.tolist()
    ]
    names = sorted(set(classes))
    label = np.array([names.index(each) for each in classes], np.int32)
    return label[inverse.reshape(-1)], names


def _medians(duration_ns: Int64s, make: Int64s, rows: Bools) -> Float64s:
    """For each row the median over `rows` of its make; 0 where there are none."""
    chosen = np.flatnonzero(rows)
    chosen = chosen[np.lexsort((duration_ns[chosen], make[chosen]))]
    makes = np.arange(int(make.max(initial=-1)) + 1)
    first = np.searchsorted(make[chosen], makes, side="left")
    last = np.searchsorted(make[chosen], makes, side="right")
    medians = np.zeros(len(makes))
    known = last > first
    medians[known] = duration_ns[chosen[(first + last - 1)[known] // 2]]
    return medians[make]


def _shares(timeline: Timeline, kernels: Int64s) -> Float64s:
    """Share of each kernel's time beside communication of its own rank, float64[kernels]."""
    graph = timeline.graph
    share = np.zeros(len(kernels))
    arrive = graph.nodes_of(NodeKind.ARRIVE)
    finish = graph.nodes_of(NodeKind.FINISH)
    starts, ends = rows_by_value(graph.rank[arrive]), rows_by_value(graph.rank[finish])
    for rank, rows in rows_by_value(graph.rank[kernels]).items():
        if rank not in starts or rank not in ends:
            continue
        begin_ns, stop_ns = _spans(timeline, arrive[starts[rank]], finish[ends[rank]])
        own = kernels[rows]
        covered_ns = _covered_until(timeline.end_ns[own], begin_ns, stop_ns)
        covered_ns -= _covered_until(timeline.start_ns[own], begin_ns, stop_ns)
        length_ns = timeline.end_ns[own] - timeline.start_ns[own]
        share[rows] = covered_ns / np.maximum(length_ns, 1)
    return share


def _spans(timeline: Timeline, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Spans from a rank's arrival at a collective to its end there, joined where they touch."""
    collective = timeline.graph.collective
    _, first, second = np.intersect1d(collective[starts], collective[ends], return_indices=True)
    begin_ns = timeline.start_ns[starts[first]]
    stop_ns = timeline.end_ns[ends[second]]
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, stop_ns = begin_ns[order], np.maximum.accumulate(stop_ns[order])
    is_new = np.ones(len(begin_ns), np.bool_)
    is_new[1:] = begin_ns[1:] > stop_ns[:-1]
    last = np.append(np.flatnonzero(is_new)[1:] - 1, len(begin_ns) - 1)[: int(is_new.sum())]
    return begin_ns[is_new], stop_ns[last]


def _covered_until(moment_ns: Int64s, begin_ns: Int64s, stop_ns: Int64s) -> Int64s:
    """Time covered by disjoint sorted spans before each moment, int64[moments]."""
    if not len(begin_ns):
        return np.zeros(len(moment_ns), np.int64)
    before_ns = np.concatenate([[0], np.cumsum(stop_ns - begin_ns)])
    at = np.searchsorted(begin_ns, moment_ns, side="right")
    inside_ns = np.clip(moment_ns - begin_ns[at - 1], 0, (stop_ns - begin_ns)[at - 1])
    covered_ns: Int64s = np.where(at > 0, before_ns[np.maximum(at - 1, 0)] + inside_ns, 0)
    return covered_ns
