"""Numbers of equal rows, turns and ranges, against plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import (
    Int64s,
    begins_run,
    joined_ranges,
    lower_medians,
    numbered_rows,
    turns_within,
    used_positions,
)

LARGE = 2**40


def sorted_numbers(columns: list[Int64s]) -> Int64s:
    """The same by sorting whole rows."""
    rows = np.stack(columns, axis=1)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


@st.composite
def tables(draw: st.DrawFn) -> list[Int64s]:
    size = draw(st.integers(1, 40))
    values = st.one_of(st.integers(-2, 3), st.integers(-1, 10_000), st.integers(-LARGE, LARGE))
    column = st.lists(values, min_size=size, max_size=size)
    columns = draw(st.lists(column, min_size=1, max_size=4))
    return [np.array(each, np.int64) for each in columns]


@given(tables())
def test_rows_are_numbered_as_sorting_them_numbers_them(columns: list[Int64s]) -> None:
    assert numbered_rows(columns).tolist() == sorted_numbers(columns).tolist()


def test_many_rows_of_few_values_are_numbered_alike() -> None:
    rng = np.random.default_rng(0)
    columns = [rng.integers(-1, 12, 5_000) for _ in range(3)]

    assert numbered_rows(columns).tolist() == sorted_numbers(columns).tolist()


def test_columns_of_any_width_and_flags_are_numbered() -> None:
    columns = (np.array([3, -1, 3], np.int16), np.array([True, False, True]))

    assert numbered_rows(columns).tolist() == [1, 0, 1]


def test_no_rows_have_no_numbers() -> None:
    assert numbered_rows([np.zeros(0, np.int64)]).tolist() == []


@given(st.lists(st.integers(-1, 19), max_size=30))
def test_used_positions_are_the_distinct_ones_without_negatives(column: list[int]) -> None:
    used = used_positions(np.array(column, np.int32), 20)

    assert used.tolist() == sorted({position for position in column if position >= 0})


@given(st.lists(st.integers(-2, 3), max_size=40))
def test_turns_count_equal_entries_before(key: list[int]) -> None:
    found = turns_within(np.array(key, np.int64))

    assert found.tolist() == [key[:at].count(each) for at, each in enumerate(key)]


@given(st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 4)), max_size=20))
def test_ranges_are_joined_in_order(ranges: list[tuple[int, int]]) -> None:
    first, count = np.array(ranges, np.int64).reshape(-1, 2).T

    found = joined_ranges(first, count)

    assert found.tolist() == [low + at for low, size in ranges for at in range(size)]


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 70_000]), st.integers(-5, 5)), max_size=30))
def test_the_lower_median_of_a_group_stands_beside_each_of_its_rows(
    rows: list[tuple[int, int]],
) -> None:
    group, value = (np.array([row[at] for row in rows], np.int64) for at in range(2))
    of_group = {one: sorted(value[group == one].tolist()) for one in set(group.tolist())}
    expected = [of_group[one][(len(of_group[one]) - 1) // 2] for one in group.tolist()]

    assert lower_medians(group, value).tolist() == expected
    assert lower_medians(group, value / 3).tolist() == [each / 3 for each in expected]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=12))
def test_a_run_begins_where_any_column_changes(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 2).T

    found = begins_run(*columns)

    assert found.tolist() == [at == 0 or row != rows[at - 1] for at, row in enumerate(rows)]
