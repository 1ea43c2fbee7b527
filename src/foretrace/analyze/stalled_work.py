"""`StalledWork`: what operators stalled on ranks that compute on their host.

Such a stall is neither idle time nor waiting: it lies inside what counts as compute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.activity import is_compute
from foretrace.analyze.stalls import StallKind, host_stalls
from foretrace.graph import NodeKind, Timeline


@dataclass(frozen=True)
class StalledWork:
    """Stalls of one kind inside one rank's operators."""

    rank: int
    kind: StallKind
    over_ns: int  # beyond the usual, over all steps
    operator: str  # with most of it
    operator_ns: int  # of `over_ns`


def stalled_work(timeline: Timeline) -> tuple[StalledWork, ...]:
    """Stalls inside operators, by rank, then kind; none where ranks have devices."""
    graph, found = timeline.graph, host_stalls(timeline)
    kind = found.kind_of_nodes(graph.num_nodes)[found.node].astype(np.int64)
    is_work = is_compute(graph) & (graph.kind == NodeKind.OPERATOR)
    over_ns = np.maximum(found.took_ns - found.usual_ns, 0)
    rows = np.flatnonzero(is_work[found.node] & (kind != StallKind.NONE) & (over_ns > 0))
    name, rank = graph.name[found.node[rows]], graph.rank[found.node[rows]].astype(np.int64)
    sums = []
    for of_rank, of_kind in np.unique(np.stack([rank, kind[rows]]), axis=1).T.tolist():
        mine = (rank == of_rank) & (kind[rows] == of_kind)
        by_name = np.bincount(name[mine], weights=over_ns[rows][mine])
        most = int(np.argmax(by_name))
        total_ns, most_ns = int(over_ns[rows][mine].sum()), int(by_name[most])
        sums.append(StalledWork(of_rank, StallKind(of_kind), total_ns, graph.names[most], most_ns))
    return tuple(sums)
