"""Items of one rank per stage become an `ExecutionGraph`: `LaidOut`, the graph of one step.

Every item is a launch on the host and an operation on the device; an exchange arrives, meets at
its hub and finishes. A send leaves its own arrival and not the hub: it does not wait for the
other side. Where a step's rank does nothing else, it starts, begins the step, waits for the device
and ends the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from foretrace.base import Int64s
from foretrace.graph import (
    NO_STEP,
    NODE_COLUMNS,
    Collective,
    Collectives,
    EdgeKind,
    Edges,
    ExecutionGraph,
    Lane,
    NodeKind,
    Phase,
)
from foretrace.workload.arrange.arrange import (
    BY_HUB,
    BY_ITSELF,
    Columns,
    Issued,
    Meetings,
    graph_of_issued,
    neutral_columns,
)
from foretrace.workload.layout.drafted import Drafted, RankTable, meetings_of_step, parties_of
from foretrace.workload.layout.launch import Launch
from foretrace.workload.layout.tables import NOTHING, NUM_STREAMS, SENDS, Tables
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.schedule import Schedule

STEP_NAME = "ProfilerStep#0"
_HOST, _COMPUTE_STREAM = 1, 7  # numbers as a trace of PyTorch shows its threads and streams
_DESCRIBED = ("operator", "operator_signature", "part", "phase")
_LAUNCHED, _SYNC, _START = "launch", "wait for the device", "start"


@dataclass(frozen=True)
class Role:
    """Ranks that do the same with the same partners, one of which stands for all."""

    rank: int  # that is in the graph
    stage: int
    num_ranks: int  # that it stands for, itself among them


@dataclass(frozen=True)
class LaidOut:
    """A graph whose device nodes name operator, signature or collective, and are yet to be costed.

    `graph.measured_ns` holds what is known without a cost model: host time per launch by the
    stated rule, and durations of blocks that come from a trace. A device node or FINISH node
    with 0 there waits for `foretrace.cost.graph_costs`.
    """

    graph: ExecutionGraph
    plan: Plan
    schedule: Schedule
    roles: tuple[Role, ...]  # by rank; of an unfolded graph each stands for itself
    is_folded: bool


class _Nodes:
    """Numbers of nodes in issue order: a start and a begin, two or three of each item, two ends."""

    def __init__(self, items: Drafted, num_stages: int) -> None:
        size = 2 + items.is_exchange
        end = np.cumsum(size) + 4 * items.stage + 2
        self.launch = end - size  # int64[items]
        self.enter = self.launch + 1  # int64[items], operation or arrival
        self.leave = end - 1  # int64[items], operation or finish
        of_stage = np.bincount(items.stage, size, num_stages).astype(np.int64)
        stage_end = np.cumsum(of_stage + 4)
        self.start = stage_end - of_stage - 4  # int64[stages]
        self.begin = self.start + 1
        self.sync, self.end = stage_end - 2, stage_end - 1
        self.count = int(stage_end[-1])


@dataclass(frozen=True)
class Folded:
    """A graph of one rank per stage, and where its items are."""

    graph: ExecutionGraph
    launch: Int64s  # int64[items], node
    enter: Int64s  # int64[items], operation or arrival
    leave: Int64s  # int64[items], operation or finish


def folded_graph(
    items: Drafted, *, ranks: RankTable, tables: Tables, launch: Launch, host_ns: Int64s
) -> Folded:
    """The graph of one rank per stage.

    Args:
        items: what every stage launches.
        ranks: ranks of the stages; the first pipeline is the one in the graph.
        tables: texts and exchanges that the items name.
        launch: lags.
        host_ns: int64[items], what the host takes for each launch.
    """
    nodes = _Nodes(items, len(ranks.rank))
    lanes = _Lanes(items, ranks)
    exchange = np.flatnonzero(items.is_exchange)
    meetings = meetings_of_step(
        items, ranks, arrive=nodes.enter[exchange], finish=nodes.leave[exchange]
    )
    exchange = exchange[meetings.member]
    columns = _columns(
        items, nodes, lanes, len(meetings), ranks=ranks, tables=tables, host_ns=host_ns
    )
    is_chained = np.ones(nodes.count, np.bool_)
    for node in (nodes.start, nodes.enter, nodes.leave):
        is_chained[node] = False
    issued = Issued(
        columns=columns,
        is_chained=is_chained,
        lanes=lanes.lanes,
        meetings=meetings,
        collectives=_collectives(items, exchange, meetings, ranks=ranks, tables=tables),
        held_by=np.where(items.columns["stream"][exchange] == SENDS, BY_ITSELF, BY_HUB),
    )
    graph, order = graph_of_issued(
        issued,
        _edges(items, nodes),
        names=tables.names,
        constants=launch.constants,
        step_names=(STEP_NAME,),
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Folded(graph, place[nodes.launch], place[nodes.enter], place[nodes.leave])


class _Lanes:
    """A host thread and the streams in use of every stage's rank."""

    def __init__(self, items: Drafted, ranks: RankTable) -> None:
        own = items.stage * NUM_STREAMS + items.columns["stream"]
        is_used = np.bincount(own) > 0
        reps = ranks.rank[:, 0].tolist()
        hosts = [_host_thread(rank) for rank in reps]
        streams = [
            _device_stream(reps[lane // NUM_STREAMS], lane % NUM_STREAMS)
            for lane in np.flatnonzero(is_used).tolist()
        ]
        self.lanes = (*hosts, *streams)
        self.item = len(hosts) + (np.cumsum(is_used) - 1)[own]  # int64[items]


def _host_thread(rank: int) -> Lane:
    return Lane(rank=rank, is_device=False, process=rank, device=-1, number=_HOST)


def _device_stream(rank: int, stream: int) -> Lane:
    number = _COMPUTE_STREAM + stream
    return Lane(rank=rank, is_device=True, process=rank, device=0, number=number)


def _columns(
    items: Drafted,
    nodes: _Nodes,
    lanes: _Lanes,
    num_hubs: int,
    *,
    ranks: RankTable,
    tables: Tables,
    host_ns: Int64s,
) -> Columns:
    columns = neutral_columns(nodes.count + num_hubs)
    is_exchange = items.is_exchange
    item = np.full(nodes.count + num_hubs, len(items))  # of every node; the last: none
    for place in (nodes.launch, nodes.enter, nodes.leave):
        item[place] = np.arange(len(items))
    described = {key: items.columns[key] for key in _DESCRIBED} | {
        "rank": ranks.rank[items.stage, 0],
        "lane": lanes.item,
        "step": np.zeros(len(items)),
        "name": items.columns["label"],
        "layer": items.layer,
        "microbatch": items.microbatch,
    }
    for key, value in described.items():
        column = NODE_COLUMNS[key]
        columns[key] = np.append(value.astype(column.dtype), column.dtype(column.neutral))[item]

    def put(where: Int64s, **values: ArrayLike) -> None:
        for key, value in values.items():
            columns[key][where] = value

    put(nodes.launch, kind=NodeKind.LAUNCH, lane=items.stage, measured_ns=host_ns)
    put(nodes.launch, name=tables.names.of(_LAUNCHED))
    put(nodes.enter, kind=np.where(is_exchange, NodeKind.ARRIVE, NodeKind.KERNEL))
    put(nodes.leave, measured_ns=items.columns["measured_ns"])
    put(nodes.leave[is_exchange], kind=NodeKind.FINISH)
    for where, kind, name in (
        (nodes.start, NodeKind.RANK_START, _START),
        (nodes.begin, NodeKind.STEP_BEGIN, STEP_NAME),
        (nodes.sync, NodeKind.SYNC, _SYNC),
        (nodes.end, NodeKind.STEP_END, STEP_NAME),
    ):
        put(where, kind=kind, rank=ranks.rank[:, 0], lane=np.arange(len(ranks.rank)))
        put(where, name=tables.names.of(name))
        put(where, step=NO_STEP if kind == NodeKind.RANK_START else 0)
    return columns


def host_ns_of(columns: Mapping[str, Int64s], launch: Launch) -> Int64s:
    """Host time of every launch by the stated rule, int64[items]; columns are as a template's."""
    by_phase = np.full(len(Phase), launch.forward_ns, np.int64)
    by_phase[Phase.BACKWARD] = launch.backward_ns
    by_phase[Phase.OPTIMIZER] = launch.optimizer_ns
    own_ns = by_phase[columns["phase"]]
    return np.where(columns["exchange"] != NOTHING, launch.exchange_ns, own_ns)


def _edges(items: Drafted, nodes: _Nodes) -> Edges:
    enter, leave = nodes.enter, nodes.leave
    return Edges.joined(
        [
            Edges.of(EdgeKind.LAUNCH, nodes.launch, enter),
            Edges.of(EdgeKind.STREAM, leave[items.before], enter[items.behind]),
            Edges.of(EdgeKind.INTER_STREAM, leave[items.source], enter[items.target]),
            Edges.of(EdgeKind.WAKE, leave[items.last], nodes.sync[items.stage[items.last]]),
        ]
    )


def _collectives(
    items: Drafted, exchange: Int64s, meetings: Meetings, *, ranks: RankTable, tables: Tables
) -> Collectives:
    kind = items.columns["exchange"][exchange[meetings.lead]]
    party, stages_of_party = parties_of(meetings, items.stage[exchange])

    def make_of(at: int) -> Collective:
        one = tables.kinds[kind[at]]
        recorded = tuple(sorted(ranks.rank[list(stages_of_party[party[at]]), 0].tolist()))
        return Collective(
            name=one.name,  # as replays call it
            group=one.group.value,
            ranks=ranks.members(one.group, recorded),
            recorded_ranks=recorded,
            position=0,
            num_bytes=one.num_bytes,
            dtype=one.dtype,
            is_transfer_estimated=False,
        )

    return meetings.collectives(kind * len(stages_of_party) + party, make_of)
