"""Where the time on a critical path went, by any label of nodes; and how far others are from it."""

from __future__ import annotations

import numpy as np

from foretrace.analyze._compiled import _path_time
from foretrace.analyze.spans import closes, step_span
from foretrace.base import Int64s, UInt8s
from foretrace.graph import Timeline
from foretrace.simulate import slack_before


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


def slack_ns(timeline: Timeline, *, step: str | None = None, rank: int | None = None) -> Int64s:
    """Time that each node may grow by, all else as it is, before the step ends later; int64[nodes].

    0 on the critical path, and on every other way of the same length. NO_LIMIT_NS of nodes that
    nothing in the step waits for, those of later steps among them. A node of an earlier step has
    slack against this step's end, though the step might then begin later too. In a measured
    timeline, time that no edge explains stays between the nodes it was measured between.

    Args:
        timeline: measured or simulated.
        step: by name; without one, the step whose length is nearest the median.
        rank: that rank's own step; the job's if left out.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    span = step_span(timeline, step, rank)
    due = np.flatnonzero(closes(timeline.graph, span.steps, span.rank))
    return slack_before(timeline, due, int(timeline.end_ns[due].max()))
