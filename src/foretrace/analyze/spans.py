"""`StepSpan`: one step of the job or of one rank, or all of a run, and what begins and ends it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.steps import steps
from foretrace.analyze.windows import Windows, mean_step_ns, windows
from foretrace.base import Bools, GraphError, Int32s
from foretrace.graph import DEVICE_KINDS, ExecutionGraph, NodeKind, Timeline
from foretrace.simulate import NO_GOAL

END_GOAL, BEGIN_GOAL = 0, 1


@dataclass(frozen=True)
class StepSpan:
    """The step that a question is asked of, or steps that follow each other, of which the mean is.

    It begins with the end of `begin_node`: a step's first mark, or what ended the step before.
    """

    step_name: str  # of several: "mean of 4 steps"
    rank: int | None  # None: the job's step, over all ranks
    steps: tuple[int, ...]  # positions in the graph's `step_names`, in order of time
    begin_ns: int
    end_ns: int
    begin_node: int
    end_node: int
    steps_before: tuple[int, ...]  # the last of whose ends is the begin; (): a mark is

    @property
    def duration_ns(self) -> int:
        """Length of all its steps."""
        return self.end_ns - self.begin_ns

    @property
    def step_ns(self) -> int:
        """Length of the step; of several, of each in the mean."""
        return mean_step_ns(self.duration_ns, len(self.steps))


def step_span(
    timeline: Timeline, step: str | int | None = None, rank: int | None = None
) -> StepSpan:
    """The job's window of a step (see `windows`), or one rank's own step (see `steps`).

    Args:
        timeline: measured or simulated.
        step: by name; without one, the step whose length is nearest the job's median.
        rank: whose step; the job's, if left out.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    table = windows(timeline)
    row = table.row_of(step)
    if rank is not None:
        return _of_rank(timeline, int(table.step[row]), rank)
    return _of_rows(table, (row,))


def step_spans(timeline: Timeline, step_names: Collection[str]) -> Iterator[StepSpan]:
    """The job's windows of these steps, in order of time."""
    table = windows(timeline)
    for row, step in enumerate(table.step.tolist()):
        if table.step_names[step] in step_names:
            yield _of_rows(table, (row,))


def mean_span(timeline: Timeline, step: str | int | None, rank: int | None) -> StepSpan:
    """The span that shares of the step are of: without a step's name, all steps of the run.

    Args:
        timeline: measured or simulated.
        step: by name; without one, the longest run of steps that follow each other, whose mean is
            the job's step time.
        rank: its own step, of the job's that is nearest the median where none is named.

    Raises:
        GraphError: if there is no such step, the rank has none, or the step has no length.
    """
    table = windows(timeline)
    if step is None and rank is None and len(table):
        span = _of_rows(table, table.longest_run())
    else:
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
    goal[closes(graph, span.steps, span.rank)] = END_GOAL
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


def _of_rows(table: Windows, rows: tuple[int, ...]) -> StepSpan:
    """Steps of the job that follow each other, by their rows."""
    first, last = rows[0], rows[-1]
    steps_ = tuple(table.step[list(rows)].tolist())
    several = f"mean of {len(rows)} steps"
    return StepSpan(
        step_name=table.step_names[steps_[0]] if len(rows) == 1 else several,
        rank=None,
        steps=steps_,
        begin_ns=int(table.begin_ns[first]),
        end_ns=int(table.end_ns[last]),
        begin_node=int(table.begin_node[first]),
        end_node=int(table.end_node[last]),
        steps_before=_run_before(table, first),
    )


def _run_before(table: Windows, row: int) -> tuple[int, ...]:
    """The steps that follow each other up to a row's begin, which none of them may end after."""
    first = int(np.flatnonzero(~table.follows[: row + 1])[-1])
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
        steps=(step,),
        begin_ns=int(table.begin_ns[row]),
        end_ns=int(table.end_ns[row]),
        begin_node=int(table.begin_node[row]),
        end_node=int(table.end_node[row]),
        steps_before=(),
    )
