"""`ExecutionGraph`: who waits for whom, for one job of one or many ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrace.base import Float32s, Int16s, Int32s, Int64s, UInt8s
from foretrace.graph.collective import Collectives
from foretrace.graph.nodes import EdgeKind


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
    name: Int32s  # int32[nodes], position in `names`
    signature: Int32s  # int32[nodes], position in `names`; -1: none
    step: Int32s  # int32[nodes], position in `step_names`; NO_STEP outside
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
