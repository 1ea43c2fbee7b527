"""Rules 3 and 4: a launch call starts device operations, and waits while its queue is full.

Calls and operations are joined by correlation id. A driver holds about 1,024 launched and
unfinished operations per stream; the next launch blocks until one finishes. Its recorded
duration is then the device's time, not the host's: it must not be replayed as work. The depth is
measured: blocked launches all return with about as many operations pending (1,020 to 1,022 on 897
of 902 blocked launches of a V100 trace), and no launch returns with more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, Integers, begins_run
from foretrace.graph._compiled import pending_at_launch
from foretrace.graph.assembly import Edges, Places
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import NOT_LAUNCHED, Operations

BLOCKED_FACTOR = 4  # a launch so many times longer than one into a short queue may be blocked
BLOCKED_MIN_NS = 20_000
MIN_BLOCKED = 5  # so many launches must agree on a depth before it is believed
DEPTH_SLACK = 8  # launches within this many of the depth count as held by the queue
MIN_DEPTH = 32  # long launches with fewer pending operations were slow for another reason


def launch_edges(operations: Operations, places: Places) -> Edges:
    """One edge per launched operation; one launch may own many (CUDA graphs, fused copies)."""
    ops = operations.ops
    is_device = operations.is_stream[ops.lane]
    launched = np.flatnonzero(ops.launch >= 0)
    kind = np.where(is_device[launched], EdgeKind.LAUNCH, EdgeKind.ISSUE)
    source = ops.launch[launched].astype(np.int64)
    return Edges(source, places.op(launched), kind.astype(np.uint8))


def launch_latency_samples(operations: Operations, is_free: Bools) -> Int64s:
    """Launch call's end to operation's start, ns, where the stream was empty.

    Args:
        operations: all operations.
        is_free: operations that no other stream is known to have held, bool[ops].

    Communication is left out: its start tells when others arrived, not how long a launch takes.
    """
    ops, items = operations.ops, operations.items
    previous_end = np.append(np.int64(np.iinfo(np.int64).min), ops.end_ns[:-1])
    is_first = begins_run(ops.lane)
    launch = np.maximum(ops.launch, 0)
    is_empty = is_first | (previous_end < items.start_ns[launch])
    # The first operation of a launch tells the latency, later ones the stream.
    is_repeat = np.append(False, (ops.launch[1:] == ops.launch[:-1]) & (ops.launch[1:] >= 0))
    chosen = (ops.launch >= 0) & is_empty & ~ops.is_communication & ~is_repeat & is_free
    samples: Int64s = (ops.start_ns - items.end_ns[launch])[chosen]
    return samples


@dataclass(frozen=True)
class LaunchQueue:
    """What the trace shows of the driver's launch queue."""

    depth: int  # operations pending when a blocked launch returns; 0: no launch was blocked
    edges: Edges
    is_blocked: Bools  # bool[items], launches whose recorded time is waiting
    release_ns: Int64s  # samples: operation's end to the blocked launch's return


def launch_queue(operations: Operations, places: Places) -> LaunchQueue:
    """The measured depth and an edge into every launch that the queue could hold."""
    ops, items = operations.ops, operations.items
    is_blocked = np.zeros(len(items), np.bool_)
    empty = np.zeros(0, np.int64)
    none = LaunchQueue(0, Edges.of(EdgeKind.QUEUE, empty, empty), is_blocked, empty)
    chosen = np.flatnonzero((ops.launch != NOT_LAUNCHED) & operations.is_stream[ops.lane])
    if not len(chosen):
        return none
    launch = ops.launch[chosen].astype(np.int64)
    lane = ops.lane[chosen]
    lanes, stream = np.unique(lane, return_inverse=True)
    first_op = np.searchsorted(stream, np.arange(len(lanes) + 1))
    pending = np.zeros(len(chosen), np.int32)
    pending_at_launch(
        stream.astype(np.int32), items.end_ns[launch], ops.end_ns[chosen], first_op, pending
    )
    duration_ns = items.end_ns[launch] - items.start_ns[launch]
    # Where most launches block, the median is one of them: a short queue holds nobody.
    is_free = 2 * pending <= pending.max()
    typical_ns = int(np.median(duration_ns[is_free])) if is_free.any() else 0
    is_long = duration_ns > max(BLOCKED_FACTOR * typical_ns, BLOCKED_MIN_NS)
    depth = _depth(pending[is_long], pending)
    if not depth:
        return none
    place = np.arange(len(chosen)) - first_op[stream]
    held = np.flatnonzero(place >= depth)
    releasing = held - depth
    is_held = is_long & (pending >= depth - DEPTH_SLACK)
    is_blocked[launch[is_held]] = True
    sampled = np.flatnonzero(is_held[held])
    release_ns = items.end_ns[launch[held[sampled]]] - ops.end_ns[chosen[releasing[sampled]]]
    edges = Edges.of(EdgeKind.QUEUE, places.op(chosen[releasing]), launch[held])
    return LaunchQueue(depth, edges, is_blocked, release_ns)


def _depth(pending_of_long: Integers, pending: Integers) -> int:
    """The queue's depth, or 0 where the long launches do not agree on one."""
    if len(pending_of_long) < MIN_BLOCKED:
        return 0
    depth = int(np.percentile(pending_of_long, 75))
    num_near = int((np.abs(pending_of_long - depth) <= DEPTH_SLACK).sum())
    is_ceiling = int((pending > depth + DEPTH_SLACK).sum()) == 0
    is_agreed = num_near >= MIN_BLOCKED and 2 * num_near >= len(pending_of_long)
    return depth if depth >= MIN_DEPTH and is_ceiling and is_agreed else 0
