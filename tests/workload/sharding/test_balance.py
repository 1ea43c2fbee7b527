"""Items over bins: bounds of the two ways, against the best way found by trying all."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.workload import differencing, greedy


def fullest(costs: list[float], bins: tuple[int, ...] | list[int], num_bins: int) -> float:
    totals = [0.0] * num_bins
    for cost, chosen in zip(costs, bins, strict=True):
        totals[chosen] += cost
    return max(totals)


def best(costs: list[float], num_bins: int) -> float:
    ways = itertools.product(range(num_bins), repeat=len(costs))
    return min(fullest(costs, way, num_bins) for way in ways)


COSTS = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=7)


@given(costs=COSTS, num_bins=st.integers(1, 3))
def test_neither_way_is_worse_than_the_bound_of_longest_first(
    costs: list[float], num_bins: int
) -> None:
    limit = (4 / 3 - 1 / (3 * num_bins)) * best(costs, num_bins)

    for bins in (greedy(costs, num_bins), differencing(costs, num_bins)):
        assert set(bins) <= set(range(num_bins))
        assert fullest(costs, bins, num_bins) <= limit + 1e-9


def test_greedy_reaches_its_bound_on_grahams_example() -> None:
    costs = [5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 3.0]

    bins = greedy(costs, 3)

    assert fullest(costs, bins, 3) == 11
    assert best(costs, 3) == 9


def test_differencing_finds_what_greedy_misses() -> None:
    costs = [8.0, 7.0, 6.0, 5.0, 4.0]

    assert fullest(costs, differencing(costs, 2), 2) == 16
    assert fullest(costs, greedy(costs, 2), 2) == 17


def test_what_no_bin_has_room_for_gets_none() -> None:
    bins = greedy([3.0, 2.0, 1.0], 2, sizes=[10, 10, 10], room=[10, 15])

    assert bins == [0, 1, -1]


def test_equal_costs_are_dealt_round_by_round_the_largest_first() -> None:
    bins = greedy([1.0] * 4, 2, sizes=[1, 4, 2, 3])

    assert bins == [1, 0, 0, 1]


def test_loads_that_are_there_count() -> None:
    assert greedy([1.0, 1.0], 2, loads=[5.0, 0.0]) == [1, 1]


def test_nothing_needs_no_bin_and_no_bin_is_refused() -> None:
    assert differencing([], 4) == []
    for way in (greedy, differencing):
        with pytest.raises(ValueError, match="at least 1, got 0"):
            way([1.0], 0)
