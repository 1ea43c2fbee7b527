"""How much of a kernel's time communication runs beside it, and how much slower that made it.

A kernel is beside communication while its rank is in a collective: from the rank's arrival to its
end there. Its inflation is its measured time over the median time of its like (same name, same
launch) alone; 1 where it ran alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foretrace.base import (
    USUAL_CHANNELS,
    Bools,
    Float32s,
    Float64s,
    Int64s,
    channels_of,
    numbered_rows,
    rows_by_value,
)
from foretrace.graph._compiled import covered_times
from foretrace.graph.graph import ExecutionGraph, Timeline
from foretrace.graph.nodes import NodeKind
from foretrace.graph.operations import Operations
from foretrace.operators import operator_class

MOSTLY_BESIDE = 0.5  # more of a kernel's time than this beside communication calls it inflated
ALONE_SHARE = 0.01  # and at most so much calls it alone
LEAST_BESIDE = 10  # kernels of a sort that ran beside communication; fewer tell little


def inflation_factors(operations: Operations) -> Float32s:
    """Measured time over the median time alone, float32[ops]; 1 where it ran alone."""
    ops = operations.ops
    factor = np.ones(len(ops), np.float32)
    share = _share_of_operations(operations)
    is_inflated = (share > MOSTLY_BESIDE) & ~ops.is_communication
    if not is_inflated.any():
        return factor
    duration_ns = ops.end_ns - ops.start_ns
    make = numbered_rows([ops.name, ops.signature])
    alone_ns = medians_alone(duration_ns, make, (share <= ALONE_SHARE) & ~ops.is_communication)
    rows = np.flatnonzero(is_inflated & (alone_ns >= 0))
    factor[rows] = np.maximum(duration_ns[rows] / np.maximum(alone_ns[rows], 1), 1)
    return factor


def beside_communication(timeline: Timeline) -> Float64s:
    """Share of each kernel's time with communication of its rank beside it, float64[nodes].

    0 of all that is no kernel. A collective that states its channels counts by how many these are
    of the usual ones, since each keeps a processor to itself; of several at once the most.

    Source:
        NVIDIA/nccl, issue 689: CTAs of NCCL do not share an SM with kernels that compute.
    """
    graph = timeline.graph
    share = np.zeros(graph.num_nodes)
    kernels, arrive, finish = (
        graph.nodes_of(kind) for kind in (NodeKind.KERNEL, NodeKind.ARRIVE, NodeKind.FINISH)
    )
    starts, ends = rows_by_value(graph.rank[arrive]), rows_by_value(graph.rank[finish])
    taken = [channels_of(one.name) or USUAL_CHANNELS for one in graph.collectives.makes]
    weight = np.array(taken, np.float64)[graph.collectives.make] / USUAL_CHANNELS
    for rank, rows in rows_by_value(graph.rank[kernels]).items():
        if rank not in starts or rank not in ends:
            continue
        began, ended = arrive[starts[rank]], finish[ends[rank]]
        _, first, second = np.intersect1d(
            graph.collective[began], graph.collective[ended], return_indices=True
        )
        own = kernels[rows]
        spans = timeline.start_ns[own], timeline.end_ns[own]
        others = timeline.start_ns[began[first]], timeline.end_ns[ended[second]]
        of_other = weight[graph.collective[began[first]]]
        for more, counts in weight_layers(of_other):
            share[own] += more * _covered_share(spans, (others[0][counts], others[1][counts]))
    return share


def weight_layers(weight: Float64s) -> Iterator[tuple[float, Bools]]:
    """Weights as layers upon each other: how high each is, and what reaches its top."""
    below = 0.0
    for each in np.unique(weight).tolist():
        yield each - below, weight >= each
        below = each


def medians_alone(duration_ns: Int64s, make: Int64s, is_alone: Bools) -> Int64s:
    """For each row the (lower) median time of those of its make that ran alone; -1 without any."""
    chosen = np.flatnonzero(is_alone)
    chosen = chosen[np.lexsort((duration_ns[chosen], make[chosen]))]
    makes = np.arange(int(make.max(initial=-1)) + 1)
    low = np.searchsorted(make[chosen], makes, side="left")
    high = np.searchsorted(make[chosen], makes, side="right")
    medians = np.full(len(makes), -1, np.int64)
    known = high > low
    medians[known] = duration_ns[chosen[(low + high - 1)[known] // 2]]
    return medians[make]


def operator_classes(graph: ExecutionGraph, nodes: Int64s) -> tuple[Int64s, tuple[str, ...]]:
    """Class of the work of each node, int64[nodes], a position among the names.

    Names stand in the order of the graph's names of which they are the class.
    """
    pair = numbered_rows([graph.name[nodes], graph.operator[nodes]])
    first = np.zeros(int(pair.max(initial=-1)) + 1, np.int64)
    first[pair] = nodes
    of_pair = [
        str(operator_class(graph.names[name], graph.names[operator] if operator >= 0 else ""))
        for name, operator in zip(graph.name[first], graph.operator[first], strict=True)
    ]
    names = tuple(dict.fromkeys(of_pair))
    return np.array([names.index(each) for each in of_pair], np.int64)[pair], names


def _share_of_operations(operations: Operations) -> Float32s:
    """Share of each operation's time with communication of the same rank beside it."""
    ops = operations.ops
    share = np.zeros(len(ops), np.float32)
    for position in range(len(operations.ranks)):
        own = operations.op_rows(position)
        comm = own[ops.is_communication[own]]
        compute = own[~ops.is_communication[own]]
        share[compute] = _covered_share(
            (ops.start_ns[compute], ops.end_ns[compute]), (ops.start_ns[comm], ops.end_ns[comm])
        )
    return share


def _covered_share(spans: tuple[Int64s, Int64s], others: tuple[Int64s, Int64s]) -> Float64s:
    """Share of each span that others cover together; starts and ends in ns."""
    start_ns, end_ns = spans
    covered_ns = np.zeros(len(start_ns), np.int64)
    covered_times(start_ns, end_ns, *_joined(*others), covered_ns)
    share: Float64s = covered_ns / np.maximum(end_ns - start_ns, 1)
    return share


def _joined(start_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s]:
    """The spans merged where they touch, sorted."""
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    is_new = np.append(True, start_ns[1:] > end_ns[:-1])[: len(start_ns)]
    last = np.append(np.flatnonzero(is_new)[1:] - 1, len(start_ns) - 1)[: int(is_new.sum())]
    return start_ns[is_new], end_ns[last]
