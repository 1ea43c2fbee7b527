"""Pieces become items, a row for every operation of some rank; and who of them meets whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from foretrace.base import Bools, Int64s, begins_run, joined_ranges, numbered_rows, turns_within
from foretrace.graph import NO_LAYER
from foretrace.workload.arrange.arrange import Meetings, meetings_of
from foretrace.workload.layout.pieces import SortedPieces
from foretrace.workload.layout.tables import (
    COMPUTE,
    NOTHING,
    NUM_STREAMS,
    RECEIVES,
    SENDS,
    group_of_stream,
)
from foretrace.workload.layout.template import Columns, Template
from foretrace.workload.plan.groups import groups_of, replica_of_rank
from foretrace.workload.plan.plan import Group, Plan


@dataclass(frozen=True)
class Drafted:
    """All items of all stages and what they wait for; a stage's items stand together."""

    columns: Columns  # as a template's, by item
    row: Int64s  # int64[items], in the columns of all templates one after the other
    stage: Int64s  # int64[items]
    microbatch: Int64s  # int64[items]; NO_MICROBATCH
    layer: Int64s  # int64[items], over all stages; NO_LAYER
    transfer: Int64s  # int64[items], number of a transfer; NOTHING
    # Item waited for, int64[edges]: on another stream, of another rank where a transfer's data are.
    source: Int64s
    target: Int64s  # int64[edges]
    before: Int64s  # int64[pairs], item before another on the same stream of the same rank
    behind: Int64s  # int64[pairs]
    last: Int64s  # int64[streams], the last item of every stream of every rank

    def __len__(self) -> int:
        """Number of items."""
        return len(self.stage)

    @property
    def is_exchange(self) -> Bools:
        """Which items are communication."""
        is_exchange: Bools = self.columns["exchange"] != NOTHING
        return is_exchange


def drafted(pieces: SortedPieces) -> Drafted:
    """Every piece's template repeated."""
    size_of = np.array([len(template) for template in pieces.templates], np.int64)
    rows, template = pieces.rows, pieces.rows.template
    size = size_of[template]
    first = _starts(size)
    row = joined_ranges(_starts(size_of)[template], size)
    columns = {
        key: np.concatenate([one.columns[key] for one in pieces.templates])[row]
        for key in pieces.templates[0].columns
    }
    member = np.concatenate([one.member for one in pieces.templates])[row]
    piece = np.repeat(np.arange(len(size)), size)
    layer = columns["layer"]
    stage = rows.stage[piece]
    lane = stage * NUM_STREAMS + columns["stream"]
    by_lane = np.argsort(lane, kind="stable")
    is_last = np.append(lane[by_lane][1:] != lane[by_lane][:-1], True)
    edges = np.concatenate(
        [
            _inside(pieces.templates, template, first),
            _between(pieces, first, lane),
            _at_barriers(pieces, first, lane, by_lane),
        ],
        axis=1,
    )
    is_pair = ~is_last[:-1]
    edges = _distinct(edges, len(piece))
    return Drafted(
        columns=columns,
        row=row,
        stage=stage,
        microbatch=rows.microbatch[member, piece],
        layer=np.where(layer == NO_LAYER, NO_LAYER, layer + rows.first_layer[member, piece]),
        transfer=rows.transfer[piece],
        source=edges[0],
        target=edges[1],
        before=by_lane[:-1][is_pair],
        behind=by_lane[1:][is_pair],
        last=by_lane[is_last],
    )


def _starts(size: Int64s) -> Int64s:
    return np.append(0, np.cumsum(size))[:-1]


def _distinct(edges: Int64s, num_items: int) -> Int64s:
    """Each edge once, by target; int64[2, edges]."""
    key = np.sort(edges[1] * num_items + edges[0])  # `np.unique` hashes, which takes longer
    key = key[begins_run(key)]
    return np.stack([key % num_items, key // num_items]) if num_items else edges


def _inside(templates: Sequence[Template], template: Int64s, first: Int64s) -> Int64s:
    """Edges of all templates, for every piece; int64[2, edges]."""
    count_of = np.array([len(one.source) for one in templates], np.int64)
    count = count_of[template]
    row = joined_ranges(_starts(count_of)[template], count)
    begin = np.repeat(first, count)
    ends = [
        np.concatenate([one.source for one in templates])[row],
        np.concatenate([one.target for one in templates])[row],
    ]
    return np.stack(ends) + begin


def _between(pieces: SortedPieces, first: Int64s, lane: Int64s) -> Int64s:
    """Edges between pieces, those along a stream left out; int64[2, edges]."""
    waits = pieces.waits
    source = first[waits[:, 0]] + waits[:, 1]
    target = first[waits[:, 2]] + waits[:, 3]
    is_kept = lane[source] != lane[target]
    edges: Int64s = np.stack([source[is_kept], target[is_kept]])
    return edges


def _at_barriers(pieces: SortedPieces, first: Int64s, lane: Int64s, by_lane: Int64s) -> Int64s:
    """From the last communication of every other stream to the entries of barriers."""
    edges: list[tuple[int, int]] = []
    sorted_lane = lane[by_lane]
    for piece in pieces.barriers.tolist():
        begin = int(first[piece])
        entries = pieces.templates[pieces.rows.template[piece]].entries[0]
        for stream in set(range(NUM_STREAMS)) - {COMPUTE, SENDS, RECEIVES}:
            own = int(pieces.rows.stage[piece]) * NUM_STREAMS + stream
            low, high = np.searchsorted(sorted_lane, [own, own + 1])
            place = low + int(np.searchsorted(by_lane[low:high], begin))
            edges.extend(
                (int(by_lane[place - 1]), begin + entry)
                for entry in entries
                if place > low and lane[begin + entry] != own
            )
    return np.array(edges, np.int64).reshape(-1, 2).T


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
        found[is_own] = code * num_stages * 2 + numbered_rows((row,))[stage[is_own]]
    return found
