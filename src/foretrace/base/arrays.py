"""Names for the array types that signatures use; a field's comment gives its shape."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Int16s: TypeAlias = NDArray[np.int16]
UInt8s: TypeAlias = NDArray[np.uint8]
Float32s: TypeAlias = NDArray[np.float32]
Float64s: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
