"""The compiled loops of the graph floor against their plain twins."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import Int64s, UInt8s
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
def test_outermost_work(threads: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    lanes = [lane for lane, listed in enumerate(threads) for _ in listed]
    listed = [span for thread in threads for span in thread]
    works = data.draw(st.lists(st.booleans(), min_size=len(lanes), max_size=len(lanes)))
    parent, is_chosen = np.zeros(len(lanes), np.int32), np.zeros(len(lanes), np.bool_)
    called_ns = np.zeros(len(lanes), np.int64)

    _compiled.called_operators(
        np.array(lanes, np.int32),
        column([start for start, _ in listed]),
        column([end for _, end in listed]),
        parent,
        called_ns,
    )
    _compiled.outermost(parent, np.array(works, np.bool_), is_chosen)

    expected = oracle.called_operators(lanes, listed)
    assert list(zip(parent.tolist(), called_ns.tolist(), strict=True)) == expected
    assert is_chosen.tolist() == oracle.outermost(parent.tolist(), works)


@st.composite
def nested_scopes(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Properly nested spans on two lanes, sorted by lane, start, longer first."""
    rows: list[tuple[int, int, int]] = []

    def fill(lane: int, low: int, high: int, depth: int) -> None:
        at = low
        while at < high and depth < 4 and draw(st.booleans()):
            start = draw(st.integers(at, high - 1))
            end = draw(st.integers(start + 1, high))
            rows.append((lane, start, end))
            fill(lane, start, end, depth + 1)
            at = end

    fill(0, 0, 20, 0)
    fill(1, 0, 20, 0)
    rows = sorted(rows, key=lambda row: (row[0], row[1], -row[2]))
    return [row[0] for row in rows], [(row[1], row[2]) for row in rows]


@given(nested_scopes(), st.randoms(use_true_random=False), st.integers(-1, 1), st.integers(0, 22))
def test_scopes_and_who_speaks_for_them(
    scopes: tuple[list[int], list[tuple[int, int]]], random: Random, lane: int, at: int
) -> None:
    lanes, nested = scopes
    is_operator = [random.random() < 0.7 for _ in lanes]
    has_shapes = [one and random.random() < 0.5 for one in is_operator]
    start_ns = column([start for start, _ in nested])
    end_ns = column([end for _, end in nested])
    parent, speaker = np.full((2, len(lanes)), -9, np.int32)
    found = np.full(1, -9, np.int32)
    first = np.searchsorted(np.array(lanes, np.int64), np.arange(3)).astype(np.int64)

    _compiled.scope_tree(
        np.array(lanes, np.int32),
        start_ns,
        end_ns,
        np.array(is_operator, np.bool_),
        np.array(has_shapes, np.bool_),
        parent,
        speaker,
    )
    _compiled.innermost_scopes(
        first, start_ns, end_ns, parent, np.array([lane], np.int32), column([at]), found
    )

    around = oracle.scopes_open_at(lanes, nested, lane, at)
    assert found[0] == (around[-1] if around else -1)
    if around:
        assert parent[found[0]] == (around[-2] if len(around) > 1 else -1)
        assert speaker[found[0]] == oracle.speaker(around, is_operator, has_shapes)


tokens = st.lists(st.integers(0, 2), max_size=14)


@given(tokens, st.data())
def test_repeat_covers(listed: list[int], data: st.DataObject) -> None:
    weights = [data.draw(st.integers(0, 5)) for _ in listed]
    covered, first, length = np.zeros((3, 6), np.int64)
    before = np.append(np.int64(0), np.cumsum(column(weights)))

    _compiled.repeat_covers(np.array(listed, np.int32), before, covered, first, length)

    for period in range(1, 6):
        assert covered[period] == oracle.heaviest_repeat(listed, weights, period)
        held = slice(first[period], first[period] + length[period])
        assert sum(weights[held]) == covered[period]


@given(tokens, st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_cyclic_scores(listed: list[int], unit: list[int]) -> None:
    costs = (2, 3, 1)
    move = np.full(len(listed) * len(unit), 9, np.uint8)
    best = np.full(2, -9, np.int64)

    _compiled.cyclic_scores(
        np.array(listed, np.int32), np.array(unit, np.int32), *costs, move, best
    )

    assert best[0] == oracle.cyclic_score(listed, unit, costs)
    assert followed_score(listed, unit, costs, move, int(best[1])) == best[0]


def followed_score(
    listed: list[int], unit: list[int], costs: tuple[int, int, int], move: UInt8s, cell: int
) -> int:
    """What the moves cost that lead to a cell."""
    match, mismatch, gap = costs
    score = 0
    row, position = divmod(cell, len(unit))
    while cell >= 0 and row >= 0 and move[row * len(unit) + position]:
        how = move[row * len(unit) + position]
        if how == 1:
            score += match if listed[row] == unit[position] else -mismatch
        else:
            score -= gap
        row -= how in (1, 2)
        position = (position - (how in (1, 3))) % len(unit)
    return score


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=12), st.booleans())
def test_inherit(rows: list[tuple[int, int]], is_inner: bool) -> None:
    parents = [given % (index + 1) - 1 for index, (given, _) in enumerate(rows)]
    own = [value for _, value in rows]
    found = np.full(len(rows), -9, np.int64)

    _compiled.inherit(np.array(parents, np.int32), column(own), 0, is_inner, found)

    assert found.tolist() == oracle.inherited(parents, own, is_inner=is_inner)
