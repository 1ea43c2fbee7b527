"""A folded graph gets one copy of each stage's nodes for every rank of the stage.

Copies of one node stand next to each other, in the order of the pipelines, so that the node order
stays topological: edges never lead back. A hub gets one copy for every group of ranks that meets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Int32s, Int64s, joined_ranges
from foretrace.graph import NO_COLLECTIVE, Collective, Collectives, ExecutionGraph, Lane, NodeKind
from foretrace.workload.layout.drafted import RankTable
from foretrace.workload.plan.plan import Group, Plan

_EDGES_AT_ONCE = 4_000_000  # copies made in one go: bounds what is held besides the graph


def unfolded(graph: ExecutionGraph, ranks: RankTable) -> ExecutionGraph:
    """The graph of all ranks, or of those in the table.

    Args:
        graph: of one rank per stage, the first of each in `ranks`.
        ranks: the ranks by stage.
    """
    meets = _meets(graph, ranks)
    collective = graph.collective.astype(np.int64)
    is_hub = graph.kind == NodeKind.HUB
    copies = np.full(graph.num_nodes, ranks.num_pipelines, np.int64)
    copies[is_hub] = meets.count[collective[is_hub]]
    first = np.append(0, np.cumsum(copies))
    node = np.repeat(np.arange(graph.num_nodes, dtype=np.int32), copies)
    copy = joined_ranges(np.zeros_like(copies), copies).astype(np.int32)
    first_edge, predecessor, edge = _edges(graph, ranks, meets, first)
    num_pipelines = ranks.num_pipelines
    stage = _stages(graph, ranks)
    lane = graph.lane[node] * num_pipelines + copy
    made = {
        "rank": np.where(is_hub[node], -1, ranks.rank[stage[node], copy]).astype(np.int32),
        "lane": np.where(is_hub[node], -1, lane).astype(np.int32),
        "collective": _collective_column(graph, meets, first, stage),
    }
    columns = {name: column[node] for name, column in graph.columns().items() if name not in made}
    columns |= made
    return ExecutionGraph(
        **columns,
        first_edge=first_edge,
        predecessor=predecessor,
        edge_kind=graph.edge_kind[edge],
        lag_ns=graph.lag_ns[edge],
        names=graph.names,
        lanes=_lanes(graph, ranks),
        step_names=graph.step_names,
        collectives=_collectives(graph, ranks, meets),
        constants=graph.constants,
    )


def alike_groups(graph: ExecutionGraph, plan: Plan) -> tuple[Int64s, ...]:
    """The groups that do what each make of a folded graph's collectives says, at the same time.

    Returns:
        int64[groups, members], ranks ascending, for each of `graph.collectives.makes`.
    """
    ranks = RankTable(plan)
    known: dict[tuple[str, tuple[int, ...]], Int64s] = {}

    def groups(one: Collective) -> Int64s:
        key = (one.group, one.recorded_ranks)
        if key not in known:
            stages = [ranks.stage_of_rank[rank] for rank in one.recorded_ranks]
            meeting = _meeting(Group(one.group), stages, ranks)
            known[key] = np.array(_members(one, meeting, ranks), np.int64)
        return known[key]

    return tuple(groups(one) for one in graph.collectives.makes)


@dataclass(frozen=True)
class _Meeting:
    """The groups in which ranks of some stages meet, for one kind of group."""

    rows: Int64s  # int64[groups], rows of `RankTable.groups`, or pipelines of a transfer
    group_of_copy: Mapping[int, Int64s]  # by stage: int64[pipelines], place in `rows`


@dataclass(frozen=True)
class _Meets:
    """Every folded collective's groups."""

    of: tuple[_Meeting, ...]  # by folded collective; alike ones are one object
    count: Int64s  # int64[folded collectives], groups
    first: Int64s  # int64[folded collectives], number of the first unfolded one


def _stages(graph: ExecutionGraph, ranks: RankTable) -> Int64s:
    """Stage of every node; of hubs 0."""
    stage_of_lane = np.array([ranks.stage_of_rank[lane.rank] for lane in graph.lanes], np.int64)
    return np.where(graph.lane >= 0, stage_of_lane[graph.lane], 0)


def _meets(graph: ExecutionGraph, ranks: RankTable) -> _Meets:
    known: dict[tuple[str, tuple[int, ...]], _Meeting] = {}

    def meeting(one: Collective) -> _Meeting:
        key = (one.group, one.recorded_ranks)
        if key not in known:
            stages = [ranks.stage_of_rank[rank] for rank in one.recorded_ranks]
            known[key] = _meeting(Group(one.group), stages, ranks)
        return known[key]

    of = graph.collectives.each(meeting)
    count = np.array([len(meeting.rows) for meeting in of], np.int64)
    return _Meets(tuple(of), count, np.append(0, np.cumsum(count)))


def _meeting(group: Group, stages: Sequence[int], ranks: RankTable) -> _Meeting:
    if group is Group.PIPELINE:
        own = np.arange(ranks.num_pipelines)
        return _Meeting(own, dict.fromkeys(stages, own))
    row = {stage: ranks.group_of_rank(group)[ranks.rank[stage]] for stage in stages}
    rows = np.unique(np.concatenate(list(row.values())))
    return _Meeting(rows, {stage: np.searchsorted(rows, row[stage]) for stage in stages})


def _edges(
    graph: ExecutionGraph, ranks: RankTable, meets: _Meets, first: Int64s
) -> tuple[Int64s, Int32s, Int32s]:
    """First edge of every copy, predecessor of every edge, and the folded edge it copies."""
    num_pipelines = ranks.num_pipelines
    degree = np.diff(graph.first_edge)
    target = graph.edge_target
    inside = np.arange(graph.num_edges) - graph.first_edge[target]
    predecessor = np.empty(graph.num_edges * num_pipelines, np.int32)
    edge = np.empty(graph.num_edges * num_pipelines, np.int32)
    pipeline = np.arange(num_pipelines)
    at_once = max(_EDGES_AT_ONCE // num_pipelines, 1)
    for begin in range(0, graph.num_edges, at_once):
        chosen = np.arange(begin, min(begin + at_once, graph.num_edges))
        of, source = target[chosen], graph.predecessor[chosen]
        place = (graph.first_edge[of] * num_pipelines + inside[chosen])[:, None]
        place = place + degree[of][:, None] * pipeline
        predecessor[place] = first[source][:, None] + pipeline
        edge[place] = chosen[:, None]
    _leave_hubs(graph, ranks, meets, first, predecessor=predecessor)
    copy_degree = np.repeat(degree, np.diff(first))
    _meet_at_hubs(
        graph, ranks, meets, first, predecessor=predecessor, edge=edge, degree=copy_degree
    )
    return np.append(0, np.cumsum(copy_degree)), predecessor, edge


def _leave_hubs(
    graph: ExecutionGraph, ranks: RankTable, meets: _Meets, first: Int64s, *, predecessor: Int32s
) -> None:
    """Whoever leaves a hub leaves its own group's. Out: `predecessor`, where a hub is one."""
    num_pipelines = ranks.num_pipelines
    edges = np.flatnonzero(graph.kind[graph.predecessor] == NodeKind.HUB)
    target = np.searchsorted(graph.first_edge, edges, side="right") - 1
    stage = _stages(graph, ranks)[target]
    collective = graph.collective[target]
    begin = graph.first_edge[target] * num_pipelines + edges - graph.first_edge[target]
    step = np.diff(graph.first_edge)[target]
    hub = first[graph.predecessor[edges]]
    by_kind = defaultdict(list)
    for at, (one, where) in enumerate(zip(collective.tolist(), stage.tolist(), strict=True)):
        by_kind[id(meets.of[one]), where].append(at)
    for (_, where), members in by_kind.items():
        rows = np.array(members)
        group = meets.of[collective[rows[0]]].group_of_copy[where]
        place = begin[rows][:, None] + step[rows][:, None] * np.arange(num_pipelines)
        predecessor[place] = hub[rows][:, None] + group


def _meet_at_hubs(
    graph: ExecutionGraph,
    ranks: RankTable,
    meets: _Meets,
    first: Int64s,
    *,
    predecessor: Int32s,
    edge: Int32s,
    degree: Int64s,
) -> None:
    """Every group's hub waits for its own members. Out: the last three, at hubs."""
    stage = _stages(graph, ranks)
    by_kind = defaultdict(list)
    for hub in graph.nodes_of(NodeKind.HUB).tolist():
        own = graph.predecessor[graph.first_edge[hub] : graph.first_edge[hub + 1]]
        by_kind[id(meets.of[graph.collective[hub]]), tuple(stage[own].tolist())].append(hub)
    for (_, stages), members in by_kind.items():
        hubs = np.array(members)
        meeting = meets.of[graph.collective[hubs[0]]]
        group = np.concatenate([meeting.group_of_copy[one] for one in stages])
        order = np.argsort(group, kind="stable")
        which, pipeline = order // ranks.num_pipelines, order % ranks.num_pipelines
        edges = graph.first_edge[hubs][:, None] + which
        place = graph.first_edge[hubs][:, None] * ranks.num_pipelines + np.arange(len(order))
        predecessor[place] = first[graph.predecessor[edges]] + pipeline
        edge[place] = edges
        copies = first[hubs][:, None] + np.arange(len(meeting.rows))
        degree[copies] = np.bincount(group, minlength=len(meeting.rows))


def _lanes(graph: ExecutionGraph, ranks: RankTable) -> tuple[Lane, ...]:
    return tuple(
        replace(lane, rank=rank, process=rank)
        for lane in graph.lanes
        for rank in ranks.rank[ranks.stage_of_rank[lane.rank]].tolist()
    )


def _collectives(graph: ExecutionGraph, ranks: RankTable, meets: _Meets) -> Collectives:
    kept = frozenset(ranks.rank.ravel().tolist())
    folded = graph.collectives
    meeting_of_make = dict(zip(folded.make.tolist(), meets.of, strict=True))
    makes: list[Collective] = []
    first_make = {}
    for make, meeting in meeting_of_make.items():
        first_make[make] = len(makes)
        makes += [
            replace(
                folded.makes[make],
                ranks=own,
                recorded_ranks=tuple(rank for rank in own if rank in kept),
            )
            for own in _members(folded.makes[make], meeting, ranks)
        ]
    first = np.array([first_make[make] for make in folded.make.tolist()], np.int64)
    return Collectives(
        tuple(makes),
        joined_ranges(first, meets.count).astype(np.int32),
        np.repeat(folded.position, meets.count),
    )


def _members(one: Collective, meeting: _Meeting, ranks: RankTable) -> list[tuple[int, ...]]:
    """Ranks of every group of a meeting."""
    group = Group(one.group)
    if group is not Group.PIPELINE:
        return [tuple(row) for row in ranks.groups(group)[meeting.rows].tolist()]
    pairs = ranks.rank[list(meeting.group_of_copy)]
    return [tuple(sorted(pair)) for pair in pairs.T.tolist()]


def _collective_column(
    graph: ExecutionGraph, meets: _Meets, first: Int64s, stage: Int64s
) -> Int32s:
    """Collective of every copy; int32[copies]."""
    column = np.full(int(first[-1]), NO_COLLECTIVE, np.int32)
    by_kind = defaultdict(list)
    for node in np.flatnonzero(graph.collective != NO_COLLECTIVE).tolist():
        is_hub = graph.kind[node] == NodeKind.HUB
        where = NO_COLLECTIVE if is_hub else int(stage[node])
        by_kind[id(meets.of[graph.collective[node]]), where].append(node)
    for (_, where), members in by_kind.items():
        nodes = np.array(members)
        one = graph.collective[nodes]
        meeting = meets.of[one[0]]
        group = np.arange(len(meeting.rows)) if where < 0 else meeting.group_of_copy[where]
        place = first[nodes][:, None] + np.arange(len(group))
        column[place] = meets.first[one][:, None] + group
    return column
