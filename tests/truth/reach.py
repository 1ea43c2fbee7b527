"""Whether one device operation must end before another starts, in the true graph.

Exact, without a closure in memory: backwards from the later one, never past a node that had
ended before the earlier one did, for times never run against edges.
"""

from __future__ import annotations

import numpy as np

from tests.truth.job import Job
from tests.truth.records import Ref
from tests.truth.structure import Node


class Reachability:
    """Answers queries between device operations, named by (rank, correlation)."""

    def __init__(self, job: Job) -> None:
        structure = job.structure
        self._end = job.times.end_ns.tolist()
        self._first = structure.first_edge.tolist()
        self._predecessor = structure.predecessor.tolist()
        self._arrive: dict[Ref, int] = {}
        self._node: dict[Ref, int] = {}
        self._lane = np.full(structure.num_nodes, -1, np.int64).tolist()
        for items in structure.ranks:
            for each in items.operations:
                ref = (items.rank, each.correlation)
                self._arrive[ref], self._node[ref] = each.arrive, each.node
                lane = items.rank * 100_000 + each.stream
                self._lane[each.arrive] = self._lane[each.node] = lane
        self._is_finish = (structure.kind == Node.FINISH).tolist()

    def contains(self, before: Ref, after: Ref) -> bool:
        """True if `after` could not start until `before` had ended.

        Raises:
            KeyError: if one of them is no device operation of this job.
        """
        goal, lane = self._node[before], self._lane[self._node[before]]
        moment = self._end[goal]
        stack = [self._arrive[after]]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            for edge in range(self._first[node], self._first[node + 1]):
                previous = self._predecessor[edge]
                if self._is_past(previous, goal, lane):
                    return True
                if previous in seen or self._end[previous] < moment:
                    continue
                seen.add(previous)
                stack.append(previous)
        return False

    def _is_past(self, node: int, goal: int, lane: int) -> bool:
        """The goal itself, or something later on its stream, where nodes are in launch order.

        The arrival of a communication follows its stream's predecessors, but not its own end.
        """
        return node == goal or (self._lane[node] == lane and node > goal)

    def all_contained(self, edges: list[tuple[Ref, Ref]]) -> list[bool]:
        """`contains` for each pair."""
        return [self.contains(before, after) for before, after in edges]


def reachability(job: Job) -> Reachability:
    """Queries on the transitive closure of a job's true graph."""
    return Reachability(job)


def transitive_closure_contains(job: Job, edges: list[tuple[Ref, Ref]]) -> list[bool]:
    """For each (earlier operation, later operation): is the order forced by the true graph?"""
    return Reachability(job).all_contained(edges)
