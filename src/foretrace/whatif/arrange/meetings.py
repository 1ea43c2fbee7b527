"""The collectives of a new job: whom each rank meets, and what lets each member go.

A rank's k-th exchange of a process group meets the k-th of every other member in the job; so does
a transfer between two stages, direction by direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import CollectiveKind, Int32s, Int64s, ScenarioError, UInt8s, numbered_rows
from foretrace.graph import NO_COLLECTIVE, Collective, Collectives, NodeKind
from foretrace.whatif.arrange.roles import PAIR, ExchangeRole, Made
from foretrace.whatif.arrange.sequence import NewSequence
from foretrace.whatif.arrange.source import RecordedNodes
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP, MadeExchange, NewJob
from foretrace.workload import (
    BY_HUB,
    BY_ITSELF,
    BY_LEFT,
    BY_RIGHT,
    Group,
    Meetings,
    groups_of,
    meetings_of,
)

_SHOWN = 5  # ranks named in a sentence

_NEIGHBOURLY = (Group.DATA, Group.CONTEXT)  # whose coalesced sends and receives go around a ring


@dataclass(frozen=True)
class Communicator:
    """Ranks that meet, and what for."""

    role: ExchangeRole  # of a transfer that of the sender
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


def shown_ranks(ranks: tuple[int, ...]) -> str:
    """`(0, 2)`, `(0, 1, 2, 3, 4 and 59 more)`."""
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    return f"({shown} and {len(ranks) - _SHOWN} more)" if len(ranks) > _SHOWN else f"({shown})"


class Partners:
    """With whom the ranks of a job meet."""

    def __init__(self, source: RecordedNodes, job: NewJob) -> None:
        self._job = job
        self._groups: dict[Group, dict[int, tuple[int, ...]]] = {}
        old, new = source.program.plan, job.plan
        is_same_grid = old.places == new.places
        # Under the same degrees ranks meet whom they met, whatever the plan was read from.
        self._met = source.roles.recorded if is_same_grid else {}
        self.notes: dict[str, None] = {}

    def communicator(self, rank: int, role: ExchangeRole) -> Communicator:
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

    def _transfer(self, rank: int, role: ExchangeRole) -> Communicator:
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

    def _recorded(self, rank: int, role: ExchangeRole) -> Communicator:
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


def _as_recorded(rank: int, role: ExchangeRole, ranks: tuple[int, ...]) -> Communicator:
    if not role.is_transfer:
        return Communicator(role, ranks)
    peer = ranks[0] if ranks[1] == rank else ranks[1]
    return Communicator(replace(role, is_send=True), ranks, rank if role.is_send else peer)


@dataclass(frozen=True)
class JobMeetings:
    """Who meets whom in a new job."""

    members: Meetings
    collectives: Collectives
    source_collective: Int32s  # int32[collectives], of the recording; NO_COLLECTIVE of made ones
    held_by: UInt8s  # uint8[members]


def meetings_of_job(
    source: RecordedNodes, sequence: NewSequence, job: NewJob, partners: Partners
) -> JobMeetings:
    """The collectives of a job.

    Raises:
        ScenarioError: if members of a group do not have equally many exchanges.
    """
    arrive = np.flatnonzero(sequence.kind == NodeKind.ARRIVE)
    num_roles = max(len(sequence.roles), 1)
    key = sequence.rank[arrive] * num_roles + sequence.role[arrive]
    kinds, of_kind = np.unique(key, return_inverse=True)
    numbers: dict[Communicator, int] = {}
    group_of_kind = np.zeros(len(kinds), np.int64)
    for at, kind in enumerate(kinds.tolist()):
        rank, role = divmod(kind, num_roles)
        found = partners.communicator(job.ranks[rank].rank, sequence.roles[role])
        group_of_kind[at] = numbers.setdefault(found, len(numbers))
    number_of_rank = np.array([rank.rank for rank in job.ranks] or [0], np.int64)
    members = meetings_of(
        arrive,
        _finishes(source, sequence, arrive),
        group=group_of_kind[of_kind.reshape(-1)],
        rank=number_of_rank[sequence.rank[arrive]],
    )
    communicators = tuple(numbers)
    _check_met(communicators, job, members)
    collectives, source_collective = _collectives(source, sequence, members, communicators)
    return JobMeetings(
        members,
        collectives,
        source_collective,
        _held_by(source, sequence, members, collectives),
    )


def _finishes(source: RecordedNodes, sequence: NewSequence, arrive: Int64s) -> Int64s:
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


def _check_met(communicators: tuple[Communicator, ...], job: NewJob, members: Meetings) -> None:
    """Refuse exchanges that some member in the job does not have.

    Raises:
        ScenarioError: names the group, the rank that has fewest and the position.
    """
    present = {each.rank for each in job.ranks}
    met = np.stack([members.group[members.collective], members.rank])
    pairs, counts = np.unique(met, axis=1, return_counts=True)
    count = dict(zip(zip(*pairs.tolist(), strict=True), counts.tolist(), strict=True))
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


def _collectives(
    source: RecordedNodes,
    sequence: NewSequence,
    members: Meetings,
    communicators: tuple[Communicator, ...],
) -> tuple[Collectives, Int32s]:
    """One collective per meeting, as its first member recorded it, and that recorded one."""
    graph = source.graph
    arrive = members.arrive[members.lead]
    node = sequence.source[arrive]
    recorded = np.where(node >= 0, graph.collective[np.maximum(node, 0)], NO_COLLECTIVE)
    is_recorded = recorded != NO_COLLECTIVE
    scales = np.array([placed.scale_bytes for placed in sequence.all_placed] or [1.0])
    scale = scales[sequence.placed[arrive]]
    made_at = {made.first + 1: made for made in sequence.made if made.num_nodes}
    makes: dict[Collective, int] = {}
    make = np.zeros(len(members), np.int64)
    make[is_recorded] = source.make_of_collective[recorded[is_recorded]]
    for at in np.flatnonzero(~is_recorded).tolist():
        make[at] = -1 - makes.setdefault(_of_made(made_at[int(arrive[at])]), len(makes))
    made = tuple(makes)

    def make_of(at: int) -> Collective:
        who = communicators[members.group[at]]
        present = tuple(members.rank[members.first[at] : members.first[at + 1]].tolist())
        each = graph.collectives[int(recorded[at])] if is_recorded[at] else made[-1 - make[at]]
        num_bytes = each.num_bytes
        if scale[at] != 1 and is_recorded[at] and num_bytes > 0:
            num_bytes = round(num_bytes * float(scale[at]))
        return replace(
            each,
            group=_group_name(who, source.roles.group_names),
            ranks=who.members,
            recorded_ranks=present,
            num_bytes=num_bytes,
            is_transfer_estimated=each.is_transfer_estimated or present != who.members,
        )

    # All members of a group have equally many, so its number says who is there.
    key = numbered_rows([members.group, make, np.unique(scale, return_inverse=True)[1].reshape(-1)])
    return members.collectives(key, make_of), recorded.astype(np.int32)


def _group_name(who: Communicator, recorded: Mapping[tuple[int, int, tuple[int, ...]], str]) -> str:
    """The recorded name where the same ranks had one for the same."""
    role = who.role
    if role.group == NO_GROUP:
        return role.name
    plain = GROUPS[role.group].value
    named = f"{plain} {role.number}" if role.number else plain
    return recorded.get((role.group, role.number, who.members)) or named


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


def _held_by(
    source: RecordedNodes,
    sequence: NewSequence,
    members: Meetings,
    collectives: Collectives,
) -> UInt8s:
    """What lets each member go, as recorded; made ones wait for all. uint8[members].

    Two ranks that exchanged data are each other's neighbours on both sides: with more of them,
    each waits for two.
    """
    node = sequence.source[members.finish]
    held = np.where(node >= 0, source.held_by[np.maximum(node, 0)], BY_HUB).astype(np.uint8)
    is_pair = np.array(source.graph.collectives.each(lambda one: one.is_pair), np.bool_)
    if not is_pair.any():
        return held
    goes_around = np.array(
        [role.group != NO_GROUP and GROUPS[role.group] in _NEIGHBOURLY for role in sequence.roles],
        np.bool_,
    )
    size = np.array(collectives.each(lambda one: len(one.ranks)), np.int64)
    is_ring = (node >= 0) & is_pair[source.graph.collective[np.maximum(node, 0)]]
    is_ring &= goes_around[sequence.role[members.finish]] & (size[members.collective] > PAIR)
    held[is_ring] = BY_ITSELF | BY_LEFT | BY_RIGHT
    return held
