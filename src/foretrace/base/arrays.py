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
Float32s: TypeAlias = NDArray[np.float32]
Float64s: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
