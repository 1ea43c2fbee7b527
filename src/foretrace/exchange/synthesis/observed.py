"""What a graph shows of how its ranks work: one sequence of nodes per rank, as they were issued.

A kernel stands behind the call that launched it, wherever the device was then: this is the order of
the program, which repeats, while how far the host runs ahead of its device does not.

A node's *token* says all that a made node inherits: its lane, what it is, its name, its shapes and
how much it communicates. Lanes count per rank and kind, in order of their first node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foretrace.base import CollectiveKind, GraphError, Int64s
from foretrace.exchange.chakra.records import NO_RECORD, Records, records_of
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.simulate import simulate, way_back

_LEFT_OUT = (
    NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.ARRIVE, NodeKind.HUB,
    NodeKind.GHOST,
)  # fmt: skip


@dataclass(frozen=True)
class LaneRole:
    """A lane as all ranks have it: the n-th thread or stream of a rank."""

    is_device: bool
    place: int


@dataclass(frozen=True)
class Message:
    """What a collective is, wherever it runs."""

    kind: CollectiveKind
    num_bytes: int  # -1 unknown
    dtype: str
    group_size: int
    group_stride: int  # between the group's ranks
    is_whole: bool  # all ranks take part


@dataclass(frozen=True)
class Token:
    """What a node is, without its duration."""

    lane: LaneRole
    name: str
    signature: str  # shapes
    operator: str
    message: Message | None


@dataclass(frozen=True)
class LaneWaits:
    """What a node waits for on other lanes: a lane, and how many of its nodes ago."""

    lanes: tuple[LaneRole, ...]
    ago: tuple[int, ...]  # 1: the lane's last node before this


@dataclass
class Observed:
    """The nodes of some graphs, rank after rank."""

    tokens: list[Token] = field(default_factory=list)  # each once
    token: list[int] = field(default_factory=list)  # of each node, position in `tokens`
    duration_ns: list[int] = field(default_factory=list)
    waits: list[LaneWaits] = field(default_factory=list)  # of each node
    begins: list[int] = field(default_factory=lambda: [0])  # first node of each rank, and the end
    path_ns: list[int] = field(default_factory=list)  # durations on the critical path

    @property
    def num_ranks(self) -> int:
        """Sequences."""
        return len(self.begins) - 1


def observed(graphs: Sequence[ExecutionGraph]) -> Observed:
    """What these graphs show.

    Raises:
        GraphError: if there is no work in them.
    """
    seen = Observed()
    position: dict[Token, int] = {}
    for graph in graphs:
        _add(seen, graph, position)
    if not seen.token:
        raise GraphError(
            "nothing to learn from: the graphs hold no operators, kernels or collectives; name "
            "traces of a whole step"
        )
    return seen


def _add(seen: Observed, graph: ExecutionGraph, position: dict[Token, int]) -> None:
    timeline = simulate(graph)
    records = records_of(graph)
    order = _issue_order(records, timeline.start_ns)
    is_work = ~graph.is_of(*_LEFT_OUT) & (records.record != NO_RECORD)
    messages = [_message(graph, index) for index in range(len(graph.collectives))]
    for rank in graph.ranks:
        nodes = order[(graph.rank[order] == rank) & is_work[order]]
        _add_rank(seen, _Rank(graph, records, nodes), position, messages)
    seen.path_ns += _critical_ns(graph)


def _issue_order(records: Records, start_ns: Int64s) -> Int64s:
    """All nodes by the start of the call that launched them, or by their own; calls first."""
    is_issue = np.isin(records.edge_kind, (EdgeKind.LAUNCH, EdgeKind.ISSUE))
    launched = records.edge_target[is_issue]
    issued_ns = start_ns.copy()
    issued_ns[launched] = start_ns[records.edge_source[is_issue]]
    is_launched = np.zeros(len(start_ns), np.bool_)
    is_launched[launched] = True
    return np.lexsort((np.arange(len(start_ns)), is_launched, issued_ns))


@dataclass(frozen=True)
class _Rank:
    graph: ExecutionGraph
    records: Records
    nodes: Int64s  # as issued


def _add_rank(
    seen: Observed, rank: _Rank, position: dict[Token, int], messages: Sequence[Message]
) -> None:
    graph, nodes = rank.graph, rank.nodes
    role_of = _roles(graph, nodes)
    count: dict[LaneRole, int] = defaultdict(int)
    place: dict[int, tuple[LaneRole, int]] = {}  # node -> its lane, and its number there
    begin = np.searchsorted(rank.records.edge_target, nodes)
    end = np.searchsorted(rank.records.edge_target, nodes, side="right")
    for at, node in enumerate(nodes.tolist()):
        lane = role_of[int(graph.lane[node])]
        sources = rank.records.edge_source[begin[at] : end[at]].tolist()
        found = {
            (place[source][0], count[place[source][0]] - place[source][1])
            for source in sources
            if source in place and place[source][0] != lane
        }
        waits = sorted(found, key=lambda pair: (pair[0].is_device, pair[0].place, pair[1]))
        token = Token(
            lane,
            graph.names[graph.name[node]],
            _text(graph, int(graph.signature[node])),
            _text(graph, int(graph.operator[node])),
            messages[graph.collective[node]] if graph.collective[node] >= 0 else None,
        )
        number = position.setdefault(token, len(position))
        if number == len(seen.tokens):
            seen.tokens.append(token)
        seen.token.append(number)
        seen.duration_ns.append(int(graph.measured_ns[node]))
        seen.waits.append(LaneWaits(tuple(one for one, _ in waits), tuple(ago for _, ago in waits)))
        place[node] = (lane, count[lane])
        count[lane] += 1
    seen.begins.append(len(seen.token))


def _roles(graph: ExecutionGraph, nodes: Int64s) -> dict[int, LaneRole]:
    roles: dict[int, LaneRole] = {}
    num = [0, 0]
    for lane in dict.fromkeys(graph.lane[nodes].tolist()):
        is_device = graph.lanes[lane].is_device
        roles[lane] = LaneRole(is_device, num[is_device])
        num[is_device] += 1
    return roles


def _text(graph: ExecutionGraph, name: int) -> str:
    return graph.names[name] if name >= 0 else ""


def _message(graph: ExecutionGraph, index: int) -> Message:
    one = graph.collectives[index]
    ranks = sorted(one.ranks)
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return Message(
        one.kind,
        one.num_bytes,
        one.dtype,
        len(ranks),
        max(stride, 1),
        len(ranks) >= len(graph.ranks),
    )


def _critical_ns(graph: ExecutionGraph) -> list[int]:
    """Durations of the nodes on the critical path of the whole graph."""
    from_simulation = simulate(graph)
    last = int(np.argmax(from_simulation.end_ns))
    path = way_back(from_simulation, last).node
    durations = graph.measured_ns[path]
    return [int(one) for one in durations[~graph.is_of(*_LEFT_OUT)[path]]]
