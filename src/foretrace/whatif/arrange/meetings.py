"""Who meets whom in a new job: collectives, their hubs, and what lets each member go.

A rank's k-th exchange of a process group meets the k-th of every other member in the job; so does
a transfer between two stages, direction by direction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import CollectiveKind, Int32s, Int64s, ScenarioError, UInt8s
from foretrace.graph import NO_COLLECTIVE, Collective, EdgeKind, Edges, NodeKind
from foretrace.whatif.arrange.made import Made
from foretrace.whatif.arrange.roles import PAIR, Role
from foretrace.whatif.arrange.sequence import Sequence
from foretrace.whatif.arrange.source import BY_HUB, BY_ITSELF, BY_LEFT, BY_RIGHT, Source
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP, MadeExchange, NewJob
from foretrace.workload import Group, groups_of

_NEIGHBOURLY = (Group.DATA, Group.CONTEXT)  # whose coalesced sends and receives go around a ring


_GRID = ("tensor", "context", "data", "pipeline", "expert", "expert_tensor", "shard_ranks", "order")


@dataclass(frozen=True)
class Communicator:
    """Ranks that meet, and what for."""

    role: Role  # of a transfer that of the sender
    members: tuple[int, ...]  # in the order of their numbers
    sender: int = -1  # of a transfer

    @property
    def words(self) -> str:
        """For messages: `dp group (0, 2)`, `transfers from rank 0 to rank 4`."""
        if self.role.is_transfer:
            receiver = next(rank for rank in self.members if rank != self.sender)
            way = "backward" if self.role.is_backward else "forward"
            return f"{way} transfers from rank {self.sender} to rank {receiver}"
        name = "recorded" if self.role.group == NO_GROUP else GROUPS[self.role.group].value
        return f"{name} group {shown_ranks(self.members)}"


_SHOWN = 5  # ranks named in a sentence


def shown_ranks(ranks: tuple[int, ...]) -> str:
    """`(0, 2)`, `(0, 1, 2, 3, 4 and 59 more)`."""
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    return f"({shown} and {len(ranks) - _SHOWN} more)" if len(ranks) > _SHOWN else f"({shown})"


@dataclass(frozen=True)
class Meetings:
    """The collectives of a new job."""

    collectives: tuple[Collective, ...]
    source_collective: Int32s  # int32[collectives], of the recording; NO_COLLECTIVE of made ones
    communicator: Int64s  # int64[collectives], process group of each, numbered
    arrive: Int64s  # int64[members], place in the sequence, by collective, then rank
    finish: Int64s  # int64[members]
    of_member: Int64s  # int64[members], position in `collectives`
    first: Int64s  # int64[collectives + 1], where each one's members begin
    edges: Edges  # between places; hub i is place `num_places + i`


class Partners:
    """With whom the ranks of a job meet."""

    def __init__(self, source: Source, job: NewJob) -> None:
        self._job = job
        self._groups: dict[Group, dict[int, tuple[int, ...]]] = {}
        old, new = source.program.plan, job.plan
        is_same_grid = all(getattr(old, name) == getattr(new, name) for name in _GRID)
        # Under the same degrees ranks meet whom they met, whatever the plan was read from.
        self._met = source.roles.recorded if is_same_grid else {}
        self.notes: dict[str, None] = {}

    def communicator(self, rank: int, role: Role) -> Communicator:
        """Who meets a rank for something.

        Raises:
            ScenarioError: if the plan has nobody for it.
        """
        recorded = self._met.get((rank, role))
        if recorded is not None and rank in recorded:
            return _as_recorded(rank, role, recorded)
        if role.is_transfer:
            return self._transfer(rank, role)
        if role.group == NO_GROUP:
            return self._recorded(rank, role)
        group = GROUPS[role.group]
        members = self._members(group, rank)
        if not members:
            raise ScenarioError(
                f"rank {rank} is to take part in a collective of its {group.value} group, and the "
                "plan gives it none: leave that piece out, or give it to another stage"
            )
        return Communicator(role, members)

    def _members(self, group: Group, rank: int) -> tuple[int, ...]:
        if group not in self._groups:
            self._groups[group] = {
                member: tuple(own)
                for own in groups_of(self._job.plan, group).tolist()
                for member in own
            }
        return self._groups[group].get(rank, ())

    def _transfer(self, rank: int, role: Role) -> Communicator:
        stages = self._members(Group.PIPELINE, rank)
        if len(stages) < PAIR:
            raise ScenarioError(
                f"rank {rank} is to send to another stage, and the plan has pipeline "
                f"{len(stages)}: leave its transfers out, or take at least 2 stages"
            )
        peer = stages[(stages.index(rank) + role.stage_offset) % len(stages)]
        sender, receiver = (rank, peer) if role.is_send else (peer, rank)
        members = (min(sender, receiver), max(sender, receiver))
        return Communicator(replace(role, is_send=True), members, sender)

    def _recorded(self, rank: int, role: Role) -> Communicator:
        if len(role.ranks) == 1:
            return Communicator(replace(role, ranks=(rank,)), (rank,))
        if rank in role.ranks and self._job.plan.num_ranks > max(role.ranks):
            return Communicator(role, role.ranks)
        everyone = tuple(range(self._job.plan.num_ranks))
        self.notes[
            f"collectives of ranks {shown_ranks(role.ranks)}, which are no group of the plan, are "
            f"taken to be of all {len(everyone)} ranks"
        ] = None
        return Communicator(replace(role, ranks=everyone), everyone)


def _as_recorded(rank: int, role: Role, ranks: tuple[int, ...]) -> Communicator:
    if not role.is_transfer:
        return Communicator(role, ranks)
    peer = ranks[0] if ranks[1] == rank else ranks[1]
    return Communicator(replace(role, is_send=True), ranks, rank if role.is_send else peer)


def meetings_of(source: Source, sequence: Sequence, job: NewJob, partners: Partners) -> Meetings:
    """The collectives of a job, and the edges through which their members wait.

    Raises:
        ScenarioError: if members of a group do not have equally many exchanges.
    """
    arrive = np.flatnonzero(sequence.kind == NodeKind.ARRIVE)
    finish = _finishes(source, sequence, arrive)
    key = sequence.rank[arrive] * max(len(sequence.roles), 1) + sequence.role[arrive]
    kinds, of_kind = np.unique(key, return_inverse=True)
    numbers: dict[Communicator, int] = {}
    communicator_of_kind = np.zeros(len(kinds), np.int64)
    for at, kind in enumerate(kinds.tolist()):
        rank, role = divmod(kind, len(sequence.roles))
        found = partners.communicator(job.ranks[rank].rank, sequence.roles[role])
        communicator_of_kind[at] = numbers.setdefault(found, len(numbers))
    communicator = communicator_of_kind[of_kind.reshape(-1)]
    number_of_rank = np.array([rank.rank for rank in job.ranks] or [0], np.int64)
    rank = number_of_rank[sequence.rank[arrive]]
    occurrence = _occurrences(communicator, rank)
    order = np.lexsort((rank, occurrence, communicator))
    communicator, occurrence = communicator[order], occurrence[order]
    is_new = np.append(
        True,
        (communicator[1:] != communicator[:-1]) | (occurrence[1:] != occurrence[:-1]),
    )[: len(order)]
    first = np.append(np.flatnonzero(is_new), len(order))
    communicators = tuple(numbers)
    _check_met(communicators, job, communicator, rank[order])
    arrive, finish, rank = arrive[order], finish[order], rank[order]
    of_member = np.cumsum(is_new) - 1
    collectives, source_collective = _collectives(
        source, sequence, arrive=arrive, rank=rank, first=first,
        communicator=[communicators[at] for at in communicator[first[:-1]].tolist()],
        position=occurrence[first[:-1]],
    )  # fmt: skip
    edges = _edges(
        source, sequence, collectives, arrive=arrive, finish=finish, rank=rank,
        of_member=of_member,
    )  # fmt: skip
    return Meetings(
        collectives,
        source_collective,
        communicator[first[:-1]],
        arrive,
        finish,
        of_member,
        first,
        edges,
    )


def _finishes(source: Source, sequence: Sequence, arrive: Int64s) -> Int64s:
    """The finish of every arrival, as places; int64[arrivals]."""
    finish = np.flatnonzero(sequence.kind == NodeKind.FINISH)
    node = np.maximum(sequence.source[finish], 0)
    distance = source.place[node] - source.place[source.arrive_of[node]]
    own = np.where(sequence.source[finish] >= 0, finish - distance, finish - 1)
    if not np.array_equal(np.sort(own), arrive):
        raise ScenarioError(
            f"{len(arrive)} arrivals at collectives and {len(finish)} ends do not pair up: a piece "
            "of a program holds one without the other, so cut it elsewhere"
        )
    return finish[np.argsort(own, kind="stable")]


def _occurrences(communicator: Int64s, rank: Int64s) -> Int64s:
    """How many exchanges of its process group each rank has had before each, int64[members]."""
    order = np.lexsort((np.arange(len(rank)), rank, communicator))
    own, of_rank = communicator[order], rank[order]
    is_new = np.append(True, (own[1:] != own[:-1]) | (of_rank[1:] != of_rank[:-1]))[: len(order)]
    start = np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) - start
    return found


def _check_met(
    communicators: tuple[Communicator, ...],
    job: NewJob,
    communicator: Int64s,
    rank: Int64s,
) -> None:
    """Refuse exchanges that some member in the job does not have.

    Raises:
        ScenarioError: names the group, the rank that has fewest and the position.
    """
    present = {each.rank for each in job.ranks}
    count = {
        (int(own), int(member)): int(most)
        for own, member, most in zip(*_counts(communicator, rank), strict=True)
    }
    for at, each in enumerate(communicators):
        own = {member: count.get((at, member), 0) for member in each.members if member in present}
        few, many = min(own, key=lambda one: (own[one], one)), max(own.values())
        if own[few] == many:
            continue
        other = next(member for member in own if own[member] == many)
        raise ScenarioError(
            f"ranks do not meet in {each.words}: rank {few} has {own[few]} of them and rank "
            f"{other} has {many}, so nobody meets rank {other} at position {own[few]}. The pieces "
            "of these ranks are not of one program under this plan: change the plan so that they "
            "stay alike, or ask for an estimate"
        )


def _counts(communicator: Int64s, rank: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    pairs, count = np.unique(np.stack([communicator, rank]), axis=1, return_counts=True)
    return pairs[0], pairs[1], count


def _collectives(
    source: Source,
    sequence: Sequence,
    *,
    arrive: Int64s,
    rank: Int64s,
    first: Int64s,
    communicator: list[Communicator],
    position: Int64s,
) -> tuple[tuple[Collective, ...], Int32s]:
    """One collective per meeting, as its first member recorded it, and that recorded one."""
    graph = source.graph
    node = sequence.source[arrive]
    recorded = np.where(node >= 0, graph.collective[np.maximum(node, 0)], NO_COLLECTIVE)
    scale = np.array([placed.scale_bytes for placed in sequence.all_placed] or [1.0])
    scale_bytes = scale[sequence.placed[arrive]]
    made_at = {made.first + 1: made for made in sequence.made if made.num_nodes}
    names = _GroupNames(source)
    lead = first[:-1]
    columns = (
        recorded[lead].tolist(),
        arrive[lead].tolist(),
        scale_bytes[lead].tolist(),
        position.tolist(),
    )
    everyone = rank.tolist()
    found = []
    for at, (own, place, scaled, number) in enumerate(zip(*columns, strict=True)):
        who = communicator[at]
        present = tuple(everyone[int(first[at]) : int(first[at + 1])])
        if own == NO_COLLECTIVE:
            each = _of_made(made_at[place])
        else:
            each = graph.collectives[own]
            if scaled != 1 and each.num_bytes > 0:
                each = replace(each, num_bytes=round(each.num_bytes * scaled))
        found.append(
            replace(
                each,
                group=names.name(who),
                ranks=who.members,
                recorded_ranks=present,
                position=number,
                is_transfer_estimated=each.is_transfer_estimated or present != who.members,
            )
        )
    return tuple(found), recorded[lead].astype(np.int32)


class _GroupNames:
    """Names of process groups: the recorded one where the same ranks had one for the same."""

    def __init__(self, source: Source) -> None:
        graph = source.graph
        arrive = graph.nodes_of(NodeKind.ARRIVE)
        pairs = np.stack([source.roles.of_node[arrive], graph.collective[arrive]])
        self._recorded: dict[tuple[int, int, tuple[int, ...]], str] = {}
        for at, collective in np.unique(pairs, axis=1).T.tolist():
            role, each = source.roles.roles[at], graph.collectives[collective]
            self._recorded.setdefault((role.group, role.number, each.ranks), each.group)

    def name(self, who: Communicator) -> str:
        role = who.role
        if role.group == NO_GROUP:
            return role.name
        known = self._recorded.get((role.group, role.number, who.members))
        plain = GROUPS[role.group].value
        return known or (f"{plain} {role.number}" if role.number else plain)


def _of_made(made: Made) -> Collective:
    """What a made exchange is; ranks and position are filled in by who meets."""
    what = made.what
    if not isinstance(what, MadeExchange):
        raise TypeError("a wait is no collective")
    return Collective(
        name=CollectiveKind.SEND_RECV.value if made.role.is_transfer else what.collective.in_tables,
        group="",
        ranks=(),
        recorded_ranks=(),
        position=0,
        num_bytes=what.num_bytes,
        dtype=what.dtype,
        is_transfer_estimated=True,
    )


def _edges(
    source: Source,
    sequence: Sequence,
    collectives: tuple[Collective, ...],
    *,
    arrive: Int64s,
    finish: Int64s,
    rank: Int64s,
    of_member: Int64s,
) -> Edges:
    """Arrivals to hubs, hubs to finishes; neighbours to each other around a ring."""
    hub = len(sequence) + of_member
    held_by = _held_by(source, sequence, collectives, finish, of_member)
    by_hub = (held_by & BY_HUB) > 0
    by_itself = (held_by & BY_ITSELF) > 0
    found = [
        Edges.of(EdgeKind.ARRIVAL, arrive, hub),
        Edges.of(EdgeKind.TRANSFER, hub[by_hub], finish[by_hub]),
        Edges.of(EdgeKind.TRANSFER, arrive[by_itself], finish[by_itself]),
    ]
    around = np.flatnonzero((held_by & (BY_LEFT | BY_RIGHT)) > 0)
    if not len(around):
        return Edges.joined(found)
    member_at = {
        (int(own), int(each)): int(place)
        for own, each, place in zip(of_member, rank, arrive, strict=True)
    }
    pairs = []
    for at in around.tolist():
        own, ranks = int(of_member[at]), collectives[of_member[at]].ranks
        place = ranks.index(int(rank[at]))
        sides = [side for bit, side in ((BY_LEFT, -1), (BY_RIGHT, 1)) if held_by[at] & bit]
        neighbours = dict.fromkeys(ranks[(place + side) % len(ranks)] for side in sides)
        pairs += [
            (member_at[own, each], int(finish[at]))
            for each in neighbours
            if (own, each) in member_at and each != rank[at]
        ]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return Edges.joined([*found, Edges.of(EdgeKind.TRANSFER, ends[:, 0], ends[:, 1])])


def _held_by(
    source: Source,
    sequence: Sequence,
    collectives: tuple[Collective, ...],
    finish: Int64s,
    of_member: Int64s,
) -> UInt8s:
    """What lets each member go, as recorded; made ones wait for all. uint8[members].

    Two ranks that exchanged data are each other's neighbours on both sides: with more of them,
    each waits for two.
    """
    node = sequence.source[finish]
    held = np.where(node >= 0, source.held_by[np.maximum(node, 0)], BY_HUB).astype(np.uint8)
    is_exchange = np.array(
        [each.is_pair for each in source.graph.collectives],
        np.bool_,
    )
    if not is_exchange.any():
        return held
    goes_around = np.array(
        [role.group != NO_GROUP and GROUPS[role.group] in _NEIGHBOURLY for role in sequence.roles],
        np.bool_,
    )
    size = np.array([len(each.ranks) for each in collectives], np.int64)
    is_ring = (node >= 0) & is_exchange[source.graph.collective[np.maximum(node, 0)]]
    is_ring &= goes_around[sequence.role[finish]] & (size[of_member] > PAIR)
    held[is_ring] = BY_ITSELF | BY_LEFT | BY_RIGHT
    return held
