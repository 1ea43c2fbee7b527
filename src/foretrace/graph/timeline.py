"""`Timeline`: when each node of a graph started and ended, measured or simulated."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import NS_PER_MS, Int64s, Remembering
from foretrace.graph.graph import ExecutionGraph


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
