"""What a graph shows of how its ranks work, as they issue it; and how near two such come.

A kernel stands behind the call that launched it, wherever the device was then: this is the order of
the program, which repeats, while how far the host runs ahead of its device does not.

A node's *token* says all that a made node inherits: its lane, what it is, its name, its shapes and
how much it communicates. Lanes count per rank and kind, in order of their first node.

The distance of two samples is the largest difference of their cumulative shares, 0 to 1. Names
have no order of their own: they are taken by how often the source has them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit
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


@dataclass(frozen=True)
class Distance(Plain):
    """One measure's distances; -1 where a side has nothing of it."""

    measure: str  # "operators", "durations", ...
    made: float  # between what was made and the source
    halves: float  # between the first and the second half of the source's ranks
    num_made: int  # samples
    num_source: int


@dataclass(frozen=True, repr=False)
class Closeness(Answer):
    """All measures, and lengths of the critical path."""

    distances: tuple[Distance, ...]
    source_ns_per_node: float  # critical path of the source over the nodes of a rank
    made_ns_per_node: float

    @property
    def headline(self) -> str:
        """The length of the critical path beside the source's."""
        source_ns = self.source_ns_per_node
        ratio = self.made_ns_per_node / source_ns if source_ns else 0
        return f"critical path per node: {ratio:.2f} times the source's"

    def parts(self) -> tuple[Told, ...]:
        """Every measure."""
        return (
            Table.of(
                "distances",
                self.distances,
                Column("measure", "distance (KS, 0 to 1)"),
                Column("made", unit=Unit.NUMBER, value=lambda one: _known(one.made)),
                Column("halves", unit=Unit.NUMBER, value=lambda one: _known(one.halves)),
                Column("num_made", "made of"),
                Column("num_source", "source of"),
            ),
        )


def _known(distance: float) -> float | None:
    return None if distance < 0 else distance


def closeness(source: Observed, made: Observed) -> Closeness:
    """How near `made` comes to `source`."""
    names = [token.name for token in source.tokens]
    often = Counter(names[token] for token in source.token)
    place = {name: at for at, (name, _) in enumerate(often.most_common())}
    first, second = _halves(source)
    samples = [_samples(one, place) for one in (source, made, first, second)]
    return Closeness(
        tuple(
            Distance(
                measure,
                made=distance(samples[0][measure], samples[1][measure]),
                halves=distance(samples[2][measure], samples[3][measure]),
                num_made=len(samples[1][measure]),
                num_source=len(samples[0][measure]),
            )
            for measure in samples[0]
        ),
        source_ns_per_node=_ns_per_node(source),
        made_ns_per_node=_ns_per_node(made),
    )


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """The Kolmogorov-Smirnov distance of two samples; -1 if one is empty."""
    if not one or not other:
        return -1.0
    first, second = np.sort(np.array(one)), np.sort(np.array(other))
    at = np.concatenate([first, second])
    return float(np.abs(_share(first, at) - _share(second, at)).max())


def _share(ordered: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.float64]:
    below: NDArray[np.float64] = np.searchsorted(ordered, at, side="right") / len(ordered)
    return below


def _samples(seen: Observed, place: dict[str, int]) -> dict[str, list[int]]:
    token = [place.get(one.name, len(place)) for one in seen.tokens]
    size = [-1 if one.message is None else one.message.num_bytes for one in seen.tokens]
    return {
        "operators": [token[one] for one in seen.token],
        "durations": seen.duration_ns,
        "sizes": [size[one] for one in seen.token if size[one] >= 0],
        "waits": [len(waits.ago) for waits in seen.waits],
        "critical path": seen.path_ns,
    }


def _halves(seen: Observed) -> tuple[Observed, Observed]:
    """The first half of every rank's nodes, and the second."""
    begins = zip(seen.begins, seen.begins[1:], strict=False)
    middles = [(begin, (begin + end) // 2, end) for begin, end in begins]
    middle = len(seen.path_ns) // 2
    return (
        _part(seen, [(begin, split) for begin, split, _ in middles], seen.path_ns[:middle]),
        _part(seen, [(split, end) for _, split, end in middles], seen.path_ns[middle:]),
    )


def _part(seen: Observed, spans: list[tuple[int, int]], path_ns: list[int]) -> Observed:
    rows = [row for begin, end in spans for row in range(begin, end)]
    return replace(
        seen,
        token=[seen.token[row] for row in rows],
        duration_ns=[seen.duration_ns[row] for row in rows],
        waits=[seen.waits[row] for row in rows],
        path_ns=path_ns,
    )


def _ns_per_node(seen: Observed) -> float:
    return sum(seen.path_ns) / max(len(seen.token) / max(seen.num_ranks, 1), 1)
