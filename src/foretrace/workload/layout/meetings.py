"""Who meets whom: groups of ranks by stage, and the collectives of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.workload.layout.drafted import Drafted
from foretrace.workload.layout.tables import NOTHING, group_of_stream
from foretrace.workload.plan.groups import groups_of, replica_of_rank
from foretrace.workload.plan.plan import Group, Plan


class RankTable:
    """The ranks of a plan by stage, pipelines side by side, and their groups."""

    def __init__(self, plan: Plan, *, num_replicas: int | None = None) -> None:
        """Look the pipelines up.

        Args:
            plan: of the job.
            num_replicas: keep the pipelines of the first so many data-parallel copies of the
                model alone; all if left out. Groups keep all their ranks.
        """
        self._plan = plan
        self.rank = groups_of(plan, Group.PIPELINE).T.copy()  # int64[stages, pipelines]
        if num_replicas is not None:
            is_kept = replica_of_rank(plan)[self.rank[0]] < num_replicas
            self.rank = self.rank[:, is_kept].copy()
        self._groups: dict[Group, Int64s] = {}
        self._group_of_rank: dict[Group, Int64s] = {}

    @property
    def num_pipelines(self) -> int:
        """Ranks of each stage."""
        return int(self.rank.shape[1])

    def groups(self, group: Group) -> Int64s:
        """All groups of a kind; int64[groups, ranks of each]."""
        if group not in self._groups:
            self._groups[group] = groups_of(self._plan, group)
        return self._groups[group]

    def group_of_rank(self, group: Group) -> Int64s:
        """Row of `groups` that each rank is in; int64[ranks], NOTHING."""
        if group not in self._group_of_rank:
            groups = self.groups(group)
            found = np.full(self._plan.num_ranks, NOTHING, np.int64)
            found[groups] = np.arange(len(groups))[:, None]
            self._group_of_rank[group] = found
        return self._group_of_rank[group]

    def members(self, group: Group, recorded: tuple[int, ...]) -> tuple[int, ...]:
        """All ranks of the group that some ranks of it are in, ascending; a transfer has two."""
        if group is Group.PIPELINE:
            return recorded
        row = self.group_of_rank(group)[recorded[0]]
        return tuple(self.groups(group)[row].tolist())


@dataclass(frozen=True)
class Meetings:
    """The collectives of one rank per stage: which exchanges meet in which."""

    exchange: Int64s  # int64[exchanges], item
    collective: Int64s  # int64[exchanges], number of its collective
    first: Int64s  # int64[collectives], place in `exchange` of one that takes part
    position: Int64s  # int64[collectives], number inside its group

    def __len__(self) -> int:
        """Number of collectives."""
        return len(self.first)

    def parties(self, items: Drafted) -> tuple[Int64s, list[tuple[int, ...]]]:
        """Which stages take part in each collective.

        Returns:
            int64[collectives], a place among the distinct sets of stages; these, each ascending.
        """
        order = np.argsort(self.collective, kind="stable")
        stage = items.stage[self.exchange[order]]
        size = np.bincount(self.collective, minlength=len(self))
        end = np.cumsum(size)
        # Hardly any collective has more members than its first and its last one.
        lowest, highest = stage[end - size], stage[end - 1]
        more: dict[tuple[int, ...], int] = {}
        among = np.zeros(len(self), np.int64)
        for at in np.flatnonzero(size > 2).tolist():  # noqa: PLR2004
            own = tuple(stage[end[at] - size[at] : end[at]].tolist())
            among[at] = more.setdefault(own, len(more) + 1)
        num_stages = int(stage.max(initial=0)) + 1
        key = (among * num_stages + lowest) * num_stages + highest
        _, first, party = np.unique(key, return_index=True, return_inverse=True)
        found = [tuple(stage[end[at] - size[at] : end[at]].tolist()) for at in first.tolist()]
        return party.reshape(-1).astype(np.int64), found


def meetings_of(items: Drafted, ranks: RankTable) -> Meetings:
    """The k-th exchange of a group on every stage are one collective; so are a transfer's ends."""
    exchange = np.flatnonzero(items.is_exchange)
    stream = items.columns["stream"][exchange].astype(np.int64)
    stage, transfer = items.stage[exchange], items.transfer[exchange]
    group = _group_numbers(stream, stage, ranks)
    turn = _turns(stage, stream)
    is_transfer = transfer != NOTHING
    beyond = (int(group.max(initial=0)) + 1) * (len(exchange) + 1)
    key = np.where(is_transfer, beyond + transfer, group * (len(exchange) + 1) + turn)
    _, first, collective = np.unique(key, return_index=True, return_inverse=True)
    collective = collective.reshape(-1).astype(np.int64)
    last = np.empty(len(first), np.int64)
    last[collective] = np.arange(len(exchange))
    # Two stages that send to each other are a group, in which their transfers are counted.
    pair = stage[first] * len(ranks.rank) + stage[last]
    of_pair = _turns(pair, is_transfer[first].astype(np.int64))
    return Meetings(
        exchange=exchange,
        collective=collective,
        first=first.astype(np.int64),
        position=np.where(is_transfer[first], of_pair, turn[first]),
    )


def _group_numbers(stream: Int64s, stage: Int64s, ranks: RankTable) -> Int64s:
    """A number for the group in which each exchange happens, the same on all its stages."""
    found = np.zeros(len(stream), np.int64)
    num_stages = len(ranks.rank)
    for code in np.flatnonzero(np.bincount(stream)).tolist():
        row = ranks.group_of_rank(group_of_stream(code))[ranks.rank[:, 0]]
        is_own = stream == code
        found[is_own] = code * num_stages * 2 + _dense(row)[stage[is_own]]
    return found


def _dense(row: Int64s) -> Int64s:
    return np.unique(row, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _turns(stage: Int64s, stream: Int64s) -> Int64s:
    """How many exchanges of the same stage and stream came before; int64[exchanges]."""
    key = stage * (int(stream.max(initial=0)) + 1) + stream
    order = np.argsort(key, kind="stable")
    is_first = np.append(True, key[order][1:] != key[order][:-1])[: len(key)]
    start = np.flatnonzero(is_first)
    turn = np.empty(len(key), np.int64)
    size = np.diff(np.append(start, len(key)))
    turn[order] = np.arange(len(key)) - np.repeat(start, size)
    return turn
