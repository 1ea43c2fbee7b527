"""Random spans and timelines on small integer ranges."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from foretrace.analyze import Intervals
from foretrace.base import Int64s
from foretrace.graph import NodeKind, Timeline
from tests.graphs import GraphBuilder

LAST_NS = 60


@st.composite
def spans(draw: st.DrawFn, max_size: int = 12) -> list[tuple[int, int]]:
    """Any spans, empty and overlapping ones too, in any order."""
    pairs = draw(
        st.lists(st.tuples(st.integers(0, LAST_NS), st.integers(0, LAST_NS)), max_size=max_size)
    )
    return [(min(pair), max(pair)) for pair in pairs]


def arrays_of(pairs: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    """Starts and ends of spans."""
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    ends = np.array([end for _, end in pairs], dtype=np.int64)
    return starts, ends


def intervals_of(pairs: list[tuple[int, int]]) -> Intervals:
    """The union of spans."""
    return Intervals.union_of(*arrays_of(pairs))


@st.composite
def timelines(draw: st.DrawFn, max_ranks: int = 3, max_steps: int = 3) -> Timeline:
    """Any placement of kernels, collectives and step marks, whatever waits for what."""
    build = GraphBuilder()
    placed: list[tuple[int, int]] = []

    def place(first_ns: int = 0) -> tuple[int, int]:
        start = draw(st.integers(first_ns, LAST_NS))
        return start, draw(st.integers(start, LAST_NS))

    steps = [f"step {index}" for index in range(draw(st.integers(1, max_steps)))]
    ranks = range(draw(st.integers(1, max_ranks)))
    has_device = draw(st.booleans())
    work, lane = (NodeKind.KERNEL, "stream 7") if has_device else (NodeKind.OPERATOR, "thread 1")
    for rank in ranks:
        for step in steps:
            begin, end = place()
            build.add(NodeKind.STEP_BEGIN, rank=rank, step=step)
            placed.append((begin, begin))
            build.add(NodeKind.STEP_END, rank=rank, step=step)
            placed.append((end, end))
        for _ in range(draw(st.integers(0, 5))):
            in_step = draw(st.sampled_from([*steps, None]))
            build.add(work, rank=rank, lane=lane, step=in_step)
            placed.append(place())
    for _ in range(draw(st.integers(0, 3))):
        in_step = draw(st.sampled_from(steps))
        members = draw(st.sets(st.sampled_from(list(ranks)), min_size=1))
        build.collective(dict.fromkeys(sorted(members), ()), transfer_ns=0, step=in_step)
        arrivals = [draw(st.integers(0, LAST_NS)) for _ in members]
        placed.extend((arrival, arrival) for arrival in arrivals)
        placed.append((max(arrivals), max(arrivals)))
        placed.extend(place(max(arrivals)) for _ in members)
    start_ns, end_ns = arrays_of(placed)
    return Timeline(graph=build.graph(), start_ns=start_ns, end_ns=end_ns, is_measured=True)
