"""`graph_of_issued`: what every rank issues becomes a graph, whoever wrote it down.

`layout` writes templates of a model's blocks, `foretrace.whatif` pieces of a recording. Both say,
node by node in issue order, on which lane each stands, what it waits for on its own rank, and who
meets in exchanges. The rest is the same for both and is made here: a thread does one thing after
the other, collectives get hubs, and nodes get numbers along which every edge points forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int64s, UInt8s
from foretrace.graph import (
    NODE_COLUMNS,
    Collectives,
    EdgeConstant,
    EdgeKind,
    Edges,
    ExecutionGraph,
    Lane,
    NamePool,
    NodeKind,
    renumbered_graph_of,
)
from foretrace.workload.arrange.meetings import Meetings

Columns = dict[str, NDArray[np.generic]]
_LABELS_OF_HUB = ("part", "phase", "layer", "microbatch")


@dataclass(frozen=True)
class Issued:
    """What all ranks issue: nodes rank by rank in issue order, each rank's start first."""

    # Of NODE_COLUMNS, by node; then room for the hubs, which is filled here; then nodes that no
    # rank issues: ghosts of missing ranks.
    columns: Columns
    is_chained: Bools  # bool[issued nodes], a thread does it after what it did before
    lanes: tuple[Lane, ...]
    meetings: Meetings
    collectives: Collectives
    held_by: UInt8s  # uint8[members], what lets each go


def neutral_columns(num_nodes: int) -> Columns:
    """Columns of nodes of which nothing is said yet."""
    return {
        name: np.full(num_nodes, column.neutral, column.dtype)
        for name, column in NODE_COLUMNS.items()
    }


def graph_of_issued(
    issued: Issued,
    edges: Edges,
    *,
    names: NamePool,
    constants: Sequence[EdgeConstant],
    step_names: tuple[str, ...],
) -> tuple[ExecutionGraph, Int64s]:
    """The graph, and the place that each of its nodes had: as issued, then hubs, then others.

    Args:
        issued: nodes and their exchanges.
        edges: between nodes, but for host order and those of collectives.
        names: table of the names in the columns.
        constants: lags of edges.
        step_names: what the column `step` refers to.

    Raises:
        CircleError: if the edges close a circle.
    """
    columns, meetings = issued.columns, issued.meetings
    for node in (meetings.arrive, meetings.finish):
        columns["collective"][node] = meetings.collective
    first_hub = len(issued.is_chained)
    _fill_hubs(issued, slice(first_hub, first_hub + len(meetings)), names)
    all_edges = [
        _host_order(issued),
        edges,
        meetings.edges(first_hub, issued.held_by, issued.collectives),
    ]
    return renumbered_graph_of(
        columns,
        Edges.joined(all_edges),
        constants=constants,
        names=names.names(),
        lanes=issued.lanes,
        step_names=step_names,
        collectives=issued.collectives,
    )


def _host_order(issued: Issued) -> Edges:
    """Every thread does one thing after the other; its first follows its rank's start."""
    chained = np.flatnonzero(issued.is_chained)
    lane = issued.columns["lane"][chained]
    by_lane = np.argsort(lane, kind="stable")
    chained, lane = chained[by_lane], lane[by_lane]
    is_first = np.append(True, lane[1:] != lane[:-1])[: len(chained)]
    before = np.append(np.int64(-1), chained[:-1])[: len(chained)]
    start = np.flatnonzero(issued.columns["kind"] == NodeKind.RANK_START)
    before[is_first] = start[np.searchsorted(start, chained[is_first]) - 1]
    return Edges.of(EdgeKind.HOST_ORDER, before, chained)


def _fill_hubs(issued: Issued, hubs: slice, names: NamePool) -> None:
    """Out: columns of the hubs, labelled as one of their members is."""
    columns, collectives = issued.columns, issued.collectives
    member = issued.meetings.finish[issued.meetings.lead]
    for label in _LABELS_OF_HUB:
        columns[label][hubs] = columns[label][member]
    columns["kind"][hubs] = NodeKind.HUB
    columns["name"][hubs] = collectives.each(lambda one: names.of(one.name))
    columns["collective"][hubs] = np.arange(len(collectives))
