"""`DurationMix`: what the time of replayed steps rests on."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from foretrace.analyze import path_time_ns, steps
from foretrace.base import UInt8s
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind, Timeline
from foretrace.validate.results import DurationMix

# Labels of nodes in the order of `DurationMix`; lags come last, as `path_time_ns` has them.
_RECORDED_HOST, _RECORDED_DEVICE, _SPLIT, _ESTIMATED = range(4)
_NUM_LABELS = 4


def duration_mix(timeline: Timeline, chosen_steps: Collection[int]) -> DurationMix:
    """Shares of the critical paths to the ends of these steps, over all ranks that have them.

    Each path is walked from the step's end on one rank back to its begin there, across whatever
    ranks it comes from; all paths count alike.
    """
    table = steps(timeline)
    rows = np.isin(table.step, np.array(sorted(chosen_steps), dtype=np.int32))
    spent_ns = path_time_ns(
        timeline,
        _origin(timeline.graph),
        num_labels=_NUM_LABELS,
        end_node=table.end_node[rows],
        begin_ns=table.begin_ns[rows],
    ).sum(axis=0)
    total_ns = max(int(spent_ns.sum()), 1)
    host, device, split, estimated, constant = (spent_ns / total_ns).tolist()
    return DurationMix(
        recorded_host=host,
        recorded_device=device,
        split=split,
        estimated=estimated,
        constant=constant,
    )


def _origin(graph: ExecutionGraph) -> UInt8s:
    """Where each node's duration comes from; uint8[nodes]."""
    is_estimated = np.array(
        graph.collectives.each(lambda each: each.is_transfer_estimated), dtype=bool
    )
    origin = np.full(graph.num_nodes, _RECORDED_HOST, dtype=np.uint8)
    origin[graph.is_device] = _RECORDED_DEVICE
    finish = np.flatnonzero((graph.kind == NodeKind.FINISH) & (graph.collective != NO_COLLECTIVE))
    estimated = is_estimated[graph.collective[finish]]
    origin[finish] = np.where(estimated, _ESTIMATED, _SPLIT)
    origin[graph.kind == NodeKind.GHOST] = _ESTIMATED
    return origin
