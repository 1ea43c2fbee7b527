"""`Working`: an arranged graph and its costs while changes are made; rounded once, at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, Float64s, Int32s, Int64s, UInt8s
from foretrace.cost import Costs
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.whatif.arrange.arranged import Arranged

# What tells one block of one rank's step from another.
BLOCK_COLUMNS = ("rank", "step", "part", "phase", "layer", "microbatch")
_ENTRIES = (EdgeKind.LAUNCH, EdgeKind.ISSUE)


@dataclass(frozen=True)
class Working:
    """One row per node; arrays are replaced, never written to."""

    arranged: Arranged
    duration_ns: Float64s  # float64[nodes]
    low_ns: Float64s  # float64[nodes], 10th percentile
    high_ns: Float64s  # float64[nodes], 90th
    source: UInt8s  # uint8[nodes], Source
    family: Int32s  # int32[nodes], position in `families`
    families: tuple[str, ...]

    @classmethod
    def of(cls, arranged: Arranged, costs: Costs) -> Working:
        """Costs as they are."""
        return cls(
            arranged=arranged,
            duration_ns=costs.duration_ns.astype(np.float64),
            low_ns=costs.low_ns.astype(np.float64),
            high_ns=costs.high_ns.astype(np.float64),
            source=costs.source,
            family=costs.family,
            families=costs.families,
        )

    @property
    def graph(self) -> ExecutionGraph:
        """Of the arranged job."""
        return self.arranged.graph

    def costs(self) -> Costs:
        """What every node takes, in whole nanoseconds."""
        return Costs(
            duration_ns=_rounded(self.duration_ns),
            low_ns=_rounded(self.low_ns),
            high_ns=_rounded(self.high_ns),
            source=self.source,
            family=self.family,
            families=self.families,
        )

    def times(self, factor: Float64s) -> Working:
        """Every node takes so many times as long; float64[nodes]."""
        return replace(
            self,
            duration_ns=self.duration_ns * factor,
            low_ns=self.low_ns * factor,
            high_ns=self.high_ns * factor,
        )

    def plus(self, extra_ns: Float64s) -> Working:
        """Every node takes so much longer, at least no time; float64[nodes]."""
        return replace(
            self,
            duration_ns=np.maximum(self.duration_ns + extra_ns, 0),
            low_ns=np.maximum(self.low_ns + extra_ns, 0),
            high_ns=np.maximum(self.high_ns + extra_ns, 0),
        )


def _rounded(duration_ns: Float64s) -> Int64s:
    rounded: Int64s = np.rint(duration_ns).astype(np.int64)
    return rounded


def with_edges(graph: ExecutionGraph, is_kept: Bools) -> ExecutionGraph:
    """The graph with some of its edges; bool[edges]."""
    return graph.rewired(
        graph.predecessor[is_kept],
        graph.edge_target[is_kept],
        kind=graph.edge_kind[is_kept],
        lag_ns=graph.lag_ns[is_kept],
    )


def arrivals(graph: ExecutionGraph) -> Int64s:
    """For each FINISH the ARRIVE of the same member, for every other node itself; int64[nodes]."""
    found = np.arange(graph.num_nodes, dtype=np.int64)
    arrive, finish = graph.members()
    found[finish] = arrive
    return found


def launches(graph: ExecutionGraph) -> Int64s:
    """The call that launches each device operation or issues each transfer; -1; int64[nodes]."""
    found = np.full(graph.num_nodes, -1, np.int64)
    call, entered = graph.edges_of(*_ENTRIES)
    found[entered] = call
    # A worker thread's time before an arrival was issued; the arrival follows it.
    before, node = graph.edges_of(EdgeKind.HOST_ORDER)
    follows = graph.kind[node] == NodeKind.ARRIVE
    found[node[follows]] = found[before[follows]]
    return found[arrivals(graph)]


def previous_on_host(graph: ExecutionGraph) -> Int64s:
    """What each host node follows on its thread; -1 of the others; int64[nodes]."""
    found = np.full(graph.num_nodes, -1, np.int64)
    before, node = graph.edges_of(EdgeKind.HOST_ORDER)
    found[node] = before
    return found
