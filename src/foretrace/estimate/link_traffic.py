"""`StepTraffic`: what the collectives of a laid-out graph ask of a machine's links.

How long a collective takes alone is the cost model's; what it then takes of a link is the bytes
that it puts there over that time. In a folded graph a collective stands for those of all alike
groups, which run at the same time, so it asks of every link for all of them. Links of which the
same is asked by all are one link, so a machine of any size has a few dozen. A link that nobody can
crowd, since what follows one another on a stream is never there at once, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from foretrace.base import Bools, Float64s, Int32s, Int64s, Integers, numbered_rows, row_starts
from foretrace.cost import (
    CollectiveLoads,
    CostModel,
    by_trees,
    collective_loads,
    collective_named,
    transfer_ns,
)
from foretrace.graph import Collective, ExecutionGraph, NodeKind
from foretrace.machine import Machine, MachineLinks, links_of
from foretrace.simulate import NO_FLOW, Traffic
from foretrace.workload import LaidOut, alike_groups

_FULL = 1 + 1e-9
_DIGITS = 12  # by which equal loads are told
_AHEAD = 1000.0  # times as much as others get: nearly all, and nobody starves
_UP, _DOWN = 1, 0  # which of two ends sends


@dataclass(frozen=True)
class StepTraffic:
    """What the simulation needs, and which links its numbers mean."""

    links: MachineLinks
    traffic: Traffic
    own_link: Int64s  # int64[links of the traffic], the first of those of the machine it stands for
    num_alike: Int64s  # int64[links of the traffic], how many of the machine's
    carried_ns: Float64s  # float64[links of the traffic], of its capacity, in the whole step
    may_be_crowded: Bools  # bool[links of the traffic]; of others flows say nothing

    def with_slow_link(self, link: int, left: float) -> Traffic:
        """The traffic, one of whose links has lost bandwidth.

        Args:
            link: of the traffic.
            left: share of its bandwidth that it has.
        """
        share = self.traffic.share
        slow = np.where(self.traffic.link == link, share / left, share)
        return replace(self.traffic, share=slow)

    def changed(
        self, before_ns: Int64s, after_ns: Int64s, wider_level: int | None, *, by: float
    ) -> Traffic:
        """The traffic of collectives that take otherwise alone, on links of which some are wider.

        Args:
            before_ns: int64[nodes], that it was made with.
            after_ns: int64[nodes].
            wider_level: of the links, both ways; `None`: all are as before.
            by: how many times as wide.
        """
        own = self.traffic
        nodes = np.flatnonzero(own.flow != NO_FLOW)
        delay_ns = own.delay_ns[nodes]
        ratio = np.ones(len(own.pace))
        ratio[own.pattern[own.flow[nodes]]] = (before_ns[nodes] - delay_ns) / np.maximum(
            after_ns[nodes] - delay_ns, 1
        )
        share = own.share * np.repeat(ratio, np.diff(own.first_use))
        if wider_level is not None:
            is_wider = self.links.level[self.own_link[own.link]] // 2 == wider_level
            share = np.where(is_wider, share / by, share)
        return replace(own, share=share)


def own_groups(graph: ExecutionGraph) -> Sequence[Int64s]:
    """Each collective's group alone, int64[1, members]: ranks are all there."""
    return [np.array([one.ranks], np.int64) for one in graph.collectives.makes]


def step_traffic(
    graph: ExecutionGraph,
    duration_ns: Int64s,
    *,
    model: CostModel,
    links: MachineLinks,
    groups: Callable[[ExecutionGraph], Sequence[Int64s]] = own_groups,
    num_bytes: Int64s | None = None,
    first: str | None = None,
    least_left: float = 1.0,
) -> StepTraffic:
    """What the collectives of a step ask of a machine's links.

    Args:
        graph: of any origin; rank r stands at place r of the machine.
        duration_ns: int64[nodes], of every node alone.
        model: what says how much of them passes before data does.
        links: that they use.
        groups: int64[groups, members], those that do what each make of a graph's collectives says.
        num_bytes: int64[collectives]; as the graph has them, if left out.
        first: the group whose transfers go before all others.
        least_left: of any link's bandwidth, where some are to lose it.
    """
    flows = _Flows(graph, duration_ns, model, links.machine, num_bytes=num_bytes)
    makes, of_make = graph.collectives.makes, groups(graph)
    loads = _Loads(links)
    kind_of_make = {
        (make, way, tree): loads.place(makes[make].name, of_make[make], way, by_tree=tree > 0)
        for make, way, tree in flows.makes_and_ways
    }
    kind = np.array([kind_of_make[each] for each in flows.makes_and_ways], np.int64)
    goes_first = np.array([one.group == first for one in makes], np.int64)[
        graph.collectives.make[flows.collective]
    ]
    return _traffic(
        graph, flows, loads, kind[flows.place], goes_first=goes_first, least_left=least_left
    )


class _Flows:
    """The collectives that move anything, and the patterns that they make."""

    def __init__(
        self,
        graph: ExecutionGraph,
        duration_ns: Int64s,
        model: CostModel,
        machine: Machine,
        *,
        num_bytes: Int64s | None,
    ) -> None:
        nodes = graph.nodes_of(NodeKind.FINISH)
        collective = graph.collective[nodes].astype(np.int64)
        leaves_hub = _leaves_hub(graph)[nodes]
        count = len(graph.collectives)
        makes = graph.collectives.makes
        is_pair = np.array([one.is_pair for one in makes], np.bool_)[graph.collectives.make]
        low = np.array([min(one.ranks) for one in makes], np.int64)[graph.collectives.make]
        is_known = np.array([collective_named(one.name) is not None for one in makes], np.bool_)
        # Of a pair, who leaves its hub receives.
        receives = leaves_hub | ~is_pair[collective]
        nodes_in = nodes[receives & is_known[graph.collectives.make[collective]]]
        own = graph.collective[nodes_in].astype(np.int64)
        way = np.full(count, _UP, np.int64)
        is_low = is_pair[own] & (graph.rank[nodes_in] == low[own])
        way[own[is_low]] = _DOWN
        self.nodes, self.collective = nodes_in, own
        self.delay_ns = np.minimum(
            transfer_ns(graph, nodes_in, model, most_bytes=1), duration_ns[nodes_in]
        )
        # Of the member that takes longest, where they were recorded one by one.
        work_ns = np.zeros(count, np.int64)
        np.maximum.at(work_ns, own, duration_ns[nodes_in] - self.delay_ns)
        self.work_ns = work_ns[own]
        make = graph.collectives.make[own]
        sizes = np.array([one.num_bytes for one in makes], np.int64)
        known = sizes[graph.collectives.make] if num_bytes is None else num_bytes
        self.num_bytes = np.maximum(known, 0)[own]
        tree = _by_tree(makes, make, self.num_bytes, machine)
        found, self.place = _distinct(make, way[own], tree)  # int64[nodes], of those
        self.makes_and_ways = [tuple(each) for each in found.T.tolist()]


def _by_tree(
    makes: Sequence[Collective], make: Int32s, num_bytes: Int64s, machine: Machine
) -> Int64s:
    """Whether each goes by trees, 0 or 1, as cost models find them quicker on empty links."""
    found, empty = np.zeros(len(make), np.int64), machine.unshared()
    distinct, place = _distinct(make, num_bytes)
    for at, (one, size) in enumerate(distinct.T.tolist()):
        ranks = makes[one].ranks
        if len(ranks) > 1 and by_trees(makes[one].name, size, ranks, machine=empty):
            found[place == at] = 1
    return found


def _distinct(*columns: Integers) -> tuple[Int64s, Int64s]:
    """Distinct rows of some columns, int64[columns, distinct], rising, and each row's place."""
    place = numbered_rows(columns)
    first = _first_of(place, int(place.max(initial=-1)) + 1)
    return np.stack([column[first] for column in columns]).astype(np.int64), place


def _first_of(place: Int64s, count: int) -> Int64s:
    """The first row of each of so many places; -1: it has none."""
    first = np.full(count, -1, np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1]
    return first


def _leaves_hub(graph: ExecutionGraph) -> Bools:
    """Which nodes wait for a hub, bool[nodes]."""
    edges = np.flatnonzero(graph.kind[graph.predecessor] == NodeKind.HUB)
    found = np.zeros(graph.num_nodes, np.bool_)
    found[np.searchsorted(graph.first_edge, edges, side="right") - 1] = True
    return found


class _Loads:
    """Loads by kind of exchange, and the links of the machine that they do not tell apart."""

    def __init__(self, links: MachineLinks) -> None:
        self.links = links
        self.kinds: list[CollectiveLoads] = []
        self._known: dict[tuple[str, bytes, int, bool], int] = {}
        # Of one level, and where buildings differ as wide as each other.
        width = np.unique(links.bytes_per_ns, return_inverse=True)[1].reshape(-1)
        self._label = numbered_rows((links.level, width))
        self._next = int(self._label.max(initial=0)) + 1

    def place(self, name: str, groups: Int64s, way: int, *, by_tree: bool) -> int:
        """Number of a kind of exchange."""
        key = (name, groups.tobytes() + bytes(str(groups.shape), "ascii"), way, by_tree)
        if key not in self._known:
            found = collective_loads(
                name, groups, self.links, is_upward=way == _UP, by_tree=by_tree
            )
            self._known[key] = len(self.kinds)
            self.kinds.append(found)
            self._tell_apart(found)
        return self._known[key]

    def _tell_apart(self, found: CollectiveLoads) -> None:
        """Give links of which the same was asked so far, and now is not, labels of their own."""
        if not len(found.link):
            return
        scale = 10.0**_DIGITS / max(float(found.load.max()), 1e-300)
        load = np.rint(found.load * scale).astype(np.int64)
        place = numbered_rows((self._label[found.link], load))
        self._label[found.link] = self._next + place
        self._next += int(place.max()) + 1

    @cached_property
    def alike(self) -> tuple[Int64s, Int64s, Int64s]:
        """First link of each label, the label's place of every link, and how many share it."""
        _, first, place, count = np.unique(
            self._label, return_index=True, return_inverse=True, return_counts=True
        )
        return first, place.reshape(-1).astype(np.int64), count

    def use(self, kind: int) -> tuple[Int64s, Float64s]:
        """Labels' places that a kind of exchange loads, and by how much."""
        found = self.kinds[kind]
        at = _first_of(self.alike[1][found.link], len(self.alike[0]))
        label = np.flatnonzero(at >= 0)
        return label, found.load[at[label]]


def _traffic(
    graph: ExecutionGraph,
    flows: _Flows,
    loads: _Loads,
    kind: Int64s,
    *,
    goes_first: Int64s,
    least_left: float,
) -> StepTraffic:
    """Patterns of what takes as long alone, on links that may be crowded."""
    first, _, num_alike = loads.alike
    capacity = loads.links.bytes_per_ns[first]
    work_ns = flows.work_ns
    leaves = np.array([len(one.link) > 0 for one in loads.kinds], np.bool_)  # not a rank alone
    moves = (work_ns > 0) & (flows.num_bytes > 0) & leaves[kind]
    key = np.stack([kind, flows.num_bytes, work_ns, goes_first])[:, moves]
    distinct, at = _distinct(*key)
    pattern = np.full(len(kind), NO_FLOW, np.int64)
    pattern[moves] = at
    uses = [_shares(loads, *each, capacity=capacity) for each in distinct.T.tolist()]
    count = np.array([len(link) for link, _, _ in uses], np.int64)
    link = np.concatenate([np.empty(0, np.int64), *(link for link, _, _ in uses)])
    share = np.concatenate([np.empty(0), *(share for _, share, _ in uses)])
    of_use = np.repeat(np.arange(len(uses)), count)

    carried_ns = np.zeros(len(capacity))
    one = np.unique(flows.collective[moves], return_index=True)[1]
    times = np.bincount(pattern[moves][one], work_ns[moves][one], len(uses))
    np.add.at(carried_ns, link, share * times[of_use])

    lane, times_there = _lanes(
        pattern,
        graph.lane[flows.nodes].astype(np.int64),
        graph.rank[flows.nodes].astype(np.int64),
        len(uses),
    )
    may = _may_be_crowded(
        link, share * times_there[of_use] / least_left, lane[of_use], len(capacity)
    )
    kept = may[link]
    patterns = np.unique(of_use[kept])
    has_links = np.zeros(len(uses) + 1, np.bool_)
    has_links[patterns] = True
    new = np.cumsum(has_links) - 1
    is_flow = has_links[pattern] & moves
    collective, flow = np.unique(flows.collective[is_flow], return_inverse=True)
    pattern_of_flow = np.empty(len(collective), np.int32)
    pattern_of_flow[flow.reshape(-1)] = new[pattern[is_flow]]
    flow_of_node = np.full(graph.num_nodes, NO_FLOW, np.int32)
    flow_of_node[flows.nodes[is_flow]] = flow.reshape(-1)
    delay_ns = np.zeros(graph.num_nodes, np.int64)
    delay_ns[flows.nodes[is_flow]] = flows.delay_ns[is_flow]
    traffic = Traffic(
        flow=flow_of_node,
        delay_ns=delay_ns,
        pattern=pattern_of_flow,
        first_use=row_starts(new[of_use[kept]], len(patterns)),
        link=link[kept].astype(np.int32),
        share=share[kept],
        pace=np.array([pace for _, _, pace in uses], np.float64)[patterns],
        num_links=len(capacity),
    )
    return StepTraffic(loads.links, traffic, first, num_alike, carried_ns, may)


def _shares(
    loads: _Loads,
    kind: int,
    num_bytes: int,
    work_ns: int,
    goes_first: int,
    *,
    capacity: Float64s,
) -> tuple[Int64s, Float64s, float]:
    """Links of a pattern, its share of each, and its pace."""
    found = loads.kinds[kind]
    link, load = loads.use(kind)
    # The engine names the last of equally full links: those out of places, where those in are too.
    order = np.argsort(-(loads.links.level[loads.alike[0][link]] % 2), kind="stable")
    link, load = link[order], load[order]
    # Links carry no more than they can, also where a fit has a message faster than a data sheet.
    taken_ns = max(float(work_ns), found.least_ns * num_bytes)
    pace = taken_ns / num_bytes / found.one_load * (_AHEAD if goes_first else 1.0)
    pace *= found.connections
    return link, load * num_bytes / capacity[link] / taken_ns, pace


def _lanes(pattern: Int64s, lane: Int64s, rank: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """A lane on which each pattern is, on its lowest rank, and on how many it is there."""
    key = _distinct(*np.stack([pattern, rank, lane])[:, pattern != NO_FLOW])[0]
    own, first = np.unique(key[0], return_index=True)
    is_lowest = key[1] == np.repeat(key[1][first], np.diff(np.append(first, key.shape[1])))
    lanes = np.zeros(count, np.int64)
    lanes[own] = key[2][first]
    return lanes, np.bincount(key[0][is_lowest], minlength=count)


def _may_be_crowded(link: Int64s, share: Float64s, lane: Int64s, num_links: int) -> Bools:
    """Whether more can be asked of each link than it has, one pattern of a lane at a time."""
    found, place = _distinct(link, lane)
    most = np.zeros(found.shape[1])
    np.maximum.at(most, place, share)
    crowd: Bools = np.bincount(found[0], most, num_links) > _FULL
    return crowd


def with_widest_groups(laid_out: LaidOut, machine: Machine) -> LaidOut:
    """A folded job on buildings of other sizes, whose exchanges are those of the widest group.

    Groups that do the same there do not all lie alike, and all wait for the slowest: that over most
    instances of a tier, the outermost first, then with the fewest members in one of them.
    """
    if not (machine.sizes and laid_out.is_folded):
        return laid_out
    graph = laid_out.graph
    makes = tuple(
        replace(one, ranks=tuple(rows[_widest(machine.places(rows), machine)].tolist()))
        for one, rows in zip(
            graph.collectives.makes, alike_groups(graph, laid_out.plan), strict=True
        )
    )
    collectives = replace(graph.collectives, makes=makes)
    return replace(laid_out, graph=replace(graph, collectives=collectives))


def _widest(places: Int64s, machine: Machine) -> int:
    """Row of the widest group, the first of alike ones."""
    keys: list[Int64s] = []
    row = np.arange(len(places))[:, None]
    for tier in machine.tiers[-2::-1]:
        own = row * machine.tiers[-1].num_ranks + places // tier.num_ranks
        found, count = np.unique(own, return_counts=True)
        group = found // machine.tiers[-1].num_ranks
        fewest = np.full(len(places), places.shape[1])
        np.minimum.at(fewest, group, count)
        keys += [-np.bincount(group), fewest]
    return int(np.lexsort(keys[::-1])[0])


def sharing_of(
    laid_out: LaidOut, model: CostModel, machine: Machine, *, least_left: float = 1.0
) -> Callable[[ExecutionGraph, Int64s], StepTraffic]:
    """What collectives of a laid-out graph, or of an edited one of the same ranks, ask of links."""
    groups = partial(alike_groups, plan=laid_out.plan) if laid_out.is_folded else own_groups
    return partial(
        step_traffic,
        model=model,
        links=links_of(machine),
        groups=groups,
        first=laid_out.plan.first,
        least_left=least_left,
    )


def flows_of(nodes: Int64s, traffic: Traffic) -> Int64s:
    """Flows that some nodes are part of, rising, each once."""
    flow = traffic.flow[nodes].astype(np.int64)
    found: Int64s = np.unique(flow[flow != NO_FLOW])
    return found
