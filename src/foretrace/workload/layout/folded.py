"""Items of one rank per stage become an `ExecutionGraph`.

Every item is a launch on the host and an operation on the device; an exchange arrives, meets at
its hub and finishes. A send leaves its own arrival and not the hub: it does not wait for the
other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    renumbered_graph_of,
)
from foretrace.workload.layout.drafted import Drafted
from foretrace.workload.layout.launch import Launch
from foretrace.workload.layout.meetings import Meetings, RankTable
from foretrace.workload.layout.tables import NUM_STREAMS, SENDS, Tables

STEP_NAME = "ProfilerStep#0"
_HOST, _COMPUTE_STREAM = 1, 7  # numbers as a trace of PyTorch shows its threads and streams
_LAUNCHED, _BEGUN, _SYNC = "launch", "step", "wait for the device"
_START = "start"


@dataclass(frozen=True)
class _Nodes:
    """Numbers of nodes by what they stand for."""

    launch: Int64s  # int64[items]
    enter: Int64s  # int64[items], operation or arrival
    finish: Int64s  # int64[exchanges]
    hub: Int64s  # int64[collectives]
    start: Int64s  # int64[stages]
    begin: Int64s
    sync: Int64s
    end: Int64s

    @staticmethod
    def numbered(items: Drafted, meetings: Meetings, num_stages: int) -> _Nodes:
        """All kinds one after the other."""
        sizes = (
            *(len(items), len(items), len(meetings.exchange), len(meetings)),
            *[num_stages] * 4,
        )
        ends = np.cumsum(sizes)
        return _Nodes(*(np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)))

    def leave(self, meetings: Meetings) -> Int64s:
        """Operation or finish of every item; int64[items]."""
        leave = self.enter.copy()
        leave[meetings.exchange] = self.finish
        return leave


@dataclass(frozen=True)
class Folded:
    """A graph of one rank per stage, and where its items are."""

    graph: ExecutionGraph
    launch: Int64s  # int64[items], node
    enter: Int64s  # int64[items], operation or arrival
    leave: Int64s  # int64[items], operation or finish


def folded_graph(
    items: Drafted,
    meetings: Meetings,
    *,
    ranks: RankTable,
    tables: Tables,
    launch: Launch,
    host_ns: Int64s,
) -> Folded:
    """The graph of one rank per stage.

    Args:
        items: what every stage launches.
        meetings: which exchanges meet.
        ranks: ranks of the stages; the first pipeline is the one in the graph.
        tables: texts and exchanges that the items name.
        launch: lags.
        host_ns: int64[items], what the host takes for each launch.
    """
    num_stages = len(ranks.rank)
    nodes = _Nodes.numbered(items, meetings, num_stages)
    lanes = _Lanes(items, ranks)
    graph, order = renumbered_graph_of(
        _columns(items, meetings, nodes, lanes, ranks=ranks, tables=tables, host_ns=host_ns),
        _edges(items, meetings, nodes),
        constants=launch.constants,
        names=tables.names,
        lanes=lanes.lanes,
        step_names=(STEP_NAME,),
        collectives=_collectives(items, meetings, ranks, tables),
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    leave = nodes.leave(meetings)
    return Folded(graph, place[nodes.launch], place[nodes.enter], place[leave])


class _Lanes:
    """A host thread and the streams in use of every stage's rank."""

    def __init__(self, items: Drafted, ranks: RankTable) -> None:
        self._of_item = items.stage * NUM_STREAMS + items.columns["stream"]
        is_used = np.bincount(self._of_item) > 0
        used = np.flatnonzero(is_used)
        reps = ranks.rank[:, 0].tolist()
        hosts = [_host_thread(rank) for rank in reps]
        streams = [
            _device_stream(reps[lane // NUM_STREAMS], lane % NUM_STREAMS) for lane in used.tolist()
        ]
        self.lanes = (*hosts, *streams)
        self.item = len(hosts) + (np.cumsum(is_used) - 1)[self._of_item]


def _host_thread(rank: int) -> Lane:
    return Lane(rank=rank, is_device=False, process=rank, device=-1, number=_HOST)


def _device_stream(rank: int, stream: int) -> Lane:
    number = _COMPUTE_STREAM + stream
    return Lane(rank=rank, is_device=True, process=rank, device=0, number=number)


def _columns(
    items: Drafted,
    meetings: Meetings,
    nodes: _Nodes,
    lanes: _Lanes,
    *,
    ranks: RankTable,
    tables: Tables,
    host_ns: Int64s,
) -> Mapping[str, NDArray[np.generic]]:
    num_nodes = int(nodes.end[-1]) + 1
    rank, phase = ranks.rank[items.stage, 0], items.columns["phase"]
    stages, exchange = np.arange(len(ranks.rank)), meetings.exchange
    is_exchange = items.is_exchange
    columns = {
        name: np.full(num_nodes, column.neutral, column.dtype)
        for name, column in NODE_COLUMNS.items()
    }

    def put(where: Int64s, **values: ArrayLike) -> None:
        for key, value in values.items():
            columns[key][where] = value

    described = {
        "rank": rank,
        "step": 0,
        "operator": items.columns["operator"],
        "operator_signature": items.columns["operator_signature"],
        "part": items.columns["part"],
        "phase": phase,
        "layer": items.layer,
        "microbatch": items.microbatch,
    }
    put(nodes.launch, **described, kind=NodeKind.LAUNCH, lane=items.stage)
    put(nodes.launch, name=tables.name(_LAUNCHED), measured_ns=host_ns)
    put(nodes.enter, **described, lane=lanes.item, name=items.columns["label"])
    put(nodes.enter, kind=np.where(is_exchange, NodeKind.ARRIVE, NodeKind.KERNEL))
    put(nodes.enter, measured_ns=np.where(is_exchange, 0, items.columns["measured_ns"]))
    put(nodes.enter[exchange], collective=meetings.collective)
    for key, value in described.items():
        put(nodes.finish, **{key: value if np.ndim(value) == 0 else np.asarray(value)[exchange]})
    put(nodes.finish, kind=NodeKind.FINISH, lane=lanes.item[exchange])
    put(nodes.finish, name=items.columns["label"][exchange], collective=meetings.collective)
    put(nodes.finish, measured_ns=items.columns["measured_ns"][exchange])
    put(nodes.hub, kind=NodeKind.HUB, collective=np.arange(len(meetings)))
    put(nodes.hub, name=_hub_names(items, meetings, tables))
    for where, kind, name in (
        (nodes.start, NodeKind.RANK_START, _START),
        (nodes.begin, NodeKind.STEP_BEGIN, STEP_NAME),
        (nodes.sync, NodeKind.SYNC, _SYNC),
        (nodes.end, NodeKind.STEP_END, STEP_NAME),
    ):
        put(where, kind=kind, rank=ranks.rank[:, 0], lane=stages, name=tables.name(name))
        put(where, step=NO_STEP if kind == NodeKind.RANK_START else 0)
    return columns


def host_ns_of(items: Drafted, launch: Launch) -> Int64s:
    """Host time of every launch by the stated rule; int64[items]."""
    by_phase = np.full(len(Phase), launch.forward_ns, np.int64)
    by_phase[Phase.BACKWARD] = launch.backward_ns
    by_phase[Phase.OPTIMIZER] = launch.optimizer_ns
    own_ns = by_phase[items.columns["phase"]]
    return np.where(items.is_exchange, launch.exchange_ns, own_ns)


def _hub_names(items: Drafted, meetings: Meetings, tables: Tables) -> Int64s:
    kind = items.columns["exchange"][meetings.exchange[meetings.first]]
    name_of_kind = [tables.name(one.collective.value) for one in tables.kinds]
    return np.array(name_of_kind, np.int64)[kind]


def _edges(items: Drafted, meetings: Meetings, nodes: _Nodes) -> Edges:
    leave = nodes.leave(meetings)
    arrive, hub = nodes.enter[meetings.exchange], nodes.hub[meetings.collective]
    is_send = items.columns["stream"][meetings.exchange] == SENDS
    stage = items.stage
    first = np.searchsorted(stage, np.arange(len(nodes.start)))
    follows = np.flatnonzero(stage[1:] == stage[:-1])
    num_items = np.bincount(stage, minlength=len(nodes.start))
    has_any = num_items > 0
    last_launch = np.where(has_any, nodes.launch[first + num_items - 1], nodes.begin)
    return Edges.joined(
        [
            Edges.of(EdgeKind.HOST_ORDER, nodes.start, nodes.begin),
            Edges.of(EdgeKind.HOST_ORDER, nodes.begin[has_any], nodes.launch[first[has_any]]),
            Edges.of(EdgeKind.HOST_ORDER, nodes.launch[follows], nodes.launch[follows + 1]),
            Edges.of(EdgeKind.HOST_ORDER, last_launch, nodes.sync),
            Edges.of(EdgeKind.HOST_ORDER, nodes.sync, nodes.end),
            Edges.of(EdgeKind.LAUNCH, nodes.launch, nodes.enter),
            Edges.of(EdgeKind.STREAM, leave[items.before], nodes.enter[items.behind]),
            Edges.of(EdgeKind.INTER_STREAM, leave[items.source], nodes.enter[items.target]),
            Edges.of(EdgeKind.ARRIVAL, arrive, hub),
            Edges.of(EdgeKind.TRANSFER, np.where(is_send, arrive, hub), nodes.finish),
            Edges.of(EdgeKind.WAKE, leave[items.last], nodes.sync[stage[items.last]]),
        ]
    )


def _collectives(
    items: Drafted, meetings: Meetings, ranks: RankTable, tables: Tables
) -> Collectives:
    kind = items.columns["exchange"][meetings.exchange[meetings.first]]
    party, stages_of_party = meetings.parties(items)
    pair, make = np.unique(kind * len(stages_of_party) + party, return_inverse=True)
    names = [one.collective.value for one in tables.kinds]  # as replays call them
    makes = []
    for of_kind, stages in zip(*np.divmod(pair, max(len(stages_of_party), 1)), strict=True):
        one = tables.kinds[of_kind]
        recorded = tuple(sorted(ranks.rank[list(stages_of_party[stages]), 0].tolist()))
        makes.append(
            Collective(
                name=names[of_kind],
                group=one.group.value,
                ranks=ranks.members(one.group, recorded),
                recorded_ranks=recorded,
                position=0,
                num_bytes=one.num_bytes,
                dtype=one.dtype,
                is_transfer_estimated=False,
            )
        )
    return Collectives(
        tuple(makes), make.reshape(-1).astype(np.int32), meetings.position.astype(np.int32)
    )
