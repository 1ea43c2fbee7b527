"""`graph_of_issued`: what every rank issues becomes a graph: who meets whom, who waits for whom.

`layout` writes templates of a model's blocks, `foretrace.whatif` pieces of a recording. Both say,
node by node in issue order, on which lane each stands, what it waits for on its own rank, and who
meets in exchanges. The rest is the same for both and is made here: a thread does one thing after
the other, collectives get hubs, and nodes get numbers along which every edge points forward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int64s, UInt8s, begins_run, numbered_rows, turns_within
from foretrace.graph import (
    NODE_COLUMNS,
    Collective,
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

# What lets a member of a collective go, bits: its hub, its own arrival, or those of its neighbours
# in the order of the collective's ranks.
BY_HUB, BY_ITSELF, BY_LEFT, BY_RIGHT = 1, 2, 4, 8

Columns = dict[str, NDArray[np.generic]]
_LABELS_OF_HUB = ("part", "phase", "layer", "microbatch")


@dataclass(frozen=True)
class Meetings:
    """Collectives and their members; members stand by collective, then by rank."""

    member: Int64s  # int64[members], place among those that were asked about
    arrive: Int64s  # int64[members], node
    finish: Int64s  # int64[members], node
    rank: Int64s  # int64[members]
    first: Int64s  # int64[collectives + 1], where each one's members begin
    group: Int64s  # int64[collectives], number of who meets, and what for
    position: Int64s  # int64[collectives], number inside its group

    def __len__(self) -> int:
        """Number of collectives."""
        return len(self.position)

    @cached_property
    def collective(self) -> Int64s:
        """Collective of every member; int64[members]."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    @property
    def lead(self) -> Int64s:
        """The first member of every collective; int64[collectives]."""
        return self.first[:-1]

    def collectives(self, make: Int64s, make_of: Callable[[int], Collective]) -> Collectives:
        """What meets.

        Args:
            make: int64[collectives], equal where all but the position is.
            make_of: the collective of some number, whatever its position.
        """
        _, first, place = np.unique(make, return_index=True, return_inverse=True)
        makes = tuple(make_of(at) for at in first.tolist())
        return Collectives(
            makes, place.reshape(-1).astype(np.int32), self.position.astype(np.int32)
        )

    def edges(self, first_hub: int, held_by: UInt8s, collectives: Sequence[Collective]) -> Edges:
        """Arrivals to hubs, and what lets each member go to its finish.

        Args:
            first_hub: node of the first collective's hub; others follow.
            held_by: uint8[members], bits of what lets each go.
            collectives: what meets; read where members wait for neighbours.
        """
        hub = first_hub + self.collective
        by_hub, by_itself = (held_by & BY_HUB) > 0, (held_by & BY_ITSELF) > 0
        return Edges.joined(
            [
                Edges.of(EdgeKind.ARRIVAL, self.arrive, hub),
                Edges.of(EdgeKind.TRANSFER, hub[by_hub], self.finish[by_hub]),
                Edges.of(EdgeKind.TRANSFER, self.arrive[by_itself], self.finish[by_itself]),
                self._around_rings(held_by, collectives),
            ]
        )

    def _around_rings(self, held_by: UInt8s, collectives: Sequence[Collective]) -> Edges:
        """Neighbours that are here, to each other."""
        around = np.flatnonzero((held_by & (BY_LEFT | BY_RIGHT)) > 0)
        if not len(around):
            return Edges.joined([])
        arrive: Mapping[tuple[int, int], int] = dict(
            zip(
                zip(self.collective.tolist(), self.rank.tolist(), strict=True),
                self.arrive.tolist(),
                strict=True,
            )
        )
        pairs = []
        for at in around.tolist():
            own, rank = int(self.collective[at]), int(self.rank[at])
            ranks = collectives[own].ranks
            sides = [side for bit, side in ((BY_LEFT, -1), (BY_RIGHT, 1)) if held_by[at] & bit]
            place = ranks.index(rank)
            neighbours = dict.fromkeys(ranks[(place + side) % len(ranks)] for side in sides)
            pairs += [
                (arrive[own, each], int(self.finish[at]))
                for each in neighbours
                if (own, each) in arrive and each != rank
            ]
        ends = np.array(pairs, np.int64).reshape(-1, 2)
        return Edges.of(EdgeKind.TRANSFER, ends[:, 0], ends[:, 1])


def meetings_of(arrive: Int64s, finish: Int64s, *, group: Int64s, rank: Int64s) -> Meetings:
    """The collectives of exchanges in issue order.

    Args:
        arrive: int64[exchanges], nodes.
        finish: int64[exchanges], nodes.
        group: int64[exchanges], number of who meets, and what for: equal on all members.
        rank: int64[exchanges].
    """
    turn = turns_within(numbered_rows([group, rank]))
    order = np.lexsort((rank, turn, group))
    group, turn = group[order], turn[order]
    lead = np.flatnonzero(begins_run(group, turn))
    return Meetings(
        member=order,
        arrive=arrive[order],
        finish=finish[order],
        rank=rank[order],
        first=np.append(lead, len(order)),
        group=group[lead],
        position=turn[lead],
    )


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
    is_first = begins_run(lane)
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
