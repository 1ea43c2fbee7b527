"""What an operator takes that somebody described by its indices."""

from __future__ import annotations

import numpy as np

from foretrace.base import FORMAT_BY_NAME
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.memory_bound import Access
from foretrace.cost.model import Costs
from foretrace.cost.signatures import GEMM, MOVEMENT, Operation
from foretrace.cost.tables import LIBRARY
from foretrace.operators import IndexedOperator


def described_costs(operator: IndexedOperator, kernels: FittedKernels) -> Costs:
    """One row: a product by its model; else the longer of traffic and of the vector units' peak.

    A kernel of one's own may be slower than either; it is not faster.
    """
    dtype = next(iter(operator.formats.values()))
    sizes = operator.product_sizes
    if sizes is not None and kernels.chip.peak_flops_per_ns(dtype) is not None:
        return kernels.operation_costs([Operation(GEMM, LIBRARY, dtype, sizes)])
    stream = (operator.num_bytes, int(Access.STREAM))
    costs = kernels.operation_costs([Operation(MOVEMENT, "stream", dtype, stream)])
    is_wide = FORMAT_BY_NAME[dtype].num_bytes > FORMAT_BY_NAME["fp32"].num_bytes
    peak = kernels.chip.peak_flops_per_ns(dtype if is_wide else "fp32", on_matrix_units=False)
    least_ns = round(operator.flops / peak) if peak else 0
    return Costs(
        duration_ns=np.maximum(costs.duration_ns, least_ns),
        low_ns=np.maximum(costs.low_ns, least_ns),
        high_ns=np.maximum(costs.high_ns, 2 * least_ns),
        source=costs.source,
        family=costs.family,
        families=costs.families,
    )
