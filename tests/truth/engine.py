"""When everything really happens: plain longest path, and an event simulation for contention."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.truth.structure import Dependency, Int64s, Node, Structure

_ARRIVE, _FINISH, _DEVICE = int(Node.ARRIVE), int(Node.FINISH), int(Node.DEVICE)


@dataclass(frozen=True)
class Times:
    """Start and end of every node, in ns on the true clock."""

    start_ns: Int64s
    end_ns: Int64s


def longest_path(structure: Structure, duration_ns: Int64s, delay_ns: Int64s) -> Times:
    """Every node as early as its predecessors allow."""
    order = structure.order
    predecessor = structure.predecessor.tolist()
    lag = structure.lag_ns.tolist()
    end = [0] * len(order)
    columns = (
        structure.first_edge[order],
        structure.first_edge[order + 1],
        delay_ns[order],
        duration_ns[order],
    )
    for node, low, high, delay, duration in zip(
        order.tolist(), *(column.tolist() for column in columns), strict=True
    ):
        ready = 0
        for edge in range(low, high):
            moment = end[predecessor[edge]] + lag[edge]
            if moment > ready:  # noqa: PLR1730  # `max` takes three times as long, in every job
                ready = moment
        end[node] = ready + delay + duration
    ends = np.array(end, np.int64)
    return Times(ends - duration_ns, ends)


class _Contended:
    """Event simulation in which a compute kernel runs slower while its rank communicates.

    Work is counted in ns times the slow factor's numerator, so that time stays in whole ns.
    """

    def __init__(
        self, structure: Structure, duration_ns: Int64s, delay_ns: Int64s, factor: float
    ) -> None:
        slow = Fraction(factor).limit_denominator(1_000)
        self.fast_rate, self.slow_rate = slow.numerator, slow.denominator
        self.kind = structure.kind.tolist()
        self.rank = structure.rank.tolist()
        self.is_compute = ((structure.family >= 0) & (structure.kind == Node.DEVICE)).tolist()
        self.duration = duration_ns.tolist()
        self.delay = delay_ns.tolist()
        num_nodes = structure.num_nodes
        self.start = [0] * num_nodes
        self.end = [0] * num_nodes
        self.ready = [0] * num_nodes
        self.num_waits = np.diff(structure.first_edge).tolist()
        self.successors: list[list[tuple[int, int]]] = [[] for _ in range(num_nodes)]
        owners = np.repeat(np.arange(num_nodes), np.diff(structure.first_edge))
        edges = zip(
            structure.predecessor.tolist(), owners.tolist(), structure.lag_ns.tolist(), strict=True
        )
        for before, after, lag in edges:
            self.successors[before].append((after, lag))
        num_ranks = len(structure.ranks)
        self.num_active = [0] * num_ranks
        # node -> work left, moment it was counted
        self.running: list[dict[int, tuple[int, int]]] = [{} for _ in range(num_ranks)]
        self.version = [0] * num_nodes
        self.heap: list[tuple[int, int, int, int]] = []  # time, is_start, node, version

    def run(self) -> Times:
        """All nodes, in the order of time."""
        for node, waits in enumerate(self.num_waits):
            if waits == 0:
                heapq.heappush(self.heap, (self.delay[node], 1, node, 0))
        while self.heap:
            now, is_start, node, version = heapq.heappop(self.heap)
            if is_start:
                self._begin(node, now)
            elif version == self.version[node]:
                self._complete(node, now)
        return Times(np.array(self.start, np.int64), np.array(self.end, np.int64))

    def _begin(self, node: int, now: int) -> None:
        self.start[node] = now
        rank = self.rank[node]
        if self.is_compute[node]:
            self.running[rank][node] = (self.duration[node] * self.fast_rate, now)
            self._schedule(node, now)
            return
        if self.kind[node] == _ARRIVE:
            self._set_active(rank, now, 1)
        if self.kind[node] == _FINISH:
            heapq.heappush(self.heap, (now + self.duration[node], 0, node, 0))
            return
        self._release(node, now + self.duration[node])

    def _complete(self, node: int, now: int) -> None:
        rank = self.rank[node]
        if self.kind[node] == _FINISH:
            self._set_active(rank, now, -1)
        else:
            del self.running[rank][node]
        self._release(node, now)

    def _release(self, node: int, end: int) -> None:
        self.end[node] = end
        for successor, lag in self.successors[node]:
            self.ready[successor] = max(self.ready[successor], end + lag)
            self.num_waits[successor] -= 1
            if self.num_waits[successor] == 0:
                moment = self.ready[successor] + self.delay[successor]
                heapq.heappush(self.heap, (moment, 1, successor, 0))

    def _rate(self, rank: int) -> int:
        return self.slow_rate if self.num_active[rank] else self.fast_rate

    def _schedule(self, node: int, now: int) -> None:
        left = self.running[self.rank[node]][node][0]
        self.version[node] += 1
        end = now + -(-left // self._rate(self.rank[node]))
        heapq.heappush(self.heap, (end, 0, node, self.version[node]))

    def _set_active(self, rank: int, now: int, change: int) -> None:
        before = self._rate(rank)
        self.num_active[rank] += change
        if self._rate(rank) == before:
            return
        for node, (left, since) in list(self.running[rank].items()):
            self.running[rank][node] = (max(0, left - (now - since) * before), now)
            self._schedule(node, now)


def contended(structure: Structure, duration_ns: Int64s, delay_ns: Int64s, factor: float) -> Times:
    """The same with compute kernels slower by `factor` while their rank communicates."""
    return _Contended(structure, duration_ns, delay_ns, factor).run()


def lateness_ns(structure: Structure, times: Times, edge: int) -> int:
    """How much later an edge makes its node start than its other edges would."""
    node = int(np.searchsorted(structure.first_edge, edge, side="right")) - 1
    low, high = structure.first_edge[node], structure.first_edge[node + 1]
    ready = times.end_ns[structure.predecessor[low:high]] + structure.lag_ns[low:high]
    others = np.delete(ready, edge - low)
    return max(0, int(ready.max()) - int(others.max(initial=0)))


def host_begin_ns(structure: Structure, times: Times, node: int) -> int:
    """When a host thread gets to a call: the end of what stands before it on its thread."""
    for edge in range(structure.first_edge[node], structure.first_edge[node + 1]):
        if structure.edge_kind[edge] == Dependency.HOST:
            return int(times.end_ns[structure.predecessor[edge]])
    return int(times.start_ns[node])
