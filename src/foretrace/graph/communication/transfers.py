"""The split of a communication operation's time into wait and transfer.

A member's recorded time runs from its own arrival to its end. The transfer is what remains
after the last member has arrived. Where a member was not recorded, its arrival is estimated:
the transfer is taken to be the smallest time seen for that type, size and group, and what goes
beyond is a wait for the unrecorded rank, which becomes a *ghost*: a chain of segments made of
differences only.

gloo's spans of sends and receives lie on the thread that asked for them, and end when it has
waited for them (torch 2.13: `Work.wait` closes the span). Who asks and waits at once sees the
transfer's end. Who does other things in between sees it late: then the other member's end
counts, and where neither waited at once, the fastest transfer of that size that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int64s
from foretrace.graph.communication import UNKNOWN
from foretrace.graph.communication.clocks import Clocks
from foretrace.graph.communication.description import CommunicationOps
from foretrace.graph.operations import Operations
from foretrace.graph.rules.collectives import Matches
from foretrace.graph.rules.point_to_point import neighbour_waits

# Members that may leave before the others have come: they only send.
_ONE_SIDED = frozenset(
    (
        CollectiveKind.SEND,
        CollectiveKind.BROADCAST,
        CollectiveKind.REDUCE,
        CollectiveKind.SCATTER,
        CollectiveKind.GATHER,
        CollectiveKind.SEND_RECV,
    )
)
EARLY_NS = 20_000  # a member that left this long before the last arrived did not wait for it
GHOST_MIN_WAIT_NS = 5_000  # a shorter wait is jitter of the transfer, no ghost holds it

_NEVER, _LONG_AGO = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True)
class MemberTransfers:
    """What each member of each collective did; rows as in `CommunicationOps`."""

    arrival_ns: Int64s  # int64[rows], aligned
    end_ns: Int64s  # int64[rows], aligned
    is_held: Bools  # bool[rows], waits for the others; False: leaves on its own
    transfer_ns: Int64s  # int64[rows]; of a row not held: its whole recorded time
    hub_ns: Int64s  # int64[collectives], when the last member had arrived, aligned
    has_ghost: Bools  # bool[collectives], an unrecorded member arrived last
    is_estimated: Bools  # bool[rows], some member was not recorded
    neighbour: Int64s  # int64[pairs], row whose arrival another row waits for, instead of a hub
    neighbour_of: Int64s  # int64[pairs], that other row


@dataclass(frozen=True)
class Communication:
    """All that is known of a job's communication."""

    comm: CommunicationOps
    matches: Matches
    clocks: Clocks
    transfers: MemberTransfers


def split_transfers(
    operations: Operations, comm: CommunicationOps, matches: Matches, clocks: Clocks
) -> MemberTransfers:
    """Wait and transfer of every communication operation."""
    arrival_ns = clocks.aligned(comm.rank, comm.start_ns)
    end_ns = clocks.aligned(comm.rank, comm.end_ns)
    num_collectives = len(matches.collectives)
    low = np.iinfo(np.int64).min
    hub_ns = np.full(num_collectives, low, np.int64)
    np.maximum.at(hub_ns, matches.collective, arrival_ns[matches.row])
    is_estimated = np.array(
        [collective.is_transfer_estimated for collective in matches.collectives], np.bool_
    )
    has_ghost = np.zeros(num_collectives, np.bool_)
    if is_estimated.any():
        ghost_ns = _ghost_arrivals(
            operations, comm, matches, hub_ns=hub_ns, end_ns=end_ns, is_estimated=is_estimated
        )
        has_ghost = is_estimated & (ghost_ns > hub_ns + GHOST_MIN_WAIT_NS)
        hub_ns = np.where(has_ghost, ghost_ns, hub_ns)
    last_hub_ns = np.full(len(comm), low, np.int64)
    np.maximum.at(last_hub_ns, matches.row, hub_ns[matches.collective])
    awaited, waiting = neighbour_waits(comm, matches, arrival_ns, end_ns)
    last_hub_ns[waiting] = low
    np.maximum.at(last_hub_ns, waiting, arrival_ns[awaited])
    may_leave = np.array([kind in _ONE_SIDED for kind in comm.kind], np.bool_)
    is_held = ~(may_leave & (end_ns < last_hub_ns - EARLY_NS))
    return MemberTransfers(
        arrival_ns=arrival_ns,
        end_ns=end_ns,
        is_held=is_held,
        transfer_ns=np.where(
            is_held, np.maximum(end_ns - last_hub_ns, 0), np.maximum(end_ns - arrival_ns, 0)
        ),
        hub_ns=hub_ns,
        has_ghost=has_ghost,
        is_estimated=_any_of_rows(matches, is_estimated, len(comm)),
        neighbour=awaited,
        neighbour_of=waiting,
    )


def _any_of_rows(matches: Matches, is_true: Bools, num_rows: int) -> Bools:
    """Rows that have part in a collective of which something is true, bool[rows]."""
    found = np.zeros(num_rows, np.bool_)
    found[matches.row[is_true[matches.collective]]] = True
    return found


def _ghost_arrivals(
    operations: Operations,
    comm: CommunicationOps,
    matches: Matches,
    *,
    hub_ns: Int64s,
    end_ns: Int64s,
    is_estimated: Bools,
) -> Int64s:
    """When the unrecorded members arrived at each collective, aligned; int64[collectives]."""
    first_end_ns = np.full(len(hub_ns), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first_end_ns, matches.collective, end_ns[matches.row])
    longest_ns = first_end_ns - hub_ns
    smallest: dict[tuple[object, ...], int] = {}
    keys = _alike(operations, comm, matches)
    for collective in np.flatnonzero(is_estimated).tolist():
        known = smallest.get(keys[collective])
        span_ns = max(int(longest_ns[collective]), 0)
        smallest[keys[collective]] = span_ns if known is None else min(known, span_ns)
    transfer_ns = np.array([smallest.get(key, 0) for key in keys], np.int64)
    return first_end_ns - transfer_ns


def _alike(
    operations: Operations, comm: CommunicationOps, matches: Matches
) -> list[tuple[object, ...]]:
    """What collectives of equal transfer time have in common.

    Type, group and size; where the trace does not give the size, the place inside the step,
    since steps repeat.
    """
    row_of = np.zeros(len(matches.collectives), np.int64)
    row_of[matches.collective[::-1]] = matches.row[::-1]
    step = operations.ops.step[comm.op[row_of]]
    counts: dict[tuple[str, int], int] = {}
    keys: list[tuple[object, ...]] = []
    for index, collective in enumerate(matches.collectives):
        key: tuple[object, ...] = (collective.name, collective.group, collective.ranks)
        place = (collective.group, int(step[index]))
        counts[place] = counts.get(place, -1) + 1
        if collective.num_bytes == UNKNOWN:
            key = (*key, "place", counts[place])
        else:
            key = (*key, collective.num_bytes, collective.dtype)
        keys.append(key)
    return keys


def with_ends_of_transfers(
    operations: Operations, comm: CommunicationOps, matches: Matches, clocks: Clocks
) -> CommunicationOps:
    """The same communication, every CPU transfer ending when it was over, not when waited for."""
    is_late = _is_late(operations, comm)
    if not is_late.any():
        return comm
    met = _Met.of(comm, matches, clocks)
    is_prompt = ~is_late[matches.row]
    seen_ns = np.full(len(matches.collectives), _NEVER, np.int64)
    np.minimum.at(seen_ns, matches.collective[is_prompt], met.end_ns[is_prompt])
    over_ns = np.where(seen_ns == _NEVER, met.hub_ns + _fastest_ns(met, matches, seen_ns), seen_ns)
    over_ns = np.maximum(over_ns, met.hub_ns)[matches.collective]
    # Earlier by a difference, so that a rank's timestamps stay on its own clock.
    early_ns = np.where(is_prompt, 0, np.maximum(met.end_ns - over_ns, 0))
    end_ns = comm.end_ns.copy()
    end_ns[matches.row] -= early_ns
    return replace(comm, end_ns=np.maximum(end_ns, comm.start_ns))


@dataclass(frozen=True)
class _Met:
    """When the matches of collectives began and ended, on one clock."""

    size: Int64s  # int64[collectives], bytes
    hub_ns: Int64s  # int64[collectives], when the last recorded member had come
    end_ns: Int64s  # int64[matches]

    @staticmethod
    def of(comm: CommunicationOps, matches: Matches, clocks: Clocks) -> _Met:
        rank = comm.rank[matches.row]
        hub_ns, size = np.full((2, len(matches.collectives)), _LONG_AGO, np.int64)
        start_ns = clocks.aligned(rank, comm.start_ns[matches.row])
        np.maximum.at(hub_ns, matches.collective, start_ns)
        np.maximum.at(size, matches.collective, comm.num_bytes[matches.row])
        return _Met(size, hub_ns, clocks.aligned(rank, comm.end_ns[matches.row]))


def _is_late(operations: Operations, comm: CommunicationOps) -> Bools:
    """Transfers on their caller's own thread, which did something else before their end."""
    items, ops = operations.items, operations.ops
    launch = ops.launch[comm.op].astype(np.int64)
    on_caller = (launch >= 0) & (items.lane[np.maximum(launch, 0)] == comm.lane)
    following = np.minimum(launch + 1, len(items) - 1)
    is_own = (following == launch + 1) & (items.lane[following] == comm.lane)
    is_late: Bools = on_caller & is_own & (items.start_ns[following] < comm.end_ns)
    return is_late


def _fastest_ns(met: _Met, matches: Matches, seen_ns: Int64s) -> Int64s:
    """The shortest time seen from meeting to end among transfers of each one's size.

    Those that nobody waited for at once count only where there are no others.
    """
    first_ns = np.full(len(seen_ns), _NEVER, np.int64)
    np.minimum.at(first_ns, matches.collective, met.end_ns)
    known, of_size = np.unique(met.size, return_inverse=True)
    seen, unseen = np.full((2, len(known)), _NEVER, np.int64)
    is_seen = seen_ns != _NEVER
    spans_ns = np.maximum(first_ns - met.hub_ns, 0)
    np.minimum.at(seen, of_size[is_seen], spans_ns[is_seen])
    np.minimum.at(unseen, of_size[~is_seen], spans_ns[~is_seen])
    found: Int64s = np.where(seen != _NEVER, seen, unseen)[of_size]
    return found
