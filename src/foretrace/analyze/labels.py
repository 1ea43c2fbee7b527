"""`NodeLabels`: every node under one short text, by which analyses add times up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int32s
from foretrace.graph import DEVICE_KINDS, UNRECORDED, ExecutionGraph, NodeKind, operator_classes

_OF_KIND = {
    NodeKind.RANK_START: "late start",
    NodeKind.HOST_SEGMENT: "host",
    NodeKind.CALL: "host",
    NodeKind.THREAD_WAIT: "host",
    NodeKind.LAUNCH: "launch",
    NodeKind.SYNC: "synchronisation",
    NodeKind.GHOST: "unrecorded rank",
}
_UNRECORDED_WORK = "unrecorded work"  # of a recorded device
HOST_CLASSES = frozenset((*_OF_KIND.values(), _UNRECORDED_WORK))
NOTHING = "mark"  # nodes without duration: marks, arrivals, hubs


@dataclass(frozen=True)
class NodeLabels:
    """One label per node."""

    labels: tuple[str, ...]
    label: Int32s  # int32[nodes], position in `labels`


def class_labels(graph: ExecutionGraph) -> NodeLabels:
    """Each node's class of work.

    Kernels, copies, and operators on the host: their `OperatorClass`; transfers of collectives:
    the collective's name ("allreduce", "send_recv"); the rest: what the host does.
    """
    position: dict[str, int] = {NOTHING: 0}
    label = np.zeros(graph.num_nodes, np.int32)
    for kind, text in _OF_KIND.items():
        label[graph.kind == kind] = position.setdefault(text, len(position))
    is_work = np.array([name in UNRECORDED for name in graph.names], np.bool_)[graph.name]
    label[is_work] = position.setdefault(_UNRECORDED_WORK, len(position))
    finish = graph.nodes_of(NodeKind.FINISH)
    of_collective = np.array(
        graph.collectives.each(lambda one: position.setdefault(one.name, len(position))), np.int32
    )
    label[finish] = of_collective[graph.collective[finish]]
    works = graph.nodes_of(*DEVICE_KINDS, NodeKind.OPERATOR)
    row, classes = operator_classes(graph, works)
    of_class = [position.setdefault(text, len(position)) for text in classes]
    label[works] = np.array(of_class, np.int32)[row]
    return NodeLabels(tuple(position), label)
