"""Rule 6, first half: operations of one stream run in order.

A kernel may be launched to begin while the one before it drains (programmatic dependent launch):
it still follows that one, by a lag below zero, one constant for all. Operations that overlap by
more (nodes of a CUDA graph side by side) do not wait for each other.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int32s, Int64s
from foretrace.graph._compiled import stream_predecessors
from foretrace.graph.edges import Edges, Places
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import Operations

ROUNDING_NS = 1_000  # operations may seem to overlap by the rounding of whole microseconds
BUSY_MARGIN_NS = 10_000  # launched this long before the stream was free: the launch was not late
MAX_EARLY = 0.5  # of either operation's time that a programmatic launch may overlap


def stream_edges(operations: Operations, places: Places) -> Edges:
    """Edges along every stream; operations that overlapped wait for those that had ended."""
    source, target = stream_pairs(operations)
    kind = np.where(_is_early(operations, source, target), EdgeKind.PROGRAMMATIC, EdgeKind.STREAM)
    return Edges(places.op(source), places.op(target), kind.astype(np.uint8))


def stream_pairs(operations: Operations) -> tuple[Int32s, Int32s]:
    """Pairs of operations, predecessor and successor, on streams and workers of collectives."""
    ops = operations.ops
    is_ordered = np.ones(len(operations.lanes), np.bool_)
    is_ordered[operations.items.lane] = False  # spans on a calling thread (gloo send): not a queue
    chosen = np.flatnonzero(is_ordered[ops.lane])
    lane, start_ns, end_ns = ops.lane[chosen], ops.start_ns[chosen], ops.end_ns[chosen]
    # For the order, an operation ends where the next was let in.
    duration_ns = end_ns - start_ns
    overlap_ns = end_ns[:-1] - start_ns[1:]
    shorter_ns = np.minimum(duration_ns[:-1], duration_ns[1:])
    is_let_in = (lane[1:] == lane[:-1]) & (overlap_ns <= MAX_EARLY * shorter_ns)
    end_ns[:-1] -= np.where(is_let_in, np.maximum(overlap_ns, 0), 0)
    room = 2 * len(chosen) + 64
    source, target = np.empty(room, np.int32), np.empty(room, np.int32)
    num_edges = stream_predecessors(lane, start_ns, end_ns, ROUNDING_NS, source, target)
    return (
        chosen[source[:num_edges]].astype(np.int32),
        chosen[target[:num_edges]].astype(np.int32),
    )


def _is_early(operations: Operations, source: Int32s, target: Int32s) -> Bools:
    """Pairs of which the second began before the first had ended."""
    ops = operations.ops
    return ops.start_ns[target] < ops.end_ns[source] - ROUNDING_NS


def early_samples(operations: Operations, source: Int32s, target: Int32s) -> Int64s:
    """Start of an operation less the end of the one that let it in, ns, below zero."""
    is_early = _is_early(operations, source, target)
    return (operations.ops.start_ns[target] - operations.ops.end_ns[source])[is_early]


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
    return gap_ns[is_early & is_compute & ~_is_early(operations, source, target)]
