"""`StepTable`: when each step ran on each rank, cut out of a whole timeline.

A step ends with the later of its host mark's end and the end of the last device operation, or
communication, that was launched in it. It begins with its host mark, or where the step before
ended on this rank if that is later: so a rank's steps share no moment, also where its device lags
behind the host. What its device was still at work on when the recording began counts as a step
before the first.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np

from foretrace.answer import Answer, Column, Table, Told, Unit, count_text
from foretrace.base import Int32s, Int64s
from foretrace.graph import DEVICE_KINDS, NO_STEP, NodeKind, Timeline

_RUNS = (*DEVICE_KINDS, NodeKind.FINISH)
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max  # no mark seen


@dataclass(frozen=True, repr=False)
class StepTable(Answer):
    """One row per step and rank that has the step's begin mark, by step, then rank."""

    step_names: tuple[str, ...]  # of the graph; `step` is a position here
    step: Int32s  # int32[rows]
    rank: Int32s  # int32[rows]
    mark_ns: Int64s  # int64[rows], start of the step's mark on the host
    begin_ns: Int64s  # int64[rows], `mark_ns` or the end of the step before; at most `end_ns`
    begin_node: Int64s  # int64[rows], first node that makes the step begin at `begin_ns`
    host_end_ns: Int64s  # int64[rows], end of the mark
    end_ns: Int64s  # int64[rows], never before `host_end_ns`
    end_node: Int64s  # int64[rows], first node that ends at `end_ns` and makes the step end there

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.step)

    def at(self, rows: Int64s) -> StepTable:
        """Some of the rows."""
        columns = (field.name for field in fields(self) if field.name != "step_names")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    @property
    def duration_ns(self) -> Int64s:
        """Length of each step; int64[rows]."""
        return self.end_ns - self.begin_ns

    @property
    def host_duration_ns(self) -> Int64s:
        """Length of each step's mark on the host; int64[rows]."""
        return self.host_end_ns - self.mark_ns

    @property
    def headline(self) -> str:
        """How many steps of how many ranks."""
        ranks = count_text(len(np.unique(self.rank)), "rank")
        return f"{count_text(len(np.unique(self.step)), 'step')} of {ranks}"

    def parts(self) -> tuple[Told, ...]:
        """The steps with their names and lengths."""
        keys = ("rank", "begin_ns", "host_end_ns", "end_ns", "duration_ns", "host_duration_ns")
        names = [self.step_names[index] for index in self.step.tolist()]
        columns = ((Column(key), getattr(self, key)) for key in keys)
        return (Table.of_columns("steps", (Column("step", unit=Unit.TEXT), names), *columns),)


def steps(timeline: Timeline) -> StepTable:
    """Begin, host end and end of every step on every rank.

    A step without an end mark on a rank ends there with its last device operation.
    """
    return timeline.once(_steps)


def of_no_step_ns(timeline: Timeline) -> Int64s:
    """Time inside each step of device work that no step launched, int64[rows of `steps`]."""
    table, graph = steps(timeline), timeline.graph
    found = np.zeros(len(table), np.int64)
    rows = np.flatnonzero(graph.is_on_stream & (graph.step == NO_STEP))
    rows = rows[np.isin(graph.kind[rows], DEVICE_KINDS)]
    start_ns, end_ns, rank = timeline.start_ns[rows], timeline.end_ns[rows], graph.rank[rows]
    for at in range(len(table) if len(rows) else 0):
        mine = rank == table.rank[at]
        begin_ns = np.maximum(start_ns[mine], table.begin_ns[at])
        until_ns = np.minimum(end_ns[mine], table.end_ns[at])
        found[at] = np.maximum(until_ns - begin_ns, 0).sum()
    return found


def _steps(timeline: Timeline) -> StepTable:
    graph = timeline.graph
    ranks = np.array(graph.ranks, dtype=np.int32)
    in_step = np.flatnonzero((graph.step >= 0) & (graph.rank >= 0))
    cell = graph.step[in_step] * np.int64(len(ranks)) + np.searchsorted(ranks, graph.rank[in_step])
    kind = graph.kind[in_step]
    begins, ends = kind == NodeKind.STEP_BEGIN, kind == NodeKind.STEP_END
    runs = np.isin(kind, np.array(_RUNS, dtype=np.uint8))
    num_cells = len(graph.step_names) * len(ranks)

    mark_ns = np.full(num_cells, _HIGHEST)
    np.minimum.at(mark_ns, cell[begins], timeline.start_ns[in_step[begins]])
    rows = np.flatnonzero(mark_ns != _HIGHEST)
    mark_node = _first_nodes(in_step[begins], cell[begins], timeline.start_ns, mark_ns)
    host_end_ns, end_ns = np.full(num_cells, _LOWEST), mark_ns.copy()
    np.maximum.at(host_end_ns, cell[ends], timeline.end_ns[in_step[ends]])
    closes = begins | ends | runs
    np.maximum.at(end_ns, cell[closes], timeline.end_ns[in_step[closes]])
    end_node = _first_nodes(in_step[closes], cell[closes], timeline.end_ns, end_ns)
    has_end = host_end_ns[rows] != _LOWEST
    begin_ns, begin_node = mark_ns[rows], mark_node[rows]
    end_ns, end_node = end_ns[rows], end_node[rows]
    until_ns, until_node = _carried(timeline, ranks)
    bounds = np.searchsorted(rows, np.arange(len(graph.step_names) + 1) * len(ranks))
    for first, last in pairwise(bounds.tolist()):
        each, at = slice(first, last), rows[first:last] % len(ranks)
        is_later = until_ns[at] > begin_ns[each]
        is_over = until_ns[at] > end_ns[each]  # a step before is still at work
        joined = np.where(is_over, end_node[each], until_node[at])
        begin_node[each] = np.where(is_later, joined, begin_node[each])
        begin_ns[each] = np.minimum(np.maximum(begin_ns[each], until_ns[at]), end_ns[each])
        until_node[at] = np.where(is_over, until_node[at], end_node[each])
        until_ns[at] = np.maximum(until_ns[at], end_ns[each])
    return StepTable(
        step_names=graph.step_names,
        step=(rows // len(ranks)).astype(np.int32),
        rank=ranks[rows % len(ranks)],
        mark_ns=mark_ns[rows],
        begin_ns=begin_ns,
        begin_node=begin_node,
        host_end_ns=np.where(has_end, host_end_ns[rows], end_ns),
        end_ns=end_ns,
        end_node=end_node,
    )


def _carried(timeline: Timeline, ranks: Int32s) -> tuple[Int64s, Int64s]:
    """When each rank's device was done with what was launched before its first step, and the node.

    Both int64[ranks]; the lowest number, and no node, where there was no such work.
    """
    graph = timeline.graph
    runs = np.flatnonzero(graph.is_on_stream & graph.is_of(*_RUNS))
    lane, in_step = graph.lane[runs], graph.step[runs] >= 0
    first = np.zeros(len(graph.lanes), np.int64)  # a lane without a step carries nothing into one
    first[lane[in_step][::-1]] = runs[in_step][::-1]
    nodes = runs[~in_step & (runs < first[lane])]
    rank = np.searchsorted(ranks, graph.rank[nodes])
    until_ns = np.full(len(ranks), _LOWEST)
    np.maximum.at(until_ns, rank, timeline.end_ns[nodes])
    return until_ns, _first_nodes(nodes, rank, timeline.end_ns, until_ns)


def _first_nodes(nodes: Int64s, cell: Int64s, node_ns: Int64s, cell_ns: Int64s) -> Int64s:
    """The first of each cell's nodes whose moment is the cell's; int64[cells]."""
    found = np.full(len(cell_ns), len(node_ns), dtype=np.int64)
    is_it = node_ns[nodes] == cell_ns[cell]
    np.minimum.at(found, cell[is_it], nodes[is_it])
    return found
