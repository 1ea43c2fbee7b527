"""Links shared by max-min fairness, by definition: exact fractions, all flows at every event."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph
from foretrace.simulate import NO_FLOW, Traffic


def fair_rates(flows: list[int], traffic: Traffic) -> dict[int, Fraction]:
    """All rates rise together, each by its pace; who is at 1 or on a full link rises no more."""
    shares = {flow: _shares(flow, traffic) for flow in flows}
    pace = {flow: Fraction(float(traffic.pace[traffic.pattern[flow]])) for flow in flows}
    rate = dict.fromkeys(flows, Fraction(0))
    rising = set(flows)
    while rising:
        steps = [(1 - rate[flow]) / pace[flow] for flow in rising]
        by_link: dict[int, Fraction] = {}
        for link in {link for flow in rising for link in shares[flow]}:
            used = sum((rate[flow] * shares[flow].get(link, 0) for flow in flows), Fraction(0))
            speed = sum((pace[flow] * shares[flow].get(link, 0) for flow in rising), Fraction(0))
            by_link[link] = (1 - used) / speed
        step = min([*steps, *by_link.values()])
        full = {link for link, room in by_link.items() if room == step}
        for flow in rising:
            rate[flow] += step * pace[flow]
        rising = {
            flow for flow in rising if rate[flow] < 1 and full.isdisjoint(shares[flow].keys())
        }
    return rate


def _shares(flow: int, traffic: Traffic) -> dict[int, Fraction]:
    own = int(traffic.pattern[flow])
    uses = range(int(traffic.first_use[own]), int(traffic.first_use[own + 1]))
    return {int(traffic.link[use]): Fraction(float(traffic.share[use])) for use in uses}


class LinksOracle:
    """One simulation; `starts`, `ends` and what every link `carried` hold its result."""

    def __init__(self, graph: ExecutionGraph, duration_ns: Int64s, traffic: Traffic) -> None:
        self._graph, self._traffic = graph, traffic
        self._duration = [Fraction(int(each)) for each in duration_ns]
        self.starts: dict[int, Fraction] = {}
        self.ends: dict[int, Fraction] = {}
        self.carried: defaultdict[int, Fraction] = defaultdict(Fraction)  # capacity x ns
        self.most = Fraction(0)  # that any link carried, of its capacity
        self._left: dict[int, Fraction] = {}
        self._due: dict[int, Fraction] = {}
        now = Fraction(0)
        while len(self.ends) < graph.num_nodes:
            self._settle()
            if self._due or self._left:
                now = self._next_event(now)

    def _settle(self) -> None:
        """Start what waits for nobody any more, until nothing changes."""
        graph, traffic = self._graph, self._traffic
        for node in range(graph.num_nodes):
            edges = range(int(graph.first_edge[node]), int(graph.first_edge[node + 1]))
            before = [int(graph.predecessor[edge]) for edge in edges]
            if node in self.starts or any(each not in self.ends for each in before):
                continue
            lags = [int(graph.lag_ns[edge]) for edge in edges]
            ready = [self.ends[each] + lag for each, lag in zip(before, lags, strict=True)]
            self.starts[node] = max([Fraction(0), *ready])
            delay = int(traffic.delay_ns[node])
            if traffic.flow[node] != NO_FLOW and self._duration[node] > delay:
                self._due[node] = self.starts[node] + delay
            else:
                self.ends[node] = self.starts[node] + self._duration[node]

    def _next_event(self, now: Fraction) -> Fraction:
        """The earliest end or begin, ends first."""
        flows = sorted({int(self._traffic.flow[node]) for node in self._left})
        rate = fair_rates(flows, self._traffic)
        of_node = {node: rate[int(self._traffic.flow[node])] for node in self._left}
        ends = [(now + left / of_node[node], 0, node) for node, left in self._left.items()]
        moment, is_begin, node = min([*ends, *((at, 1, one) for one, at in self._due.items())])
        used: defaultdict[int, Fraction] = defaultdict(Fraction)
        for flow in flows:
            for link, share in _shares(flow, self._traffic).items():
                used[link] += share * rate[flow]
                self.carried[link] += share * rate[flow] * (moment - now)
        self.most = max([self.most, *used.values()])
        for each in self._left:
            self._left[each] -= (moment - now) * of_node[each]
        if is_begin:
            del self._due[node]
            self._left[node] = self._duration[node] - int(self._traffic.delay_ns[node])
        else:
            del self._left[node]
            self.ends[node] = moment
        return moment
