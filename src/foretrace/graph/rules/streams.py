"""Rule 6, first half: operations of one stream run in order."""

from __future__ import annotations

import numpy as np

from foretrace.base import Int32s, Int64s
from foretrace.graph._compiled import stream_predecessors
from foretrace.graph.edges import Edges, Places
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import Operations

ROUNDING_NS = 1_000  # operations may seem to overlap by the rounding of whole microseconds
BUSY_MARGIN_NS = 10_000  # launched this long before the stream was free: the launch was not late


def stream_edges(operations: Operations, places: Places) -> Edges:
    """Edges along every stream.

    Operations that overlapped on one stream (nodes of a CUDA graph, programmatic launches) do
    not wait for each other, but for those that had ended.
    """
    source, target = stream_pairs(operations)
    return Edges.of(EdgeKind.STREAM, places.op(source), places.op(target))


def stream_pairs(operations: Operations) -> tuple[Int32s, Int32s]:
    """Pairs of operations, predecessor and successor, on streams and workers of collectives."""
    ops = operations.ops
    is_ordered = np.ones(len(operations.lanes), np.bool_)
    is_ordered[operations.items.lane] = False  # spans on a calling thread (gloo send): not a queue
    chosen = np.flatnonzero(is_ordered[ops.lane])
    room = 2 * len(chosen) + 64
    source, target = np.empty(room, np.int32), np.empty(room, np.int32)
    num_edges = stream_predecessors(
        ops.lane[chosen], ops.start_ns[chosen], ops.end_ns[chosen], ROUNDING_NS, source, target
    )
    return (
        chosen[source[:num_edges]].astype(np.int32),
        chosen[target[:num_edges]].astype(np.int32),
    )


def hand_over_samples(operations: Operations, source: Int32s, target: Int32s) -> Int64s:
    """End of an operation to start of the next of its stream, ns, where that was launched early.

    Communication is left out as in `launch_latency_samples`.
    """
    ops, items = operations.ops, operations.items
    launch = np.maximum(ops.launch[target], 0)
    is_early = (ops.launch[target] >= 0) & (
        items.end_ns[launch] + BUSY_MARGIN_NS < ops.end_ns[source]
    )
    is_compute = ~ops.is_communication[target] & ~ops.is_communication[source]
    gap_ns = ops.start_ns[target] - ops.end_ns[source]
    return gap_ns[is_early & is_compute]
