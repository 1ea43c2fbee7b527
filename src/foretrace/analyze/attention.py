"""`AttentionProfile`: sequence lengths of attention over a step, call by call.

After Golden et al. (arXiv:2312.14385), who draw the sequence length of each attention call in the
order of the calls: transformers show a line or a ramp, diffusion models a repeated U. Fused
attention tells its lengths by its inputs; unfused attention by its softmax over scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze.calls import calls_of, step_of
from foretrace.base import Bools, Int32s, Int64s
from foretrace.graph import NO_STEP, Timeline
from foretrace.operators import attention_shape, scores_shape

if TYPE_CHECKING:
    import polars as pl

_SHAPE = ("batch", "heads", "kv_heads", "query_length", "kv_length", "head_size")


@dataclass(frozen=True)
class AttentionProfile:
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

    def by_length(self) -> pl.DataFrame:
        """Calls and time of each pair of query and key lengths, the longest time first."""
        import polars as pl  # on demand: it takes longer to import than this analysis to run

        keys = ["query_length", "kv_length", "is_backward", "is_fused"]
        return (
            self.to_frame()
            .group_by(keys)
            .agg(pl.len().alias("num_calls"), pl.col("time_ns").sum())
            .sort("time_ns", *keys, descending=[True, *[False] * len(keys)])
        )

    def to_frame(self) -> pl.DataFrame:
        """One row per call."""
        import polars as pl  # on demand: it takes longer to import than this analysis to run

        columns = ("rank", "start_ns", "time_ns", *_SHAPE, "is_backward", "is_fused")
        return pl.DataFrame({name: getattr(self, name) for name in columns})

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            "step": self.step_name,
            "share": self.share,
            "by_length": self.by_length().to_dicts(),
            "calls": self.to_frame().to_dicts(),
        }


def attention_profile(timeline: Timeline, *, step: str | None = None) -> AttentionProfile:
    """Lengths, sizes and time of every call of attention.

    Args:
        timeline: measured or simulated.
        step: by name; the step whose length is nearest the median without one.

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
    first = np.flatnonzero(np.append(True, calls.call[1:] != calls.call[:-1])[: len(calls)])
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
