"""`Windows`: the job's steps, one after the other, as spans that all ranks share.

A step of the job ends when the last of its ranks does, device included, and begins where the
step before ended; the first begins with the first rank that begins it, or with the end of what
devices were still at work on then. So windows of consecutive steps tile the run, and a step's
length is what the next step has to wait. A step that ends before the step before does has no
length.

*The job's step time* is the mean length of the steps of a run: what throughput follows from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.options import step_name
from foretrace.analyze.steps import StepTable, steps
from foretrace.answer import Fact, Facts, milliseconds_text
from foretrace.base import Bools, GraphError, Int32s, Int64s
from foretrace.graph import Timeline
from foretrace.trace import BatchKind, batch_of_mark

_LOWEST = np.iinfo(np.int64).min
_NUMBER = re.compile(r"(?<!\d)(\d{1,18})\D*$")


@dataclass(frozen=True)
class Windows:
    """One row per step of the job, in order of time."""

    step_names: tuple[str, ...]  # of the graph; `step` is a position here
    step: Int32s  # int32[rows]
    begin_ns: Int64s  # int64[rows]
    end_ns: Int64s  # int64[rows]
    begin_node: Int64s  # int64[rows], node whose end is the begin, or the mark that starts there
    end_node: Int64s  # int64[rows], node whose end is the end: the last of the last rank
    follows: Bools  # bool[rows], whether it begins where the row before ended

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.step)

    @property
    def duration_ns(self) -> Int64s:
        """Length of each step of the job; int64[rows]."""
        return self.end_ns - self.begin_ns

    def row_of(self, step: str | int | None) -> int:
        """Row of a step, by name or number; without, of that whose length is nearest the median.

        Raises:
            GraphError: if there is no such step.
        """
        name = step_name(step, (self.step_names[number] for number in self.step.tolist()))
        if name is None:
            return self._typical()
        for row, number in enumerate(self.step.tolist()):
            if self.step_names[number] == name:
                return row
        have = ", ".join(self.step_names[number] for number in self.step[:8].tolist())
        raise GraphError(f"no step {name!r}: the recording has {have or 'none'}.")

    def longest_run(self) -> tuple[int, ...]:
        """Rows of the longest run of steps that follow each other; ties: the first."""
        firsts = np.flatnonzero(~self.follows).tolist()
        runs = zip(firsts, [*firsts[1:], len(self)], strict=True)
        first, last = max(runs, key=lambda run: run[1] - run[0], default=(0, 0))
        return tuple(range(first, last))

    def mean_ns(self) -> int:
        """The job's step time, rounded: the mean length of the steps of the longest run."""
        rows = self.longest_run()
        return mean_step_ns(int(self.end_ns[rows[-1]] - self.begin_ns[rows[0]]), len(rows))

    def kinds(self) -> tuple[BatchKind | None, ...]:
        """What requests of each row's step are at, as marks of serving engines say."""
        told = (batch_of_mark(self.step_names[step]) for step in self.step.tolist())
        return tuple(None if batch is None else batch.kind for batch in told)

    def rows_alike(self) -> Int64s:
        """Rows of the kind of batch that most steps are of; all, where no mark says one."""
        kinds, duration_ns = np.array(self.kinds()), self.duration_ns
        each = [np.flatnonzero(kinds == kind) for kind in dict.fromkeys(kinds.tolist())]
        return max(
            each,
            key=lambda rows: (len(rows), int(duration_ns[rows].sum())),
            default=np.zeros(0, np.int64),
        )

    def _typical(self) -> int:
        """The row whose length is the median's nearest; ties: the first.

        Of a serving engine's steps, one of the kind of batch that most are of.
        """
        if not len(self):
            raise GraphError(
                "the recording has no step marks: record with a profiler schedule and "
                "`profiler.step()`, or with foretrace.record(...)."
            )
        rows, duration_ns = self.rows_alike(), self.duration_ns
        nearest = np.argmin(np.abs(duration_ns[rows] - np.median(duration_ns[rows])))
        return int(rows[nearest])


def mean_step_ns(length_ns: float, num_steps: int) -> int:
    """Time of each of so many steps that together take so long, rounded to whole ns."""
    return round(length_ns / num_steps)


def step_time_ns(timeline: Timeline, step: str | int | None = None) -> int:
    """The job's step time, or one step's length; without marks of steps, the recording's.

    Raises:
        GraphError: if there is no such step.
    """
    found = windows(timeline)
    if step is not None:
        return int(found.duration_ns[found.row_of(step)])
    if not len(found):
        return int(timeline.end_ns.max(initial=0) - timeline.start_ns.min(initial=0))
    return found.mean_ns()


def step_time_facts(step_time_ns: float, own_ns: float) -> Facts:
    """The job's step time, and what the steps of ranks take, which shares of parts are of."""
    step, own = (f"{milliseconds_text(one)} ms" for one in (step_time_ns, own_ns))
    return Facts(
        (
            Fact("step time", step, "of the job: to the end of its last rank"),
            Fact("own step of a rank", own, "mean over ranks and steps"),
        )
    )


def windows(timeline: Timeline) -> Windows:
    """Begin and end of every step of the job."""
    return timeline.once(_windows)


def _windows(timeline: Timeline) -> Windows:
    table = steps(timeline)
    found, first_row = np.unique(table.step, return_index=True)  # the table is by step
    bounds = np.append(first_row, len(table))
    begin_ns, end_ns, begin_node, end_node = (np.empty(len(found), np.int64) for _ in range(4))
    follows = np.zeros(len(found), np.bool_)
    for row, step in enumerate(found.tolist()):
        rows = slice(bounds[row], bounds[row + 1])
        last = bounds[row] + np.argmax(table.end_ns[rows])
        end_ns[row], end_node[row] = table.end_ns[last], table.end_node[last]
        follows[row] = row and _follows(timeline.graph.step_names, found[row - 1], step)
        first = bounds[row] + _first_begin(table, rows)
        begin_ns[row], begin_node[row] = table.begin_ns[first], table.begin_node[first]
        if follows[row]:
            begin_ns[row], begin_node[row] = end_ns[row - 1], end_node[row - 1]
            if end_ns[row] < begin_ns[row]:  # a rank of the step before is still at work
                end_ns[row], end_node[row] = begin_ns[row], begin_node[row]
    return Windows(
        step_names=table.step_names,
        step=found.astype(np.int32),
        begin_ns=begin_ns,
        end_ns=end_ns,
        begin_node=begin_node,
        end_node=end_node,
        follows=follows,
    )


def _first_begin(table: StepTable, rows: slice) -> int:
    """Which of a step's ranks begins the job's step, where no step before is known.

    The last whose device was still at work on something before; without such, the first.
    """
    mark_ns, begin_ns = table.mark_ns[rows], table.begin_ns[rows]
    is_late = begin_ns > mark_ns
    return int(
        np.argmax(np.where(is_late, begin_ns, _LOWEST)) if is_late.any() else mark_ns.argmin()
    )


def _follows(names: tuple[str, ...], first: int, second: int) -> bool:
    """Whether two steps' numbers follow each other; names without numbers are taken to."""
    numbers = [_NUMBER.search(names[step]) for step in (first, second)]
    if numbers[0] is None or numbers[1] is None:
        return True
    return int(numbers[1][1]) == int(numbers[0][1]) + 1
