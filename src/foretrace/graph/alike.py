"""Small whole numbers for rows that are equal in several columns, and for positions in use.

Sorting is avoided where the values span little more than there are rows: a table of the span
is filled instead, in time linear in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Int64s

_TABLE_PER_ROW = 8  # a table of so many entries per row is faster than sorting the rows


def alike(columns: Sequence[NDArray[np.generic]]) -> Int64s:
    """A class number for every row, from 0 without gaps, equal where all columns are.

    Args:
        columns: whole numbers or booleans, at least one column, all of one length.
    """
    key = np.zeros(len(columns[0]), np.int64)
    if not len(key):
        return key
    num_keys = 1
    for column in columns:
        values = column.astype(np.int64)
        values -= values.min()
        span = int(values.max()) + 1
        if num_keys * span > _TABLE_PER_ROW * len(key):
            key, values = _dense(key, num_keys), _dense(values, span)
            num_keys, span = int(key.max()) + 1, int(values.max()) + 1
        key = key * span + values
        num_keys *= span
    return _dense(key, num_keys)


def used_positions(column: NDArray[np.integer], size: int) -> Int64s:
    """The positions in a table of `size` entries that a column holds, rising, without negatives."""
    is_used = np.zeros(size, np.bool_)
    is_used[column[column >= 0]] = True
    return np.flatnonzero(is_used)


def _dense(key: Int64s, num_keys: int) -> Int64s:
    """Keys numbered by size without gaps; they lie in 0 .. `num_keys` - 1."""
    if num_keys > _TABLE_PER_ROW * len(key):
        return np.unique(key, return_inverse=True)[1].reshape(-1)
    is_used = np.zeros(num_keys, np.bool_)
    is_used[key] = True
    return (np.cumsum(is_used) - 1)[key]
