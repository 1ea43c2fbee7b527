"""Copies that hold the host: one call is a launch and then a wait for its own operation.

`cudaMemcpy` and `hipMemcpyWithStream` return when the copy is done; so does an asynchronous copy
from the device into pageable memory. Such a call is cut in two, so that its recorded time is not
replayed as work. A copy from pageable memory keeps the host busy too, staging, but runs beside
it: there the call is cut where the launch was over, and the rest stays as host work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int64s, used_positions
from foretrace.graph.nodes import NodeKind
from foretrace.trace import RuntimeRole

EARLY_NS = 20_000  # an operation that began this long before its call returned: not its end's doing
DEFAULT_LAUNCH_NS = 6_000  # median launch call of the public A100 and V100 traces: 5 to 12 us

Columns = dict[str, NDArray[Any]]


def with_split_copies(
    items: Columns, ops: Columns, names: Sequence[str], wait_name: int
) -> Columns:
    """One rank's items, with every copy that held the host as a launch and a wait.

    Args:
        items: columns of host items, one row per call.
        ops: columns of the same rank's device operations.
        names: texts that the `name` columns point to.
        wait_name: name of the waiting half.
    """
    op = _own_operations(items, ops)
    is_owner = op >= 0
    if not is_owner.any():
        return items
    op_start_ns, op_end_ns = ops["start_ns"][op], ops["end_ns"][op]
    is_held = is_owner & _is_into_pageable(ops, names)[op] & (op_end_ns <= items["end_ns"])
    is_held |= (
        is_owner & (items["role"] == RuntimeRole.BLOCKING_COPY) & (op_end_ns <= items["end_ns"])
    )
    is_early = is_owner & (op_start_ns < items["end_ns"] - EARLY_NS)
    cut = np.flatnonzero(is_held | is_early)
    if not len(cut):
        return items
    duration_ns = items["end_ns"] - items["start_ns"]
    free = duration_ns[is_owner & ~is_held & ~is_early]
    launch_ns = max(int(np.median(free)), 1) if len(free) else DEFAULT_LAUNCH_NS
    first = {key: column.copy() for key, column in items.items()}
    until_ns = np.maximum(op_start_ns[cut] - items["start_ns"][cut], 1)
    first["end_ns"][cut] = items["start_ns"][cut] + np.minimum(launch_ns, until_ns)
    first["recorded_ns"][cut] = first["end_ns"][cut] - first["start_ns"][cut]
    first["role"][cut] = RuntimeRole.LAUNCH
    held = np.flatnonzero(is_held)
    wait = {key: column[held].copy() for key, column in items.items()}
    wait["start_ns"] = first["end_ns"][held]
    wait["recorded_ns"] = wait["end_ns"] - wait["start_ns"]
    wait["kind"][:] = NodeKind.SYNC
    wait["role"][:] = RuntimeRole.BLOCKING_COPY
    wait["name"][:] = wait_name
    return {key: np.concatenate([first[key], wait[key]]) for key in items}


def _own_operations(items: Columns, ops: Columns) -> Int64s:
    """First operation of every launch, int64[items]; -1 for other items.

    Where a correlation id was used again, the first that began after the call did. On the CPU
    there are none.
    """
    if not (ops["correlation"] >= 0).any():
        return np.full(len(items["kind"]), -1, np.int64)
    order = np.lexsort((ops["start_ns"], ops["correlation"]))
    ids = ops["correlation"][order]
    found = np.minimum(np.searchsorted(ids, items["correlation"]), len(ids) - 1)
    is_owner = (items["kind"] == NodeKind.LAUNCH) & (ids[found] == items["correlation"])
    high = np.searchsorted(ids, items["correlation"], side="right")
    for item in np.flatnonzero(is_owner & (high - found > 1)).tolist():
        begins = ops["start_ns"][order[found[item] : high[item]]]
        later = int(np.searchsorted(begins, items["start_ns"][item]))
        found[item] += min(later, len(begins) - 1)
    return np.where(is_owner, order[found], -1)


def _is_into_pageable(ops: Columns, names: Sequence[str]) -> Bools:
    """Operations that are copies into pageable memory, bool[ops]."""
    is_pageable = np.zeros(len(names), np.bool_)
    for index in used_positions(ops["name"], len(names)).tolist():
        is_pageable[index] = "Device -> Pageable" in names[index]
    is_into: Bools = is_pageable[ops["name"]] & (ops["kind"] == NodeKind.MEMCPY)
    return is_into
