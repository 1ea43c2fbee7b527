"""The true graph of a job: nodes as columns, and what the files say about them.

A node's start is the latest of its predecessors' ends plus lags, plus its own drawn delay; its
end is its drawn duration later. Nothing here knows a time: `engine` gives times.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
PARTS = 64  # positions inside a host segment at which operators open and close


class Node(IntEnum):
    """What a node is."""

    SEGMENT = 0  # host time between calls
    CALL = 1  # a runtime call
    DEVICE = 2  # a kernel, copy or fill
    ARRIVE = 3  # a communication kernel's start
    HUB = 4  # all members have arrived
    FINISH = 5  # a communication kernel's end; its duration is the transfer


class Dependency(IntEnum):
    """Why a node waits for another."""

    HOST = 0  # same thread, next in order
    THREAD = 1  # the other thread's signal
    LAUNCH = 2  # launch call to operation
    QUEUE = 3  # operation to the launch call that needed its place
    SYNC = 4  # operation to the call that waits for it
    STREAM = 5  # same stream, next in order
    INTER_STREAM = 6  # event recorded after an operation, waited for before another
    ARRIVAL = 7  # member to hub, or member to member of a neighbour exchange
    TRANSFER = 8  # hub to member


@dataclass(frozen=True)
class Group:
    """One process group."""

    name: str
    description: str
    ranks: tuple[int, ...]
    link: str  # "tp", "dp", "pp", "world": what an intervention selects


@dataclass(slots=True)
class Call:
    """One runtime call on a host thread."""

    node: int
    name: str
    thread: int  # 0 main, 1 autograd
    correlation: int
    external: int  # of the operator around it, 0: none
    stream: int  # the stream it names, -1: none
    operation: int  # device node it launches, -1: none
    event: int  # event id, -1: none
    record_correlation: int  # of the event it waits for, -1: none
    record_stream: int


class Block(NamedTuple):
    """Which part of the model and of the step work belongs to; -1: to no single layer or pass."""

    part: str  # as foretrace calls them, lower case: "layer", "head", "bucket", ...
    phase: str  # "data", "forward", "backward", "recompute", "optimizer"
    layer: int = -1  # over all stages
    microbatch: int = -1  # in its step


@dataclass(slots=True)
class Operation:
    """One kernel, copy or fill on a stream."""

    arrive: int  # node of its start; equals `node` unless it communicates
    node: int
    call: int  # position among the rank's calls
    correlation: int
    external: int
    stream: int
    category: str  # "kernel", "gpu_memcpy", "gpu_memset"
    name: str
    family: str
    collective: int  # position in `Structure.collectives`, -1: none
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    num_bytes: int
    belongs_to: Block


@dataclass(slots=True)
class Span:
    """An operator or annotation on a host thread, from one place in a segment to another."""

    category: str
    name: str
    thread: int
    external: int
    arguments: str  # JSON members, with a leading comma, or ""
    sequence: int  # autograd sequence number, -1: none
    is_backward: bool
    begin: int = -1
    begin_part: int = 0
    end: int = -1
    end_part: int = 0


@dataclass(slots=True)
class Collective:
    """One communication, over all its members."""

    index: int
    name: str  # "allreduce", "send", "exchange"
    group: Group
    position: int  # number inside its group and channel
    num_bytes: int
    is_exchange: bool  # each member waits for its two neighbours only
    source: int  # of a point-to-point transfer, -1
    destination: int
    expected: tuple[int, ...]  # ranks that take part
    arrives: dict[int, int] = field(default_factory=dict)  # rank -> node
    finishes: dict[int, int] = field(default_factory=dict)
    correlations: dict[int, int] = field(default_factory=dict)
    slots: dict[int, list[int]] = field(default_factory=dict)  # edges into each finish
    hub: int = -1  # an exchange has none


@dataclass(slots=True)
class RankItems:
    """What one rank's file will say."""

    rank: int
    groups: tuple[Group, ...]
    calls: list[Call] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    steps: list[Span] = field(default_factory=list)
    flows: list[tuple[Span, Span]] = field(default_factory=list)  # forward, backward


@dataclass(frozen=True)
class Structure:
    """The whole job's graph; the edges of node i are `first_edge[i]:first_edge[i + 1]`."""

    kind: NDArray[np.uint8]
    rank: NDArray[np.int32]
    family: NDArray[np.int16]  # position in `families`; -1 not a kernel
    link: NDArray[np.int16]  # position in `links` of a finish; -1
    base_ns: Int64s
    std_ns: Int64s
    key: NDArray[np.uint64]
    delay_std_ns: Int64s  # half-normal, added to the start
    delay_key: NDArray[np.uint64]
    first_edge: Int64s
    predecessor: Int64s
    lag_ns: Int64s
    edge_kind: NDArray[np.uint8]
    order: Int64s  # a topological order of the nodes
    families: tuple[str, ...]
    links: tuple[str, ...]
    collectives: tuple[Collective, ...]
    ranks: tuple[RankItems, ...]

    @property
    def num_nodes(self) -> int:
        """Nodes of all ranks."""
        return len(self.kind)


class Columns:
    """Nodes and edges while they are being added."""

    def __init__(self) -> None:
        self.kind = array("B")
        self.rank = array("i")
        self.family = array("h")
        self.link = array("h")
        self.base_ns = array("q")
        self.std_ns = array("q")
        self.key = array("Q")
        self.delay_std_ns = array("q")
        self.delay_key = array("Q")
        self.first_edge = array("q", [0])
        self.predecessor = array("q")
        self.lag_ns = array("q")
        self.edge_kind = array("B")
        self.families: dict[str, int] = {}
        self.links: dict[str, int] = {}

    def edge(self, predecessor: int, lag_ns: int, kind: Dependency) -> int:
        """Add an edge to the node that the next `node` call adds; returns its position."""
        self.predecessor.append(predecessor)
        self.lag_ns.append(lag_ns)
        self.edge_kind.append(kind)
        return len(self.predecessor) - 1

    def node(
        self,
        kind: Node,
        rank: int,
        *,
        base_ns: int = 0,
        std_ns: int = 0,
        key: int = 0,
        delay_std_ns: int = 0,
        delay_key: int = 0,
        family: str | None = None,
        link: str | None = None,
    ) -> int:
        """Add a node with the edges given since the last; returns its index."""
        self.kind.append(kind)
        self.rank.append(rank)
        self.family.append(
            -1 if family is None else self.families.setdefault(family, len(self.families))
        )
        self.link.append(-1 if link is None else self.links.setdefault(link, len(self.links)))
        self.base_ns.append(base_ns)
        self.std_ns.append(std_ns)
        self.key.append(key)
        self.delay_std_ns.append(delay_std_ns)
        self.delay_key.append(delay_key)
        self.first_edge.append(len(self.predecessor))
        return len(self.kind) - 1

    def structure(
        self, collectives: tuple[Collective, ...], ranks: tuple[RankItems, ...]
    ) -> Structure:
        """The columns as arrays, with a topological order."""
        first_edge = np.array(self.first_edge, np.int64)
        predecessor = np.array(self.predecessor, np.int64)
        return Structure(
            kind=np.array(self.kind, np.uint8),
            rank=np.array(self.rank, np.int32),
            family=np.array(self.family, np.int16),
            link=np.array(self.link, np.int16),
            base_ns=np.array(self.base_ns, np.int64),
            std_ns=np.array(self.std_ns, np.int64),
            key=np.array(self.key, np.uint64),
            delay_std_ns=np.array(self.delay_std_ns, np.int64),
            delay_key=np.array(self.delay_key, np.uint64),
            first_edge=first_edge,
            predecessor=predecessor,
            lag_ns=np.array(self.lag_ns, np.int64),
            edge_kind=np.array(self.edge_kind, np.uint8),
            order=_topological_order(first_edge, predecessor),
            families=tuple(self.families),
            links=tuple(self.links),
            collectives=collectives,
            ranks=ranks,
        )


def _topological_order(first_edge: Int64s, predecessor: Int64s) -> Int64s:
    """An order in which every node follows its predecessors; a job that deadlocks is refused."""
    waits = np.diff(first_edge)
    num_nodes = len(waits)
    target = np.repeat(np.arange(num_nodes), waits)
    successor = target[np.argsort(predecessor, kind="stable")].tolist()
    first = [0, *np.cumsum(np.bincount(predecessor, minlength=num_nodes)).tolist()]
    num_waits = waits.tolist()
    order: list[int] = np.flatnonzero(waits == 0).tolist()
    for node in order:
        for after in successor[first[node] : first[node + 1]]:
            left = num_waits[after] = num_waits[after] - 1
            if not left:
                order.append(after)
    if len(order) != num_nodes:
        raise ValueError(
            f"this job deadlocks: {num_nodes - len(order)} of {num_nodes} nodes never start"
        )
    return np.array(order, np.int64)
