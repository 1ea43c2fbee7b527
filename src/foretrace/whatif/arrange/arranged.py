"""`Arranged`: the graph of a job from recorded pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from foretrace.base import Bools, Float64s, Int32s, Int64s
from foretrace.graph import (
    NO_COLLECTIVE,
    Collective,
    Collectives,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
)

# What a communication waited for that others then wait for; its launch is not.
_PASSED = (
    EdgeKind.STREAM,
    EdgeKind.GRAPH,
    EdgeKind.INTER_STREAM,
    EdgeKind.INTER_STREAM_INFERRED,
)
_BETWEEN_STREAMS = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED)


@dataclass(frozen=True)
class Arranged:
    """A graph whose nodes are recorded nodes at new places.

    `graph.measured_ns` holds what the recorded nodes took, times the scale of their piece; 0 for
    what was made. `source` leads back to the recording, so that everything known of a recorded
    node (its operator's shapes, its source of truth) is known of its copies.
    """

    graph: ExecutionGraph
    source: Int64s  # int64[nodes], node of the recording; NO_NODE of what was made, and of hubs
    source_collective: Int32s  # int32[collectives], of the recording; NO_COLLECTIVE of made ones
    scale: Float64s  # float64[nodes], of the piece that each node is in; 1 otherwise
    notes: tuple[str, ...] = field(default=())  # what was taken to be, and is not known


def unchanged(graph: ExecutionGraph) -> Arranged:
    """A recording's graph as it is: nothing was arranged anew."""
    return Arranged(
        graph=graph,
        source=np.arange(graph.num_nodes, dtype=np.int64),
        source_collective=np.arange(len(graph.collectives), dtype=np.int32),
        scale=np.ones(graph.num_nodes),
    )


def without_lone(
    arranged: Arranged, recorded: Collectives, *, gone: Collection[int] = ()
) -> Arranged:
    """The graph without copied communication that has one member left; itself if none has.

    Args:
        arranged: of a new job.
        recorded: the recording's collectives; what was alone there stays.
        gone: recorded collectives that go whoever takes part in them.
    """
    graph = arranged.graph
    source = arranged.source_collective
    is_alone = np.array(graph.collectives.each(_is_alone), np.bool_)
    was_alone = np.array([*recorded.each(_is_alone), True], np.bool_)
    is_lone = is_alone & ~was_alone[source]
    is_lone |= (source != NO_COLLECTIVE) & np.isin(source, sorted(gone))
    if not is_lone.any():
        return arranged
    has = graph.collective != NO_COLLECTIVE
    is_gone = np.zeros(graph.num_nodes, np.bool_)
    is_gone[has] = is_lone[graph.collective[has]]
    target = graph.edge_target
    is_entered = (graph.edge_kind == EdgeKind.HOST_ORDER) & (graph.kind[target] == NodeKind.ARRIVE)
    # A worker's time before its arrival goes with it.
    is_gone[graph.predecessor[is_entered & is_gone[target]]] = True
    return replace(
        arranged,
        graph=_without(graph, is_gone, is_lone),
        source=arranged.source[~is_gone],
        source_collective=source[~is_lone],
        scale=arranged.scale[~is_gone],
    )


def _is_alone(collective: Collective) -> bool:
    return len(collective.ranks) == 1


def _without(graph: ExecutionGraph, is_gone: Bools, is_lone: Bools) -> ExecutionGraph:
    target = graph.edge_target
    source, kind = graph.predecessor.astype(np.int64), graph.edge_kind
    is_kept = ~(is_gone[source] | is_gone[target])
    passed = np.array(list(_passed(graph, target, is_gone)), np.int64).reshape(-1, 4)
    source = np.concatenate([source[is_kept], passed[:, 0]])
    target = np.concatenate([target[is_kept], passed[:, 1]])
    kind = np.concatenate([kind[is_kept], passed[:, 2].astype(np.uint8)])
    lag_ns = np.concatenate([graph.lag_ns[is_kept], passed[:, 3].astype(np.int32)])
    place = np.cumsum(~is_gone) - 1
    kept = np.flatnonzero(~is_gone)
    smaller = graph.rewired(place[source], place[target], kind=kind, lag_ns=lag_ns, kept=kept)
    number = np.cumsum(~is_lone) - 1
    collective = smaller.collective.copy()
    has = collective != NO_COLLECTIVE
    collective[has] = number[collective[has]]
    return replace(
        smaller,
        collective=collective,
        collectives=graph.collectives[~is_lone],
    )


def _passed(
    graph: ExecutionGraph, target: Int64s, is_gone: Bools
) -> Iterator[tuple[int, int, int, int]]:
    """Edges around what goes: source, target, kind and lag."""
    is_touched = is_gone[graph.predecessor] | is_gone[target]
    touched = np.flatnonzero(is_touched)
    waited: defaultdict[int, dict[int, int]] = defaultdict(dict)  # by gone node: source to kind
    lane, lags = graph.lane, {each.kind: each.lag_ns for each in graph.constants}
    for edge in touched.tolist():
        source, node = int(graph.predecessor[edge]), int(target[edge])
        kind = int(graph.edge_kind[edge])
        if not is_gone[source]:
            if kind in _PASSED:
                waited[node][source] = kind
        elif is_gone[node]:
            for each, how in waited[source].items():
                waited[node].setdefault(each, how)
        else:
            for each in waited[source]:
                is_same_lane = lane[each] == lane[node]
                if kind in _BETWEEN_STREAMS and is_same_lane:
                    continue
                own = kind
                if kind == EdgeKind.STREAM and not is_same_lane:
                    own = int(EdgeKind.INTER_STREAM)
                yield each, node, own, lags.get(EdgeKind(own), int(graph.lag_ns[edge]))
