"""The one lag that every edge of a kind carries: a median of what the trace shows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.graph import EdgeConstant
from foretrace.graph.nodes import EdgeKind

# Taken where a trace has no sample of a kind: medians of the public A100 and V100 traces (ResNet,
# DLRM, Megatron, two of them with whole microseconds). They range: launch 1.7 to 2.2 us after the
# call's return, hand-over on a stream 0.8 to 2 us, between streams 2 to 3 us, wake-up of a waiting
# call 7 to 9 us, release of a blocked launch 1.2 us (one trace).
DEFAULT_NS: Mapping[EdgeKind, int] = {
    EdgeKind.LAUNCH: 2_000,
    EdgeKind.STREAM: 1_200,
    EdgeKind.INTER_STREAM: 2_000,
    EdgeKind.INTER_STREAM_INFERRED: 2_000,
    EdgeKind.WAKE: 7_000,
    EdgeKind.QUEUE: 1_200,
}


def fitted_constant(kind: EdgeKind, samples_ns: Int64s) -> EdgeConstant:
    """The lag of a kind from samples, or its default where there is none.

    Args:
        kind: the kind of edge.
        samples_ns: gaps that only this kind of edge explains, int64[samples].
    """
    if not len(samples_ns):
        default = DEFAULT_NS.get(kind, 0)
        return EdgeConstant(kind, default, 0, default, default)
    ordered = np.sort(samples_ns)
    low, lag, high = (int(ordered[(len(ordered) - 1) * tenth // 10]) for tenth in (1, 5, 9))
    return EdgeConstant(kind, lag, len(ordered), low, high)
