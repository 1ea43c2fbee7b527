"""The engine for hosts whose threads share cores: a graph and durations become a timeline.

Events in order of time. Whatever works on a host's threads at once goes at one speed, which
`Cores` states by their number; all else (kernels, transfers, waiting) takes its own time. With
speed 1 for any number it gives what `simulate` gives.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foretrace.base import Float64s, Int64s, SimulationError
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.simulate._compiled import Status
from foretrace.simulate.sharing._compiled import _shared_ends
from foretrace.simulate.sharing.cores import Cores, hosts_of, needs
from foretrace.simulate.static import check_columns, check_type, sentence


def simulate_shared(
    graph: ExecutionGraph,
    duration_ns: Int64s | None,
    cores: Cores,
    *,
    hosts: Mapping[int, int] | None = None,
) -> Timeline:
    """Start and end of every node, in ns from the graph's zero, on hosts that share cores.

    Moments between events are kept as float64 and rounded in the result, halves up; a node that
    needs no core takes its duration exactly. A node behind a lag below zero, which begins before
    its host's latest event, works as if alone up to that.

    Args:
        graph: who waits for whom; node order must be topological.
        duration_ns: int64[nodes], how long each node takes on a core of its own; the measured
            durations if `None`.
        cores: of every host.
        hosts: any number for the host of every rank; all ranks on one host, if left out.

    Raises:
        SimulationError: as `simulate` does; if a rank has no host; if an end lies past 2**53 ns.
    """
    durations = graph.measured_ns if duration_ns is None else duration_ns
    check_type(durations)
    check_columns(graph, durations.shape)
    host, num_hosts = hosts_of(graph, hosts)
    start_ns, end_ns = np.empty((2, graph.num_nodes))
    status, node = _shared_ends(
        np.ascontiguousarray(graph.first_edge),
        np.ascontiguousarray(graph.predecessor),
        np.ascontiguousarray(graph.lag_ns),
        np.ascontiguousarray(durations),
        needs(graph, cores),
        host,
        num_hosts,
        np.array(cores.speed),
        cores.transfers,
        start_ns,
        end_ns,
    )
    if status != Status.OK:
        # As floats: the message then states the limit of this engine.
        given = durations.astype(np.float64)
        raise SimulationError(sentence(graph, given, Status(status), node))
    return Timeline(
        graph=graph, start_ns=rounded(start_ns), end_ns=rounded(end_ns), is_measured=False
    )


def rounded(moment_ns: Float64s) -> Int64s:
    """Whole ns, halves up: a whole number added before or after gives the same."""
    found: Int64s = np.floor(moment_ns + 0.5).astype(np.int64)
    return found
