"""Where the time on a critical path went, by any label of nodes."""

from __future__ import annotations

import numpy as np

from foretrace.analyze._compiled import _path_time
from foretrace.base import Int64s, UInt8s
from foretrace.graph import Timeline


def path_time_ns(
    timeline: Timeline,
    label: UInt8s,
    *,
    num_labels: int,
    end_node: Int64s,
    begin_ns: Int64s,
) -> Int64s:
    """Time on the way back from each end node to each begin, by label; int64[rows, labels + 1].

    The way goes from a node to the predecessor that it waited for last, on any rank. The last
    column holds the edges' lags, and time that no edge explains (none, in a simulated timeline).
    A row's entries sum to the end node's end minus `begin_ns`, if the begin is not later.

    Args:
        timeline: simulated; a measured one has time that no edge explains.
        label: uint8[nodes], what each node's time is added to, 0 to `num_labels` - 1.
        num_labels: how many labels there are, used or not.
        end_node: int64[rows], where each walk begins.
        begin_ns: int64[rows], the moment at which it stops.
    """
    graph = timeline.graph
    if len(label) != graph.num_nodes or int(label.max(initial=0)) >= num_labels:
        raise ValueError(
            f"label must hold {graph.num_nodes} entries below {num_labels}, got {len(label)} up "
            f"to {int(label.max(initial=0))}"
        )
    if len(end_node) != len(begin_ns):
        raise ValueError(
            f"end_node and begin_ns must be of one length, got {len(end_node)} and {len(begin_ns)}"
        )
    spent_ns = np.zeros((len(end_node), num_labels + 1), dtype=np.int64)
    for row in range(len(end_node)):
        _path_time(
            graph.first_edge,
            graph.predecessor,
            graph.lag_ns,
            timeline.start_ns,
            timeline.end_ns,
            label,
            int(end_node[row]),
            int(begin_ns[row]),
            spent_ns[row],
        )
    return spent_ns
