"""The event-driven engine: ranks share their hosts' cores, and collectives the links of a network.

Moments between events are kept as float64 and rounded in the result, halves up; a node that
shares nothing, and a flow that nobody holds, take their duration exactly: where nobody shares,
every moment is the static engine's. A node behind a lag below zero, which begins before the
latest event of what it shares, works as if alone up to that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, SimulationError, UInt8s
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.simulate._compiled import Status
from foretrace.simulate.sharing._compiled import _shared_ends
from foretrace.simulate.sharing.cores import OWN, Cores, hosts_of, needs
from foretrace.simulate.sharing.traffic import NO_FLOW, LinkTimes, Traffic
from foretrace.simulate.static import check_columns, check_type, sentence


def simulate_shared(
    graph: ExecutionGraph,
    duration_ns: Int64s | None,
    cores: Cores | None = None,
    *,
    hosts: Mapping[int, int] | None = None,
    traffic: Traffic | None = None,
) -> Timeline:
    """Start and end of every node, in ns from the graph's zero, where ranks share.

    Args:
        graph: who waits for whom; node order must be topological.
        duration_ns: int64[nodes], how long each node takes on a core and on links of its own; the
            measured durations if `None`.
        cores: of every host; as many as anybody wants, if left out.
        hosts: any number for the host of every rank; all ranks on one host, if left out.
        traffic: what nodes ask of links; no link is shared, if left out.

    Raises:
        SimulationError: as `simulate` does; if a rank has no host; if an end lies past 2**53 ns; if
            traffic is not of this graph.
    """
    return simulate_links(graph, duration_ns, traffic, cores=cores, hosts=hosts)[0]


def simulate_links(
    graph: ExecutionGraph,
    duration_ns: Int64s | None,
    traffic: Traffic | None,
    *,
    cores: Cores | None = None,
    hosts: Mapping[int, int] | None = None,
    watched: UInt8s | None = None,
) -> tuple[Timeline, LinkTimes]:
    """As `simulate_shared`, and what became of the links.

    Args:
        graph: so too, as all but the last.
        duration_ns: so too.
        traffic: so too.
        cores: so too.
        hosts: so too.
        watched: uint8[flows], 1: count where the flow is held.
    """
    durations = graph.measured_ns if duration_ns is None else duration_ns
    check_type(durations)
    check_columns(graph, durations.shape)
    asked = traffic or Traffic.private(graph.num_nodes)
    asked.check(graph.num_nodes)
    clock, num_hosts = _clocks(graph, cores, hosts, asked)
    start_ns, end_ns = np.empty((2, graph.num_nodes))
    held_ns, crowded_ns = np.zeros((2, asked.num_links))
    status, node, num_events = _shared_ends(
        *graph.edges_in_one_piece,
        np.ascontiguousarray(durations),
        asked.delay_ns,
        clock,
        num_hosts,
        np.array((1.0,) if cores is None else cores.speed),
        0.0 if cores is None else cores.transfers,
        asked.pattern,
        asked.first_use,
        asked.link,
        asked.share,
        asked.pace,
        asked.num_links,
        np.zeros(asked.num_flows, np.uint8) if watched is None else watched,
        start_ns,
        end_ns,
        held_ns,
        crowded_ns,
    )
    if status != Status.OK:
        # As floats: the message then states the limit of this engine.
        given = durations.astype(np.float64)
        raise SimulationError(sentence(graph, given, Status(status), node))
    timeline = Timeline(
        graph=graph, start_ns=_rounded(start_ns), end_ns=_rounded(end_ns), is_measured=False
    )
    return timeline, LinkTimes(crowded_ns, held_ns, int(num_events))


def _clocks(
    graph: ExecutionGraph, cores: Cores | None, hosts: Mapping[int, int] | None, traffic: Traffic
) -> tuple[Int32s, int]:
    """What each node's progress is read from, as the loop counts; and how many hosts there are."""
    num_hosts = 0
    clock = np.full(graph.num_nodes, -1, np.int32)
    if cores is not None:
        host, num_hosts = hosts_of(graph, hosts)
        need = needs(graph, cores)
        clock = np.where(need != OWN, 2 * host + need - 1, -1).astype(np.int32)
    flows = traffic.flow != NO_FLOW
    clock[flows] = 2 * num_hosts + traffic.flow[flows]
    return clock, num_hosts


def _rounded(moment_ns: Float64s) -> Int64s:
    """Whole ns, halves up: a whole number added before or after gives the same."""
    found: Int64s = np.floor(moment_ns + 0.5).astype(np.int64)
    return found
