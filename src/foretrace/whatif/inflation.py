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

from foretrace.base import Bools, Float64s, Int64s, numbered_rows, turns_within
from foretrace.cost import PUBLISHED_MOST, Costs, Inflation, Source
from foretrace.graph import (
    ALONE_SHARE,
    LEAST_BESIDE,
    NO_NODE,
    ExecutionGraph,
    NodeKind,
    Timeline,
    beside_communication,
    medians_alone,
    operator_classes,
)
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.edits.costed import BLOCK_COLUMNS

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
    kernels = graph.nodes_of(NodeKind.KERNEL)
    label, names = operator_classes(graph, kernels)
    factor = np.ones(graph.num_nodes)
    factor[kernels] = np.array([inflation.factor(name) for name in names])[label]
    return Slowdowns(share, factor, np.zeros(graph.num_nodes, np.bool_))


def _shown(before: Timeline, share: Float64s) -> Slowdowns:
    """What a recording shows, by make, by class, over all; else what was published."""
    graph = before.graph
    kernels = graph.nodes_of(NodeKind.KERNEL)
    duration_ns = before.duration_ns[kernels]
    make, beside = _makes(graph, kernels), share[kernels]
    alone_ns = medians_alone(duration_ns, make, beside <= ALONE_SHARE)
    is_known = (beside > ALONE_SHARE) & (alone_ns > 0) & (duration_ns > 0)
    # Time alone over time taken falls with the share beside: 1 - saved * share.
    saved = 1 - alone_ns / np.maximum(duration_ns, 1)
    labels, _ = operator_classes(graph, kernels)
    factor = np.full(len(kernels), Inflation().otherwise)
    is_published = np.ones(len(kernels), np.bool_)
    for group in (np.zeros(len(kernels), np.int64), labels, make):
        slope, count = _slopes(beside, saved, group, is_known)
        has_own = (count >= LEAST_BESIDE)[group]
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
    columns = (getattr(graph, name)[kernels] for name in _MAKE)
    return numbered_rows([*columns, turns_within(number)])
