from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import collective_times, steps
from foretrace.base import Int64s
from foretrace.graph import NodeKind, Timeline
from foretrace.report.strip import MERGED, SLICE_KINDS, TRACKS, Strip, strip
from tests.graphs import GraphBuilder, timeline_of
from tests.report.sample import sample


@dataclass(frozen=True)
class Row:
    """A row of a strip, read back."""

    start: Int64s
    end: Int64s
    kind: list[str]
    name: list[str | None]


def packed(timeline: Timeline, **limits: int) -> Strip:
    return strip(
        {"measured": timeline},
        {"measured": collective_times(timeline)},
        {"measured": steps(timeline)},
        **limits,
    )


def row_of(made: Strip, rank: int, track: str, title: str = "measured") -> Row:
    (row,) = (
        row
        for row in made.rows
        if (row["rank"], row["track"], row["title"]) == (rank, TRACKS.index(track), title)
    )

    def column(name: str, dtype: str) -> Int64s:
        raw = base64.b64decode(cast("str", row[name]))
        return np.frombuffer(raw, dtype).astype(np.int64)

    start, length = column("start", "<u4"), column("length", "<u4")
    return Row(
        start,
        start + length,
        [SLICE_KINDS[index] for index in column("kind", "u1").tolist()],
        [None if i == MERGED else made.names[i] for i in column("name", "<i4").tolist()],
    )


def one_stream(spans: list[tuple[int, int]]) -> Timeline:
    """Kernels of one stream at these starts and ends."""
    build = GraphBuilder()
    for index, (start_ns, end_ns) in enumerate(spans):
        build.add(
            NodeKind.KERNEL, lane="stream 7", name=f"kernel {index}", takes_ns=end_ns - start_ns
        )
    return timeline_of(build.graph(), [start_ns for start_ns, _ in spans])


def test_every_slice_keeps_its_time_and_name() -> None:
    made = packed(one_stream([(0, 10), (10, 25), (40, 60)]))

    row = row_of(made, 0, "compute")

    assert made.tick_ns == 1
    assert row.start.tolist() == [0, 10, 40]
    assert row.end.tolist() == [10, 25, 60]
    assert row.name == ["kernel 0", "kernel 1", "kernel 2"]


def test_a_collective_is_a_wait_and_a_transfer() -> None:
    made = sample()
    timelines = {"measured": made.recording.measured, "replayed": made.replayed}
    drawn = strip(
        timelines,
        {name: collective_times(one) for name, one in timelines.items()},
        {name: steps(one) for name, one in timelines.items()},
    )

    early = row_of(drawn, 0, "communication", "replayed")
    late = row_of(drawn, 1, "communication", "replayed")

    assert early.kind == ["wait for other ranks", "transfer"] * 2
    assert (early.end - early.start).tolist() == [250_000, 500_000] * 2
    assert late.kind == ["transfer"] * 2


def test_ranks_beyond_the_limit_are_counted() -> None:
    made = packed(sample().replayed, max_ranks=1)

    assert made.ranks == (0,)
    assert made.num_ranks_left_out == 1


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**5)), min_size=1, max_size=60),
)
def test_thinning_hides_only_gaps_below_a_tick(pairs: list[tuple[int, int]]) -> None:
    spans = sorted((start, start + length) for start, length in pairs)
    window_ns = max(end for _, end in spans)

    made = packed(one_stream(spans), max_slices=1)
    row = row_of(made, 0, "compute")

    tick_ns = made.tick_ns
    covered = np.zeros(window_ns // tick_ns + 2, np.bool_)
    for start_ns, end_ns in spans:
        covered[start_ns // tick_ns : -(-end_ns // tick_ns)] = True
    drawn = np.zeros_like(covered)
    for start, end in zip(row.start.tolist(), row.end.tolist(), strict=True):
        drawn[start:end] = True
    assert drawn[covered].all()
    gaps = np.flatnonzero(drawn & ~covered)
    assert not np.any(np.diff(gaps) == 1)
    assert (row.start[1:] >= row.end[:-1]).all()
