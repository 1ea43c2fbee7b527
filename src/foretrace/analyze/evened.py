"""Every rank's compute as fast as that of the fastest rank which does the same work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.activity import is_compute
from foretrace.base import Bools, Float64s
from foretrace.graph import Timeline
from foretrace.simulate import Scaling


@dataclass(frozen=True)
class Evened:
    """Factors that make ranks with the same work equally fast."""

    is_compute: Bools  # bool[nodes], what changes
    ranks: tuple[int, ...]
    factor: Float64s  # float64[ranks], 1 of the fastest among those with the same work
    scaling: Scaling  # one sample


def evened_ranks(timeline: Timeline, in_step: Bools) -> Evened | None:
    """Factors by which each rank's compute in a step would be its fastest equal's; None: all 1.

    Ranks do the same work if they ran the same number of every kernel in the step, by name. One
    factor per rank: the equals' least total compute time over its own.

    Args:
        timeline: simulated.
        in_step: bool[nodes], the step that ranks are compared in.
    """
    graph = timeline.graph
    computes = is_compute(graph)
    ranks = np.array(graph.ranks, np.int32)
    nodes = np.flatnonzero(computes & in_step)
    row = np.searchsorted(ranks, graph.rank[nodes])
    duration_ns = timeline.duration_ns[nodes].astype(np.float64)
    total_ns = np.bincount(row, weights=duration_ns, minlength=len(ranks))
    names, name = np.unique(graph.name[nodes], return_inverse=True)
    count = np.bincount(row * len(names) + name, minlength=len(ranks) * len(names))
    _, program = np.unique(count.reshape(len(ranks), -1), axis=0, return_inverse=True)
    least_ns = np.full(len(ranks), np.inf)
    np.minimum.at(least_ns, program.reshape(-1), total_ns)
    factor = np.ones(len(ranks))
    works = total_ns > 0
    factor[works] = least_ns[program.reshape(-1)][works] / total_ns[works]
    if (factor == 1).all():
        return None
    label = np.zeros(graph.num_nodes, np.int32)
    label[computes] = np.searchsorted(ranks, graph.rank[computes]) + 1
    scaling = Scaling(label=label, factor=np.concatenate(([1.0], factor))[None, :])
    return Evened(computes, tuple(ranks.tolist()), factor, scaling)
