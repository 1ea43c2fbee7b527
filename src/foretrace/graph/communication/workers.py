"""Worker threads of CPU collectives: the time between being asked and starting.

A worker that was free and asked still needs the processor, which other threads may hold for
milliseconds. Like the time between two calls of any thread, that time is kept as host work: a
segment before the arrival, into which the issue and the worker's previous collective lead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.communication.clocks import Clocks
from foretrace.graph.draft import Edges, NodeCollector
from foretrace.graph.nodes import EdgeKind, NodeKind
from foretrace.graph.operations import OWN_NAMES, Operations, host_moments


@dataclass(frozen=True)
class WorkerSegments:
    """Where edges into operations lead, and the edges from there to the operations."""

    entry: Int64s  # int64[ops], node that an edge into the operation ends at
    edges: Edges


def worker_segments(
    operations: Operations, clocks: Clocks, op_node: Int64s, collector: NodeCollector
) -> WorkerSegments:
    """A segment before every CPU collective that started later than it could have."""
    ops, items = operations.ops, operations.items
    is_on_host = ~operations.is_stream[ops.lane]
    chosen = np.flatnonzero(is_on_host & (ops.launch >= 0))
    is_same = np.append(False, ops.lane[1:] == ops.lane[:-1])[: len(ops)]
    is_same &= ~np.isin(ops.lane, items.lane)  # spans on a calling thread are no queue
    long_ago = np.iinfo(np.int64).min
    previous_ns = np.where(is_same, np.append(long_ago, ops.end_ns[:-1])[: len(ops)], long_ago)
    ready_ns = np.maximum(previous_ns[chosen], items.end_ns[ops.launch[chosen]])
    late_ns = ops.start_ns[chosen] - ready_ns
    chosen, late_ns = chosen[late_ns > 0], late_ns[late_ns > 0]
    rank = ops.rank[chosen].astype(np.int64)
    segment = collector.add(
        NodeKind.HOST_SEGMENT,
        len(chosen),
        rank=np.array(operations.ranks)[rank],
        lane=ops.lane[chosen],
        name=OWN_NAMES.index("host"),
        step=ops.step[chosen],
        measured_ns=late_ns,
        end_ns=clocks.aligned(rank, ops.start_ns[chosen]),
        host_lane=items.lane[ops.launch[chosen]],
        host_ns=host_moments(operations)[ops.launch[chosen]],
    )
    entry = op_node.copy()
    entry[chosen] = segment
    return WorkerSegments(entry, Edges.of(EdgeKind.HOST_ORDER, segment, op_node[chosen]))
