from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import class_labels, collective_times, idle, steps
from foretrace.base import Int64s
from foretrace.graph import NodeKind, Part, Phase, Timeline
from foretrace.report.slices import COARSEST, MERGED, SLICE_KINDS, TRACKS
from foretrace.report.strip import MAX_SLICES, DrawnTimeline, PathSpans, Strip, strip
from foretrace.report.subjects import FACETS
from tests.graphs import GraphBuilder, timeline_of
from tests.report.sample import sample


@dataclass(frozen=True)
class Row:
    """A row of a strip, read back."""

    start: Int64s
    end: Int64s
    kind: list[str]
    name: list[str | None]


def packed(timeline: Timeline, *, max_slices: int = MAX_SLICES, max_ranks: int = 16) -> Strip:
    labels = class_labels(timeline.graph)
    return strip({"measured": drawn(timeline)}, labels, max_slices=max_slices, max_ranks=max_ranks)


def drawn(timeline: Timeline) -> DrawnTimeline:
    return DrawnTimeline(timeline, collective_times(timeline), steps(timeline))


def row_of(made: Strip, rank: int, track: str, title: str = "measured") -> Row:
    (row,) = (
        row
        for row in made.rows
        if (row.rank, row.track, row.title) == (rank, TRACKS.index(track), title)
    )
    start = row.start.astype(np.int64)
    return Row(
        start,
        start + row.length,
        [SLICE_KINDS[index] for index in row.kind.tolist()],
        [
            None if subject == MERGED else facet(made, subject, "name")
            for subject in row.subject.tolist()
        ],
    )


def facet(made: Strip, subject: int, which: str) -> str:
    text = made.facets[subject][FACETS.index(which)]
    return made.texts[text] if text >= 0 else ""


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
    both = strip(
        {title: drawn(one) for title, one in timelines.items()},
        class_labels(made.recording.graph),
    )

    early = row_of(both, 0, "communication", "replayed")
    late = row_of(both, 1, "communication", "replayed")

    assert early.kind == ["wait for other ranks", "transfer"] * 2
    assert (early.end - early.start).tolist() == [250_000, 500_000] * 2
    assert late.kind == ["transfer"] * 2
    assert all(name is not None and name.startswith("allreduce") for name in early.name)


def test_a_slice_says_what_it_is() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", name="ampere_sgemm_128x64_nn", takes_ns=5)
    graph = build.graph()
    graph = replace(
        graph,
        names=(*graph.names, "aten::mm"),
        operator=np.full(1, len(graph.names), np.int32),
        part=np.full(1, Part.LAYER, np.uint8),
        phase=np.full(1, Phase.BACKWARD, np.uint8),
        layer=np.full(1, 3, np.int16),
        microbatch=np.full(1, 1, np.int16),
    )

    made = packed(timeline_of(graph, [0]))

    assert [facet(made, 0, which) for which in FACETS] == [
        "ampere_sgemm_128x64_nn",
        "aten::mm",
        "gemm",
        "layer 3 backward, microbatch 1",
    ]


def test_idle_time_is_drawn_with_its_reason() -> None:
    made = sample()
    still = idle(made.replayed)

    both = strip(
        {"replayed": replace(drawn(made.replayed), idle=still)}, class_labels(made.replayed.graph)
    )

    row = row_of(both, 0, "why idle", "replayed")
    chosen = still.rank == 0
    assert (row.end - row.start).sum() == still.duration_ns[chosen].sum()
    waiting = [name for name, kind in zip(row.name, row.kind, strict=True) if "waiting" in kind]
    assert waiting == ["compute of rank 1"] * 2


def test_what_is_packed_can_be_unpacked() -> None:
    made = packed(one_stream([(0, 10), (10, 25), (40, 60)]))

    data = made.as_json()

    raw = zlib.decompress(base64.b64decode(cast("str", data["packed"])), wbits=-zlib.MAX_WBITS)
    words = np.frombuffer(raw[: 9 * 4], "<i4").reshape(3, 3)
    assert np.cumsum(words[0]).tolist() == [0, 10, 40]
    assert words[1].tolist() == [10, 15, 20]
    assert raw[15 * 4 :] == bytes([SLICE_KINDS.index("kernel")] * 3)


def test_the_path_is_drawn_on_the_track_of_its_nodes() -> None:
    timeline = one_stream([(0, 10), (10, 25), (40, 60)])
    spans = PathSpans(node=np.array([0, 2]), begin_ns=np.array([0, 40]), end_ns=np.array([10, 55]))

    made = strip({"measured": replace(drawn(timeline), path=spans)}, class_labels(timeline.graph))

    tracks = {TRACKS[row.track]: row for row in made.rows}
    assert tracks["compute"].path_start.tolist() == [0, 40]
    assert tracks["compute"].path_length.tolist() == [10, 15]
    assert tracks["host"].path_start.tolist() == []


def test_ranks_beyond_the_limit_are_counted() -> None:
    made = packed(sample().replayed, max_ranks=1)

    assert made.ranks == (0,)
    assert made.num_ranks_left_out == 1


def test_ranks_that_matter_are_drawn_before_low_ones() -> None:
    timeline = sample().replayed
    labels = class_labels(timeline.graph)

    made = strip({"measured": drawn(timeline)}, labels, first_ranks=[1, 7], max_ranks=1)

    assert made.ranks == (1,)


def test_timelines_of_two_graphs_keep_their_own_names() -> None:
    before, after = sample().replayed, one_stream([(0, 10), (20, 30)])
    both = strip(
        {
            "before": drawn(before),
            "after": replace(drawn(after), labels=class_labels(after.graph)),
        },
        class_labels(before.graph),
    )

    alone = strip({"before": drawn(before)}, class_labels(before.graph))

    assert row_of(both, 0, "compute", "after").name == ["kernel 0", "kernel 1"]
    assert both.ranks == alone.ranks == (0, 1)
    for rank in (0, 1):
        for track in TRACKS:
            of_both, of_one = (row_of(made, rank, track, "before") for made in (both, alone))
            assert of_both.name == of_one.name
            assert of_both.kind == of_one.kind
    assert row_of(both, 1, "compute", "after").name == []


def test_many_slices_become_few() -> None:
    spans = [(10 * index, 10 * index + 5) for index in range(5_000)]

    made = packed(one_stream(spans), max_slices=COARSEST)

    assert len(row_of(made, 0, "compute").start) <= COARSEST


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


def test_slices_point_at_what_they_waited_for() -> None:
    made = sample()
    page = made.page
    drawn = DrawnTimeline(
        timeline=made.recording.measured,
        collectives=page.collectives_by_title["measured"],
        steps=page.steps_by_title["measured"],
    )

    found = strip({"measured": drawn}, page.labels)

    waiting = next(
        row for row in found.rows if row.rank == 0 and TRACKS[row.track] == "communication"
    )
    late = found.rows[int(waiting.awaited_row[0])]
    kernel = next(row for row in found.rows if row.rank == 1 and TRACKS[row.track] == "compute")
    assert late is kernel
    at = int(waiting.start[0] - waiting.awaited_since[0])
    assert at == int(kernel.start[0] + kernel.length[0])
