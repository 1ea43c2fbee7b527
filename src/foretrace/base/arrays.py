"""Names for the array types that signatures use; a field's comment gives its shape."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.signedinteger[Any]]  # where either width will do
Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Int16s: TypeAlias = NDArray[np.int16]
Int8s: TypeAlias = NDArray[np.int8]
UInt8s: TypeAlias = NDArray[np.uint8]
UInt64s: TypeAlias = NDArray[np.uint64]
Float32s: TypeAlias = NDArray[np.float32]
Float64s: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


def rows_by_value(values: Int32s) -> dict[int, Int64s]:
    """Rows that hold each value, rising; values rising too."""
    order = np.argsort(values, kind="stable").astype(np.int64, copy=False)
    if not len(order):
        return {}
    found, first = np.unique(values[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True))
