"""`ExecutionGraph`: who waits for whom; `Timeline`: when each of its nodes started and ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.base import (
    NS_PER_MS,
    Bools,
    Float32s,
    Int16s,
    Int32s,
    Int64s,
    Integers,
    Remembering,
    UInt8s,
)
from foretrace.graph.nodes import (
    DEVICE_KINDS,
    HOST_KINDS,
    NODE_COLUMNS,
    Collectives,
    EdgeKind,
    NodeKind,
)


@dataclass(frozen=True)
class Lane:
    """One host thread or device stream of one rank."""

    rank: int
    is_device: bool
    process: int
    device: int
    number: int  # thread id or stream number

    @property
    def label(self) -> str:
        """A short name: `rank 3 stream 7`, `rank 3 thread 2590092`."""
        what = "stream" if self.is_device else "thread"
        return f"rank {self.rank} {what} {self.number}"


@dataclass(frozen=True)
class EdgeConstant:
    """The one lag that all edges of a kind carry, and what it was fitted to."""

    kind: EdgeKind
    lag_ns: int  # median of the samples
    num_samples: int  # 0: nothing to fit to, `lag_ns` is the stated default
    low_ns: int  # 10th percentile of the samples
    high_ns: int  # 90th


@dataclass(frozen=True)
class ExecutionGraph:
    """Nodes as columns, edges in compressed form by successor; node order is topological.

    The predecessors of node `i` are `predecessor[first_edge[i]:first_edge[i + 1]]`.
    """

    kind: UInt8s  # uint8[nodes], NodeKind
    rank: Int32s  # int32[nodes]; of a hub and a ghost: -1
    lane: Int32s  # int32[nodes], position in `lanes`; NO_LANE of hubs and ghosts
    step: Int32s  # int32[nodes], position in `step_names`; NO_STEP outside
    name: Int32s  # int32[nodes], position in `names`
    signature: Int32s  # int32[nodes], position in `names`; -1: none
    operator: Int32s  # int32[nodes], position in `names`: framework operator at work; -1: none
    operator_signature: Int32s  # int32[nodes], position in `names`: its shapes; -1: none
    part: UInt8s  # uint8[nodes], Part
    phase: UInt8s  # uint8[nodes], Phase
    layer: Int16s  # int16[nodes], over all stages; NO_LAYER
    microbatch: Int16s  # int16[nodes], in its step; NO_MICROBATCH
    collective: Int32s  # int32[nodes], position in `collectives`; NO_COLLECTIVE
    measured_ns: Int64s  # int64[nodes], work without waiting: what a replay takes
    inflation: Float32s  # float32[nodes], measured time / time alone, 1 where alone
    first_edge: Int64s  # int64[nodes + 1]
    predecessor: Int32s  # int32[edges], always below the node's own index
    edge_kind: UInt8s  # uint8[edges], EdgeKind
    lag_ns: Int32s  # int32[edges], the constant of the edge's kind
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    step_names: tuple[str, ...]
    collectives: Collectives
    constants: tuple[EdgeConstant, ...]

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.kind)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.predecessor)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The recorded ranks, rising."""
        return tuple(sorted({lane.rank for lane in self.lanes}))

    # Columns below are made at every call: kept, they would be an eighth of the graph's memory.

    @property
    def edge_target(self) -> Int64s:
        """The node that each edge leads to, int64[edges]."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.first_edge))

    @property
    def edges_in_one_piece(self) -> tuple[Int64s, Int32s, Int32s]:
        """First edges, predecessors and lags as compiled loops take them: without gaps."""
        found = (self.first_edge, self.predecessor, self.lag_ns)
        first, predecessor, lag_ns = map(np.ascontiguousarray, found)
        return first, predecessor, lag_ns

    @property
    def has_device(self) -> bool:
        """Whether any lane is a device stream."""
        return any(lane.is_device for lane in self.lanes)

    @property
    def is_on_stream(self) -> Bools:
        """Which nodes stand on a device stream, communication included; bool[nodes]."""
        return np.array([*(lane.is_device for lane in self.lanes), False], np.bool_)[self.lane]

    @property
    def is_device(self) -> Bools:
        """Which nodes are work of a device, communication left out; bool[nodes]."""
        return self.is_of(*DEVICE_KINDS)

    @property
    def is_host(self) -> Bools:
        """Which nodes are work of a host, marks left out; bool[nodes]."""
        return self.is_of(*HOST_KINDS)

    def is_of(self, *kinds: NodeKind) -> Bools:
        """Which nodes are of one of some kinds, bool[nodes]."""
        is_wanted = np.zeros(np.iinfo(np.uint8).max + 1, np.bool_)
        is_wanted[list(kinds)] = True
        return is_wanted[self.kind]

    def nodes_of(self, *kinds: NodeKind) -> Int64s:
        """The nodes of some kinds, rising."""
        return np.flatnonzero(self.is_of(*kinds))

    def in_lanes(self, nodes: Int64s) -> Int64s:
        """Nodes by lane, those of one lane as they stood."""
        return nodes[np.argsort(self.lane[nodes], kind="stable")]

    def edges_of(self, *kinds: EdgeKind) -> tuple[Int64s, Int64s]:
        """Source and target of every edge of some kinds, in the order of the edges."""
        edge = np.flatnonzero(np.isin(self.edge_kind, kinds))
        target = np.searchsorted(self.first_edge, edge, side="right") - 1
        return self.predecessor[edge].astype(np.int64), target.astype(np.int64)

    def members(self) -> tuple[Int64s, Int64s]:
        """Arrival and finish of every member of every collective, int64[members] each.

        Ordered by collective, then rank, then lane.
        """
        arrive, finish = (
            nodes[np.lexsort((self.lane[nodes], self.rank[nodes], self.collective[nodes]))]
            for nodes in (self.nodes_of(NodeKind.ARRIVE), self.nodes_of(NodeKind.FINISH))
        )
        return arrive, finish

    def arrivals(self) -> Int64s:
        """Of every FINISH the ARRIVE of the same member; -1 of other nodes; int64[nodes]."""
        found = np.full(self.num_nodes, -1, np.int64)
        arrive, finish = self.members()
        found[finish] = arrive
        return found

    def columns(self, nodes: Integers | slice = slice(None)) -> dict[str, Any]:
        """The columns of `NODE_COLUMNS`, of some nodes or of all."""
        return {name: getattr(self, name)[nodes] for name in NODE_COLUMNS}

    def rewired(
        self,
        source: Integers,
        target: Integers,
        *,
        kind: UInt8s,
        lag_ns: Int32s,
        kept: Int64s | slice = slice(None),
    ) -> ExecutionGraph:
        """Some of the nodes, or all, and other edges between them.

        Args:
            source: of each edge, number among the nodes kept.
            target: as `source`. Edges may stand in any order; those into one node keep theirs.
            kind: of each edge, EdgeKind.
            lag_ns: of each edge.
            kept: the nodes, rising.
        """
        columns = self.columns(kept)
        order = np.argsort(target, kind="stable")
        return replace(
            self,
            **columns,
            first_edge=np.searchsorted(target[order], np.arange(len(columns["kind"]) + 1)),
            predecessor=source[order].astype(np.int32),
            edge_kind=kind[order],
            lag_ns=lag_ns[order],
        )

    def __repr__(self) -> str:
        """One line: size, ranks and steps."""
        return (
            f"ExecutionGraph({self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{len(self.ranks)} ranks, steps {self.step_names!r})"
        )


@dataclass(frozen=True)
class Finding:
    """Something about the recording that a reader must know; shown by `inspect` and `replay`."""

    topic: str  # "collectives", "clock", "steps", "streams", ...
    text: str  # one sentence
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Timeline(Remembering):
    """Start and end of every node, in ns on one clock for all ranks.

    Measured and simulated timelines are the same type, so every analysis works on both and an
    error is one subtraction. Zero is the earliest moment of the graph.
    """

    graph: ExecutionGraph
    start_ns: Int64s  # int64[nodes]
    end_ns: Int64s  # int64[nodes]
    is_measured: bool

    @property
    def duration_ns(self) -> Int64s:
        """Time from start to end of every node, int64[nodes]; made at every call."""
        return self.end_ns - self.start_ns

    @property
    def label(self) -> str:
        """`measured` or `simulated`."""
        return "measured" if self.is_measured else "simulated"

    def __repr__(self) -> str:
        """One line: which timeline, of how many nodes, how long."""
        length_ms = int(self.end_ns.max(initial=0)) / NS_PER_MS
        return f"Timeline({self.label}, {len(self.end_ns):,} nodes, {length_ms:,.3f} ms)"
