"""What a replay would be without one class of dependency: the null models.

A replay that is right for the right reason must be clearly better than these. Nodes and their
order stay, so the timelines of a graph and of its ablations compare node by node.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from foretrace.base import Bools, Int64s, UInt8s
from foretrace.graph.graph import ExecutionGraph
from foretrace.graph.nodes import EdgeKind, NodeKind
from foretrace.graph.recording import Recording

_OF_DEVICE = (
    EdgeKind.QUEUE,
    EdgeKind.WAKE,
    EdgeKind.STREAM,
    EdgeKind.PROGRAMMATIC,
    EdgeKind.GRAPH,
    EdgeKind.INTER_STREAM,
    EdgeKind.INTER_STREAM_INFERRED,
)
_OF_STREAMS = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED)
_HOST_WAITS = (NodeKind.SYNC, NodeKind.LAUNCH)


class Ablation(Enum):
    """A class of dependency to take away."""

    DEVICE = "device"  # the host's chain alone; device operations start when launched
    RENDEZVOUS = "rendezvous"  # ranks do not wait for each other; recorded collective times
    INTER_STREAM = "inter-stream"  # streams do not wait for each other


def without(recording: Recording, ablation: Ablation) -> tuple[ExecutionGraph, Int64s]:
    """The graph without a class of dependency, and the durations to simulate it with.

    Where waiting is no longer simulated, the recorded duration, waiting included, stands in for
    it: that is what a tool without the dependency would replay.

    Returns:
        The graph and `duration_ns`, int64[nodes].
    """
    graph = recording.graph
    kind, source_kind, target_kind = _edge_ends(graph)
    if ablation is Ablation.INTER_STREAM:
        return _with_edges(graph, ~np.isin(kind, _OF_STREAMS)), graph.measured_ns
    is_dropped = (target_kind == NodeKind.HUB) | (kind == EdgeKind.TRANSFER)
    is_recorded = graph.kind == NodeKind.FINISH
    if ablation is Ablation.DEVICE:
        is_from_collective = (kind == EdgeKind.THREAD) & (source_kind == NodeKind.FINISH)
        is_dropped |= np.isin(kind, _OF_DEVICE) | is_from_collective
        is_recorded |= graph.is_of(*_HOST_WAITS)
        is_recorded[graph.edge_target[is_from_collective]] = True
    duration_ns = np.where(is_recorded, recording.recorded_ns, graph.measured_ns)
    return _with_edges(graph, ~is_dropped, graph.members()), duration_ns


def _edge_ends(graph: ExecutionGraph) -> tuple[UInt8s, UInt8s, UInt8s]:
    """Kind of each edge and of the nodes at its two ends, uint8[edges]."""
    return graph.edge_kind, graph.kind[graph.predecessor], graph.kind[graph.edge_target]


def _with_edges(
    graph: ExecutionGraph, is_kept: Bools, added: tuple[Int64s, Int64s] | None = None
) -> ExecutionGraph:
    """The graph with some of its edges, and a transfer edge for every pair of nodes added."""
    source, target = graph.predecessor[is_kept], graph.edge_target[is_kept]
    kind, lag_ns = graph.edge_kind[is_kept], graph.lag_ns[is_kept]
    if added is not None:
        source = np.concatenate([source, added[0].astype(np.int32)])
        target = np.concatenate([target, added[1]])
        kind = np.append(kind, np.full(len(added[0]), EdgeKind.TRANSFER, np.uint8))
        lag_ns = np.append(lag_ns, np.zeros(len(added[0]), np.int32))
    order = np.lexsort((source, target))
    return graph.rewired(source[order], target[order], kind=kind[order], lag_ns=lag_ns[order])
