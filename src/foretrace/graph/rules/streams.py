"""Rule 6: operations of one stream run in order, and a stream waits for another through an event.

A kernel may be launched to begin while the one before it drains (programmatic dependent launch):
it still follows that one, by a lag below zero, one constant for all. Kernels of one CUDA graph
follow each other sooner than those that are launched one by one: a constant of their own.
Operations that overlap by more (nodes of a CUDA graph side by side) do not wait for each other.

With `cuda_sync` events the trace says which record a wait refers to (`operations/events.py`), and
the edge is exact. Most traces only show that `cudaStreamWaitEvent` was called, not on which
streams; then the edge is inferred (`stream_inference.py`) and marked as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, begins_run
from foretrace.graph._compiled import stream_predecessors
from foretrace.graph.assembly import Edges, Places
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import Operations
from foretrace.graph.operations.events import ExactWaits, LaunchOrder
from foretrace.graph.rules.stream_inference import Margins, Seen, inferred_pairs

ROUNDING_NS = 1_000  # operations may seem to overlap by the rounding of whole microseconds
BUSY_MARGIN_NS = 10_000  # launched this long before the stream was free: the launch was not late
MAX_EARLY = 0.5  # of either operation's time that a programmatic launch may overlap


def stream_edges(operations: Operations, places: Places) -> Edges:
    """Edges along every stream; operations that overlapped wait for those that had ended."""
    source, target = stream_pairs(operations)
    kind = np.where(_is_of_graph(operations, source, target), EdgeKind.GRAPH, EdgeKind.STREAM)
    kind = np.where(_is_early(operations, source, target), EdgeKind.PROGRAMMATIC, kind)
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


def _is_of_graph(operations: Operations, source: Int32s, target: Int32s) -> Bools:
    """Pairs that one launch of a CUDA graph started."""
    ops = operations.ops
    is_launched = launches_graph(operations)[np.maximum(ops.launch[target], 0)]
    is_one: Bools = (ops.launch[target] >= 0) & (ops.launch[source] == ops.launch[target])
    return is_one & is_launched if len(is_launched) else is_one


def launches_graph(operations: Operations) -> Bools:
    """Calls that launch a CUDA graph; bool[items]."""
    is_graph = np.array(["GraphLaunch" in name for name in operations.names], np.bool_)
    found: Bools = is_graph[operations.items.name] & (operations.op_of_launch >= 0)
    return found


def early_samples(operations: Operations, source: Int32s, target: Int32s) -> Int64s:
    """Start of an operation less the end of the one that let it in, ns, below zero."""
    is_early = _is_early(operations, source, target)
    return (operations.ops.start_ns[target] - operations.ops.end_ns[source])[is_early]


def graph_samples(operations: Operations, source: Int32s, target: Int32s) -> Int64s:
    """End of an operation of a CUDA graph to start of its next on the stream, ns.

    Communication is left out as in `launch_latency_samples`.
    """
    ops = operations.ops
    is_sample = _is_of_graph(operations, source, target)
    is_sample &= ~ops.is_communication[target] & ~ops.is_communication[source]
    is_sample &= ~_is_early(operations, source, target)
    return (ops.start_ns[target] - ops.end_ns[source])[is_sample]


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
    is_alone = ~_is_of_graph(operations, source, target)
    return gap_ns[is_early & is_alone & is_compute & ~_is_early(operations, source, target)]


def stream_gaps(operations: Operations, source: Int32s, target: Int32s) -> Int64s:
    """End of an operation to start of the next of its stream, ns, whatever it waited for."""
    ops = operations.ops
    gap_ns = ops.start_ns[target] - ops.end_ns[source]
    is_other = _is_of_graph(operations, source, target) | _is_early(operations, source, target)
    return gap_ns[~is_other]


@dataclass(frozen=True)
class InterStream:
    """Edges between streams, and the hand-overs seen on those that held their successor."""

    edges: Edges
    hand_over_ns: Int64s  # samples


def inter_stream(
    operations: Operations,
    order: LaunchOrder,
    exact: Sequence[ExactWaits | None],
    seen: Seen,
    margins: Margins,
    *,
    places: Places,
) -> InterStream:
    """Edges between the streams of every rank, exact where the trace states them.

    Args:
        operations: all operations.
        order: what was launched when.
        exact: per trace what its `cuda_sync` events state; None where it has none.
        seen: what the trace shows of every operation.
        margins: what counts as late.
        places: numbering of the edges' ends.
    """
    source: list[Int64s] = []
    target: list[Int64s] = []
    kind: list[Int64s] = []
    silent = []
    for position, stated in enumerate(exact):
        if stated is not None:
            source.append(stated.source)
            target.append(stated.target)
            kind.append(np.full(len(stated.source), EdgeKind.INTER_STREAM))
        elif len(order.streams_of_rank[position]) > 1:
            silent.append(position)
    if silent:
        pairs = inferred_pairs(operations, order, silent, seen, margins)
        source.append(pairs[0])
        target.append(pairs[1])
        kind.append(np.full(len(pairs[0]), EdgeKind.INTER_STREAM_INFERRED))
    ends = [np.concatenate([np.zeros(0, np.int64), *part]) for part in (source, target, kind)]
    is_kept = _is_undominated(operations, ends[0], ends[1])
    from_op, to_op, of_kind = (column[is_kept] for column in ends)
    edges = Edges(places.op(from_op), places.op(to_op), of_kind.astype(np.uint8))
    gap_ns = seen.began_ns[to_op] - operations.ops.end_ns[from_op]
    is_held = seen.began_ns[to_op] > seen.ready_ns[to_op] + margins.late_ns
    is_close = np.abs(gap_ns - margins.hand_over_ns) <= margins.window_ns
    is_compute = ~operations.ops.is_communication[to_op]
    return InterStream(edges, gap_ns[is_held & is_close & is_compute])


def ready_times(operations: Operations, margins: Margins) -> Int64s:
    """When each operation could have started by its launch and its own stream, raw clock."""
    ops, items = operations.ops, operations.items
    launch = np.maximum(ops.launch, 0)
    never = np.int64(np.iinfo(np.int64).min // 2)
    launched = np.where(ops.launch >= 0, items.end_ns[launch] + margins.launch_ns, never)
    is_same = ~begins_run(ops.lane)
    previous = np.append(never, ops.end_ns[:-1]) + margins.hand_over_ns
    return np.maximum(launched, np.where(is_same, previous, never))


def _is_undominated(operations: Operations, source: Int64s, target: Int64s) -> Bools:
    """Edges that say more than an earlier edge between the same two streams already does."""
    ops = operations.ops
    order = np.lexsort((-source, target, ops.lane[source], ops.lane[target]))
    if not len(order):
        return np.zeros(0, np.bool_)
    streams = ops.lane[target].astype(np.int64) * len(operations.lanes) + ops.lane[source]
    pair = np.cumsum(begins_run(streams[order])) - 1
    # Each pair of streams counts its sources above those of the pairs before it.
    place = pair * len(ops) + source[order]
    is_kept = np.zeros(len(source), np.bool_)
    is_kept[order] = np.append(True, place[1:] > np.maximum.accumulate(place)[:-1])
    return is_kept
