"""Which process group a communication lane belongs to, where operations do not say.

A rank's communication lanes (a stream, or the worker threads of gloo) each serve one group.
gloo's groups are known from the file's header: the assignment sought is the one in which every
member of a group shows the same sequence of operations. Streams are matched by the ends of
their operations (`coincidence.py`); a rank's only one is taken to serve all ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.communication.coincidence import coinciding_lanes
from foretrace.graph.operations import Operations

WORKERS_PER_GROUP = 2  # ProcessGroupGloo's default, torch 2.13
PEERLESS = frozenset({"send", "recv"})
PAIR = 2
MIN_STREAMS = 2  # a rank's only communication stream serves all ranks
MAX_ASSIGNMENTS = 5_000  # per rank; beyond, every lane is taken to serve all ranks

Sequence_ = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class NamedGroup:
    """A process group: what it is called and who is in it."""

    name: str
    members: tuple[int, ...]  # rank numbers; () unknown

    def __hash__(self) -> int:
        """Found once: groups of many ranks are looked up once per operation."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.members))


def groups_of(
    operations: Operations, comm: CommunicationOps, *, is_guessing: bool = True
) -> tuple[NamedGroup, ...]:
    """The group of every communication operation, one entry per row of `comm`.

    Args:
        operations: all operations.
        comm: the communication among them.
        is_guessing: whether streams without metadata may be matched by their ends; else each
            such stream of a rank that has several stands alone.
    """
    lane_groups = _lane_groups(operations, comm)
    if not is_guessing:
        for lane in guessed_lanes(operations, comm):
            own = operations.lanes[lane]
            lane_groups[lane] = NamedGroup(own.label, (own.rank,))
    pairs = _pair_groups(operations, comm)
    world = _world(operations)
    shared: dict[NamedGroup, NamedGroup] = {}  # one object per group: comparing it is then cheap
    groups: dict[tuple[object, ...], NamedGroup] = {}
    of_row: list[NamedGroup] = []
    for name, members, source, destination, lane in zip(
        comm.group,
        comm.members,
        comm.source_rank.tolist(),
        comm.destination_rank.tolist(),
        comm.lane.tolist(),
        strict=True,
    ):
        is_pair = source >= 0 and destination >= 0
        # Rows of a group share the object that lists its members.
        key = (name, source, destination) if is_pair else (name, id(members), lane)
        if key not in groups:
            if is_pair:
                group = NamedGroup(name, (source, destination))
            elif lane in pairs:
                group = pairs[lane]
            elif members or name:
                group = NamedGroup(name, tuple(sorted(members)))
            else:
                group = lane_groups.get(lane) or _stream_group(operations, lane, world)
            groups[key] = shared.setdefault(group, group)
        of_row.append(groups[key])
    return tuple(of_row)


def _pair_groups(operations: Operations, comm: CommunicationOps) -> dict[int, NamedGroup]:
    """The two ranks of each stream of transfers that name a larger group but not their peer.

    A process group gives every pair of ranks a communicator and a stream of its own, on which
    sends of the one are receives of the other. A stream without a partner stands alone.
    """
    is_named = (comm.source_rank >= 0) & (comm.destination_rank >= 0)
    groups_of_lane = {
        int(comm.lane[row]): tuple(sorted(comm.members[row]))
        for row in np.flatnonzero(~is_named).tolist()
        if comm.kind[row] in PEERLESS and len(comm.members[row]) > PAIR
    }
    lanes = {
        lane: operations.lanes[lane] for lane in groups_of_lane if operations.lanes[lane].is_device
    }
    pairs = {pair for members in groups_of_lane.values() for pair in combinations(members, PAIR)}
    found = {lane: NamedGroup(own.label, (own.rank,)) for lane, own in lanes.items()}
    for one, other in coinciding_lanes(comm, lanes, pairs) if lanes else ():
        ranks = tuple(sorted((lanes[one].rank, lanes[other].rank)))
        found[one] = found[other] = NamedGroup(f"stream {lanes[one].number}", ranks)
    return found


def _world(operations: Operations) -> tuple[int, ...]:
    sizes = [trace.meta.world_size or 0 for trace in operations.traces]
    return tuple(range(max(sizes))) if max(sizes) else tuple(sorted(operations.ranks))


def _worker_lanes(operations: Operations, comm: CommunicationOps) -> Int64s:
    """Threads that only run collectives."""
    calling = set(np.unique(operations.items.lane).tolist())
    return np.array(
        [
            lane
            for lane in np.unique(comm.lane).tolist()
            if not operations.lanes[lane].is_device and lane not in calling
        ],
        np.int64,
    )


def _stream_group(operations: Operations, lane: int, world: tuple[int, ...]) -> NamedGroup:
    if not operations.lanes[lane].is_device and (operations.items.lane == lane).any():
        # A transfer on the calling thread (gloo send) that does not name its peer stands alone.
        return NamedGroup(operations.lanes[lane].label, (operations.lanes[lane].rank,))
    return NamedGroup(f"stream {operations.lanes[lane].number}", world)


def _lane_groups(operations: Operations, comm: CommunicationOps) -> dict[int, NamedGroup]:
    """Group of each lane whose operations carry no metadata, where the header's groups fit."""
    is_silent = np.array(
        [not members and not name for members, name in zip(comm.members, comm.group, strict=True)],
        np.bool_,
    )
    candidates: dict[int, list[dict[int, NamedGroup]]] = {}
    workers = _worker_lanes(operations, comm)
    first_row = np.searchsorted(comm.rank, np.arange(len(operations.ranks) + 1)).tolist()
    for position, trace in enumerate(operations.traces):
        low, high = first_row[position], first_row[position + 1]
        rows = low + np.flatnonzero(is_silent[low:high])
        rows = rows[np.isin(comm.lane[rows], workers)]
        groups = [
            NamedGroup(group.name, tuple(sorted(group.ranks)))
            for group in trace.meta.process_groups
            if len(group.ranks) > 1
        ]
        if len(rows) and groups:
            lanes = _lanes_in_order(operations, comm, rows)
            candidates[position] = _assignments(lanes, groups)
    _drop_contradictions(operations, comm, candidates)
    return _stream_groups(operations, comm) | {
        lane: group
        for options in candidates.values()
        if options
        for lane, group in options[0].items()
    }


def guessed_lanes(operations: Operations, comm: CommunicationOps) -> list[int]:
    """Streams whose operations name no group, where some rank has several of them."""
    is_silent = [not names and not own for names, own in zip(comm.members, comm.group, strict=True)]
    lanes = [
        lane
        for lane in np.unique(comm.lane[np.array(is_silent, np.bool_)]).tolist()
        if operations.lanes[lane].is_device
    ]
    per_rank = Counter(operations.lanes[lane].rank for lane in lanes)
    return lanes if max(per_rank.values(), default=0) >= MIN_STREAMS else []


def _stream_groups(operations: Operations, comm: CommunicationOps) -> dict[int, NamedGroup]:
    """Group of each silent stream, where ranks have several: by ends that coincide."""
    lanes = {lane: operations.lanes[lane] for lane in guessed_lanes(operations, comm)}
    listed = {
        group.ranks
        for trace in operations.traces
        for group in trace.meta.process_groups
        if len(group.ranks) > 1
    }
    groups: dict[int, NamedGroup] = {}
    for cluster in coinciding_lanes(comm, lanes, listed):
        ranks = tuple(sorted(operations.lanes[lane].rank for lane in cluster))
        group = NamedGroup(f"stream {operations.lanes[cluster[0]].number}", ranks)
        groups.update(dict.fromkeys(cluster, group))
    for lane in set(lanes) - set(groups):
        near = _nearest_group(operations, comm, lane, groups)
        if near is not None:
            groups[lane] = near
    return groups


def _nearest_group(
    operations: Operations, comm: CommunicationOps, lane: int, groups: Mapping[int, NamedGroup]
) -> NamedGroup | None:
    """The group of the streams that are most like one that matched none: it lost an operation."""
    own = operations.lanes[lane]
    size = int((comm.lane == lane).sum())
    return min(
        (
            (abs(size - int((comm.lane == other).sum())), operations.lanes[other].number, group)
            for other, group in groups.items()
            if operations.lanes[other].number == own.number and own.rank not in group.members
        ),
        key=lambda found: found[:2],
        default=(0, 0, None),
    )[2]


def _lanes_in_order(operations: Operations, comm: CommunicationOps, rows: Int64s) -> list[int]:
    """Lanes by thread id or stream number: both rise in the order the groups were made."""
    lanes = np.unique(comm.lane[rows]).tolist()
    return sorted(lanes, key=lambda lane: operations.lanes[lane].number)


def _assignments(lanes: Sequence[int], groups: Sequence[NamedGroup]) -> list[dict[int, NamedGroup]]:
    """All ways to give rising lanes to groups without going back in their order."""
    options: list[dict[int, NamedGroup]] = []
    for choice in combinations_with_replacement(range(len(groups)), len(lanes)):
        if len(options) == MAX_ASSIGNMENTS:
            return []
        options.append({lane: groups[index] for lane, index in zip(lanes, choice, strict=True)})
    # gloo gives each group two worker threads: the more groups have both, the likelier.
    return sorted(
        options,
        key=lambda option: sum(
            abs(number - WORKERS_PER_GROUP) for number in Counter(option.values()).values()
        ),
    )


def _drop_contradictions(
    operations: Operations,
    comm: CommunicationOps,
    candidates: dict[int, list[dict[int, NamedGroup]]],
) -> None:
    """Keep assignments for which each recorded member of each group has one with equal sequences.

    Writes `candidates`: repeated until nothing more falls away (arc consistency).
    """
    position_of_rank = {rank: position for position, rank in enumerate(operations.ranks)}
    rows_of_lane = {
        int(lane): np.flatnonzero(comm.lane == lane) for lane in np.unique(comm.lane).tolist()
    }
    memo: dict[tuple[int, ...], Sequence_] = {}

    def sequence(option: Mapping[int, NamedGroup], group: NamedGroup) -> Sequence_:
        lanes = tuple(lane for lane, served in option.items() if served == group)
        if lanes not in memo:
            rows = np.concatenate([np.zeros(0, np.int64), *(rows_of_lane[lane] for lane in lanes)])
            rows = rows[np.argsort(comm.start_ns[rows], kind="stable")]
            memo[lanes] = tuple((comm.kind[row], int(comm.num_bytes[row])) for row in rows.tolist())
        return memo[lanes]

    is_changed = True
    while is_changed:
        is_changed = False
        for position in list(candidates):
            options = candidates[position]
            groups = {group for option in options for group in option.values()}
            # in a stated order: where sequences differ, it decides what is kept
            for group in sorted(groups, key=lambda each: (each.name, each.members)):
                peers = [
                    position_of_rank[member]
                    for member in group.members
                    if position_of_rank.get(member, position) in candidates
                    and position_of_rank.get(member, position) != position
                ]
                for peer in peers:
                    possible = {sequence(option, group) for option in candidates[peer]}
                    kept = [option for option in options if sequence(option, group) in possible]
                    if kept and len(kept) < len(options):
                        candidates[position] = options = kept
                        is_changed = True
