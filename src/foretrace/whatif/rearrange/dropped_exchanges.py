"""`Dropped`: recorded communication that a new job has not, taken out of pieces.

On a device only the host's calls go: streams that waited for each other through a communication
still do, so that stays, for the arrangement to close the gap (`arrange.arranged`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import NO_COLLECTIVE, EdgeKind, ExecutionGraph, NodeKind, Part
from foretrace.whatif.recorded.program import GROUPS, Program, RecordedPiece
from foretrace.workload import Group

# Operators under which frameworks prepare and launch communication.
_OPERATORS = ("c10d::", "record_param_comms", "nccl:", "gloo:", "c10d_functional::")


class Dropped:
    """Nodes of some collectives, with the host's calls that issue them."""

    def __init__(self, program: Program, is_gone: Bools) -> None:
        """Of these collectives; bool[collectives]."""
        self.nodes: Bools = np.zeros(program.graph.num_nodes, bool)
        if is_gone.any():
            self.nodes = _dropped(program.graph, is_gone)

    def without(self, piece: RecordedPiece) -> RecordedPiece | None:
        """A piece without them; `None` if nothing is left."""
        is_dropped = self.nodes[piece.nodes]
        if not is_dropped.any():
            return piece
        rest = piece.nodes[~is_dropped]
        return replace(piece, nodes=rest) if len(rest) else None


def of_groups(program: Program, groups: Collection[Group]) -> Bools:
    """Which collectives are of some groups; bool[collectives]."""
    places = [place for place, group in enumerate(GROUPS) if group in groups]
    return np.isin(program.group_of_collective, places)


def of_layers_and_ends(program: Program, group: Group) -> Bools:
    """Which collectives of a group layers, embedding and head take part in; bool[collectives]."""
    graph = program.graph
    parts = (Part.LAYER, Part.EMBEDDING, Part.HEAD)
    own = (graph.kind == NodeKind.ARRIVE) & np.isin(graph.part, parts)
    found = np.zeros(len(graph.collectives), bool)
    found[graph.collective[own]] = True
    return found & of_groups(program, (group,))


def _dropped(graph: ExecutionGraph, is_gone: Bools) -> Bools:
    has = graph.collective != NO_COLLECTIVE
    found = np.zeros(graph.num_nodes, bool)
    found[has] = is_gone[graph.collective[has]]
    target = graph.edge_target
    handed = np.isin(graph.edge_kind, (EdgeKind.LAUNCH, EdgeKind.ISSUE)) & found[target]
    launches = np.unique(graph.predecessor[handed])
    launches = launches[graph.kind[launches] == NodeKind.LAUNCH]
    found[launches] = True
    found[_around(graph, launches)] = True
    found[_workers_before(graph, found, target)] = True
    if graph.has_device:
        found &= ~graph.is_of(NodeKind.ARRIVE, NodeKind.FINISH)
    return found


def _workers_before(graph: ExecutionGraph, found: Bools, target: Int64s) -> Int64s:
    """A worker thread's own time before it takes part in a collective."""
    chained = (
        (graph.edge_kind == EdgeKind.HOST_ORDER)
        & (graph.kind[target] == NodeKind.ARRIVE)
        & found[target]
        & (graph.kind[graph.predecessor] == NodeKind.HOST_SEGMENT)
    )
    return np.asarray(graph.predecessor[chained], np.int64)


def _around(graph: ExecutionGraph, launches: Int64s) -> Int64s:
    """Host nodes of the communication operators around these launches."""
    is_named = np.array([name.startswith(_OPERATORS) for name in graph.names] or [False], bool)
    is_host = graph.kind < NodeKind.KERNEL
    is_inside = is_host & (graph.operator >= 0)
    is_inside[is_inside] = is_named[graph.operator[is_inside]]
    hosts = np.flatnonzero(is_host)
    hosts = graph.in_lanes(hosts)
    inside = is_inside[hosts]
    # Runs of nodes of one lane inside such operators; one run ends behind each launch's own.
    new_run = np.ones(len(hosts), bool)
    new_run[1:] = (graph.lane[hosts[1:]] != graph.lane[hosts[:-1]]) | (inside[1:] != inside[:-1])
    new_run[1:] |= inside[1:] & (graph.operator[hosts[1:]] != graph.operator[hosts[:-1]])
    run = np.cumsum(new_run) - 1
    is_chosen = np.zeros(int(run[-1]) + 1 if len(run) else 0, bool)
    is_chosen[run[np.isin(hosts, launches)]] = True
    return np.asarray(hosts[inside & is_chosen[run]], np.int64)
