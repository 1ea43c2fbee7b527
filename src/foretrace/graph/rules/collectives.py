"""Rule 7: collectives across ranks, matched by group and place in it.

A collective has one hub; every member's operation arrives at it and finishes after it. A
transfer between two ranks is a collective of two (rule 8). Operations that no other rank has
are named: a group in which ranks stop at different places is how a hang looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int32s, Int64s
from foretrace.graph.communication import UNKNOWN, CommunicationOps
from foretrace.graph.graph import Collective, Finding
from foretrace.graph.groups import Group
from foretrace.graph.operations import Operations

MATCH_TOLERANCE_NS = 2_000_000  # ends of one collective differ by far less; the next is far more
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
    operations: Operations, comm: CommunicationOps, groups: Sequence[Group]
) -> Matches:
    """Match operations of the same group across ranks, by place in the group.

    Where all recorded members have equally many operations of the same types, the k-th of each
    rank meet. Where they have not, sequence numbers decide, else the ends of the operations.
    """
    rows_by_group: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        rows_by_group[_key(comm, row, group)].append(row)
    matched_rows: list[int] = []
    matched_collective: list[int] = []
    collectives: list[Collective] = []
    findings: list[Finding] = []
    for key in sorted(rows_by_group, key=str):
        rows = np.array(rows_by_group[key])
        group = groups[rows[0]]
        members = _members(operations, comm, rows)
        places = _places(comm, members, group, findings)
        for place in sorted({int(place) for column in places for place in column}):
            present = [
                (member, int(member.rows[int(np.argmax(column == place))]))
                for member, column in zip(members, places, strict=True)
                if (column == place).any()
            ]
            for _, row in present:
                matched_rows.append(row)
                matched_collective.append(len(collectives))
            collectives.append(_collective(comm, group, members, present, place))
    return Matches(
        np.array(matched_rows, np.int64),
        np.array(matched_collective, np.int32),
        tuple(collectives),
        tuple(findings),
    )


def _key(comm: CommunicationOps, row: int, group: Group) -> tuple[object, ...]:
    if comm.kind[row] in ("send", "recv"):
        return ("transfer", group.name, group.members)
    return ("collective", group.name, group.members)


def _members(operations: Operations, comm: CommunicationOps, rows: Int64s) -> list[_Member]:
    """The recorded ranks of a group; rows of each in order of start."""
    members = []
    for position in np.unique(comm.rank[rows]).tolist():
        own = rows[comm.rank[rows] == position]
        own = own[np.lexsort((own, comm.start_ns[own]))]
        members.append(_Member(position, operations.ranks[position], own))
    return members


def _collective(
    comm: CommunicationOps,
    group: Group,
    members: list[_Member],
    present: list[tuple[_Member, int]],
    place: int,
) -> Collective:
    recorded = tuple(sorted(member.rank for member, _ in present))
    row = present[0][1]
    ranks = group.members or recorded
    unrecorded = set(ranks) - {member.rank for member in members}
    size = int(comm.group_size[row])
    sizes = [int(comm.num_bytes[row]) for _, row in present]
    return Collective(
        name="sendrecv" if comm.kind[row] in ("send", "recv") else comm.kind[row],
        group=group.name or "unnamed",
        ranks=tuple(sorted(ranks)),
        recorded_ranks=recorded,
        position=place,
        num_bytes=max(sizes),
        dtype=comm.dtype[row],
        is_transfer_estimated=bool(unrecorded) or (not group.members and size > len(members)),
    )


def _places(
    comm: CommunicationOps, members: list[_Member], group: Group, findings: list[Finding]
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
    findings.extend(_unmatched(comm, members, places, group))
    return places


def _agree(
    comm: CommunicationOps, members: list[_Member], kinds: list[tuple[str, ...]]
) -> bool:
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


def _unmatched(
    comm: CommunicationOps, members: list[_Member], places: list[Int64s], group: Group
) -> list[Finding]:
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
        shown = ", ".join(str(place) for place in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        findings.append(
            Finding(
                "collectives",
                f"rank {member.rank} has no operation at position {shown}{more} of group "
                f"{group.name or 'unnamed'!r} ({len(member.rows)} found), which other ranks have: "
                "the trace lost it, or the rank never got there.",
            )
        )
    return findings
