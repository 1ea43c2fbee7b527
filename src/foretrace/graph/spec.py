"""What a legal graph is, as code: `verify` runs every rule and names the node that breaks one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretrace.base import Bools, GraphError, Int64s
from foretrace.graph.graph import ExecutionGraph
from foretrace.graph.nodes import HOST_KINDS, NO_COLLECTIVE, NODE_COLUMNS, EdgeKind, NodeKind

_MARKS = (NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.ARRIVE, NodeKind.HUB)


def verify(graph: ExecutionGraph) -> None:
    """Check every rule of this file.

    Raises:
        GraphError: names the rule, how many nodes or edges break it, and the first of them.
    """
    for rule in RULES:
        rule(graph)


def columns_fit(graph: ExecutionGraph) -> None:
    """Node columns have one length, edge columns another, and positions stay in their tables."""
    sizes = {name: len(column) for name, column in graph.columns().items()}
    wrong = {name: size for name, size in sizes.items() if size != graph.num_nodes}
    if wrong or len(graph.first_edge) != graph.num_nodes + 1:
        raise GraphError(f"graph columns differ in length: {graph.num_nodes} nodes, but {wrong}.")
    for name, column in NODE_COLUMNS.items():
        if column.table:
            is_past = getattr(graph, name) >= len(getattr(graph, column.table))
            _none(graph, f"{name} points past its table", is_past)


def order_is_topological(graph: ExecutionGraph) -> None:
    """Every predecessor stands before its node."""
    is_wrong = graph.predecessor >= graph.edge_target
    _none(graph, "waits for itself or a later node", _nodes_with(graph, is_wrong))


def work_is_not_negative(graph: ExecutionGraph) -> None:
    """No duration is negative, and marks, arrivals and hubs have none."""
    _none(graph, "has a negative duration", graph.measured_ns < 0)
    is_mark = graph.is_of(*_MARKS)
    _none(graph, "is a mark with a duration", is_mark & (graph.measured_ns != 0))


def lags_are_constants(graph: ExecutionGraph) -> None:
    """All edges of a kind carry the one lag that the graph states for it."""
    lag_of_kind = np.zeros(len(EdgeKind), np.int64)
    for constant in graph.constants:
        lag_of_kind[constant.kind] = constant.lag_ns
    is_wrong = graph.lag_ns != lag_of_kind[graph.edge_kind]
    _none(graph, "has an edge whose lag is not its kind's constant", _nodes_with(graph, is_wrong))


def host_chains_are_whole(graph: ExecutionGraph) -> None:
    """Every host node follows exactly one node of its own thread, or its rank's start."""
    target = graph.edge_target
    is_chain = graph.edge_kind == EdgeKind.HOST_ORDER
    count = np.bincount(target[is_chain], minlength=graph.num_nodes)
    is_host = graph.is_of(*HOST_KINDS, NodeKind.STEP_BEGIN, NodeKind.STEP_END)
    is_host &= ~_is_before_arrival(graph, target, is_chain)
    _none(graph, "is not linked once to its thread's chain", is_host & (count != 1))
    followers = np.bincount(graph.predecessor[is_chain], minlength=graph.num_nodes)
    _none(graph, "is followed twice on its thread", is_host & (followers > 1))
    source, target = graph.predecessor[is_chain], target[is_chain]
    is_start = graph.kind[source] == NodeKind.RANK_START
    is_wrong = (graph.lane[source] != graph.lane[target]) & ~is_start
    is_wrong |= graph.rank[source] != graph.rank[target]
    _none(graph, "follows a node of another thread", _mask(graph, target[is_wrong]))


def _is_before_arrival(graph: ExecutionGraph, target: Int64s, is_chain: Bools) -> Bools:
    """Segments of a CPU collective's worker: they follow an issue, not a chain."""
    is_last = is_chain & (graph.kind[target] == NodeKind.ARRIVE)
    return _mask(graph, graph.predecessor[is_last])


def collectives_meet(graph: ExecutionGraph) -> None:
    """Each collective has one hub; a member arrives once and finishes once, on its own lane."""
    hubs = graph.collective[graph.kind == NodeKind.HUB]
    if len(np.unique(hubs)) != len(hubs) or len(hubs) != len(graph.collectives):
        raise GraphError(
            f"{len(graph.collectives)} collectives have {len(hubs)} hubs; expected one each."
        )
    keys = []
    for nodes in graph.members():
        _none(graph, "belongs to no collective", _mask(graph, nodes[graph.collective[nodes] < 0]))
        keys.append(np.stack([graph.collective[nodes], graph.rank[nodes], graph.lane[nodes]]))
    if not np.array_equal(keys[0], keys[1]):
        raise GraphError("arrivals and finishes of collectives do not pair up by rank and lane.")
    is_member = graph.is_of(NodeKind.ARRIVE, NodeKind.HUB, NodeKind.FINISH)
    is_odd = (graph.collective != NO_COLLECTIVE) & ~is_member
    _none(graph, "belongs to a collective but is no part of one", is_odd)


def edges_fit_their_kinds(graph: ExecutionGraph) -> None:
    """Each kind of edge leads from and to the kinds of node it is about."""
    source, target = graph.kind[graph.predecessor], graph.kind[graph.edge_target]
    for kind, (froms, tos) in _ENDS.items():
        chosen = graph.edge_kind == kind
        is_wrong = chosen & ~(np.isin(source, froms) & np.isin(target, tos))
        _none(graph, f"has a {kind.name} edge that does not fit it", _nodes_with(graph, is_wrong))


_DEVICE_OUT = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.FINISH)
_DEVICE_IN = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.ARRIVE)
_ENDS: dict[EdgeKind, tuple[tuple[NodeKind, ...], tuple[NodeKind, ...]]] = {
    EdgeKind.LAUNCH: ((NodeKind.LAUNCH,), _DEVICE_IN),
    EdgeKind.ISSUE: ((NodeKind.LAUNCH,), (NodeKind.ARRIVE, NodeKind.HOST_SEGMENT)),
    EdgeKind.QUEUE: (_DEVICE_OUT, (NodeKind.LAUNCH,)),
    EdgeKind.WAKE: (_DEVICE_OUT, (NodeKind.SYNC,)),
    EdgeKind.STREAM: (_DEVICE_OUT, (*_DEVICE_IN, NodeKind.HOST_SEGMENT)),
    EdgeKind.PROGRAMMATIC: (_DEVICE_OUT, (*_DEVICE_IN, NodeKind.HOST_SEGMENT)),
    EdgeKind.GRAPH: (_DEVICE_OUT, _DEVICE_IN),
    EdgeKind.INTER_STREAM: (_DEVICE_OUT, _DEVICE_IN),
    EdgeKind.INTER_STREAM_INFERRED: (_DEVICE_OUT, _DEVICE_IN),
    EdgeKind.ARRIVAL: ((NodeKind.ARRIVE,), (NodeKind.HUB,)),
    EdgeKind.TRANSFER: ((NodeKind.HUB, NodeKind.ARRIVE), (NodeKind.FINISH,)),
    EdgeKind.THREAD: (
        (*HOST_KINDS, NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.FINISH),
        (NodeKind.THREAD_WAIT,),
    ),
}

RULES: tuple[Callable[[ExecutionGraph], None], ...] = (
    columns_fit,
    order_is_topological,
    work_is_not_negative,
    lags_are_constants,
    host_chains_are_whole,
    collectives_meet,
    edges_fit_their_kinds,
)


def _nodes_with(graph: ExecutionGraph, is_wrong_edge: Bools) -> Bools:
    return _mask(graph, graph.edge_target[is_wrong_edge])


def _mask(graph: ExecutionGraph, nodes: Int64s) -> Bools:
    mask = np.zeros(graph.num_nodes, np.bool_)
    mask[nodes] = True
    return mask


def _none(graph: ExecutionGraph, what: str, is_wrong: Bools) -> None:
    wrong = np.flatnonzero(is_wrong)
    if not len(wrong):
        return
    node = int(wrong[0])
    lane, name = int(graph.lane[node]), int(graph.name[node])
    is_laned = 0 <= lane < len(graph.lanes)  # a position past its table may be what is wrong
    where = graph.lanes[lane].label if is_laned else f"rank {int(graph.rank[node])}"
    called = repr(graph.names[name]) if 0 <= name < len(graph.names) else f"name {name}"
    raise GraphError(
        f"graph breaks its spec: node {node} ({NodeKind(int(graph.kind[node])).name}, "
        f"{called}, {where}) {what}; {len(wrong)} nodes do."
    )
