"""`Recording`: a graph with what was measured beside it, as `build` makes it from traces."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import Int64s
from foretrace.graph.graph import ExecutionGraph, Finding
from foretrace.graph.timeline import Timeline


@dataclass(frozen=True)
class Clock:
    """How one rank's clock was laid onto the first rank's."""

    rank: int
    offset_ns: int  # what to subtract from this rank's timestamps
    drift_ppb: int  # ns per second that remain, removed too
    spread_ns: int  # median absolute residual of the matched collective ends
    num_matches: int  # collectives used; 0: not aligned, only the start of the trace is


@dataclass(frozen=True)
class Recording:
    """Traces of one job, understood: what `load` returns the inside of.

    `graph` alone reaches a simulation. `measured` and `recorded_ns` are the answer to compare
    with, and the null models' input.
    """

    graph: ExecutionGraph
    measured: Timeline  # observed start and end of every node, on the aligned clock
    recorded_ns: Int64s  # int64[nodes], duration as the trace has it, waiting included
    clocks: tuple[Clock, ...]
    findings: tuple[Finding, ...]
    unprofiled_step_ns: dict[int, int]  # rank -> median step time without profiler, if recorded
