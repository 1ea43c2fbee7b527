"""All rules applied to a job's operations: who waits for whom, and the lag of each kind of edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.assembly import Edges, Places
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.communication.transfers import MemberTransfers
from foretrace.graph.graph import EdgeConstant
from foretrace.graph.nodes import EdgeKind, NodeKind
from foretrace.graph.operations import Operations
from foretrace.graph.operations.events import exact_waits, launch_order, states_waits
from foretrace.graph.rules.launches import (
    LaunchQueue,
    launch_edges,
    launch_latency_samples,
    launch_queue,
)
from foretrace.graph.rules.stream_inference import Margins, Seen
from foretrace.graph.rules.streams import (
    early_samples,
    graph_samples,
    hand_over_samples,
    inter_stream,
    ready_times,
    stream_edges,
    stream_gaps,
    stream_pairs,
)
from foretrace.graph.rules.synchronisation import Synchronisations, synchronisations
from foretrace.graph.rules.threads import ThreadWaits, thread_waits
from foretrace.graph.rules.unrecorded import UnrecordedWork, unrecorded_work

# Taken where a trace has no sample of a kind: medians of the public A100 and V100 traces (ResNet,
# DLRM, Megatron, two of them with whole microseconds). They range: launch 1.7 to 2.2 us after the
# call's return, hand-over on a stream 0.8 to 2 us, between streams 2 to 3 us, wake-up of a waiting
# call 7 to 9 us, release of a blocked launch 1.2 us (one trace). Between kernels of a CUDA graph:
# the mean of 1,059 on an H200 (CUDA 13.0), of which the middle 80 % are 383 to 576 ns
# (examples/h200, `small-graph`).
DEFAULT_NS: Mapping[EdgeKind, int] = {
    EdgeKind.LAUNCH: 2_000,
    EdgeKind.STREAM: 1_200,
    EdgeKind.GRAPH: 445,
    EdgeKind.INTER_STREAM: 2_000,
    EdgeKind.INTER_STREAM_INFERRED: 2_000,
    EdgeKind.WAKE: 7_000,
    EdgeKind.QUEUE: 1_200,
}


@dataclass(frozen=True)
class Dependencies:
    """What the rules found, in places."""

    edges: Edges
    queue: LaunchQueue
    syncs: Synchronisations
    thread_waits: ThreadWaits
    unrecorded: UnrecordedWork
    constants: dict[EdgeKind, EdgeConstant]


def found_dependencies(
    operations: Operations, comm: CommunicationOps, transfers: MemberTransfers, places: Places
) -> Dependencies:
    """All edges that the rules find, and the constant of every kind.

    Args:
        operations: all items and operations.
        comm: the communication among them.
        transfers: when each of it was over waiting.
        places: numbering of the edges' ends.
    """
    order = launch_order(operations)
    stream_source, stream_target = stream_pairs(operations)
    is_held = np.zeros(len(operations.ops), np.bool_)
    is_held[operations.held_from_before] = True
    margins = Margins.from_samples(
        launch_latency_samples(operations, ~is_held),
        hand_over_samples(operations, stream_source, stream_target),
    )
    exact = [
        exact_waits(operations, order, position) if states_waits(trace) else None
        for position, trace in enumerate(operations.traces)
    ]
    seen = _seen(operations, comm, transfers, margins)
    between = inter_stream(operations, order, exact, seen, margins, places=places)
    # What another stream held tells nothing of launches and hand-overs.
    is_held[between.edges.target - places.num_items] = True
    unrecorded = unrecorded_work(operations, between.edges, seen.ready_ns, places=places)
    is_held[unrecorded.op] = True
    launch_ns = launch_latency_samples(operations, ~is_held)
    is_free = ~is_held[stream_target]
    free = stream_source[is_free], stream_target[is_free]
    queue = launch_queue(operations, places)
    syncs = synchronisations(operations, order, exact, places)
    over_ns = operations.ops.end_ns.copy()
    over_ns[comm.op] = comm.end_ns
    waits = thread_waits(operations, places, over_ns=over_ns)
    blocked_work_ns = typical_launch_ns(operations, queue)
    samples = {
        EdgeKind.LAUNCH: launch_ns,
        EdgeKind.STREAM: hand_over_samples(operations, *free),
        EdgeKind.PROGRAMMATIC: early_samples(operations, stream_source, stream_target),
        EdgeKind.QUEUE: queue.release_ns - blocked_work_ns,
        EdgeKind.WAKE: syncs.wake_ns,
    }
    shown = {EdgeKind.STREAM: stream_gaps(operations, *free)}
    constants = {
        kind: fitted_constant(kind, values, gaps_ns=shown.get(kind))
        for kind, values in samples.items()
    }
    along = stream_edges(operations, places)
    if (along.kind == EdgeKind.GRAPH).any():
        constants[EdgeKind.GRAPH] = _graph_constant(graph_samples(operations, *free))
    for kind in (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED):
        constants[kind] = fitted_constant(kind, between.hand_over_ns)
    edges = Edges.joined(
        [
            launch_edges(operations, places),
            along,
            between.edges,
            queue.edges,
            syncs.edges,
        ]
    )
    return Dependencies(edges, queue, syncs, waits, unrecorded, constants)


def _graph_constant(samples_ns: Int64s) -> EdgeConstant:
    """The mean of the samples: nothing else lies in these gaps, so that their sum counts."""
    fitted = fitted_constant(EdgeKind.GRAPH, samples_ns)
    if not len(samples_ns):
        return fitted
    return replace(fitted, lag_ns=round(float(samples_ns.mean())))


def _seen(
    operations: Operations, comm: CommunicationOps, transfers: MemberTransfers, margins: Margins
) -> Seen:
    """What the trace shows of every operation.

    When a rank arrived at a collective says nothing if it waited there for a recorded rank: it
    may have come any time before. That its wait was over is what was seen.
    """
    began_ns = operations.ops.start_ns.copy()
    began_ns[comm.op] = np.where(
        transfers.is_held & ~transfers.is_estimated,
        comm.end_ns - transfers.transfer_ns,
        comm.start_ns,
    )
    # Nobody waits for what it only sends.
    is_awaited = np.zeros(len(operations.ops), np.bool_)
    is_awaited[comm.op] = [kind != "send" for kind in comm.kind]
    return Seen(began_ns, ready_times(operations, margins), is_awaited)


def typical_launch_ns(operations: Operations, queue: LaunchQueue) -> int:
    """Median time of a launch that the queue did not hold."""
    items = operations.items
    is_free = (items.kind == NodeKind.LAUNCH) & ~queue.is_blocked
    duration_ns = (items.end_ns - items.start_ns)[is_free]
    return int(np.median(duration_ns)) if len(duration_ns) else 0


def fitted_constant(
    kind: EdgeKind, samples_ns: Int64s, *, gaps_ns: Int64s | None = None
) -> EdgeConstant:
    """The lag of a kind from samples, or its default where there is none.

    Args:
        kind: the kind of edge.
        samples_ns: gaps that only this kind of edge explains, int64[samples].
        gaps_ns: gaps that have the lag in them, and may have more: the default is no longer than
            the shortest, int64[gaps].
    """
    if not len(samples_ns):
        default = DEFAULT_NS.get(kind, 0)
        if gaps_ns is not None and len(gaps_ns):
            default = min(default, max(int(gaps_ns.min()), 0))
        return EdgeConstant(kind, default, 0, default, default)
    ordered = np.sort(samples_ns)
    low, lag, high = (int(ordered[(len(ordered) - 1) * tenth // 10]) for tenth in (1, 5, 9))
    return EdgeConstant(kind, lag, len(ordered), low, high)
