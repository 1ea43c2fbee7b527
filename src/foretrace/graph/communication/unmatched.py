"""Operations of process groups that some members began and others never did.

What a rank began is known from the calls that issue communication, and from the operations that
ran. A kernel that never ended is missing from a Kineto file, so its call is what tells that the
rank waits. Members of a group must begin the same operations in the same order: numbers in the
group are its sequence numbers where every call has one, else places in the rank's own order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import CollectiveKind
from foretrace.graph.communication import UNKNOWN, CommunicationOps
from foretrace.graph.communication.clocks import Clocks
from foretrace.graph.communication.description import issued_operations
from foretrace.graph.communication.groups import NamedGroup
from foretrace.graph.graph import Finding
from foretrace.graph.operations import Operations
from foretrace.graph.recording import Begun, Unmatched

_TRANSFERS = frozenset((CollectiveKind.SEND, CollectiveKind.RECV))


@dataclass(frozen=True)
class _Operation:
    """One operation that one rank began in one group."""

    kind: CollectiveKind
    num_bytes: int
    sequence: int
    start_ns: int  # of the call, on the timeline's clock and zero
    is_open: bool  # issued, but it never ran to its end


def unmatched_operations(
    operations: Operations, comm: CommunicationOps, groups: Sequence[NamedGroup], clocks: Clocks
) -> tuple[Unmatched, ...]:
    """Every place of a group at which members differ: who is missing, or does something else."""
    found: list[Unmatched] = []
    begun = _begun(operations, comm, groups, clocks)
    for group in sorted(begun, key=lambda each: (each.name, each.members)):
        by_rank = begun[group]
        for rank in set(group.members) & set(operations.ranks):
            by_rank.setdefault(rank, [])
        if len(by_rank) > 1:
            found.extend(_of_group(group, dict(sorted(by_rank.items()))))
    return tuple(found)


def cut_off_findings(operations: Operations, unmatched: Sequence[Unmatched]) -> Iterator[Finding]:
    """A sentence on every cut off file that lacks operations: that is no sign of a hang."""
    for rank, trace in zip(operations.ranks, operations.traces, strict=True):
        lacking = [one for one in unmatched if rank in one.ended_ranks]
        if trace.meta.is_truncated and lacking:
            yield Finding(
                "hang",
                f"rank {rank}'s file stops in the middle: that it lacks {len(lacking)} operations "
                f"of its groups, the first {lacking[0].name} number {lacking[0].position} of "
                f"group {lacking[0].group!r}, is no sign of a hang.",
                (trace.meta.path,),
            )


def _begun(
    operations: Operations, comm: CommunicationOps, groups: Sequence[NamedGroup], clocks: Clocks
) -> dict[NamedGroup, dict[int, list[_Operation]]]:
    """What each rank began in each group, in its order."""
    begun: dict[NamedGroup, dict[int, list[_Operation]]] = defaultdict(lambda: defaultdict(list))
    launch = operations.ops.launch[comm.op]
    called_ns = np.where(
        launch >= 0, operations.items.start_ns[np.maximum(launch, 0)], comm.start_ns
    )
    zero_ns = int(clocks.aligned(np.arange(len(operations.ranks)), operations.first_ns).min())
    called_ns = clocks.aligned(comm.rank, called_ns) - zero_ns
    for row, group in enumerate(groups):
        begun[group][operations.ranks[int(comm.rank[row])]].append(
            _Operation(
                comm.kind[row],
                int(comm.num_bytes[row]),
                int(comm.sequence[row]),
                int(called_ns[row]),
                is_open=False,
            )
        )
    for issued in issued_operations(operations, comm):
        rank = operations.ranks[issued.position]
        is_pair = issued.source_rank >= 0 and issued.destination_rank >= 0
        members = (issued.source_rank, issued.destination_rank) if is_pair else issued.members
        group = NamedGroup(issued.group, members if is_pair else tuple(sorted(members)))
        ran = begun[group][rank]
        at = clocks.aligned(np.array([issued.position]), np.array([issued.start_ns]))
        start_ns = int(at[0]) - zero_ns
        if all(start_ns > one.start_ns for one in ran if not one.is_open):
            ran.append(
                _Operation(issued.kind, issued.num_bytes, issued.sequence, start_ns, is_open=True)
            )
    return {
        group: {
            rank: sorted(each, key=lambda one: (one.is_open, one.start_ns))
            for rank, each in by_rank.items()
        }
        for group, by_rank in begun.items()
    }


def _of_group(group: NamedGroup, by_rank: dict[int, list[_Operation]]) -> Iterator[Unmatched]:
    """Places at which the members of one group differ."""
    begin = _first_sequence(by_rank)
    placed = {
        rank: dict(zip(_places(each, begin), each, strict=True)) for rank, each in by_rank.items()
    }
    last = {rank: max(each, default=-1) for rank, each in placed.items()}
    for place in sorted({place for each in placed.values() for place in each}):
        here = {rank: each[place] for rank, each in placed.items() if place in each}
        missing = tuple(rank for rank in placed if rank not in here)
        if not missing and not _differ(list(here.values())):
            continue
        first = next(iter(here.values()))
        yield Unmatched(
            name=first.kind.value,
            group=group.name or "unnamed",
            position=place,
            num_bytes=first.num_bytes,
            ranks=tuple(here),
            missing_ranks=missing,
            begun=tuple(
                Begun(rank, one.kind.value, one.num_bytes, one.is_open, one.start_ns)
                for rank, one in here.items()
            ),
            ended_ranks=tuple(rank for rank in missing if last[rank] < place),
        )


def _first_sequence(by_rank: dict[int, list[_Operation]]) -> int | None:
    """The group's first sequence number; none if its ranks do not number what they do."""
    sequences = [np.array([one.sequence for one in own]) for own in by_rank.values() if own]
    if all(own[0] >= 0 and (np.diff(own) > 0).all() for own in sequences):
        return min((int(own[0]) for own in sequences), default=None)
    return None


def _places(each: list[_Operation], first: int | None) -> list[int]:
    """Place of one rank's operations in the group."""
    if first is None or {one.kind for one in each} <= _TRANSFERS:  # each rank counts its own
        return list(range(len(each)))
    return [one.sequence - first for one in each]


def _differ(here: list[_Operation]) -> bool:
    """Whether ranks that meet do different things there."""
    kinds = {one.kind for one in here}
    if kinds <= _TRANSFERS:
        return False
    sizes = {one.num_bytes for one in here if one.num_bytes != UNKNOWN}
    return len(kinds) > 1 or (len(sizes) > 1 and any(one.is_open for one in here))
