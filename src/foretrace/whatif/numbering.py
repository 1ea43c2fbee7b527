"""`numbered`: rows of several columns that say the same become one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Int64s, Integers

_LARGEST = 2**62  # combinations that an int64 can tell apart
# A table of all values is quicker than sorting while it has at most so many entries per row:
# at 500,000 rows 1 ms against 23 ms with 0.01 entries per row, 7 against 29 with one, 10 against
# 12 with four (a core of an AMD EPYC).
_ENTRIES_PER_ROW = 4


def numbered(columns: Sequence[Integers]) -> Int64s:
    """Number of each row's combination of values, from 0, rising as the first column does.

    Args:
        columns: of one length; at least one.
    """
    number, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        value = column.astype(np.int64) - int(column.min(initial=0))
        count = int(value.max(initial=0)) + 1
        if size * count > _LARGEST:
            number = _without_gaps(number, size)
            size = int(number.max(initial=0)) + 1
        number = number * count + value
        size *= count
    return _without_gaps(number, size)


def _without_gaps(number: Int64s, size: int) -> Int64s:
    """Numbers below `size` as places among those that there are."""
    if size > _ENTRIES_PER_ROW * len(number):
        inverse = np.unique(number, return_inverse=True)[1]
        return inverse.reshape(-1).astype(np.int64)
    is_there = np.zeros(size, np.bool_)
    is_there[number] = True
    place: Int64s = np.cumsum(is_there, dtype=np.int64) - 1
    return place[number]
