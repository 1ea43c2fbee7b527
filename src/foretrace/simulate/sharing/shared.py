"""The event-driven engine: ranks share their hosts' cores, and collectives the links of a network.

While n threads work, each goes at the speed of n. `alone_ns` takes a timeline back: how long work
would have taken on a core of its own.

A *flow* is the transfer of one collective on all its links: it has one rate, as a ring has, and
slows all its members alike. At rate 1 it takes the time that it takes alone, and of each of its
links a share. Where flows ask more of a link than it has, they share it by max-min fairness: the
rates of all rise together, each by its pace, until a full link or their own speed holds them.
Flows that are much alike make the same *pattern*; equal ranks make one flow whose shares are those
of all of them.

Fairness between flows is what long messages come to; short ones are over before their senders have
found their share, so their times are less sure (arXiv:2503.01770).

Moments between events are kept as float64 and rounded in the result, halves up; a node that
shares nothing, and a flow that nobody holds, take their duration exactly: where nobody shares,
every moment is the static engine's. A node behind a lag below zero, which begins before the
latest event of what it shares, works as if alone up to that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Float64s, Int32s, Int64s, SimulationError, UInt8s
from foretrace.graph import NO_LANE, ExecutionGraph, NodeKind, Timeline
from foretrace.simulate._compiled import Status
from foretrace.simulate.sharing._compiled import _shared_ends
from foretrace.simulate.static import check_columns, check_type, sentence

OWN, SHARED, TRANSFER = 0, 1, 2  # what a node needs: its own time, a core, a share of one

NO_FLOW = -1


@dataclass(frozen=True, kw_only=True)
class Cores:
    """The processor cores of one host, which the threads of its ranks share fairly.

    Whoever works goes at one speed with all others that do: `speed[n - 1]` while n work at once,
    where 1 is the speed that durations are stated at. More than are listed share what the last
    ones had. Counts between whole numbers, from `transfers`, lie on the straight line between.
    """

    speed: tuple[float, ...]  # of each thread, when 1, 2, 3, ... work at once
    # Share of a thread that the transfer of a collective takes on every rank (sockets, shared
    # memory); the rest of it needs no core. Nothing on GPUs with a network card of their own.
    transfers: float = 0.0

    def __post_init__(self) -> None:
        """Refuse speeds that nothing can go at."""
        if not self.speed or not all(math.isfinite(one) and one > 0 for one in self.speed):
            raise SimulationError(
                f"cores need one speed above 0 for each number of threads, got {self.speed!r}: "
                "Cores.of(2) has two cores at full speed."
            )
        if not 0 <= self.transfers <= 1:
            raise SimulationError(
                f"the share of a core that transfers take must be 0 to 1, got {self.transfers!r}"
            )

    @classmethod
    def of(cls, count: int, *, transfers: float = 0.0) -> Cores:
        """So many cores: as many threads go at full speed, more share them evenly.

        Raises:
            SimulationError: if there is no core.
        """
        if count < 1:
            raise SimulationError(f"a host has 1 core or more, got {count}")
        return cls(speed=(1.0,) * count, transfers=transfers)

    def of_copies(self, copies: int) -> Cores:
        """What one rank finds where `copies` ranks do the same at the same time, itself counted.

        One rank stands for all of them in a graph; on the cores each is there.

        Raises:
            SimulationError: if there is not even one.
        """
        if copies < 1:
            raise SimulationError(f"a rank stands for itself at least, got {copies} copies")
        counts = np.arange(1, len(self.speed) + 1, dtype=np.float64) * copies
        return Cores(speed=tuple(self.speeds(counts).tolist()), transfers=self.transfers)

    def speeds(self, running: Float64s) -> Float64s:
        """Speed of each thread while so many work at once, float64[counts]."""
        count = len(self.speed)
        listed: Float64s = np.interp(running, np.arange(1, count + 1), self.speed)
        return np.where(running > count, self.speed[-1] * count / np.maximum(running, 1), listed)


def needs(graph: ExecutionGraph, cores: Cores) -> UInt8s:
    """What every node needs: OWN, SHARED or TRANSFER, uint8[nodes].

    Work on a host's threads needs a core; a transfer of a collective needs the share that
    `cores` states; all else takes its own time.
    """
    on_thread = (graph.lane != NO_LANE) & ~graph.is_on_stream
    found = np.full(graph.num_nodes, OWN, np.uint8)
    found[on_thread & graph.is_host] = SHARED
    if cores.transfers > 0:
        found[on_thread & (graph.kind == NodeKind.FINISH)] = TRANSFER
    return found


def hosts_of(graph: ExecutionGraph, hosts: Mapping[int, int] | None) -> tuple[Int32s, int]:
    """Number of the host that every node's rank is on, from 0, and how many hosts there are.

    Args:
        graph: of any ranks.
        hosts: any number for the host of every rank; all on one, if left out.

    Raises:
        SimulationError: if a rank has no host.
    """
    if hosts is None or not graph.num_nodes:
        return np.zeros(graph.num_nodes, np.int32), 1
    missing = [rank for rank in graph.ranks if rank not in hosts]
    if missing:
        raise SimulationError(
            f"hosts must say where every rank runs: nothing is said of {missing[:5]} "
            f"({len(missing)} of {len(graph.ranks)} ranks)"
        )
    number = {host: at for at, host in enumerate(sorted(set(hosts.values())))}
    by_rank = np.zeros(max(graph.ranks, default=0) + 1, np.int32)
    for rank in graph.ranks:
        by_rank[rank] = number[hosts[rank]]
    # Hubs and ghosts have no rank and need no core.
    return by_rank[np.maximum(graph.rank, 0)], max(1, len(number))


def alone_ns(timeline: Timeline, cores: Cores, *, hosts: Mapping[int, int] | None = None) -> Int64s:
    """Duration of every node on a core of its own, int64[nodes]; the inverse of a simulation.

    Waiting is no work: a node's time runs from its start, when it stops waiting, to its end.
    What needs no core keeps its time.

    Args:
        timeline: measured or simulated on hosts with these cores.
        cores: of every host.
        hosts: any number for the host of every rank; all ranks on one host, if left out.

    Raises:
        SimulationError: if a rank has no host.
    """
    graph = timeline.graph
    need = needs(graph, cores)
    host, num_hosts = hosts_of(graph, hosts)
    found = timeline.duration_ns
    for number in range(num_hosts):
        is_here = (host == number) & (need != OWN) & (found > 0)
        if is_here.any():
            _replace_alone(found, timeline, cores, is_here & (need == SHARED), is_here)
    return found


def _replace_alone(
    found: Int64s, timeline: Timeline, cores: Cores, is_shared: Bools, is_here: Bools
) -> None:
    """Write what the work of one host takes alone over its times."""
    weight = np.where(is_shared[is_here], 1.0, cores.transfers)
    start_ns, end_ns = timeline.start_ns[is_here], timeline.end_ns[is_here]
    moment_ns, running = _running(start_ns, end_ns, weight)
    speed = cores.speeds(running)
    for is_kind, share in ((is_shared, 1.0), (is_here & ~is_shared, cores.transfers)):
        progress = 1.0 - share * (1.0 - speed)
        done_ns = np.concatenate(([0.0], np.cumsum(np.diff(moment_ns) * progress[:-1])))
        first = np.searchsorted(moment_ns, timeline.start_ns[is_kind])
        last = np.searchsorted(moment_ns, timeline.end_ns[is_kind])
        found[is_kind] = np.floor(done_ns[last] - done_ns[first] + 0.5)


def _running(start_ns: Int64s, end_ns: Int64s, weight: Float64s) -> tuple[Int64s, Float64s]:
    """Moments at which something begins or ends, rising, and how many work from each on."""
    moment_ns, place = np.unique(np.concatenate((start_ns, end_ns)), return_inverse=True)
    change = np.bincount(place, weights=np.concatenate((weight, -weight)), minlength=len(moment_ns))
    return moment_ns, np.maximum(np.cumsum(change), 0.0)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What the nodes of one graph ask of links."""

    flow: Int32s  # int32[nodes], the flow that a node is part of; NO_FLOW
    delay_ns: Int64s  # int64[nodes], of its duration what passes before it asks for links
    pattern: Int32s  # int32[flows]
    first_use: Int64s  # int64[patterns + 1], of the columns below
    link: Int32s  # int32[uses], no link twice in a pattern
    share: Float64s  # float64[uses], of the link's capacity, at rate 1; above 0
    # float64[patterns], rates of flows that have as much as each other: channels over what one of
    # them moves at rate 1.
    pace: Float64s
    num_links: int

    @property
    def num_flows(self) -> int:
        """Number of transfers."""
        return len(self.pattern)

    @classmethod
    def private(cls, num_nodes: int) -> Traffic:
        """Nothing is shared."""
        empty, none = np.empty(0, np.int32), np.empty(0)
        return cls(
            flow=np.full(num_nodes, NO_FLOW, np.int32),
            delay_ns=np.zeros(num_nodes, np.int64),
            pattern=empty,
            first_use=np.zeros(1, np.int64),
            link=empty,
            share=none,
            pace=none,
            num_links=0,
        )

    def check(self, num_nodes: int) -> None:
        """Refuse columns that the compiled loop would read past the end of, and idle flows.

        Raises:
            SimulationError: if columns do not fit each other, or a share or pace is not above 0.
        """
        sizes = len(self.flow), len(self.delay_ns)
        if sizes != (num_nodes, num_nodes):
            raise SimulationError(
                f"traffic must say of every node what it asks of links: {sizes} entries for "
                f"{num_nodes} nodes"
            )
        for what, column, end in (
            ("flow", self.flow + 1, self.num_flows + 1),
            ("pattern", self.pattern, len(self.first_use) - 1),
            ("link", self.link, self.num_links),
        ):
            if len(column) and not (column.min() >= 0 and column.max() < end):
                raise SimulationError(f"traffic names a {what} that there is not, of {end}")
        fits = self.first_use[0] == 0 and (np.diff(self.first_use) >= 0).all()
        if not fits or not self.first_use[-1] == len(self.link) == len(self.share):
            raise SimulationError("uses of links must go from 0 to their number, rising")
        if len(self.pace) != len(self.first_use) - 1 or (self.delay_ns < 0).any():
            raise SimulationError("every pattern has a pace, and no delay is below 0")
        for what, values in (("share of a link", self.share), ("pace", self.pace)):
            if not (np.isfinite(values) & (values > 0)).all():
                raise SimulationError(
                    f"a {what} must be above 0 and finite, got {values[~(values > 0)][:3].tolist()}"
                    ": a link without bandwidth carries nothing"
                )


@dataclass(frozen=True)
class LinkTimes:
    """What became of the links of a simulation."""

    crowded_ns: Float64s  # float64[links], time in which more was asked of it than it has
    held_ns: Float64s  # float64[links], time in which flows that were watched were held by it
    num_events: int  # begins and ends of flows


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
