"""`idle`: every nanosecond in which a rank got nothing done, given to one cause.

Idle time ends with an operation; what that operation had waited for is followed back to the
begin of the idle time, and each piece of the way is a cause. Waiting time ends with a
collective's transfer; its causes are those of the late rank's delay (`waits`, `waiting`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from foretrace.analyze.activity import Activity, activity_by_rank, is_compute, participations
from foretrace.analyze.idle.causes import Excuses, ExplainedPieces, IdleCause, described_pieces
from foretrace.analyze.idle.stretches import Stretches, complement
from foretrace.analyze.idle.subjects import Subjects
from foretrace.analyze.idle.table import IdleCauses, Stillness
from foretrace.analyze.idle.waiting import waiting_stretches
from foretrace.analyze.idle.waits import waits_of
from foretrace.analyze.idle.walks import WalkPieces, Walks, binding_edges, walked_back
from foretrace.analyze.options import Step, step_name
from foretrace.analyze.steps import StepTable, steps
from foretrace.analyze.windows import step_time_ns
from foretrace.answer import Place, question
from foretrace.base import Bools, GraphError, Int32s, Int64s
from foretrace.graph import MEASURED, NO_COLLECTIVE, NO_NODE, ExecutionGraph, NodeKind, Timeline


@question(
    MEASURED,
    help="Say why devices stood still or waited, and who did it.",
    doing="asking each idle moment what it waited for",
    place=Place(60, "Idle and waiting", "Idle"),
)
def idle(timeline: Timeline, *, step: Step = None) -> IdleCauses:
    """Why each rank was idle, or only waited for others, every nanosecond with its one cause.

    Args:
        timeline: of a job, what was measured, where time between what should have started an
            operation and its start is `UNEXPLAINED`; in its replay causes are exact.
        step: this one only, by name or number; all, if left out.

    Raises:
        GraphError: if there is no such step.
    """
    return timeline.once(_idle, step)


def _idle(timeline: Timeline, step: str | int | None) -> IdleCauses:
    table = steps(timeline)
    table = _chosen_steps(table, step_name(step, table.step_names))
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
    merged = _merged(timeline, table, subjects.names, (steps_of, found))
    return replace(merged, step_time_ns=step_time_ns(timeline, step))


def _chosen_steps(table: StepTable, step: str | None) -> StepTable:
    if step is None:
        return table
    if step not in table.step_names:
        have = ", ".join(table.step_names[:8])
        raise GraphError(f"no step {step!r}: the recording has {have or 'none'}.")
    rows = np.flatnonzero(table.step == table.step_names.index(step))
    return table.at(rows)


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


def idle_stretches(
    timeline: Timeline,
    table: StepTable,
    activities: dict[int, Activity],
    known: tuple[Int64s, Excuses, Subjects],
) -> Stretches:
    """Idle time inside the steps, by what ended it."""
    binding, excuses, subjects = known
    walks, rank, is_last = _idle_walks(timeline, table, activities)
    pieces = walked_back(timeline, walks, binding)
    described = described_pieces(timeline, pieces, excuses, subjects)
    cause = described.cause.copy()
    is_of_host = (cause == IdleCause.HOST) | (cause == IdleCause.STALL)
    cause[is_last[pieces.walk] & is_of_host] = IdleCause.EDGE
    return _of_pieces(pieces, replace(described, cause=cause), rank)


def _of_pieces(pieces: WalkPieces, described: ExplainedPieces, rank: Int32s) -> Stretches:
    return Stretches(
        rank=rank[pieces.walk],
        kind=np.full(len(pieces), Stillness.IDLE, np.uint8),
        cause=described.cause,
        culprit_rank=described.rank,
        collective=np.full(len(pieces), NO_COLLECTIVE, np.int32),
        subject=described.subject.astype(np.int64),
        begin_ns=pieces.begin_ns,
        end_ns=pieces.end_ns,
    )


def _idle_walks(
    timeline: Timeline, table: StepTable, activities: dict[int, Activity]
) -> tuple[Walks, Int32s, Bools]:
    """One walk per idle interval; its rank, and whether no operation follows it."""
    enders = _Enders.of(timeline)
    nodes, begins, ends, ranks = ([np.zeros(0, np.int64)] for _ in range(4))
    for rank, activity in activities.items():
        mine = table.rank == rank
        if not mine.any():
            continue
        begin_ns, end_ns = int(table.begin_ns[mine].min()), int(table.end_ns[mine].max())
        gaps = complement(activity.busy, begin_ns, end_ns)
        nodes.append(enders.after(rank, gaps.end_ns))
        begins.append(gaps.start_ns)
        ends.append(gaps.end_ns)
        ranks.append(np.full(len(gaps), rank, np.int64))
    node, rank_of = np.concatenate(nodes), np.concatenate(ranks)
    is_last = node == NO_NODE
    node[is_last] = enders.last_of(rank_of[is_last])
    walks = Walks(node, np.concatenate(begins), np.concatenate(ends))
    return walks, rank_of.astype(np.int32), is_last


@dataclass(frozen=True)
class _Enders:
    """Operations that make their rank busy, by rank, then start: one of them ends an idle time."""

    graph: ExecutionGraph
    node: Int64s
    rank: Int32s
    start_ns: Int64s

    @classmethod
    def of(cls, timeline: Timeline) -> _Enders:
        """All of a timeline; operations without extent make nobody busy."""
        graph = timeline.graph
        pairs = participations(graph)
        compute = np.flatnonzero(is_compute(graph) & (timeline.end_ns > timeline.start_ns))
        takes = timeline.end_ns[pairs.finish] > timeline.start_ns[pairs.arrive]
        node = np.concatenate([compute, pairs.arrive[takes]])
        order = np.lexsort((node, timeline.start_ns[node], graph.rank[node]))
        node = node[order]
        return cls(graph, node, graph.rank[node], timeline.start_ns[node])

    def after(self, rank: int, moment_ns: Int64s) -> Int64s:
        """A rank's first operation that starts at or after each moment; NO_NODE if none."""
        low, high = np.searchsorted(self.rank, [rank, rank + 1])
        found = np.full(len(moment_ns), NO_NODE, np.int64)
        row = low + np.searchsorted(self.start_ns[low:high], moment_ns)
        found[row < high] = self.node[row[row < high]]
        return found

    def last_of(self, rank: Int64s) -> Int64s:
        """Each rank's last end of a step, or its last node where it has none."""
        graph = self.graph
        is_mark = graph.kind == NodeKind.STEP_END
        last = np.full(int(graph.rank.max(initial=0)) + 1, NO_NODE, np.int64)
        for nodes in (np.flatnonzero(graph.rank >= 0), np.flatnonzero(is_mark)):
            last[graph.rank[nodes]] = nodes  # of several, the last one stays
        found: Int64s = last[rank]
        return found
