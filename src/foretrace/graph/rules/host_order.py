"""Rule 1: a host thread does one thing after the other; the time between calls is work too.

Every thread becomes one unbroken chain: item, segment of the time until the next item, item.
Where a gap is a wait for another thread, the chain passes through a THREAD_WAIT node, and only
what remains of the gap after the end of what it waited for stays as a segment: the time to wake
up cannot be told from the first work of the thread that woke.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s, begins_run
from foretrace.graph.assembly import Edges, NodeCollector
from foretrace.graph.communication.clocks import Clocks
from foretrace.graph.nodes import EdgeKind, NodeKind
from foretrace.graph.operations import OWN_NAMES, Operations, host_moments
from foretrace.graph.rules.threads import ThreadWaits, gap_starts


@dataclass(frozen=True)
class HostNodes:
    """Node numbers of the host's side."""

    item: Int64s  # int64[items]
    rank_start: Int64s  # int64[ranks]


def host_nodes(
    operations: Operations, clocks: Clocks, work_ns: Int64s, collector: NodeCollector
) -> HostNodes:
    """Nodes of every item and the start of every rank; items come first, in their order.

    `work_ns` is how much of each item is work, waiting taken out, int64[items].
    """
    items = operations.items
    rank = items.rank.astype(np.int64)
    item = collector.add(
        items.kind,
        len(items),
        rank=np.array(operations.ranks)[rank],
        lane=items.lane,
        name=items.name,
        signature=items.signature,
        step=items.step,
        measured_ns=work_ns,
        recorded_ns=items.recorded_ns,
        end_ns=clocks.aligned(rank, items.end_ns),
        host_lane=items.lane,
        host_ns=host_moments(operations),
    )
    num_ranks = len(operations.ranks)
    first_ns = clocks.aligned(np.arange(num_ranks), operations.first_ns)
    rank_start = collector.add(
        NodeKind.RANK_START,
        num_ranks,
        rank=np.array(operations.ranks),
        name=OWN_NAMES.index("rank start"),
        measured_ns=first_ns - first_ns.min(),
        end_ns=first_ns,
    )
    return HostNodes(item, rank_start)


def host_chain(
    operations: Operations,
    clocks: Clocks,
    waits: ThreadWaits,
    *,
    wait_source: Int64s,
    nodes: HostNodes,
    collector: NodeCollector,
) -> Edges:
    """Segments, thread waits, and the edges that make every thread one chain.

    Args:
        operations: all items.
        clocks: to place segments on the common clock.
        waits: gaps that are waits.
        wait_source: node that each wait waits for, int64[waits].
        nodes: the items' and rank starts' nodes.
        collector: takes the new nodes.
    """
    items = operations.items
    num_items = len(items)
    starts = gap_starts(operations)
    before = np.append(np.int64(-1), nodes.item[:-1])[:num_items]
    is_first = begins_run(items.lane)
    before = np.where(is_first, nodes.rank_start[items.rank], before)

    wait_node = np.full(num_items, -1, np.int64)
    release_ns = starts.copy()
    if len(waits):
        released_ns = np.minimum(waits.source_end_ns, items.start_ns[waits.item])
        release_ns[waits.item] = np.maximum(released_ns, starts[waits.item])
        wait_node[waits.item] = _add(
            collector,
            operations,
            clocks,
            NodeKind.THREAD_WAIT,
            waits.item,
            end_ns=release_ns,
            middle_ns=(starts + release_ns) // 2,
            measured_ns=0,
            recorded_ns=(release_ns - starts)[waits.item],
        )
    segment_ns = items.start_ns - release_ns
    has_segment = np.flatnonzero(segment_ns > 0)
    segment = np.full(num_items, -1, np.int64)
    segment[has_segment] = _add(
        collector,
        operations,
        clocks,
        NodeKind.HOST_SEGMENT,
        has_segment,
        end_ns=items.start_ns,
        middle_ns=(release_ns + items.start_ns) // 2,
        measured_ns=segment_ns[has_segment],
        recorded_ns=segment_ns[has_segment],
    )
    edges = [
        Edges.of(EdgeKind.HOST_ORDER, before[waits.item], wait_node[waits.item]),
        Edges.of(EdgeKind.THREAD, wait_source, wait_node[waits.item]),
    ]
    before = np.where(wait_node >= 0, wait_node, before)
    edges.append(Edges.of(EdgeKind.HOST_ORDER, before[has_segment], segment[has_segment]))
    before = np.where(segment >= 0, segment, before)
    edges.append(Edges.of(EdgeKind.HOST_ORDER, before, nodes.item))
    return Edges.joined(edges)


def _add(
    collector: NodeCollector,
    operations: Operations,
    clocks: Clocks,
    kind: NodeKind,
    item: Int64s,
    *,
    end_ns: Int64s,
    middle_ns: Int64s,
    measured_ns: Int64s | int,
    recorded_ns: Int64s,
) -> Int64s:
    """Nodes that stand before items on their threads and end at `end_ns`, raw per item.

    `middle_ns` is what is taken as their moment on the host.
    """
    items = operations.items
    rank = items.rank[item].astype(np.int64)
    name = "host" if kind == NodeKind.HOST_SEGMENT else "thread wait"
    return collector.add(
        kind,
        len(item),
        rank=np.array(operations.ranks)[rank],
        lane=items.lane[item],
        name=OWN_NAMES.index(name),
        step=segment_steps(operations, item),
        measured_ns=measured_ns,
        recorded_ns=recorded_ns,
        end_ns=clocks.aligned(rank, end_ns[item]),
        host_lane=items.lane[item],
        host_ns=middle_ns[item],
    )


def segment_steps(operations: Operations, item: Int64s) -> Int64s:
    """Step of the time before each item: that of the item before it on its thread."""
    items = operations.items
    previous = np.maximum(item - 1, 0)
    is_same = (item > 0) & (items.lane[previous] == items.lane[item])
    is_inside = items.kind[previous] != NodeKind.STEP_END
    return np.where(is_same & is_inside, items.step[previous], -1)
