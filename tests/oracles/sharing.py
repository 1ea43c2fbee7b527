"""Hosts that share cores by their definition: exact fractions, everything looked at every time."""

from __future__ import annotations

from fractions import Fraction

from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import Cores

_ON_CORES = (NodeKind.HOST_SEGMENT, NodeKind.LAUNCH)  # of the kinds that tests make


class SharingOracle:
    """One simulation; `ends` and `starts` hold every node's moments afterwards."""

    def __init__(
        self, graph: ExecutionGraph, duration_ns: Int64s, cores: Cores, hosts: dict[int, int]
    ) -> None:
        self._graph = graph
        self._duration = [Fraction(int(each)) for each in duration_ns]
        self._cores = cores
        self._host = [hosts[int(rank)] for rank in graph.rank]
        self.starts: dict[int, Fraction] = {}
        self.ends: dict[int, Fraction] = {}
        self._left: dict[int, Fraction] = {}  # of what works, at its host's latest event
        self._at = dict.fromkeys(hosts.values(), Fraction(0))
        self._due: set[int] = set()
        while len(self.ends) < graph.num_nodes:
            self._settle()
            if self._due or self._left:
                self._next_event()

    def _share(self, node: int) -> Fraction:
        """Of a core that a node needs."""
        if self._graph.lanes[self._graph.lane[node]].is_device or not self._duration[node]:
            return Fraction(0)
        if self._graph.kind[node] == NodeKind.FINISH:
            return Fraction(self._cores.transfers)
        return Fraction(int(self._graph.kind[node] in _ON_CORES))

    def _settle(self) -> None:
        """Start what waits for nobody any more, until nothing changes."""
        for node in range(self._graph.num_nodes):
            edges = range(int(self._graph.first_edge[node]), int(self._graph.first_edge[node + 1]))
            before = [int(self._graph.predecessor[edge]) for edge in edges]
            if node in self.starts or any(each not in self.ends for each in before):
                continue
            lags = [int(self._graph.lag_ns[edge]) for edge in edges]
            ready = [self.ends[each] + lag for each, lag in zip(before, lags, strict=True)]
            self.starts[node] = max([Fraction(0), *ready])
            if self._share(node):
                self._due.add(node)
            else:
                self.ends[node] = self.starts[node] + self._duration[node]

    def _rate(self, node: int, running: Fraction) -> Fraction:
        """Of a node's progress."""
        listed = [Fraction(each) for each in self._cores.speed]
        if running <= 1:
            speed = listed[0]
        elif running >= len(listed):
            speed = listed[-1] * len(listed) / running
        else:
            low = int(running)
            speed = listed[low - 1] + (running - low) * (listed[low] - listed[low - 1])
        return 1 - self._share(node) * (1 - speed)

    def _running(self, host: int) -> Fraction:
        shares = (self._share(node) for node in self._left if self._host[node] == host)
        return sum(shares, Fraction(0))

    def _next_event(self) -> None:
        """The earliest end or start; ends first, then hosts, cores before transfers, nodes."""
        events = [(self.starts[node], 1, 0, False, node) for node in self._due]
        for node, left in self._left.items():
            host = self._host[node]
            moment = self._at[host] + left / self._rate(node, self._running(host))
            is_transfer = self._graph.kind[node] == NodeKind.FINISH
            events.append((moment, 0, host, bool(is_transfer), node))
        moment, is_start, _, _, node = min(events)
        host = self._host[node]
        if moment > self._at[host]:
            running = self._running(host)
            for each in self._left:
                if self._host[each] == host:
                    self._left[each] -= (moment - self._at[host]) * self._rate(each, running)
            self._at[host] = moment
        if not is_start:
            del self._left[node]
            self.ends[node] = moment
            return
        self._due.remove(node)
        alone = self._rate(node, Fraction(1))
        left = self._duration[node] - (self._at[host] - moment) * alone
        if left <= 0:
            self.ends[node] = moment + self._duration[node] / alone
        else:
            self._left[node] = left
