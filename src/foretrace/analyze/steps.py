"""`StepTable`: when each step ran on each rank, cut out of a whole timeline.

A step runs from its host mark to the later of its host end and the end of the last device
operation, or communication, that was launched in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.answer import Answer, Column, Table, Told, Unit, count_text
from foretrace.base import Int32s, Int64s
from foretrace.graph import DEVICE_KINDS, NO_STEP, NodeKind, Timeline

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max  # no mark seen


@dataclass(frozen=True, repr=False)
class StepTable(Answer):
    """One row per step and rank that has the step's begin mark, by step, then rank."""

    step_names: tuple[str, ...]  # of the graph; `step` is a position here
    step: Int32s  # int32[rows]
    rank: Int32s  # int32[rows]
    begin_ns: Int64s  # int64[rows], start of the step's mark on the host
    host_end_ns: Int64s  # int64[rows], end of the mark
    end_ns: Int64s  # int64[rows], never before `host_end_ns`
    end_node: Int64s  # int64[rows], first node that ends at `end_ns` and makes the step end there

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.step)

    @property
    def duration_ns(self) -> Int64s:
        """Length of each step; int64[rows]."""
        return self.end_ns - self.begin_ns

    @property
    def host_duration_ns(self) -> Int64s:
        """Length of each step's mark on the host; int64[rows]."""
        return self.host_end_ns - self.begin_ns

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
    runs = np.isin(kind, np.array([*DEVICE_KINDS, NodeKind.FINISH], dtype=np.uint8))
    num_cells = len(graph.step_names) * len(ranks)

    begin_ns = np.full(num_cells, _HIGHEST)
    np.minimum.at(begin_ns, cell[begins], timeline.start_ns[in_step[begins]])
    rows = np.flatnonzero(begin_ns != _HIGHEST)
    host_end_ns, end_ns = np.full(num_cells, _LOWEST), begin_ns.copy()
    np.maximum.at(host_end_ns, cell[ends], timeline.end_ns[in_step[ends]])
    closes = begins | ends | runs
    end_cell, end_of_ns = cell[closes], timeline.end_ns[in_step[closes]]
    np.maximum.at(end_ns, end_cell, end_of_ns)
    is_last = end_of_ns == end_ns[end_cell]
    end_node = np.full(num_cells, graph.num_nodes, dtype=np.int64)
    np.minimum.at(end_node, end_cell[is_last], in_step[closes][is_last])
    has_end = host_end_ns[rows] != _LOWEST
    return StepTable(
        step_names=graph.step_names,
        step=(rows // len(ranks)).astype(np.int32),
        rank=ranks[rows % len(ranks)],
        begin_ns=begin_ns[rows],
        host_end_ns=np.where(has_end, host_end_ns[rows], end_ns[rows]),
        end_ns=end_ns[rows],
        end_node=end_node[rows],
    )
