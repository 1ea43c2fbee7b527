"""The compiled loops of the graph floor against their plain twins."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import Int64s
from foretrace.graph import _compiled
from tests.oracles import graph as oracle

moments = st.integers(0, 60)
spans = st.tuples(moments, st.integers(0, 30)).map(lambda pair: (pair[0], sum(pair)))


def column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=25))
def test_topological_order(num_nodes: int, pairs: list[tuple[int, int]]) -> None:
    edges = sorted((one % num_nodes, other % num_nodes) for one, other in pairs)
    source, target = [one for one, _ in edges], [other for _, other in edges]
    order = np.full(num_nodes, -1, np.int32)

    num_placed = _compiled.topological_order(
        np.searchsorted(source, np.arange(num_nodes + 1)).astype(np.int64),
        np.array(target, np.int32),
        np.bincount(target, minlength=num_nodes).astype(np.int32),
        order,
    )

    assert order[:num_placed].tolist() == oracle.topological_order(num_nodes, edges)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_counted_order(keys: list[int]) -> None:
    first = np.searchsorted(sorted(keys), np.arange(11)).astype(np.int64)
    order = np.full(len(keys), -1, np.int64)

    _compiled.counted_order(column(keys), first, order)

    assert order.tolist() == oracle.counted_order(keys)


@given(st.lists(moments, max_size=12), st.integers(0, 12), st.integers(0, 12), moments)
def test_last_not_after(values: list[int], one: int, other: int, limit: int) -> None:
    values = sorted(values)
    low, high = sorted((min(one, len(values)), min(other, len(values))))

    found = _compiled.last_not_after(column(values), low, high, limit)

    assert found == oracle.last_not_after(values, low, high, limit)


@st.composite
def stream_cases(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Lanes and spans, sorted; one case in four has a lane with more spans than may be open."""
    rows = [(lane, span) for lane in range(3) for span in draw(st.lists(spans, max_size=10))]
    if draw(st.integers(0, 3)) == 0:
        rows += [(3, (at, 1_000 + at)) for at in range(draw(st.integers(60, 70)))]
        rows += [(3, (draw(st.integers(900, 1_100)), 1_200)) for _ in range(3)]
    rows.sort()
    return [lane for lane, _ in rows], [span for _, span in rows]


@given(stream_cases(), st.sampled_from((0, 3)))
def test_stream_predecessors(
    case: tuple[list[int], list[tuple[int, int]]], tolerance_ns: int
) -> None:
    lanes, listed = case
    room = 2 * len(lanes) + 64
    source, target = np.empty(room, np.int32), np.empty(room, np.int32)

    num_edges = _compiled.stream_predecessors(
        np.array(lanes, np.int32),
        column([start for start, _ in listed]),
        column([end for _, end in listed]),
        tolerance_ns,
        source,
        target,
    )

    pairs = list(zip(source[:num_edges].tolist(), target[:num_edges].tolist(), strict=True))
    assert sorted(pairs) == sorted(oracle.stream_predecessors(lanes, listed, tolerance_ns))


@given(st.lists(st.lists(st.tuples(moments, moments), min_size=1, max_size=8), max_size=3))
def test_pending_at_launch(streams: list[list[tuple[int, int]]]) -> None:
    rows = [
        (number, launch_ns, end_ns)
        for number, stream in enumerate(streams)
        for (launch_ns, _), end_ns in zip(stream, sorted(end for _, end in stream), strict=True)
    ]
    of, launch_ns, end_ns = ([row[index] for row in rows] for index in range(3))
    pending = np.full(len(rows), -1, np.int32)

    _compiled.pending_at_launch(
        np.array(of, np.int32),
        column(launch_ns),
        column(end_ns),
        np.searchsorted(of, np.arange(len(streams) + 1)).astype(np.int64),
        pending,
    )

    assert pending.tolist() == oracle.pending_at_launch(of, launch_ns, end_ns)


@given(st.lists(spans, max_size=8), st.lists(st.integers(1, 12), max_size=10))
def test_covered_times(listed: list[tuple[int, int]], steps: list[int]) -> None:
    bounds = np.cumsum([0, *steps]).tolist()
    others = list(pairwise(bounds))[::2]  # sorted and disjoint
    covered_ns = np.full(len(listed), -1, np.int64)

    _compiled.covered_times(
        column([start for start, _ in listed]),
        column([end for _, end in listed]),
        column([start for start, _ in others]),
        column([end for _, end in others]),
        covered_ns,
    )

    assert covered_ns.tolist() == oracle.covered_times(listed, others)


@st.composite
def nested_spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Spans of one thread that nest, outer before inner."""
    found: list[tuple[int, int]] = []

    def fill(low: int, high: int, depth: int) -> None:
        at = low
        while at < high and draw(st.booleans()):
            start = draw(st.integers(at, high - 1))
            end = draw(st.integers(start + 1, high))
            found.append((start, end))
            if depth < 3:
                fill(start, end, depth + 1)
            at = end

    fill(0, 40, 0)
    return sorted(found, key=lambda span: (span[0], -span[1]))


@given(st.lists(nested_spans(), min_size=1, max_size=2), st.data())
def test_working_operators(threads: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    lanes = [lane for lane, listed in enumerate(threads) for _ in listed]
    listed = [span for thread in threads for span in thread]
    may_work = data.draw(st.lists(st.booleans(), min_size=len(lanes), max_size=len(lanes)))
    is_chosen = np.zeros(len(lanes), np.bool_)

    _compiled.working_operators(
        np.array(lanes, np.int32),
        column([start for start, _ in listed]),
        column([end for _, end in listed]),
        np.array(may_work, np.bool_),
        is_chosen,
    )

    assert is_chosen.tolist() == oracle.working_operators(lanes, listed, may_work)
