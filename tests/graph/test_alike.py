"""Class numbers of equal rows, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretrace.graph.alike import alike, used_positions

rows = st.lists(
    st.tuples(
        st.one_of(st.integers(-3, 3), st.integers(-(2**40), 2**40)),  # both sides of the table
        st.integers(-1, 10_000),
        st.integers(0, 1),
    ),
    max_size=40,
)


@given(rows)
def test_rows_share_a_number_where_all_columns_are_equal(
    listed: list[tuple[int, int, int]],
) -> None:
    one, two, three = ([row[index] for row in listed] for index in range(3))
    columns: list[NDArray[np.generic]] = [
        np.array(one, np.int64),
        np.array(two, np.int32),
        np.array(three, np.bool_),
    ]

    number = alike(columns).tolist()

    assert len(set(zip(listed, number, strict=True))) == len(set(listed)) == len(set(number))
    assert sorted(set(number)) == list(range(len(set(listed))))


@given(st.lists(st.integers(-1, 19), max_size=30))
def test_used_positions_are_the_distinct_ones_without_negatives(column: list[int]) -> None:
    used = used_positions(np.array(column, np.int32), 20)

    assert used.tolist() == sorted({position for position in column if position >= 0})
