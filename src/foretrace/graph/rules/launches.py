"""Rule 3: a launch call to the device operations that it started, by correlation id."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph.edges import Edges, Places
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import Operations


def launch_edges(operations: Operations, places: Places) -> Edges:
    """One edge per launched operation; one launch may own many (CUDA graphs, fused copies)."""
    ops = operations.ops
    is_device = operations.is_stream[ops.lane]
    launched = np.flatnonzero(ops.launch >= 0)
    kind = np.where(is_device[launched], EdgeKind.LAUNCH, EdgeKind.ISSUE)
    source = ops.launch[launched].astype(np.int64)
    return Edges(source, places.op(launched), kind.astype(np.uint8))


def launch_latency_samples(operations: Operations, is_free: Bools) -> Int64s:
    """Launch call's end to operation's start, ns, where the stream was empty.

    Args:
        operations: all operations.
        is_free: operations that no other stream is known to have held, bool[ops].

    Communication is left out: its start tells when others arrived, not how long a launch takes.
    """
    ops, items = operations.ops, operations.items
    previous_end = np.append(np.int64(np.iinfo(np.int64).min), ops.end_ns[:-1])
    is_first = np.append(True, ops.lane[1:] != ops.lane[:-1])
    launch = np.maximum(ops.launch, 0)
    is_empty = is_first | (previous_end < items.start_ns[launch])
    # The first operation of a launch tells the latency, later ones the stream.
    is_repeat = np.append(False, (ops.launch[1:] == ops.launch[:-1]) & (ops.launch[1:] >= 0))
    chosen = (ops.launch >= 0) & is_empty & ~ops.is_communication & ~is_repeat & is_free
    samples: Int64s = (ops.start_ns - items.end_ns[launch])[chosen]
    return samples
