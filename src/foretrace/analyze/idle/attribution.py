"""`idle`: every nanosecond in which a rank got nothing done, given to one cause.

Idle time ends with an operation; what that operation had waited for is followed back to the
begin of the idle time, and each piece of the way is a cause (`idling`). Waiting time ends with a
collective's transfer; its causes are those of the late rank's delay (`waits`, `waiting`).
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from foretrace.analyze.activity import activity_by_rank
from foretrace.analyze.idle.causes import Excuses
from foretrace.analyze.idle.idling import idle_stretches
from foretrace.analyze.idle.stretches import Stretches
from foretrace.analyze.idle.subjects import Subjects
from foretrace.analyze.idle.table import IdleCauses
from foretrace.analyze.idle.waiting import waiting_stretches
from foretrace.analyze.idle.waits import waits_of
from foretrace.analyze.idle.walks import binding_edges
from foretrace.analyze.options import Step, step_name
from foretrace.analyze.steps import StepTable, steps
from foretrace.answer import Place, question
from foretrace.base import GraphError, Int32s
from foretrace.graph import REPLAYED, Timeline


@question(
    REPLAYED,
    help="Say why devices stood still or waited, and who did it.",
    doing="asking each idle moment what it waited for",
    place=Place(60, "Idle and waiting", "Idle"),
)
def idle(timeline: Timeline, *, step: Step = None) -> IdleCauses:
    """Why each rank was idle, or only waited for others, every nanosecond with its one cause.

    Args:
        timeline: of a job, its replay, where causes are exact; in what was measured, time between
            what should have started an operation and its start is `UNEXPLAINED`.
        step: this one only, by name or number; all, if left out.

    Raises:
        GraphError: if there is no such step.
    """
    table = _chosen_steps(steps(timeline), step_name(step))
    binding, excuses = binding_edges(timeline), Excuses.of(timeline)
    activities = activity_by_rank(timeline)
    subjects = Subjects.of(timeline)
    waits = waits_of(timeline, binding, excuses, subjects)
    stretches = Stretches.joined(
        [
            idle_stretches(timeline, table, activities, (binding, excuses, subjects)),
            waiting_stretches(timeline, waits, activities),
        ]
    )
    found = [
        _within(stretches, rank, begin_ns, end_ns)
        for rank, begin_ns, end_ns in zip(
            table.rank.tolist(), table.begin_ns.tolist(), table.end_ns.tolist(), strict=True
        )
    ]
    steps_of = np.repeat(table.step, [len(each) for each in found])
    return _merged(timeline, table, subjects.names, (steps_of, found))


def _chosen_steps(table: StepTable, step: str | None) -> StepTable:
    if step is None:
        return table
    if step not in table.step_names:
        have = ", ".join(table.step_names[:8])
        raise GraphError(f"no step {step!r}: the recording has {have or 'none'}.")
    rows = np.flatnonzero(table.step == table.step_names.index(step))
    columns = ("step", "rank", "begin_ns", "host_end_ns", "end_ns", "end_node")
    return replace(table, **{name: getattr(table, name)[rows] for name in columns})


def _within(stretches: Stretches, rank: int, begin_ns: int, end_ns: int) -> Stretches:
    """A rank's stretches, cut to a window."""
    low, high = np.searchsorted(stretches.rank, [rank, rank + 1])
    mine = slice(low, high)
    cut_begin_ns = np.maximum(stretches.begin_ns[mine], begin_ns)
    cut_end_ns = np.minimum(stretches.end_ns[mine], end_ns)
    inside = np.flatnonzero(cut_begin_ns < cut_end_ns)
    return replace(
        stretches.rows(low + inside), begin_ns=cut_begin_ns[inside], end_ns=cut_end_ns[inside]
    )


def _merged(
    timeline: Timeline,
    table: StepTable,
    subjects: tuple[str, ...],
    found: tuple[Int32s, list[Stretches]],
) -> IdleCauses:
    """The table, with neighbours of one cause as one interval."""
    step, parts = found
    names = [field.name for field in fields(Stretches)]
    column = {
        name: np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0, np.int64)])
        for name in names
    }
    same = np.ones(max(len(step) - 1, 0), np.bool_)
    for each in (step, *(column[name] for name in names[:6])):
        same &= each[1:] == each[:-1]
    same &= column["begin_ns"][1:] == column["end_ns"][:-1]
    first = np.flatnonzero(np.append(True, ~same)[: len(step)])
    last = np.append(first[1:], len(step))[: len(first)] - 1
    return IdleCauses(
        step_names=table.step_names,
        subjects=subjects,
        step=step[first].astype(np.int32),
        rank=column["rank"][first].astype(np.int32),
        kind=column["kind"][first].astype(np.uint8),
        cause=column["cause"][first].astype(np.uint8),
        culprit_rank=column["culprit_rank"][first].astype(np.int32),
        collective=column["collective"][first].astype(np.int32),
        subject=column["subject"][first].astype(np.int32),
        begin_ns=column["begin_ns"][first].astype(np.int64),
        end_ns=column["end_ns"][last].astype(np.int64),
        is_measured=timeline.is_measured,
    )
