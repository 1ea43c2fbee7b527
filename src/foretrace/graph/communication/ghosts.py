"""Ghosts: what ranks that were not recorded do between two collectives of their group."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.assembly import Edges, NodeCollector
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.communication.transfers import Communication, MemberTransfers
from foretrace.graph.nodes import EdgeKind, NodeKind
from foretrace.graph.operations import OWN_NAMES, Operations


def ghost_nodes(
    operations: Operations,
    met: Communication,
    *,
    hub: Int64s,
    finish: Int64s,
    rank_start: Int64s,
    collector: NodeCollector,
) -> Edges:
    """One segment before every collective that an unrecorded member reached last.

    It runs from the end of the group's last collective that was over by then (a recorded member's
    finish stands for the ghost's) to the ghost's estimated arrival: a difference, not a time.
    Collectives that ran side by side do not wait for each other.
    """
    comm, matches, transfers = met.comm, met.matches, met.transfers
    row_of = np.zeros(len(matches.collectives), np.int64)
    row_of[matches.collective[::-1]] = matches.row[::-1]
    ended: dict[tuple[object, ...], list[tuple[int, int]]] = {}  # of each group: end, row
    source: list[int] = []
    target: list[int] = []
    duration_ns: list[int] = []
    arrival_ns: list[int] = []
    step: list[int] = []
    by_time = np.lexsort((np.arange(len(hub)), transfers.end_ns[row_of])) if len(hub) else hub
    for collective in by_time.tolist():
        of = matches.collectives[collective]
        if not of.is_transfer_estimated:
            continue
        group = (of.group, of.ranks)
        row = int(row_of[collective])
        over = ended.setdefault(group, [])
        over.append((int(transfers.end_ns[row]), row))
        if not transfers.has_ghost[collective]:
            continue
        arrived_ns = int(transfers.hub_ns[collective])
        num_over = bisect_right(over[:-1], (arrived_ns, len(comm)))
        if num_over:
            since_ns, previous = over[num_over - 1]
            source.append(int(finish[previous]))
        else:
            source.append(int(rank_start[int(comm.rank[row])]))
            since_ns = _first_ns(operations, comm, transfers, row)
        target.append(int(hub[collective]))
        duration_ns.append(max(arrived_ns - since_ns, 0))
        arrival_ns.append(arrived_ns)
        step.append(int(operations.ops.step[comm.op[row]]))
    segment = collector.add(
        NodeKind.GHOST,
        len(source),
        name=OWN_NAMES.index("ghost"),
        step=np.array(step, np.int64),
        measured_ns=np.array(duration_ns, np.int64),
        end_ns=np.array(arrival_ns, np.int64),
    )
    return Edges.joined(
        [
            Edges.of(EdgeKind.GHOST, np.array(source, np.int64), segment),
            Edges.of(EdgeKind.GHOST, segment, np.array(target, np.int64)),
        ]
    )


def _first_ns(
    operations: Operations, comm: CommunicationOps, transfers: MemberTransfers, row: int
) -> int:
    """The rank's first moment on the clock of the transfers."""
    position = int(comm.rank[row])
    since_first = int(comm.start_ns[row] - operations.first_ns[position])
    return int(transfers.arrival_ns[row]) - since_first
