"""A recording as something to copy from: every node's place, and what it waits for, relatively.

A dependency from one piece of a program to another cannot be copied with either of them. It is
kept as "the k-th last node of that kind on that lane before me": 0 is the last. Nodes that can be
meant together share a *slot*.

Dependencies inside a piece are kept as distances, those from another piece of the same rank as
"the k-th last of a slot". Host order, the launch queue and collectives are not kept at all: they
follow from the order of a new program by the rules that made them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int8s, Int32s, Int64s, UInt8s, row_starts, turns_within
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.whatif.arrange.roles import NO_ROLE, Roles, roles_of
from foretrace.whatif.recorded.program import Program
from foretrace.workload import BY_HUB, BY_ITSELF, BY_LEFT, BY_RIGHT

NO_PLACE = -1

# What of its lane a node can be counted among: operations that streams and workers run, calls of
# a thread, all else.
OPERATIONS, CALLS, OTHERS = 0, 1, 2
NUM_SLOTS_OF_LANE = 3

DEVICE_OUT = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.FINISH)
DEVICE_IN = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.ARRIVE)
_CALLS = (
    NodeKind.STEP_BEGIN,
    NodeKind.STEP_END,
    NodeKind.OPERATOR,
    NodeKind.CALL,
    NodeKind.LAUNCH,
    NodeKind.SYNC,
)
_MADE_ANEW = (EdgeKind.QUEUE, EdgeKind.ARRIVAL, EdgeKind.TRANSFER, EdgeKind.GHOST)
_IN_ORDER = (EdgeKind.STREAM, EdgeKind.PROGRAMMATIC, EdgeKind.GRAPH)


@dataclass(frozen=True)
class SlotIndex:
    """Places 0, 1, ... in issue order, of which each belongs to one slot or to none."""

    num_places: int
    key: Int64s  # int64[members], slot x places + place, rising
    first: Int64s  # int64[slots + 1], where each slot's members begin

    @staticmethod
    def of(slot: Int64s, num_slots: int) -> SlotIndex:
        """The index of a column that gives each place its slot; below 0: in none."""
        member = np.flatnonzero(slot >= 0)
        member = member[np.argsort(slot[member], kind="stable")]
        own = slot[member]
        first = np.searchsorted(own, np.arange(num_slots + 1)).astype(np.int64)
        return SlotIndex(len(slot), own * len(slot) + member, first)

    def num_before(self, slot: Int64s, place: Int64s) -> Int64s:
        """How many members of a slot stand before a place; int64[questions]."""
        found: Int64s = np.searchsorted(self.key, slot * self.num_places + place)
        return found - self.first[slot]

    def num_between(self, slot: Int64s, member: Int64s, place: Int64s) -> Int64s:
        """How many members of a slot stand behind one of them and before a place.

        Of a place before the member: less than 0, so that `nth_last` finds it again.
        """
        return self.num_before(slot, place) - 1 - self.num_before(slot, member)

    def nth_last(self, slot: Int64s, place: Int64s, back: Int64s) -> Int64s:
        """Place of the `back`-th last member of a slot before a place; NO_PLACE where none is.

        Args:
            slot: slots asked for, int64[questions]; below 0: none.
            place: places before which to look, int64[questions].
            back: 0 for the last, 1 for the one before; -1 for the first not before the place.
        """
        asked = np.maximum(slot, 0)
        at = self.num_before(asked, place) - 1 - back
        is_there = (slot >= 0) & (at >= 0) & (at < self.first[asked + 1] - self.first[asked])
        found = np.full(len(slot), NO_PLACE, np.int64)
        member = self.first[asked[is_there]] + at[is_there]
        found[is_there] = self.key[member] - asked[is_there] * self.num_places
        return found


@dataclass(frozen=True)
class Carried:
    """Edges that come along with their target, sorted by it."""

    first: Int64s  # int64[nodes + 1], where each node's edges begin
    source: Int64s  # int64[edges], node
    kind: UInt8s  # uint8[edges], EdgeKind
    distance: Int64s  # int64[edges], places from source to target
    is_inside: Bools  # bool[edges], both ends are in one piece
    back: Int64s  # int64[edges], members of the source's slot between it and the target


@dataclass(frozen=True)
class RecordedNodes:
    """A program's recording, node by node."""

    program: Program
    graph: ExecutionGraph
    roles: Roles
    sequence: Int64s  # int64[places], nodes rank by rank in issue order; no rank starts
    place: Int64s  # int64[nodes], position in `sequence`; -1 of hubs, ghosts and rank starts
    rank_start: dict[int, int]  # rank -> node
    begin_of_rank: dict[int, int]  # rank -> its first place
    is_chained: Bools  # bool[nodes], part of a host thread's chain
    begins_thread: Bools  # bool[nodes], segments from a rank's start to a thread's first call
    is_first: Bools  # bool[nodes], entry of the first operation of a stream or worker
    slot_kind: Int8s  # int8[nodes], OPERATIONS, CALLS or OTHERS
    carried: Carried
    awaited_role: Int32s  # int32[nodes], of thread waits the role of what they wait for; NO_ROLE
    arrive_of: Int64s  # int64[nodes], of finishes the same member's arrival; -1 of others
    held_by: UInt8s  # uint8[nodes], of finishes: BY_HUB, ... as bits
    # int64[collectives], equal where all is but who takes part and when
    make_of_collective: Int64s
    has_device: bool
    queue_depth: int  # operations that a stream's launches may be ahead by; 0: no limit seen


def source_of(program: Program) -> RecordedNodes:
    """Everything that arranging asks of a recording."""
    graph = program.graph
    target = graph.edge_target
    parts = [piece.nodes for own in program.pieces_by_rank.values() for piece in own]
    nodes = np.concatenate([np.zeros(0, np.int64), *parts])
    piece_of = np.full(graph.num_nodes, -1, np.int64)
    piece_of[nodes] = np.repeat(np.arange(len(parts)), [len(each) for each in parts])
    sequence = nodes[graph.kind[nodes] != NodeKind.RANK_START]
    place = np.full(graph.num_nodes, -1, np.int64)
    place[sequence] = np.arange(len(sequence))
    is_order = graph.edge_kind == EdgeKind.HOST_ORDER
    is_chained = np.zeros(graph.num_nodes, np.bool_)
    is_chained[target[is_order & (graph.kind[target] != NodeKind.ARRIVE)]] = True
    begins_thread = np.zeros(graph.num_nodes, np.bool_)
    is_begun = is_order & (graph.kind[graph.predecessor] == NodeKind.RANK_START)
    begins_thread[target[is_begun]] = graph.kind[target[is_begun]] == NodeKind.HOST_SEGMENT
    roles = roles_of(program)
    slot_kind = _slot_kinds(graph)
    ranks = np.array([*program.pieces_by_rank, -1])
    by_rank = np.argsort(ranks, kind="stable")
    found = np.minimum(np.searchsorted(ranks[by_rank], graph.rank), len(ranks) - 1)
    index = PlaceIndex.of(
        slot_kind[sequence],
        kind=graph.kind[sequence],
        lane=graph.lane[sequence].astype(np.int64),
        role=roles.of_node[sequence].astype(np.int64),
        rank=by_rank[found[sequence]],
        num_lanes=len(graph.lanes),
        num_roles=len(roles.roles),
    )
    carried = _carried(graph, target, place=place, piece_of=piece_of, index=index)
    starts = graph.nodes_of(NodeKind.RANK_START)
    arrive_of = graph.arrivals()
    return RecordedNodes(
        program=program,
        graph=graph,
        roles=roles,
        sequence=sequence,
        place=place,
        rank_start=dict(zip(graph.rank[starts].tolist(), starts.tolist(), strict=True)),
        begin_of_rank=_begins(graph, sequence),
        is_chained=is_chained,
        begins_thread=begins_thread,
        is_first=_first_on_lanes(graph, target, is_chained, place),
        slot_kind=slot_kind,
        carried=carried,
        awaited_role=_awaited_roles(graph, carried, roles),
        arrive_of=arrive_of,
        held_by=_held_by(graph, arrive_of),
        make_of_collective=_makes(graph),
        has_device=graph.has_device,
        queue_depth=_queue_depth(
            graph, target, place=place, is_on_device=graph.is_on_stream, arrive_of=arrive_of
        ),
    )


def _makes(graph: ExecutionGraph) -> Int64s:
    known: dict[tuple[object, ...], int] = {}
    found = graph.collectives.each(
        lambda one: known.setdefault(
            (one.name, one.num_bytes, one.dtype, one.is_transfer_estimated), len(known)
        )
    )
    return np.array(found, np.int64)


def _begins(graph: ExecutionGraph, sequence: Int64s) -> dict[int, int]:
    ranks, first = np.unique(graph.rank[sequence], return_index=True)
    return dict(zip(ranks.tolist(), first.tolist(), strict=True))


@dataclass(frozen=True)
class PlaceIndex:
    """Places of nodes by what they can be counted among: of their lane, or of their role."""

    num_lanes: int
    num_roles: int
    slot: Int64s  # int64[places], of the lane; -1 where there is none
    role_slot: Int64s  # int64[places], of a rank's finishes of one role; -1 of all else
    by_lane: SlotIndex
    by_role: SlotIndex

    @staticmethod
    def of(
        slot_kind: Int8s,
        *,
        kind: UInt8s,
        lane: Int64s,
        role: Int64s,
        rank: Int64s,
        num_lanes: int,
        num_roles: int,
    ) -> PlaceIndex:
        """The index of nodes in issue order; one entry of each column per place."""
        slot = np.where(lane >= 0, slot_kind.astype(np.int64) * num_lanes + lane, -1)
        is_finish = (kind == NodeKind.FINISH) & (role >= 0)
        role_slot = np.where(is_finish, rank * num_roles + role, -1)
        num_ranks = int(rank.max(initial=0)) + 1
        return PlaceIndex(
            num_lanes,
            num_roles,
            slot,
            role_slot,
            SlotIndex.of(slot, NUM_SLOTS_OF_LANE * num_lanes),
            SlotIndex.of(role_slot, num_ranks * num_roles),
        )

    def on_lane(self, slot_kind: Int8s | int, lane: Int64s) -> Int64s:
        """Slots of `by_lane`; -1 where there is no lane."""
        return np.where(lane >= 0, np.asarray(slot_kind, np.int64) * self.num_lanes + lane, -1)


def is_of_role(edge_kind: UInt8s, source_kind: UInt8s) -> Bools:
    """Waits of a thread for a collective: for one of its role, whichever worker runs it."""
    found: Bools = (edge_kind == EdgeKind.THREAD) & (source_kind == NodeKind.FINISH)
    return found


def _slot_kinds(graph: ExecutionGraph) -> Int8s:
    found = np.full(graph.num_nodes, OTHERS, np.int8)
    found[graph.is_of(*DEVICE_OUT)] = OPERATIONS
    found[graph.is_of(*_CALLS)] = CALLS
    return found


def _carried(
    graph: ExecutionGraph,
    target: Int64s,
    *,
    place: Int64s,
    piece_of: Int64s,
    index: PlaceIndex,
) -> Carried:
    """Edges inside ranks that no rule makes anew."""
    source = graph.predecessor.astype(np.int64)
    is_chain = (graph.edge_kind == EdgeKind.HOST_ORDER) & (graph.kind[target] != NodeKind.ARRIVE)
    chosen = np.flatnonzero(
        ~np.isin(graph.edge_kind, _MADE_ANEW)
        & ~is_chain
        & (place[source] >= 0)
        & (place[target] >= 0)
        & (graph.rank[source] == graph.rank[target])
    )
    source, target = source[chosen], target[chosen]
    own, later = place[source], place[target]
    of_role = is_of_role(graph.edge_kind[chosen], graph.kind[source])
    back = index.by_lane.num_between(index.slot[own], own, later)
    back[of_role] = index.by_role.num_between(
        index.role_slot[own[of_role]], own[of_role], later[of_role]
    )
    return Carried(
        first=row_starts(target, graph.num_nodes),
        source=source,
        kind=graph.edge_kind[chosen],
        distance=later - own,
        is_inside=piece_of[source] == piece_of[target],
        back=back,
    )


def _awaited_roles(graph: ExecutionGraph, carried: Carried, roles: Roles) -> Int32s:
    """Of each thread's wait for a collective that one's role; NO_ROLE of all else."""
    target = np.repeat(np.arange(graph.num_nodes), np.diff(carried.first))
    chosen = is_of_role(carried.kind, graph.kind[carried.source])
    found = np.full(graph.num_nodes, NO_ROLE, np.int32)
    found[target[chosen]] = roles.of_node[carried.source[chosen]]
    return found


def _first_on_lanes(
    graph: ExecutionGraph, target: Int64s, is_chained: Bools, place: Int64s
) -> Bools:
    """Entries of streams' and workers' operations that follow nothing since they came first."""
    is_after = np.zeros(graph.num_nodes, np.bool_)
    is_after[target[np.isin(graph.edge_kind, _IN_ORDER)]] = True
    # A worker's arrival with a segment before it is entered there.
    is_inner = np.zeros(graph.num_nodes, np.bool_)
    is_arrival = (graph.edge_kind == EdgeKind.HOST_ORDER) & (graph.kind[target] == NodeKind.ARRIVE)
    is_inner[target[is_arrival]] = True
    is_thread = np.zeros(max(len(graph.lanes), 1), np.bool_)
    is_thread[graph.lane[is_chained]] = True
    is_entry = graph.is_of(*DEVICE_IN, NodeKind.HOST_SEGMENT) & ~is_chained & ~is_inner
    entry = np.flatnonzero(is_entry & (place >= 0) & ~is_thread[graph.lane])
    entry = entry[np.argsort(place[entry], kind="stable")]
    _, first = np.unique(graph.lane[entry], return_index=True)
    found = np.zeros(graph.num_nodes, np.bool_)
    found[entry[first]] = ~is_after[entry[first]]
    return found


def _held_by(graph: ExecutionGraph, arrive_of: Int64s) -> UInt8s:
    """What lets each finish go: its hub, its own arrival, or those of neighbours in its group."""
    source, finish = graph.edges_of(EdgeKind.TRANSFER)
    is_own = source == arrive_of[finish]
    is_other = (graph.kind[source] == NodeKind.ARRIVE) & ~is_own
    bit = np.where(is_own, BY_ITSELF, BY_HUB).astype(np.uint8)
    for at in np.flatnonzero(is_other).tolist():
        ranks = graph.collectives[graph.collective[finish[at]]].ranks
        apart = ranks.index(int(graph.rank[source[at]])) - ranks.index(int(graph.rank[finish[at]]))
        bit[at] = BY_RIGHT if apart % len(ranks) == 1 else BY_LEFT
    found = np.zeros(graph.num_nodes, np.uint8)
    np.bitwise_or.at(found, finish, bit)
    return found


def _queue_depth(
    graph: ExecutionGraph,
    target: Int64s,
    *,
    place: Int64s,
    is_on_device: Bools,
    arrive_of: Int64s,
) -> int:
    """By how many operations of its stream a launch is behind the one it waits for."""
    held = np.flatnonzero((graph.edge_kind == EdgeKind.QUEUE) & (place[target] >= 0))
    if not len(held):
        return 0
    launched, launch = launched_by(graph, target, is_on_device)
    number = np.full(graph.num_nodes, -1, np.int64)
    number[launched] = queue_numbers(graph.lane[launched].astype(np.int64), place[launched])
    first_of = np.full(graph.num_nodes, -1, np.int64)
    first_of[launch[::-1]] = launched[::-1]
    own, source = first_of[target[held]], graph.predecessor[held].astype(np.int64)
    # A collective's number is that of its arrival; what is waited for is its finish.
    source = np.where(arrive_of[source] >= 0, arrive_of[source], source)
    is_same = (graph.lane[source] == graph.lane[own]) & (number[source] >= 0)
    values, counts = np.unique((number[own] - number[source])[is_same], return_counts=True)
    return int(values[counts.argmax()]) if len(values) else 0


def launched_by(
    graph: ExecutionGraph, target: Int64s, is_on_device: Bools
) -> tuple[Int64s, Int64s]:
    """Entries of operations on streams, and the launch of each; int64[operations] each."""
    chosen = graph.edge_kind == EdgeKind.LAUNCH
    chosen &= is_on_device[target]
    return target[chosen], graph.predecessor[chosen].astype(np.int64)


def queue_numbers(lane: Int64s, place: Int64s) -> Int64s:
    """Number of each operation on its stream, from 0, by place; int64[operations]."""
    order = np.argsort(place, kind="stable")
    found = np.empty(len(lane), np.int64)
    found[order] = turns_within(lane[order])
    return found
