"""Threads and streams of a new rank: those of its source rank, and what other ranks' pieces need.

A piece that another rank recorded runs on the lanes that do the same on the source rank: threads
in the order in which they first work, streams and worker threads by whom they communicate with,
other streams by their number. What has no counterpart gets a lane of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph, Lane, NodeKind
from foretrace.whatif.arrange.roles import NO_ROLE, ExchangeRole
from foretrace.whatif.arrange.source import RecordedNodes

_Use = tuple[object, ...]  # what a lane is used for; equal on ranks that do the same


@dataclass(frozen=True)
class LaneUses:
    """What a recording's lanes are used for."""

    lanes_of_rank: dict[int, tuple[int, ...]]
    use: tuple[_Use, ...]  # of each lane
    compute: dict[int, int]  # rank -> stream with most kernel time; none: no device
    threads: dict[int, tuple[int, ...]]  # rank -> calling threads, in order of first work
    role: tuple[ExchangeRole | None, ...]  # whom each lane communicates with most


def lane_uses(source: RecordedNodes) -> LaneUses:
    """The use of every lane."""
    graph = source.graph
    lanes_of_rank: dict[int, list[int]] = {}
    for at, lane in enumerate(graph.lanes):
        lanes_of_rank.setdefault(lane.rank, []).append(at)
    threads = _threads(source)
    place_of_thread = {each: at for own in threads.values() for at, each in enumerate(own)}
    compute = _compute(graph)
    role = _main_roles(source)
    use: list[_Use] = [()] * len(graph.lanes)
    for own in lanes_of_rank.values():
        count: dict[_Use, int] = {}
        for at in own:
            each, main = graph.lanes[at], role[at]
            if at in place_of_thread:
                use[at] = ("thread", place_of_thread[at])
            elif compute.get(each.rank) == at:
                use[at] = ("compute",)
            else:
                plain = ("number", each.is_device, each.number) if main is None else ("role", main)
                count[plain] = count.get(plain, -1) + 1
                use[at] = (*plain, count[plain])
    return LaneUses(
        {rank: tuple(own) for rank, own in lanes_of_rank.items()},
        tuple(use),
        compute,
        threads,
        tuple(role),
    )


def _threads(source: RecordedNodes) -> dict[int, tuple[int, ...]]:
    graph = source.graph
    chained = source.sequence[source.is_chained[source.sequence]]
    lanes, first = np.unique(graph.lane[chained], return_index=True)
    found: dict[int, list[int]] = {}
    for lane in lanes[np.argsort(first, kind="stable")].tolist():
        found.setdefault(graph.lanes[lane].rank, []).append(lane)
    return {rank: tuple(own) for rank, own in found.items()}


def _compute(graph: ExecutionGraph) -> dict[int, int]:
    kernels = graph.nodes_of(NodeKind.KERNEL)
    total = np.bincount(
        graph.lane[kernels], weights=graph.measured_ns[kernels] + 1, minlength=len(graph.lanes)
    )
    found: dict[int, int] = {}
    for lane in np.argsort(-total, kind="stable").tolist():
        if total[lane] > 0:
            found.setdefault(graph.lanes[lane].rank, lane)
    return found


def _main_roles(source: RecordedNodes) -> list[ExchangeRole | None]:
    graph, roles = source.graph, source.roles
    found: list[ExchangeRole | None] = [None] * len(graph.lanes)
    arrive = np.flatnonzero((graph.kind == NodeKind.ARRIVE) & (roles.of_node != NO_ROLE))
    if not len(arrive):
        return found
    table = np.zeros((len(graph.lanes), len(roles.roles)), np.int64)
    np.add.at(table, (graph.lane[arrive], roles.of_node[arrive]), 1)
    for lane in np.flatnonzero(table.any(axis=1)).tolist():
        found[lane] = roles.roles[int(table[lane].argmax())]
    return found


class NewLanes:
    """The lanes of a new job, made as they are asked for."""

    def __init__(self, graph: ExecutionGraph, uses: LaneUses) -> None:
        self.lanes: list[Lane] = []
        self._graph = graph
        self._uses = uses
        self._by_use: list[dict[_Use, int]] = []  # of each new rank
        self._ranks: list[int] = []

    def add_rank(self, rank: int, source_rank: int) -> None:
        """A new rank with all lanes of a recorded one."""
        by_use: dict[_Use, int] = {}
        for lane in self._uses.lanes_of_rank.get(source_rank, ()):
            by_use[self._uses.use[lane]] = len(self.lanes)
            self.lanes.append(replace(self._graph.lanes[lane], rank=rank))
        self._by_use.append(by_use)
        self._ranks.append(rank)

    def table(self, recorded_ranks: Iterable[Iterable[int]]) -> Int64s:
        """New lane for each recorded lane, int64[new ranks, recorded lanes]; -1 where unused.

        Args:
            recorded_ranks: of each new rank, those that recorded its pieces.
        """
        found = np.full((len(self._by_use), len(self._graph.lanes)), -1, np.int64)
        for at, ranks in enumerate(recorded_ranks):
            for lane in (each for rank in ranks for each in self._uses.lanes_of_rank.get(rank, ())):
                found[at, lane] = self.with_use(at, self._uses.use[lane], self._graph.lanes[lane])
        return found

    def with_use(self, at: int, use: _Use, like: Lane) -> int:
        """The lane of the `at`-th new rank that has a use; made like another if there is none."""
        by_use = self._by_use[at]
        if use not in by_use:
            own = [self.lanes[each] for each in by_use.values()]
            alike = next((each for each in own if each.is_device == like.is_device), like)
            taken = {each.number for each in own}
            number = like.number if like.number not in taken else max(taken) + 1
            by_use[use] = len(self.lanes)
            self.lanes.append(replace(alike, rank=self._ranks[at], number=number))
        return by_use[use]

    def for_role(self, at: int, role: ExchangeRole, *, is_device: bool) -> tuple[int, ...]:
        """Lanes of the `at`-th new rank that serve a role; one is made if there is none."""
        own = [lane for use, lane in self._by_use[at].items() if use[:2] == ("role", role)]
        own = [lane for lane in own if self.lanes[lane].is_device == is_device]
        if own:
            return tuple(own)
        of_rank = [self.lanes[each] for each in self._by_use[at].values()]
        like = next(each for each in of_rank if each.is_device == is_device)
        return (self.with_use(at, ("role", role, 0), like),)
