"""Traces of one job become a `Recording`: the graph, and what was measured beside it.

The order of work: operations are cut out of the traces; communication is matched across ranks,
clocks are aligned, waits split from transfers; the rules find dependencies; constants are
fitted; nodes and edges are numbered. No timestamp survives in the graph, only differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import CircleError, DifferentRunsError, GraphError, Int64s
from foretrace.graph import chakra
from foretrace.graph.assembly import Edges, NodeCollector, Places, assembled
from foretrace.graph.behaviour import told_by_behaviour
from foretrace.graph.blocks import CommunicationNodes, Corrections, with_blocks
from foretrace.graph.communication import CommunicationOps, communication_ops
from foretrace.graph.communication.clocks import Clocks, fitted_clocks
from foretrace.graph.communication.ghosts import ghost_nodes
from foretrace.graph.communication.gloo import with_named_peers, worker_segments
from foretrace.graph.communication.groups import NamedGroup, groups_of, guessed_lanes
from foretrace.graph.communication.same_run import check_same_run, suspects
from foretrace.graph.communication.transfers import (
    Communication,
    MemberTransfers,
    split_transfers,
    with_ends_of_transfers,
)
from foretrace.graph.communication.unmatched import cut_off_findings, unmatched_operations
from foretrace.graph.dependencies import Dependencies, found_dependencies, typical_launch_ns
from foretrace.graph.findings import recording_findings
from foretrace.graph.graph import Finding, Timeline
from foretrace.graph.inflation import inflation_factors
from foretrace.graph.memory import memory_events
from foretrace.graph.nodes import NO_COLLECTIVE, NO_LANE, EdgeKind, NodeKind
from foretrace.graph.operations import (
    BEFORE_RECORDING,
    DEVICE_WORK,
    GRAPH_WORK,
    NOT_LAUNCHED,
    OWN_NAMES,
    Operations,
    host_moments,
    operations_of,
)
from foretrace.graph.operations.scopes import scopes_of, scopes_of_nodes, with_operators
from foretrace.graph.operations.steps import endings, last_moments
from foretrace.graph.recording import Recording
from foretrace.graph.rules.collectives import Matches, matched_collectives
from foretrace.graph.rules.host_order import host_chain, host_nodes
from foretrace.graph.rules.unrecorded import UnrecordedWork
from foretrace.trace import ChakraTrace, Trace, step_times_beside

NO_CORRECTIONS = Corrections()

AT_ONCE_NS = (
    5_000  # 95th percentile of hand-overs on a stream, DLRM on A100; medians are below 2 us
)
UNTOLD_GROUPS = Finding(
    "collectives",
    "which process group each communication stream serves could not be told: the trace has no "
    "collective metadata, and the streams' ends fit several. Ranks do not wait for each other "
    "there; recorded times stand in. Record with PyTorch 2.4 or newer.",
)


def recording_of_run(
    traces: Sequence[Trace] | Sequence[ChakraTrace], *, corrections: Corrections = NO_CORRECTIONS
) -> Recording:
    """The execution graph of a job, from what a profiler saw or from files that are one already.

    Raises:
        GraphError: if there is nothing to replay, ranks repeat, dependencies close a circle, or
            there are corrections of blocks for files that hold no program.
    """
    graphs = [trace for trace in traces if isinstance(trace, ChakraTrace)]
    if not graphs:
        seen = [trace for trace in traces if isinstance(trace, Trace)]
        return build_recording(seen, corrections=corrections)
    if corrections != NO_CORRECTIONS:
        raise GraphError(
            f"cannot correct the blocks of {graphs[0].path}: its blocks are not found by name; "
            "load it without them"
        )
    return chakra.chakra_recording(graphs)


def build_recording(
    traces: Sequence[Trace], *, corrections: Corrections = NO_CORRECTIONS
) -> Recording:
    """The execution graph of a job from the traces of some or all of its ranks.

    Args:
        traces: one per rank; ranks differ.
        corrections: what a user says about blocks.

    Returns:
        The graph, the measured timeline on one clock, and what a reader should know.

    Raises:
        GraphError: if there is nothing to replay, ranks repeat, or dependencies close a circle.
    """
    _check_ranks(traces)
    traces, found = told_by_behaviour(traces)
    operations = operations_of(traces)
    comm = with_named_peers(operations, communication_ops(operations))
    try:
        recording = _with_groups(operations, comm, groups_of(operations, comm), corrections)
    except (CircleError, DifferentRunsError):
        # Groups guessed wrong make ranks wait for each other in a circle, or leave before others
        # arrive: then do not guess.
        if not guessed_lanes(operations, comm):
            raise
        groups = groups_of(operations, comm, is_guessing=False)
        recording = _with_groups(operations, comm, groups, corrections)
        recording = replace(recording, findings=(UNTOLD_GROUPS, *recording.findings))
    return replace(recording, findings=(*recording.findings, *found))


def _with_groups(
    operations: Operations,
    comm: CommunicationOps,
    groups: Sequence[NamedGroup],
    corrections: Corrections,
) -> Recording:
    """The recording, the groups of all communication given."""
    places = Places(len(operations.items), len(operations.ops))
    matches = matched_collectives(operations, comm, groups)
    clocks = fitted_clocks(operations, comm, matches)
    comm = with_ends_of_transfers(operations, comm, matches, clocks)
    transfers = split_transfers(operations, comm, matches, clocks)
    check_same_run(operations, comm, matches, clocks, transfers)
    dependencies = found_dependencies(operations, comm, transfers, places)
    met = Communication(comm, matches, clocks, transfers)
    recording = _recording(operations, met, dependencies, corrections)
    unmatched = unmatched_operations(operations, comm, groups, clocks)
    cut_off = cut_off_findings(operations, unmatched)
    return replace(recording, unmatched=unmatched, findings=(*recording.findings, *cut_off))


def _check_ranks(traces: Sequence[Trace]) -> None:
    if not traces:
        raise GraphError("no traces given: expected the profiler file of at least one rank.")
    seen: dict[int, Trace] = {}
    for trace in traces:
        rank = trace.meta.rank
        if rank is None:
            continue
        if rank in seen:
            raise GraphError(
                f"two traces of rank {rank}: {str(seen[rank].meta.path)!r} and "
                f"{str(trace.meta.path)!r}. Pass one file per rank."
            )
        seen[rank] = trace


def _recording(
    operations: Operations, met: Communication, found: Dependencies, corrections: Corrections
) -> Recording:
    comm, matches, clocks, transfers = met.comm, met.matches, met.clocks, met.transfers
    collector = NodeCollector()
    host = host_nodes(operations, clocks, _host_work_ns(operations, found), collector)
    collective = np.full(len(comm), NO_COLLECTIVE, np.int64)
    collective[matches.row] = matches.collective
    op_node = _op_nodes(operations, comm, collective, clocks, collector)
    finish = _finish_nodes(operations, comm, collective, transfers, collector)
    hub_names = tuple(collective.name for collective in matches.collectives)
    names = _NamesWithHubs(operations.names, hub_names)
    hub = collector.add(
        NodeKind.HUB,
        len(matches.collectives),
        name=names.hub,
        collective=np.arange(len(matches.collectives)),
        end_ns=transfers.hub_ns,
    )
    leave = op_node.copy()
    leave[comm.op] = finish
    worker = worker_segments(operations, clocks, op_node, collector)
    from_place = np.concatenate([host.item, leave])
    into_place = np.concatenate([host.item, worker.entry])
    edges = [
        Edges(from_place[found.edges.source], into_place[found.edges.target], found.edges.kind),
        host_chain(
            operations,
            clocks,
            found.thread_waits,
            wait_source=from_place[found.thread_waits.source],
            nodes=host,
            collector=collector,
        ),
        worker.edges,
        _rendezvous(matches, transfers, op_node[comm.op], hub, finish),
        ghost_nodes(
            operations,
            met,
            hub=hub,
            finish=finish,
            rank_start=host.rank_start,
            collector=collector,
        ),
        _unrecorded(operations, clocks, op_node, host.rank_start, collector),
        _gap_nodes(
            operations,
            clocks,
            found.unrecorded,
            leave=from_place,
            op_node=op_node,
            collector=collector,
        ),
    ]
    nodes = collector.collected()
    scopes = scopes_of(operations)
    scope = scopes_of_nodes(scopes, nodes)
    nodes, all_names = with_operators(operations, scopes, nodes, scope, names.all)
    blocks = with_blocks(
        operations,
        scopes,
        nodes,
        scope=scope,
        names=all_names,
        met=CommunicationNodes(comm, op_node[comm.op], finish, hub),
        corrections=corrections,
    )
    nodes = blocks.nodes
    graph, original = assembled(
        nodes,
        Edges.joined(edges),
        constants=found.constants,
        names=all_names,
        lanes=operations.lanes,
        step_names=operations.step_names,
        collectives=matches.collectives,
    )
    end_ns = nodes.columns["end_ns"][original].astype(np.int64)
    zero_ns = int(clocks.aligned(np.arange(len(operations.ranks)), operations.first_ns).min())
    end_ns = end_ns - zero_ns
    measured = Timeline(graph, end_ns - graph.measured_ns, end_ns, is_measured=True)
    return Recording(
        graph=graph,
        block_evidence=blocks.evidence,
        measured=measured,
        recorded_ns=nodes.columns["recorded_ns"][original].astype(np.int64),
        clocks=clocks.described(operations.ranks),
        findings=(
            *suspects(operations, clocks),
            *recording_findings(operations, matches, found),
            *blocks.findings,
        ),
        unprofiled_step_ns=_unprofiled_steps(operations),
        endings=endings(
            operations.traces,
            operations.ranks,
            clocks.aligned(np.arange(len(operations.ranks)), last_moments(operations.traces))
            - zero_ns,
        ),
        memory=memory_events(operations, clocks, scopes, zero_ns=zero_ns),
        began_ns=dict(zip(operations.ranks, operations.first_ns.tolist(), strict=True)),
    )


def _host_work_ns(operations: Operations, found: Dependencies) -> Int64s:
    """Items' own work: recorded waits of synchronisations and blocked launches taken out."""
    items = operations.items
    work_ns: Int64s = items.end_ns - items.start_ns
    work_ns[found.syncs.is_waiting] = 0
    typical_ns = typical_launch_ns(operations, found.queue)
    blocked = found.queue.is_blocked
    work_ns[blocked] = np.minimum(work_ns[blocked], typical_ns)
    return work_ns


def _op_nodes(
    operations: Operations,
    comm: CommunicationOps,
    collective: Int64s,
    clocks: Clocks,
    collector: NodeCollector,
) -> Int64s:
    """Nodes of device operations; of communication, the arrival."""
    ops = operations.ops
    collective_of_op = np.full(len(ops), NO_COLLECTIVE, np.int64)
    collective_of_op[comm.op] = collective
    rank = ops.rank.astype(np.int64)
    is_comm = ops.is_communication
    duration_ns = np.where(is_comm, 0, ops.end_ns - ops.start_ns)
    return collector.add(
        np.where(is_comm, NodeKind.ARRIVE, ops.kind).astype(np.uint8),
        len(ops),
        rank=np.array(operations.ranks)[rank],
        lane=ops.lane,
        name=ops.name,
        signature=ops.signature,
        step=ops.step,
        collective=collective_of_op,
        measured_ns=duration_ns,
        inflation=inflation_factors(operations),
        end_ns=clocks.aligned(rank, ops.start_ns) + duration_ns,
        **_launch_places(operations, np.arange(len(ops))),
    )


def _finish_nodes(
    operations: Operations,
    comm: CommunicationOps,
    collective: Int64s,
    transfers: MemberTransfers,
    collector: NodeCollector,
) -> Int64s:
    """Nodes in which each member of a collective leaves it, in rows of `comm`."""
    ops = operations.ops
    return collector.add(
        NodeKind.FINISH,
        len(comm),
        rank=np.array(operations.ranks)[comm.rank],
        lane=comm.lane,
        name=ops.name[comm.op],
        signature=ops.signature[comm.op],
        step=ops.step[comm.op],
        collective=collective,
        measured_ns=transfers.transfer_ns,
        recorded_ns=comm.end_ns - comm.start_ns,
        end_ns=transfers.end_ns,
        **_launch_places(operations, comm.op),
    )


def _launch_places(operations: Operations, op: Int64s) -> dict[str, Int64s]:
    """Where on the host operations were asked for, as columns of nodes."""
    launch = operations.ops.launch[op].astype(np.int64)
    item = np.maximum(launch, 0)
    if not len(operations.items):
        return {}
    lane = np.where(launch >= 0, operations.items.lane[item], NO_LANE).astype(np.int64)
    return {"host_lane": lane, "host_ns": host_moments(operations)[item]}


@dataclass(frozen=True)
class _NamesWithHubs:
    """The traces' names with those of the hubs added."""

    names: tuple[str, ...]
    hub_names: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All names, the traces' first."""
        return self.names + tuple(sorted(set(self.hub_names)))

    @property
    def hub(self) -> Int64s:
        """Name of each hub, int64[collectives]."""
        place = {name: index for index, name in enumerate(sorted(set(self.hub_names)))}
        return np.array([len(self.names) + place[name] for name in self.hub_names], np.int64)


def _rendezvous(
    matches: Matches, transfers: MemberTransfers, arrive: Int64s, hub: Int64s, finish: Int64s
) -> Edges:
    """Arrive to hub to finish; who does not wait for the others leaves from its own arrival."""
    row, collective = matches.row, matches.collective
    is_in_ring = np.isin(row, transfers.neighbour_of)
    is_held = transfers.is_held[row] & ~is_in_ring
    free = np.unique(row[~transfers.is_held[row] & ~is_in_ring])
    by_neighbour = np.flatnonzero(transfers.is_held[transfers.neighbour_of])
    alone = np.setdiff1d(transfers.neighbour_of, transfers.neighbour_of[by_neighbour])
    free = np.concatenate([free, alone])
    return Edges.joined(
        [
            Edges.of(EdgeKind.ARRIVAL, arrive[row], hub[collective]),
            Edges.of(EdgeKind.TRANSFER, hub[collective[is_held]], finish[row[is_held]]),
            Edges.of(
                EdgeKind.TRANSFER,
                arrive[transfers.neighbour[by_neighbour]],
                finish[transfers.neighbour_of[by_neighbour]],
            ),
            Edges.of(EdgeKind.TRANSFER, arrive[free], finish[free]),
        ]
    )


def _unrecorded(
    operations: Operations,
    clocks: Clocks,
    op_node: Int64s,
    rank_start: Int64s,
    collector: NodeCollector,
) -> Edges:
    """What holds operations that nothing recorded explains: the time from the rank's first moment.

    Operations without a recorded launch were launched before the profiler began, or by a call it
    does not list. Those that followed the operation before them at once need no more than their
    stream. Operations that were launched, but found the device at work on what had been launched
    before the recording, wait for the end of that.
    """
    ops = operations.ops
    follows = np.append(
        False,
        (ops.lane[1:] == ops.lane[:-1])
        & (ops.start_ns[1:] - ops.end_ns[:-1] <= AT_ONCE_NS)
        & ~ops.is_communication[1:],
    )[: len(ops)]
    alone = np.flatnonzero((ops.launch == NOT_LAUNCHED) & ~follows)
    late = operations.held_from_before
    held = np.append(alone, late)
    rank = ops.rank[held].astype(np.int64)
    start_ns = clocks.aligned(rank, ops.start_ns[held])
    first_ns = clocks.aligned(rank, operations.first_ns[rank])
    names = [OWN_NAMES.index("ghost"), OWN_NAMES.index(BEFORE_RECORDING)]
    segment = collector.add(
        NodeKind.GHOST,
        len(held),
        name=np.repeat(names, [len(alone), len(late)]),
        step=ops.step[held],
        measured_ns=start_ns - first_ns,
        end_ns=start_ns,
    )
    return Edges.joined(
        [
            Edges.of(EdgeKind.GHOST, rank_start[rank], segment),
            Edges.of(EdgeKind.GHOST, segment, op_node[held]),
        ]
    )


def _gap_nodes(
    operations: Operations,
    clocks: Clocks,
    gaps: UnrecordedWork,
    *,
    leave: Int64s,
    op_node: Int64s,
    collector: NodeCollector,
) -> Edges:
    """A node for each gap, from what was over when it began to what follows it."""
    ops = operations.ops
    rank = ops.rank[gaps.op].astype(np.int64)
    start_ns = clocks.aligned(rank, ops.start_ns[gaps.op])
    segment = collector.add(
        NodeKind.GHOST,
        len(gaps.op),
        name=np.where(gaps.is_of_graph, *map(OWN_NAMES.index, (GRAPH_WORK, DEVICE_WORK))),
        step=ops.step[gaps.op],
        measured_ns=start_ns - clocks.aligned(rank, gaps.since_ns),
        end_ns=start_ns,
    )
    return Edges.joined(
        [
            Edges.of(EdgeKind.GHOST, leave[gaps.source], segment[gaps.gap]),
            Edges.of(EdgeKind.GHOST, segment, op_node[gaps.op]),
        ]
    )


def _unprofiled_steps(operations: Operations) -> dict[int, int]:
    """Median step time without the profiler of every rank that has it recorded beside its trace."""
    times = {
        rank: step_times_beside(trace.meta.path)
        for rank, trace in zip(operations.ranks, operations.traces, strict=True)
    }
    return {
        rank: known.median_unprofiled_ns
        for rank, known in times.items()
        if known is not None and known.median_unprofiled_ns is not None
    }
