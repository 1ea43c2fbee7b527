"""`StepSpan`: one step of the job, or of one rank, with the nodes that begin and end it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.steps import steps
from foretrace.analyze.windows import Windows, windows
from foretrace.base import Bools, GraphError, Int32s
from foretrace.graph import DEVICE_KINDS, NO_NODE, ExecutionGraph, NodeKind, Timeline
from foretrace.simulate import NO_GOAL

END_GOAL, BEGIN_GOAL = 0, 1


@dataclass(frozen=True)
class StepSpan:
    """A step that a question is asked of.

    It begins with the end of `begin_node`: a step's first mark, or what ended the step before.
    """

    step_name: str
    rank: int | None  # None: the job's step, over all ranks
    step: int  # position in the graph's `step_names`
    begin_ns: int
    end_ns: int
    begin_node: int
    end_node: int
    steps_before: tuple[int, ...]  # the last of whose ends is the begin; (): a mark is

    @property
    def duration_ns(self) -> int:
        """Length of the step."""
        return self.end_ns - self.begin_ns


def step_span(timeline: Timeline, step: str | None = None, rank: int | None = None) -> StepSpan:
    """The job's window of a step (see `windows`), or one rank's own step, mark to last end.

    Args:
        timeline: measured or simulated.
        step: by name; without one, the step whose length is nearest the job's median.
        rank: whose step; the job's, if left out.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    table = windows(timeline)
    row = table.row_of(step)
    number = int(table.step[row])
    name = table.step_names[number]
    if rank is not None:
        return _of_rank(timeline, number, rank)
    begin_node = int(table.begin_node[row])
    is_mark = begin_node == NO_NODE
    if is_mark:
        begin_node = _first_mark(timeline, number, int(table.begin_ns[row]))
    return StepSpan(
        step_name=name,
        rank=None,
        step=number,
        begin_ns=int(table.begin_ns[row]),
        end_ns=int(table.end_ns[row]),
        begin_node=begin_node,
        end_node=int(table.end_node[row]),
        steps_before=_run_before(table, row),
    )


def span_of_length(timeline: Timeline, step: str | None, rank: int | None) -> StepSpan:
    """A step's span, for questions about shares of it.

    Raises:
        GraphError: also if the step has no length.
    """
    span = step_span(timeline, step, rank)
    if span.duration_ns <= 0:
        raise GraphError(
            f"step {span.step_name!r} has no length: it ends before the step before it does. Ask "
            "for another step."
        )
    return span


def goals(graph: ExecutionGraph, span: StepSpan) -> Int32s:
    """Which nodes' latest end is the step's end (END_GOAL) and which its begin (BEGIN_GOAL).

    int32[nodes], for `simulate_batch`. Under changed durations another node may come last; a mark
    that begins a step stays the one that began it before.
    """
    goal = np.full(graph.num_nodes, NO_GOAL, np.int32)
    goal[closes(graph, span.steps_before)] = BEGIN_GOAL
    goal[closes(graph, (span.step,), span.rank)] = END_GOAL
    if not span.steps_before:
        goal[span.begin_node] = BEGIN_GOAL
    return goal


def closes(graph: ExecutionGraph, steps_: tuple[int, ...], rank: int | None = None) -> Bools:
    """Which nodes one of some steps lasts until at least; bool[nodes].

    Marks, device operations and communication of the step, on ranks that have its begin mark.
    """
    ending = (NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.FINISH, *DEVICE_KINDS)
    is_asked = np.zeros(len(graph.step_names) + 1, np.bool_)  # the last is of no step
    is_asked[list(steps_)] = True
    nodes = np.flatnonzero(is_asked[graph.step])
    nodes = nodes[graph.is_of(*ending)[nodes]]
    begins = nodes[graph.kind[nodes] == NodeKind.STEP_BEGIN]
    if rank is not None:
        begins = begins[graph.rank[begins] == rank]
    width = max(graph.ranks, default=0) + 2
    has_mark = np.zeros((len(graph.step_names), width), np.bool_)  # the last rank is no rank
    has_mark[graph.step[begins], graph.rank[begins]] = True
    found = np.zeros(graph.num_nodes, np.bool_)
    found[nodes] = has_mark[graph.step[nodes], graph.rank[nodes]]
    return found


def _run_before(table: Windows, row: int) -> tuple[int, ...]:
    """The steps that follow each other up to a row's begin, which none of them may end after."""
    first = row
    while table.begin_node[first] != NO_NODE:
        first -= 1
    return tuple(table.step[first:row].tolist())


def _of_rank(timeline: Timeline, step: int, rank: int) -> StepSpan:
    """One rank's own step."""
    table = steps(timeline)
    rows = np.flatnonzero((table.step == step) & (table.rank == rank))
    if not len(rows):
        have = ", ".join(str(one) for one in np.unique(table.rank[table.step == step])[:8])
        raise GraphError(
            f"rank {rank} has no step {table.step_names[step]!r}: ranks with it are {have}."
        )
    row = rows[0]
    return StepSpan(
        step_name=table.step_names[step],
        rank=rank,
        step=step,
        begin_ns=int(table.begin_ns[row]),
        end_ns=int(table.end_ns[row]),
        begin_node=_first_mark(timeline, step, int(table.begin_ns[row]), rank),
        end_node=int(table.end_node[row]),
        steps_before=(),
    )


def _first_mark(timeline: Timeline, step: int, begin_ns: int, rank: int | None = None) -> int:
    """The first begin mark of a step at a moment."""
    graph = timeline.graph
    is_mark = (graph.step == step) & (graph.kind == NodeKind.STEP_BEGIN) & (graph.rank >= 0)
    if rank is not None:
        is_mark &= graph.rank == rank
    return int(np.flatnonzero(is_mark & (timeline.start_ns == begin_ns))[0])
