"""`AttentionProfile`: sequence lengths of attention over a step, call by call.

After Golden et al. (arXiv:2312.14385), who draw the sequence length of each attention call in the
order of the calls: transformers show a line or a ramp, diffusion models a repeated U. Fused
attention tells its lengths by its inputs; unfused attention by its softmax over scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze.calls import calls_of, step_of
from foretrace.analyze.options import Step
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Json,
    Place,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    percent_text,
    question,
    rows_json,
)
from foretrace.base import Bools, Int32s, Int64s, begins_run
from foretrace.graph import MEASURED, NO_STEP, Timeline
from foretrace.operators import attention_shape, scores_shape

_SHAPE = ("batch", "heads", "kv_heads", "query_length", "kv_length", "head_size")

_CURVE = Chart(
    kind=ChartKind.STEPS,
    label="sequence length of each attention call in the order of calls",
    category="call",
    category_unit=Unit.IDENTIFIER,
    series=(
        Series("query_length", "query length", "compute"),
        Series("kv_length", "key length", "path", is_faint=True),
    ),
    unit=Unit.COUNT,
)


@dataclass(frozen=True, repr=False)
class AttentionProfile(Answer):
    """One row per call of attention, by rank, then start."""

    step_name: str | None  # None: the recording has no steps, all of it counts
    rank: Int32s  # int32[rows]
    start_ns: Int64s  # int64[rows], of its first kernel
    time_ns: Int64s  # int64[rows], of its kernels; of unfused attention, of the softmax alone
    batch: Int32s  # int32[rows]; of unfused attention: batch x heads
    heads: Int32s  # int32[rows], of the queries; 0 unknown
    kv_heads: Int32s  # int32[rows]; 0 unknown
    query_length: Int32s  # int32[rows]
    kv_length: Int32s  # int32[rows]
    head_size: Int32s  # int32[rows]; 0 unknown
    is_backward: Bools  # bool[rows]
    is_fused: Bools  # bool[rows]
    share: float  # of the time of all kernels, or operators, of the step

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.rank)

    @property
    def headline(self) -> str:
        """How many calls, and how much of the time they take."""
        if not len(self):
            return "no attention whose shapes are recorded: record with shapes"
        step = self.step_name or "the whole recording"
        return (
            f"{step}: {count_text(len(self), 'call')} of attention, "
            f"{percent_text(100 * self.share)} of the time of all kernels"
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no attention."""
        return not len(self)

    def parts(self) -> tuple[Told, ...]:
        """Lengths with their calls and time; call by call where they differ."""
        first = int(self.rank[0]) if len(self) else 0
        rows = np.flatnonzero(self.rank == first)
        columns = self.query_length[rows], self.kv_length[rows]
        drawn = Table.of_columns(
            "calls-of-a-rank",
            (Column("call", unit=Unit.IDENTIFIER), np.arange(len(rows))),
            (Column("query_length", unit=Unit.COUNT), columns[0]),
            (Column("kv_length", "key length", Unit.COUNT), columns[1]),
            title=f"call by call, rank {first}",
        )
        has_curve = len(set(zip(*(one.tolist() for one in columns), strict=True))) > 1
        chart = replace(drawn, chart=_CURVE, shown=Shown.WIDE)
        return (*((chart,) if has_curve else ()), self.by_length())

    def tables(self) -> tuple[Table, ...]:
        """Every call, then the lengths."""
        return self._calls(), self.by_length()

    def by_length(self) -> Table:
        """Calls and time of each pair of query and key lengths, the longest time first."""
        found: dict[tuple[int, int, bool, bool], list[int]] = {}
        columns = (self.query_length, self.kv_length, self.is_backward, self.is_fused)
        keys = zip(*(column.tolist() for column in columns), strict=True)
        for key, time_ns in zip(keys, self.time_ns.tolist(), strict=True):
            found.setdefault(key, []).append(time_ns)
        rows = sorted(found.items(), key=lambda one: (-sum(one[1]), one[0]))
        return Table.of(
            "by_length",
            [(*key, len(times), sum(times)) for key, times in rows],
            Column("query_length", unit=Unit.COUNT, value=lambda row: row[0]),
            Column("kv_length", "key length", Unit.COUNT, lambda row: row[1]),
            Column("is_backward", value=lambda row: row[2]),
            Column("is_fused", value=lambda row: row[3]),
            Column("num_calls", value=lambda row: row[4]),
            Column("time_ns", "ms", value=lambda row: row[5]),
            title="by length, all ranks",
            max_rows=12,
        )

    def _calls(self) -> Table:
        columns = ("rank", "start_ns", "time_ns", *_SHAPE, "is_backward", "is_fused")
        return Table.of_columns("calls", *((Column(one), getattr(self, one)) for one in columns))

    def as_json(self) -> Json:
        """Everything, as plain values."""
        tables = rows_json(self.by_length(), self._calls())
        return {"step": self.step_name, "share": self.share, **tables}


@question(MEASURED, doing="reading the shapes of attention", place=Place(120, "Attention"))
def attention(timeline: Timeline, *, step: Step = None) -> AttentionProfile:
    """Lengths, sizes and time of every call of attention.

    Args:
        timeline: of a job, what was measured.
        step: by name or number; the step whose length is nearest the median without one.

    Raises:
        GraphError: if there is no step of that name.
    """
    chosen = step_of(timeline, step)
    calls = calls_of(timeline, chosen)
    table = np.array([_shape_row(kind.operator, kind.signature) for kind in calls.kinds], np.int32)
    table = table.reshape(len(calls.kinds), len(_SHAPE) + 2)
    has_shape = table[:, 3] > 0
    took_ns = timeline.duration_ns[calls.node]
    time_ns = np.bincount(calls.call, weights=took_ns, minlength=calls.num_calls).astype(np.int64)
    first = np.flatnonzero(begins_run(calls.call))
    first = first[has_shape[calls.kind[first]]]
    node = calls.node[first]
    first = first[np.lexsort((timeline.start_ns[node], timeline.graph.rank[node]))]
    node, rows = calls.node[first], table[calls.kind[first]]
    own_ns = time_ns[calls.call[first]]
    return AttentionProfile(
        step_name=None if chosen == NO_STEP else timeline.graph.step_names[chosen],
        rank=timeline.graph.rank[node],
        start_ns=timeline.start_ns[node],
        time_ns=own_ns,
        **{name: rows[:, at] for at, name in enumerate(_SHAPE)},
        is_backward=rows[:, -2] == 1,
        is_fused=rows[:, -1] == 1,
        share=float(own_ns.sum() / max(int(took_ns.sum()), 1)),
    )


def _shape_row(operator: str, signature: str) -> tuple[int, ...]:
    """The columns of `_SHAPE`, whether it is backward, whether it is fused; zeros: no attention."""
    shape = attention_shape(operator, signature)
    is_fused = shape is not None
    shape = shape or scores_shape(operator, signature)
    if shape is None:
        return (0,) * (len(_SHAPE) + 2)
    return (*(getattr(shape, name) for name in _SHAPE), int(shape.is_backward), int(is_fused))
