"""Rule 7: collectives across ranks, matched by group and place in it.

A collective has one hub; every member's operation arrives at it and finishes after it. A
transfer between two ranks is a collective of two (rule 8). Operations that no other rank has
are named: a group in which ranks stop at different places is how a hang looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from foretrace.base import CollectiveKind, Int32s, Int64s, begins_run
from foretrace.graph.communication import UNKNOWN, CommunicationOps
from foretrace.graph.communication.groups import NamedGroup
from foretrace.graph.graph import Finding
from foretrace.graph.nodes import Collective
from foretrace.graph.operations import Operations

MATCH_TOLERANCE_NS = 2_000_000  # ends of one collective differ by far less; the next is far more
_PAIRWISE = (CollectiveKind.SEND, CollectiveKind.RECV)
MAX_NAMED = 5  # places named in a sentence
MAX_SHIFT = 64  # operations by which one rank's sequence may be ahead of another's


@dataclass(frozen=True)
class Matches:
    """Which operations meet in which collective."""

    row: Int64s  # int64[matches], row of `CommunicationOps`
    collective: Int32s  # int32[matches], position in `collectives`
    collectives: tuple[Collective, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Member:
    """One rank's operations in one group, in order."""

    position: int  # of the trace
    rank: int
    rows: Int64s


def matched_collectives(
    operations: Operations, comm: CommunicationOps, groups: Sequence[NamedGroup]
) -> Matches:
    """Match operations of the same group across ranks, by place in the group.

    Where all recorded members have equally many operations of the same types, the k-th of each
    rank meet. Where they have not, sequence numbers decide, else the ends of the operations.
    """
    rows_by_group: dict[tuple[bool, NamedGroup], list[int]] = defaultdict(list)
    for row, (kind, group) in enumerate(zip(comm.kind, groups, strict=True)):
        rows_by_group[kind in _PAIRWISE, group].append(row)
    matched_rows = [np.zeros(0, np.int64)]
    num_members = [np.zeros(0, np.int64)]
    collectives: list[Collective] = []
    findings: list[Finding] = []
    for key in sorted(rows_by_group, key=_order_of_group):
        group = key[1]
        members = _members(operations, comm, np.array(rows_by_group[key]))
        places = _places(comm, members, group, findings)
        meetings = _meetings(members, places)
        collectives.extend(_collectives(comm, group, members, meetings))
        matched_rows.append(meetings.row)
        num_members.append(np.diff(meetings.first))
    size = np.concatenate(num_members)
    return Matches(
        np.concatenate(matched_rows),
        np.repeat(np.arange(len(size), dtype=np.int32), size),
        tuple(collectives),
        tuple(findings),
    )


def _order_of_group(key: tuple[bool, NamedGroup]) -> str:
    is_pairwise, group = key
    word = "transfer" if is_pairwise else "collective"
    return str((word, group.name, group.members))


def _members(operations: Operations, comm: CommunicationOps, rows: Int64s) -> list[_Member]:
    """The recorded ranks of a group; rows of each in the order in which they were asked for."""
    rows = rows[np.lexsort((rows, comm.start_ns[rows], comm.rank[rows]))]
    positions, first = np.unique(comm.rank[rows], return_index=True)
    return [
        _Member(position, operations.ranks[position], _as_numbered(comm, own))
        for position, own in zip(positions.tolist(), np.split(rows, first[1:]), strict=True)
    ]


def _as_numbered(comm: CommunicationOps, rows: Int64s) -> Int64s:
    """One rank's rows by their sequence numbers, where these are whole; else by start.

    Worker threads of one group start what they took in turns when they get a core, so that on a
    busy host the later of two starts first.
    """
    if any(comm.kind[row] in _PAIRWISE for row in rows.tolist()):
        return rows
    ordered = rows[np.argsort(comm.sequence[rows], kind="stable")]
    return ordered if _is_rising(comm.sequence[ordered]) else rows


@dataclass(frozen=True)
class _Meetings:
    """Which operations of one group meet at each place."""

    place: Int64s  # int64[meetings], rising
    first: Int64s  # int64[meetings + 1], where each one's matches begin
    row: Int64s  # int64[matches], by place, then member
    member: Int64s  # int64[matches], position among the members


def _meetings(members: Sequence[_Member], places: Sequence[Int64s]) -> _Meetings:
    """The first operation of every member at each place."""
    row = np.concatenate([member.rows for member in members])
    place = np.concatenate(places).astype(np.int64)
    member = np.repeat(np.arange(len(members)), [len(own.rows) for own in members])
    order = np.lexsort((member, place))
    row, place, member = row[order], place[order], member[order]
    is_first = begins_run(place, member)
    row, place, member = row[is_first], place[is_first], member[is_first]
    first = np.flatnonzero(begins_run(place))
    return _Meetings(place[first], np.append(first, len(row)), row, member)


def _collectives(
    comm: CommunicationOps, group: NamedGroup, members: Sequence[_Member], meetings: _Meetings
) -> Iterator[Collective]:
    """One collective per meeting."""
    ranks = tuple(sorted(group.members))
    of_members = [member.rank for member in members]
    everyone = tuple(sorted(of_members))
    is_partial = bool(set(ranks) - set(everyone))
    num_bytes = np.maximum.reduceat(comm.num_bytes[meetings.row], meetings.first[:-1]).tolist()
    bounds = pairwise(meetings.first.tolist())
    for place, size, (low, high) in zip(meetings.place.tolist(), num_bytes, bounds, strict=True):
        recorded = everyone
        if high - low < len(members):
            recorded = tuple(sorted(of_members[index] for index in meetings.member[low:high]))
        row = int(meetings.row[low])
        is_unlisted = not ranks and int(comm.group_size[row]) > len(members)
        yield Collective(
            name=_name(comm.kind[row]),
            group=group.name or "unnamed",
            ranks=ranks or recorded,
            recorded_ranks=recorded,
            position=place,
            num_bytes=size,
            dtype=comm.dtype[row],
            is_transfer_estimated=is_partial or is_unlisted,
        )


def _name(kind: CollectiveKind) -> str:
    return (CollectiveKind.SEND_RECV if kind in _PAIRWISE else kind).value


def _places(
    comm: CommunicationOps, members: list[_Member], group: NamedGroup, findings: list[Finding]
) -> list[Int64s]:
    """Place in the group of every member's operations, int64[operations of the member] each."""
    kinds = [tuple(comm.kind[row] for row in member.rows.tolist()) for member in members]
    sequences = [comm.sequence[member.rows] for member in members]
    if len(members) == 1 or _agree(comm, members, kinds):
        return [np.arange(len(member.rows)) for member in members]
    if all(_is_rising(sequence) for sequence in sequences):
        first = min(int(sequence[0]) for sequence in sequences)
        places = [sequence - first for sequence in sequences]
    else:
        places = _places_by_time(comm, members)
    findings.extend(_unmatched(members, places, group))
    return places


def _agree(comm: CommunicationOps, members: list[_Member], kinds: list[tuple[str, ...]]) -> bool:
    """Whether all members show the same operations in the same order."""
    lengths = {len(own) for own in kinds}
    if len(lengths) > 1:
        return False
    if {kind for own in kinds for kind in own} <= {"send", "recv"}:
        return True
    if len(set(kinds)) > 1:
        return False
    size = np.stack([comm.num_bytes[member.rows] for member in members])
    is_known = size != UNKNOWN
    return bool(((size == size[0]) | ~is_known | ~is_known[0]).all())


def _is_rising(sequence: Int64s) -> bool:
    return len(sequence) > 0 and bool((sequence >= 0).all() and (np.diff(sequence) > 0).all())


def _places_by_time(comm: CommunicationOps, members: list[_Member]) -> list[Int64s]:
    """Places by the ends of the operations, against the member that has most of them."""
    reference = max(members, key=lambda member: len(member.rows))
    places = []
    extra = len(reference.rows)
    for member in members:
        if member is reference:
            places.append(np.arange(len(member.rows)))
            continue
        found = _matched_by_end(comm, reference.rows, member.rows)
        alone = found < 0
        found[alone] = extra + np.arange(int(alone.sum()))
        extra += int(alone.sum())
        places.append(found)
    return places


def _matched_by_end(comm: CommunicationOps, reference: Int64s, rows: Int64s) -> Int64s:
    """For each of `rows`, the place in `reference` that ended with it; -1 where none did."""
    end_ns, other_ns = comm.end_ns[rows], comm.end_ns[reference]
    best_spread, best_offset = None, 0
    for shift in range(-MAX_SHIFT, MAX_SHIFT + 1):
        low, high = max(0, -shift), min(len(rows), len(reference) - shift)
        if high - low < max(1, min(len(rows), len(reference)) // 2):
            continue
        offsets = np.sort(end_ns[low:high] - other_ns[low + shift : high + shift])
        offset = int(offsets[(len(offsets) - 1) // 2])
        spread = int(np.sort(np.abs(offsets - offset))[(len(offsets) - 1) // 2])
        rank = (spread, abs(shift))
        if best_spread is None or rank < best_spread:
            best_spread, best_offset = rank, offset
    found = np.full(len(rows), -1, np.int64)
    aligned = end_ns - best_offset
    nearest = np.clip(np.searchsorted(other_ns, aligned), 1, max(len(reference) - 1, 1))
    nearest = np.minimum(nearest, len(reference) - 1)
    before = np.maximum(nearest - 1, 0)
    is_before = np.abs(aligned - other_ns[before]) <= np.abs(aligned - other_ns[nearest])
    nearest = np.where(is_before, before, nearest)
    last = -1
    for index, place in enumerate(nearest.tolist()):
        is_near = abs(int(aligned[index] - other_ns[place])) <= MATCH_TOLERANCE_NS
        is_same = comm.kind[rows[index]] == comm.kind[reference[place]]
        if place > last and is_near and is_same:
            found[index] = last = place
    return found


def _unmatched(members: list[_Member], places: list[Int64s], group: NamedGroup) -> list[Finding]:
    """One sentence per rank that lacks operations which others of the group have."""
    count: dict[int, int] = defaultdict(int)
    for column in places:
        for place in column.tolist():
            count[place] += 1
    expected = {place for place, number in count.items() if number < len(members)}
    findings = []
    for member, column in zip(members, places, strict=True):
        missing = sorted(expected - set(column.tolist()))
        if not missing:
            continue
        shown = ", ".join(str(place) for place in missing[:MAX_NAMED])
        more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
        findings.append(
            Finding(
                "collectives",
                f"rank {member.rank} has no operation at position {shown}{more} of group "
                f"{group.name or 'unnamed'!r} ({len(member.rows)} found), which other ranks have: "
                "the trace lost it, or the rank never got there.",
            )
        )
    return findings
