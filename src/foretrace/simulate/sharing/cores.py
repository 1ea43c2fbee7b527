"""`Cores`: how fast a host's threads go when so many of them work at once.

While n threads work, each goes at the speed of n. `alone_ns` takes a timeline back: how long work
would have taken on a core of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Float64s, Int32s, Int64s, SimulationError, UInt8s
from foretrace.graph import NO_LANE, ExecutionGraph, NodeKind, Timeline

OWN, SHARED, TRANSFER = 0, 1, 2  # what a node needs: its own time, a core, a share of one


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
