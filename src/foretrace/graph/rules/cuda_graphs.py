"""Work of CUDA graphs that was not recorded: gaps in and behind a graph that nothing explains.

One call launches all kernels of a graph. Profilers may record some of them only; the device is at
work where nothing is recorded, and what follows would start too soon without it. A node stands in
for that work: between an operation and the one before it on the stream, where either is a graph's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph.operations import Operations

# From an operation's launch, and the end of the one before it, to its begin; graphs whose kernels
# are all recorded (421 and 544 in two of vLLM and SGLang) have no such gap.
GAP_NS = 20_000


@dataclass(frozen=True)
class GraphGaps:
    """Where graphs were at work without a record of it."""

    op: Int64s  # int64[gaps], the operation that follows the gap
    before: Int64s  # int64[gaps], the operation before it on the stream; -1: none
    since_ns: Int64s  # int64[gaps], when it had been launched and its stream was free, raw
    num_graphs: int  # launches of graphs
    num_lacking: int  # of these, those with such a gap


def graph_gaps(operations: Operations, is_held: Bools) -> GraphGaps:
    """The gaps of all ranks.

    Args:
        operations: all operations.
        is_held: operations that waited for another stream or what was before, bool[ops].
    """
    ops, items = operations.ops, operations.items
    is_graph_name = np.array(["GraphLaunch" in name for name in operations.names], np.bool_)
    is_graph = is_graph_name[items.name] & (operations.op_of_launch >= 0)
    launch = np.maximum(ops.launch, 0)
    of_graph = (ops.launch >= 0) & is_graph[launch]
    is_same = np.append(False, ops.lane[1:] == ops.lane[:-1])[: len(ops)]
    after_graph = is_same & np.append(False, of_graph[:-1])[: len(ops)]
    launched_ns = items.end_ns[launch] if len(items) else ops.start_ns
    free_ns = np.where(is_same, np.append(0, ops.end_ns[:-1])[: len(ops)], launched_ns)
    since_ns = np.maximum(launched_ns, free_ns)
    found = np.flatnonzero(
        (of_graph | after_graph)
        & (ops.start_ns - since_ns > GAP_NS)
        & (ops.launch >= 0)
        & ~is_held
        & ~ops.is_communication
        & operations.is_stream[ops.lane]
    )
    before = np.where(is_same[found], found - 1, -1)
    # What precedes a graph's first kernel, or follows its last, is that graph's.
    lacking = np.where(of_graph[found], ops.launch[found], ops.launch[before])
    return GraphGaps(
        op=found,
        before=before,
        since_ns=since_ns[found],
        num_graphs=int(is_graph.sum()),
        num_lacking=len(np.unique(lacking)),
    )
