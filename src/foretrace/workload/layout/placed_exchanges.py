"""`PlacedExchanges`: how long exchanges take the stages of a plan whose ranks stand somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from foretrace.base import Int64s
from foretrace.workload.layout.drafted import RankTable
from foretrace.workload.layout.part_times import Timing
from foretrace.workload.layout.tables import Tables
from foretrace.workload.plan.plan import Group, Plan


class PlacedExchanges:
    """How long exchanges take where a plan's ranks stand."""

    def __init__(self, plan: Plan, tables: Tables, timing: Timing) -> None:
        """Ask nothing yet."""
        self._plan, self._tables, self._timing = plan, tables, timing
        self._exchanges: dict[int, Int64s] = {}
        self._transfers: dict[tuple[int, int, int], int] = {}
        self._groups: list[tuple[int, ...]] = []
        self._places: dict[Group, list[int]] = {}  # of every stage's among these

    @cached_property
    def _ranks(self) -> RankTable:
        return RankTable(self._plan)

    def exchanges_ns(self, numbers: Sequence[int]) -> Int64s:
        """Of exchanges by number; int64[exchanges, stages]."""
        new = [number for number in numbers if number not in self._exchanges]
        if new:
            kinds = self._tables.kinds
            own = [kinds[number] for number in new]
            group = [at for one in own for at in self._groups_of(one.group)]
            num_stages = self._plan.pipeline
            asked = [one for one in own for _ in range(num_stages)]
            found_ns = self._timing.exchanges_ns(asked, self._groups, group)
            self._exchanges.update(zip(new, found_ns.reshape(-1, num_stages), strict=True))
        found = [self._exchanges[number] for number in numbers]
        return np.array(found, np.int64).reshape(len(found), self._plan.pipeline)

    def _groups_of(self, group: Group) -> list[int]:
        """Of each stage's rank, a place among all groups that are known."""
        if group not in self._places:
            ranks, first = self._ranks, len(self._groups)
            own = ranks.rank[:, 0]
            _, at, place = np.unique(
                ranks.group_of_rank(group)[own], return_index=True, return_inverse=True
            )
            self._places[group] = (first + place.reshape(-1)).tolist()
            self._groups += [ranks.members(group, (rank,)) for rank in own[at].tolist()]
        return self._places[group]

    def transfers_ns(self, number: int, pairs: Sequence[tuple[int, int]]) -> Int64s:
        """Between pairs of stages; int64[pairs]."""
        new = [one for one in dict.fromkeys(pairs) if (number, *one) not in self._transfers]
        if new:
            own = self._ranks.rank[:, 0].tolist()
            groups = [tuple(sorted((own[one], own[other]))) for one, other in new]
            kinds = [self._tables.kinds[number]] * len(new)
            found = self._timing.exchanges_ns(kinds, groups, range(len(new)))
            for pair, ns in zip(new, found.tolist(), strict=True):
                self._transfers[number, *pair] = ns
        return np.array([self._transfers[number, *pair] for pair in pairs], np.int64)
