"""Interval algebra against sets of integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import Intervals
from tests.analyze.strategies import LAST_NS, arrays_of, intervals_of, spans
from tests.oracles import intervals as oracle

Pairs = list[tuple[int, int]]


def _pairs(intervals: Intervals) -> Pairs:
    return list(zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True))


@given(pairs=spans())
def test_union_covers_what_any_span_covers(pairs: Pairs) -> None:
    union = intervals_of(pairs)

    assert _pairs(union) == oracle.spans_of(oracle.moments(pairs))
    assert union.total_ns() == len(oracle.moments(pairs))


@given(first=spans(), second=spans())
def test_union_and_intersection_of_two_sets(first: Pairs, second: Pairs) -> None:
    a, b = oracle.moments(first), oracle.moments(second)

    both = intervals_of(first).intersect(intervals_of(second))
    either = intervals_of(first).union(intervals_of(second))

    assert oracle.moments(_pairs(both)) == a & b
    assert both.total_ns() == len(a & b)
    assert _pairs(either) == oracle.spans_of(a | b)


@given(pairs=spans(), windows=spans())
def test_length_within_windows(pairs: Pairs, windows: Pairs) -> None:
    covered = oracle.moments(pairs)

    within_ns = intervals_of(pairs).within_ns(*arrays_of(windows))

    assert within_ns.tolist() == [len(covered & set(range(*window))) for window in windows]


@given(pairs=spans())
def test_window_that_ends_before_it_begins_holds_nothing(pairs: Pairs) -> None:
    begin_ns, end_ns = np.array([LAST_NS]), np.array([0])

    assert intervals_of(pairs).within_ns(begin_ns, end_ns).tolist() == [0]


@given(pairs=spans(), bin_ns=st.integers(1, 20), num_bins=st.integers(0, 8))
def test_length_by_bin_leaves_out_what_lies_behind_the_last(
    pairs: Pairs, bin_ns: int, num_bins: int
) -> None:
    by_bin_ns = intervals_of(pairs).by_bin_ns(bin_ns, num_bins)

    assert by_bin_ns.tolist() == oracle.by_bin(oracle.moments(pairs), bin_ns, num_bins)


def test_spans_that_touch_become_one() -> None:
    assert _pairs(intervals_of([(5, 8), (0, 5)])) == [(0, 8)]


def test_starts_without_ends_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 starts and 1 ends"):
        Intervals.union_of(np.array([0, 1]), np.array([3]))


def test_bins_of_no_width_are_refused() -> None:
    with pytest.raises(ValueError, match="bin_ns must be at least 1, got 0"):
        intervals_of([(0, 1)]).by_bin_ns(0, 3)
