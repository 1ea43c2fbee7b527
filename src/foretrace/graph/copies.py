"""Copies that hold the host: one call is a launch and then a wait for its own operation.

`cudaMemcpy` and `hipMemcpyWithStream` return when the copy is done; so does an asynchronous copy
from the device into pageable memory. Such a call is cut in two, so that its recorded time is not
replayed as work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int64s
from foretrace.graph.nodes import NodeKind
from foretrace.trace import RuntimeRole

DEFAULT_LAUNCH_NS = 6_000  # median launch call of the public A100 and V100 traces: 5 to 12 us

Columns = dict[str, NDArray[np.generic]]


def with_split_copies(items: Columns, ops: Columns, names: Sequence[str], wait_name: int) -> Columns:
    """One rank's items, with every copy that held the host as a launch and a wait.

    Args:
        items: columns of host items, one row per call.
        ops: columns of the same rank's device operations.
        names: texts that the `name` columns point to.
        wait_name: name of the waiting half.
    """
    is_split, op_end_ns = _held_by_copy(items, ops, names)
    if not is_split.any():
        return items
    launches = items["kind"] == NodeKind.LAUNCH
    duration_ns = items["end_ns"] - items["start_ns"]
    free = duration_ns[launches & ~is_split]
    launch_ns = max(int(np.median(free)), 1) if len(free) else DEFAULT_LAUNCH_NS
    rows = np.flatnonzero(is_split)
    cut_ns = items["start_ns"][rows] + np.minimum(
        launch_ns, np.maximum(op_end_ns[rows] - items["start_ns"][rows], 1)
    )
    wait = {key: column[rows].copy() for key, column in items.items()}
    wait["recorded_ns"] = items["end_ns"][rows] - cut_ns
    wait["start_ns"] = cut_ns
    wait["kind"][:] = NodeKind.SYNC
    wait["role"][:] = RuntimeRole.BLOCKING_COPY
    wait["name"][:] = wait_name
    first = {key: column.copy() for key, column in items.items()}
    first["end_ns"][rows] = cut_ns
    first["recorded_ns"][rows] = cut_ns - items["start_ns"][rows]
    first["role"][rows] = RuntimeRole.LAUNCH
    return {key: np.concatenate([first[key], wait[key]]) for key in items}


def _held_by_copy(items: Columns, ops: Columns, names: Sequence[str]) -> tuple[Bools, Int64s]:
    """Calls that returned only when their copy was done, and when it was; per item."""
    copies = np.flatnonzero(ops["kind"] == NodeKind.MEMCPY)
    order = copies[np.argsort(ops["correlation"][copies], kind="stable")]
    ids = ops["correlation"][order]
    found = np.searchsorted(ids, items["correlation"])
    usable = np.minimum(found, max(len(ids) - 1, 0))
    if not len(ids):
        return np.zeros(len(items["kind"]), np.bool_), np.zeros(len(items["kind"]), np.int64)
    op = order[usable]
    is_owner = (items["kind"] == NodeKind.LAUNCH) & (ids[usable] == items["correlation"])
    is_pageable = np.zeros(len(names), np.bool_)
    for name in np.unique(ops["name"][copies]).tolist():
        is_pageable[name] = "Device -> Pageable" in names[name]
    may_hold = (items["role"] == RuntimeRole.BLOCKING_COPY) | is_pageable[ops["name"][op]]
    op_end_ns = ops["end_ns"][op]
    return is_owner & may_hold & (op_end_ns <= items["end_ns"]), op_end_ns
