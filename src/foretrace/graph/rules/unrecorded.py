"""Device work that was not recorded: gaps that nothing explains before what had been launched.

Profilers may record some kernels only: of a CUDA graph, which one call launches, or where events
were sampled or filtered. The device is at work where nothing is recorded, and what follows would
start too soon without it. A node stands in for that work, behind all that the operation after the
gap is known to have waited for. Gaps in and behind graphs are always that; others are where they
are too much of a rank's time to be hand-overs that came late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, begins_run
from foretrace.graph.assembly import Edges, Places
from foretrace.graph.operations import Operations
from foretrace.graph.rules.streams import launches_graph

# From an operation's launch, and the end of the one before it, to its begin; graphs whose kernels
# are all recorded (421 and 544 in two of vLLM and SGLang) have no such gap.
GAP_NS = 20_000
MOST_UNEXPLAINED = 0.01  # of a rank's recorded time, that gaps on its streams may be together


@dataclass(frozen=True)
class UnrecordedWork:
    """Where devices were at work without a record of it."""

    op: Int64s  # int64[gaps], the operation that follows the gap
    since_ns: Int64s  # int64[gaps], when all that it waited for was over, raw
    is_of_graph: Bools  # bool[gaps]
    source: Int64s  # int64[waits], places of what was waited for
    gap: Int64s  # int64[waits], position of the gap that followed it
    num_graphs: int  # launches of graphs
    num_lacking: int  # of these, those with such a gap


def unrecorded_work(
    operations: Operations, inter_stream: Edges, ready_ns: Int64s, *, places: Places
) -> UnrecordedWork:
    """The gaps of all ranks.

    Args:
        operations: all operations.
        inter_stream: which operations wait for those of other streams.
        ready_ns: when each could have started by its launch and its own stream, int64[ops], raw.
        places: numbering of the edges' ends.
    """
    ops, items = operations.ops, operations.items
    is_graph = launches_graph(operations)
    launch = np.maximum(ops.launch, 0)
    of_graph = (ops.launch >= 0) & is_graph[launch]
    is_same = ~begins_run(ops.lane)
    after_graph = is_same & np.append(False, of_graph[:-1])[: len(ops)]
    launched_ns = items.end_ns[launch] if len(items) else ops.start_ns
    free_ns = np.where(is_same, np.append(0, ops.end_ns[:-1])[: len(ops)], launched_ns)
    since_ns = np.maximum(launched_ns, free_ns)
    held, holder = (ends - places.num_items for ends in (inter_stream.target, inter_stream.source))
    np.maximum.at(since_ns, held, ops.end_ns[holder])
    gap_ns = ops.start_ns - since_ns
    is_gap = (ops.launch >= 0) & (gap_ns > GAP_NS) & operations.is_stream[ops.lane]
    is_gap[operations.held_from_before] = False
    of_gap = of_graph | after_graph
    is_late = ops.start_ns - np.maximum(ready_ns, since_ns) > GAP_NS
    is_alone = is_gap & is_late & ~of_gap
    num_ranks = len(operations.ranks)
    lost_ns = np.bincount(ops.rank[is_alone], gap_ns[is_alone], num_ranks)
    span_ns = np.zeros(num_ranks, np.int64)
    np.maximum.at(span_ns, ops.rank, ops.end_ns - operations.first_ns[ops.rank])
    lacks = lost_ns > MOST_UNEXPLAINED * span_ns
    is_found = (is_alone & lacks[ops.rank]) | (is_gap & of_gap & ~ops.is_communication)
    found = np.flatnonzero(is_found)
    position = np.full(len(ops), -1, np.int64)
    position[found] = np.arange(len(found))
    behind = found[is_same[found]]
    waits = position[held] >= 0
    # What precedes a graph's first kernel, or follows its last, is that graph's.
    graphs = found[of_gap[found]]
    lacking = np.where(of_graph[graphs], ops.launch[graphs], ops.launch[graphs - 1])
    return UnrecordedWork(
        op=found,
        since_ns=since_ns[found],
        is_of_graph=of_gap[found],
        source=np.concatenate(
            [ops.launch[found], places.op(behind - 1), inter_stream.source[waits]]
        ),
        gap=np.concatenate([position[found], position[behind], position[held[waits]]]),
        num_graphs=int(is_graph.sum()),
        num_lacking=len(np.unique(lacking)),
    )
