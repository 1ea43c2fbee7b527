"""Who meets whom: groups of ranks by stage, and the collectives of a step."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from foretrace.base import Int64s, turns_within
from foretrace.workload.arrange.arrange import Meetings, meetings_of
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

    @cached_property
    def stage_of_rank(self) -> dict[int, int]:
        """Stages of the first pipeline's ranks."""
        return {rank: stage for stage, rank in enumerate(self.rank[:, 0].tolist())}

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


def meetings_of_step(
    items: Drafted, ranks: RankTable, *, arrive: Int64s, finish: Int64s
) -> Meetings:
    """Whom the exchanges of a step meet; the two ends of a transfer, whatever their turn.

    Args:
        items: of one rank per stage.
        ranks: of the stages.
        arrive: int64[exchanges], node of each exchange among the items.
        finish: int64[exchanges], so too.
    """
    exchange = np.flatnonzero(items.is_exchange)
    stream = items.columns["stream"][exchange].astype(np.int64)
    stage, transfer = items.stage[exchange], items.transfer[exchange]
    group = _group_numbers(stream, stage, ranks)
    beyond = int(group.max(initial=0)) + 1
    found = meetings_of(
        arrive,
        finish,
        group=np.where(transfer != NOTHING, beyond + transfer, group),
        rank=ranks.rank[stage, 0],
    )
    # Two stages that send to each other are a group, in which their transfers are counted.
    own = stage[found.member]
    pair = own[found.lead] * len(ranks.rank) + own[found.first[1:] - 1]
    is_transfer = found.group >= beyond
    of_pair = turns_within(pair * 2 + is_transfer)
    return replace(found, position=np.where(is_transfer, of_pair, found.position))


def parties_of(meetings: Meetings, stage: Int64s) -> tuple[Int64s, list[tuple[int, ...]]]:
    """Which stages take part in each collective.

    Args:
        meetings: of a step.
        stage: int64[members], rising in each collective.

    Returns:
        int64[collectives], a place among the distinct sets of stages; these, each ascending.
    """
    begin, end = meetings.lead, meetings.first[1:]

    def stages(at: int) -> tuple[int, ...]:
        return tuple(stage[begin[at] : end[at]].tolist())

    # One or two stages are told by the lowest and the highest; more are rare, and looked up.
    more: dict[tuple[int, ...], int] = {}
    among = np.zeros(len(meetings), np.int64)
    for at in np.flatnonzero(end - begin > 2).tolist():  # noqa: PLR2004
        among[at] = more.setdefault(stages(at), len(more) + 1)
    num_stages = int(stage.max(initial=0)) + 1
    key = (among * num_stages + stage[begin]) * num_stages + stage[end - 1]
    _, first, party = np.unique(key, return_index=True, return_inverse=True)
    return party.reshape(-1).astype(np.int64), [stages(at) for at in first.tolist()]


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
