"""How much slower a compute operation ran because communication ran beside it."""

from __future__ import annotations

import numpy as np

from foretrace.base import Float32s, Int64s, numbered_rows
from foretrace.graph._compiled import covered_times
from foretrace.graph.operations import Operations

MIN_SHARE = 0.5  # of an operation's time must overlap communication to call it inflated
ALONE_SHARE = 0.01  # and so little to call it alone


def inflation_factors(operations: Operations) -> Float32s:
    """Measured time over the median time alone, float32[ops]; 1 where it ran alone.

    Operations with the same name and signature (launch grid) on the same rank's device, run
    without communication beside them, are what "alone" is taken from; without any, 1.
    """
    ops = operations.ops
    factor = np.ones(len(ops), np.float32)
    share = _overlapped_share(operations)
    if not (share > MIN_SHARE).any():
        return factor
    duration_ns = ops.end_ns - ops.start_ns
    make = numbered_rows([ops.name, ops.signature])
    alone = np.flatnonzero((share <= ALONE_SHARE) & ~ops.is_communication)
    alone = alone[np.lexsort((duration_ns[alone], make[alone]))]
    low = np.searchsorted(make[alone], np.arange(make.max() + 1), side="left")
    high = np.searchsorted(make[alone], np.arange(make.max() + 1), side="right")
    inflated = np.flatnonzero((share > MIN_SHARE) & ~ops.is_communication)
    inflated = inflated[high[make[inflated]] > low[make[inflated]]]
    middle = (low + high - 1)[make[inflated]] // 2
    median_ns = np.maximum(duration_ns[alone[middle]], 1)
    factor[inflated] = np.maximum(duration_ns[inflated] / median_ns, 1)
    return factor


def _overlapped_share(operations: Operations) -> Float32s:
    """Share of each operation's time with communication of the same rank beside it."""
    ops = operations.ops
    share = np.zeros(len(ops), np.float32)
    for position in range(len(operations.ranks)):
        own = operations.op_rows(position)
        comm = own[ops.is_communication[own]]
        if not len(comm):
            continue
        compute = own[~ops.is_communication[own]]
        begin_ns, stop_ns = _union(ops.start_ns[comm], ops.end_ns[comm])
        covered_ns = np.zeros(len(compute), np.int64)
        covered_times(ops.start_ns[compute], ops.end_ns[compute], begin_ns, stop_ns, covered_ns)
        share[compute] = covered_ns / np.maximum(ops.end_ns[compute] - ops.start_ns[compute], 1)
    return share


def _union(start_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s]:
    """The spans merged where they touch, sorted."""
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    is_new = np.append(True, start_ns[1:] > end_ns[:-1])[: len(start_ns)]
    last = np.append(np.flatnonzero(is_new)[1:] - 1, len(start_ns) - 1)[: int(is_new.sum())]
    return start_ns[is_new], end_ns[last]
