"""`without_nodes`: a graph without some nodes, each of which another stands in for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.base import Int64s
from foretrace.whatif.changes.working import Working


def without_nodes(working: Working, into: Int64s) -> Working:
    """The graph without nodes that others stand in for.

    Who waited for a removed node waits for its stand-in; what a removed node waited for, nobody
    does any more. A stand-in comes before the nodes it stands for, so the order of nodes stays
    topological.

    Args:
        working: the graph.
        into: int64[nodes], stand-in of each node; itself, if it stays.
    """
    graph, arranged = working.graph, working.arranged
    into = _resolved(into)
    kept = np.flatnonzero(into == np.arange(graph.num_nodes))
    place = np.full(graph.num_nodes, -1, np.int64)
    place[kept] = np.arange(len(kept))
    target = place[graph.edge_target]
    source = place[into[graph.predecessor]]
    edges = np.flatnonzero((target >= 0) & (source != target))
    smaller = graph.rewired(
        source[edges],
        target[edges],
        kind=graph.edge_kind[edges],
        lag_ns=graph.lag_ns[edges],
        kept=kept,
    )
    return replace(
        working,
        arranged=replace(
            arranged,
            graph=smaller,
            source=arranged.source[kept],
            scale=arranged.scale[kept],
        ),
        duration_ns=working.duration_ns[kept],
        low_ns=working.low_ns[kept],
        high_ns=working.high_ns[kept],
        source=working.source[kept],
        family=working.family[kept],
    )


def _resolved(into: Int64s) -> Int64s:
    """The stand-in that stays, where stand-ins have one themselves."""
    while True:
        further = into[into]
        if np.array_equal(further, into):
            return into
        into = further
