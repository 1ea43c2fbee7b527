"""Kernels that communication no longer runs beside are faster, and those that it newly does slower.

What was recorded holds the slowdown of the recorded overlap. When work moves, or the network
changes, other kernels overlap: each is corrected by the share of its time with communication
beside it, before and after. Like is compared with like: a kernel with the same one, launched
alike, at the same place of the same kind of block. A name and a launch alone do not tell: kernels
that fill the device with one grid work on products of any size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, Float64s, Int64s, numbered_rows
from foretrace.cost import PUBLISHED_MOST, Costs, Inflation, Source, beside_communication
from foretrace.graph import NO_NODE, ExecutionGraph, NodeKind, Timeline
from foretrace.operators import operator_class
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.changes.working import BLOCK_COLUMNS

_ALONE_SHARE = 0.01  # with communication beside it for so little of its time, a kernel was alone
_LEAST_KERNELS = 10  # that ran beside communication; fewer tell little (as `cost` takes it)
_MAKE = ("rank", "lane", "part", "phase", "name", "signature", "operator", "operator_signature")


@dataclass(frozen=True)
class Slowdowns:
    """How much slower each kernel of a recording is with communication beside all its time."""

    share: Float64s  # float64[nodes], of its time, with communication beside it in the recording
    factor: Float64s  # float64[nodes]; of what is no kernel 1
    is_published: Bools  # bool[nodes], the recording shows nothing


def uninflated(
    arranged: Arranged,
    costs: Costs,
    before: Timeline | Slowdowns,
    after: Timeline,
    *,
    inflation: Inflation | None = None,
) -> Costs:
    """Costs of an arranged job's nodes, corrected for what runs beside them now.

    A kernel has the slowdown that kernels of its make show in the recording; where too few do,
    that of its class, then of all kernels; where nothing overlapped, the published mean. Only
    with the last the interval grows, from no slowdown to the most that was published. Where as
    much runs beside a kernel as was recorded, its duration stays as it is.

    Args:
        arranged: the job.
        costs: of its nodes, as recorded or scaled.
        before: the recording, replayed; or what `slowdowns_of` it are, for many jobs.
        after: the job, simulated with `costs`.
        inflation: factors by class of operator, instead of what a replayed recording shows.
    """
    graph = arranged.graph
    kernels = np.flatnonzero((graph.kind == NodeKind.KERNEL) & (arranged.source != NO_NODE))
    source = arranged.source[kernels]
    known = slowdowns_of(before, inflation) if isinstance(before, Timeline) else before
    was, now = known.share[source], beside_communication(after)[kernels]
    if np.array_equal(was, now):
        return costs
    ratio = _ratio(known.factor[source], was, now)
    most = _ratio(np.full(len(kernels), PUBLISHED_MOST), was, now)
    is_published = known.is_published[source] & (was != now)
    low = np.where(is_published, np.minimum(np.minimum(most, 1), ratio), ratio)
    high = np.where(is_published, np.maximum(np.maximum(most, 1), ratio), ratio)
    columns = [costs.duration_ns.copy(), costs.low_ns.copy(), costs.high_ns.copy()]
    for column, each in zip(columns, (ratio, low, high), strict=True):
        column[kernels] = np.rint(column[kernels] * each)
    sources = costs.source.copy()
    guessed = kernels[is_published]
    sources[guessed] = np.maximum(sources[guessed], Source.SCALED)
    duration_ns, low_ns, high_ns = columns
    return replace(costs, duration_ns=duration_ns, low_ns=low_ns, high_ns=high_ns, source=sources)


def slowdowns_of(before: Timeline, inflation: Inflation | None = None) -> Slowdowns:
    """What a replayed recording shows of its kernels; or what is stated of their classes."""
    share = beside_communication(before)
    return _stated(before.graph, share, inflation) if inflation else _shown(before, share)


def _ratio(factor: Float64s, was: Float64s, now: Float64s) -> Float64s:
    """Duration with communication beside for a share `now` of it, over that for a share `was`."""
    saved = 1 - 1 / factor
    ratio: Float64s = (1 - saved * was) / (1 - saved * now)
    return ratio


def _stated(graph: ExecutionGraph, share: Float64s, inflation: Inflation) -> Slowdowns:
    label, names = _classes(graph)
    factor = np.ones(graph.num_nodes)
    of_class = np.array([inflation.factor(name) for name in names])
    factor[label >= 0] = of_class[label[label >= 0]]
    return Slowdowns(share, factor, np.zeros(graph.num_nodes, np.bool_))


def _shown(before: Timeline, share: Float64s) -> Slowdowns:
    """What a recording shows, by make, by class, over all; else what was published."""
    graph = before.graph
    kernels = graph.nodes_of(NodeKind.KERNEL)
    duration_ns = before.duration_ns[kernels]
    make, beside = _makes(graph, kernels), share[kernels]
    alone_ns = _medians(duration_ns, make, beside <= _ALONE_SHARE)
    is_known = (beside > _ALONE_SHARE) & (alone_ns > 0) & (duration_ns > 0)
    # Time alone over time taken falls with the share beside: 1 - saved * share.
    saved = 1 - alone_ns / np.maximum(duration_ns, 1)
    labels = _classes(graph)[0][kernels]
    factor = np.full(len(kernels), Inflation().otherwise)
    is_published = np.ones(len(kernels), np.bool_)
    for group in (np.zeros(len(kernels), np.int64), labels.astype(np.int64), make):
        slope, count = _slopes(beside, saved, group, is_known)
        has_own = (count >= _LEAST_KERNELS)[group]
        factor = np.where(has_own, 1 / (1 - slope[group]), factor)
        is_published &= ~has_own
    factors, published = np.ones(graph.num_nodes), np.zeros(graph.num_nodes, np.bool_)
    factors[kernels], published[kernels] = factor, is_published
    return Slowdowns(share, factors, published)


def _slopes(
    share: Float64s, saved: Float64s, group: Int64s, rows: Bools
) -> tuple[Float64s, Int64s]:
    """Least squares through nothing saved at no share, for each group; and rows behind it.

    At least 0; at most what makes a kernel ten times as slow, which none was seen to become.
    """
    size = int(group.max(initial=0)) + 1
    products = np.bincount(group[rows], (share * saved)[rows], size)
    squares = np.bincount(group[rows], (share * share)[rows], size)
    count = np.bincount(group[rows], minlength=size)
    slope: Float64s = np.clip(products / np.where(squares > 0, squares, 1), 0, 0.9)
    return slope, count


def _makes(graph: ExecutionGraph, kernels: Int64s) -> Int64s:
    """Number of each kernel's make, int64[kernels]: its place in its block is part of it."""
    number = numbered_rows([getattr(graph, name)[kernels] for name in BLOCK_COLUMNS])
    order = np.argsort(number, kind="stable")
    first = np.searchsorted(number[order], number[order])
    place = np.empty(len(kernels), np.int64)
    place[order] = np.arange(len(kernels)) - first
    return numbered_rows([*(getattr(graph, name)[kernels] for name in _MAKE), place])


def _medians(duration_ns: Int64s, make: Int64s, rows: Bools) -> Float64s:
    """For each kernel the median over `rows` of its make; 0 where there are none."""
    chosen = np.flatnonzero(rows)
    chosen = chosen[np.lexsort((duration_ns[chosen], make[chosen]))]
    makes = np.arange(int(make.max(initial=-1)) + 1)
    first = np.searchsorted(make[chosen], makes, side="left")
    last = np.searchsorted(make[chosen], makes, side="right")
    medians = np.zeros(len(makes))
    known = last > first
    medians[known] = duration_ns[chosen[(first + last - 1)[known] // 2]]
    return medians[make]


def _classes(graph: ExecutionGraph) -> tuple[Int64s, list[str]]:
    """Class of each kernel, -1 of other nodes, int64[nodes]; distinct ones are classed once."""
    kernels = graph.nodes_of(NodeKind.KERNEL)
    pair = numbered_rows([graph.name[kernels], graph.operator[kernels]])
    _, first = np.unique(pair, return_index=True)
    of_pair = [
        str(operator_class(graph.names[graph.name[one]], graph.names[at] if at >= 0 else ""))
        for one in kernels[first].tolist()
        for at in [int(graph.operator[one])]
    ]
    names = sorted(set(of_pair))
    label = np.full(graph.num_nodes, -1, np.int64)
    label[kernels] = np.array([names.index(each) for each in of_pair], np.int64)[pair]
    return label, names
