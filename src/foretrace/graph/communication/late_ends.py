"""When transfers on the CPU were over, which is earlier than their spans say.

gloo's spans of sends and receives lie on the thread that asked for them, and end when it has
waited for them (torch 2.13: `Work.wait` closes the span). Who asks and waits at once sees the
transfer's end. Who does other things in between sees it late: then the other member's end
counts, and where neither waited at once, the fastest transfer of that size that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph.communication.clocks import Clocks
from foretrace.graph.communication.description import CommunicationOps
from foretrace.graph.operations import Operations
from foretrace.graph.rules.collectives import Matches

_NEVER, _LONG_AGO = np.iinfo(np.int64).max, np.iinfo(np.int64).min


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
