"""What a node can be chosen by: class, family, name, block, rank, collective, kind of work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np

from foretrace.analyze.activity import is_compute
from foretrace.analyze.labels import class_labels
from foretrace.base import Bools, Int32s, Integers, UInt8s
from foretrace.graph import (
    DEVICE_KINDS,
    Collective,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
)
from foretrace.operators import kernel_family

NO_VALUE = -1


class WorkKind(StrEnum):
    """What nodes that take time are about."""

    COMPUTE = "compute"  # kernels, copies and fills; operators, where a host alone computes
    COMMUNICATION = "communication"  # transfers
    HOST = "host"  # calls, and the time between them
    UNRECORDED = "unrecorded"  # ranks that were not recorded


class SelectionKey(StrEnum):
    """Attributes of a node, and of an edge, that work is selected by."""

    CLASS = "class"  # of work: "gemm", "allreduce", "host", "launch"
    FAMILY = "family"  # of kernels
    KERNEL = "kernel"  # name of a device operation, or of an operator where a host computes
    CALL = "call"  # name of what the host does
    OPERATOR = "operator"  # framework operator at work
    PART = "part"
    PHASE = "phase"
    LAYER = "layer"
    MICROBATCH = "microbatch"
    RANK = "rank"
    COLLECTIVE = "collective"  # type of a transfer: "allreduce"
    GROUP = "group"  # process group of a transfer
    WORK = "work"  # one of `WorkKind`
    EDGE = "edge"  # kind of edge: its lag, not a node


NUMBERED = frozenset({SelectionKey.LAYER, SelectionKey.MICROBATCH, SelectionKey.RANK})


@dataclass(frozen=True)
class Attribute:
    """One field's value for every node."""

    values: tuple[str, ...]
    label: Int32s  # int32[nodes], position in `values`; NO_VALUE

    def present(self, among: Bools) -> list[int]:
        """Positions of the values that some of these nodes have, rising."""
        label = self.label[among]
        found: list[int] = np.unique(label[label != NO_VALUE]).tolist()
        return found

    def mask(self, chosen: Bools) -> Bools:
        """Nodes whose value is chosen; bool[values] to bool[nodes]."""
        with_none: Bools = np.append(chosen, np.False_)  # what NO_VALUE reads
        return with_none[self.label]


def attribute(graph: ExecutionGraph, field: SelectionKey) -> Attribute:
    """A field's value for every node that works; marks and rank starts have none."""
    found = _OF_FIELD[field](graph)
    works = graph.kind > NodeKind.STEP_END
    return Attribute(found.values, np.where(works, found.label, NO_VALUE).astype(np.int32))


def edge_values() -> tuple[str, ...]:
    """Names of the kinds of edges, in the order of `EdgeKind`."""
    return tuple(kind.name.lower().replace("_", "-") for kind in EdgeKind)


def _class(graph: ExecutionGraph) -> Attribute:
    labels = class_labels(graph)
    return Attribute(labels.labels, labels.label)


def _family(graph: ExecutionGraph) -> Attribute:
    """Kernels' families, and operators' on the host; by distinct pairs of name and operator."""
    works = graph.nodes_of(*DEVICE_KINDS, NodeKind.OPERATOR)
    width = len(graph.names) + 1
    pair = graph.name[works] * np.int64(width) + graph.operator[works] + 1
    unique, row = np.unique(pair, return_inverse=True)
    names = (*graph.names, "")  # no operator reads the last
    of_pair = [
        kernel_family(names[one // width], names[one % width - 1]) for one in unique.tolist()
    ]
    label = np.full(graph.num_nodes, NO_VALUE, np.int32)
    values, number = _numbered(of_pair)
    label[works] = number[row]
    return Attribute(values, label)


def _name_of(*kinds: WorkKind) -> Callable[[ExecutionGraph], Attribute]:
    """Names of nodes of these kinds."""

    def named(graph: ExecutionGraph) -> Attribute:
        is_named = np.isin(_work(graph).label, [tuple(WorkKind).index(kind) for kind in kinds])
        return Attribute(graph.names, np.where(is_named, graph.name, NO_VALUE).astype(np.int32))

    return named


def _operator(graph: ExecutionGraph) -> Attribute:
    """The operator that a node is, or runs in."""
    label = np.where(graph.kind == NodeKind.OPERATOR, graph.name, graph.operator)
    return Attribute(graph.names, label.astype(np.int32))


def _enumerated(
    read: Callable[[ExecutionGraph], UInt8s], members: type[IntEnum]
) -> Callable[[ExecutionGraph], Attribute]:
    """A column of an enumeration whose 0 is unknown."""
    values = tuple(member.name.lower() for member in members)[1:]
    return lambda graph: Attribute(values, read(graph).astype(np.int32) - 1)


def _number(read: Callable[[ExecutionGraph], Integers]) -> Callable[[ExecutionGraph], Attribute]:
    """A column of numbers from 0; below is unknown."""

    def numbered(graph: ExecutionGraph) -> Attribute:
        numbers = read(graph).astype(np.int32)
        count = int(numbers.max(initial=-1)) + 1
        return Attribute(tuple(str(one) for one in range(count)), np.maximum(numbers, NO_VALUE))

    return numbered


def _transfer(read: Callable[[Collective], str]) -> Callable[[ExecutionGraph], Attribute]:
    """What all transfers of a collective share."""

    def of_transfers(graph: ExecutionGraph) -> Attribute:
        values, number = _numbered(graph.collectives.each(read))
        finish = graph.nodes_of(NodeKind.FINISH)
        label = np.full(graph.num_nodes, NO_VALUE, np.int32)
        label[finish] = number[graph.collective[finish]]
        return Attribute(values, label)

    return of_transfers


def _work(graph: ExecutionGraph) -> Attribute:
    """Compute, communication, host, and ranks that were not recorded."""
    label = np.full(graph.num_nodes, NO_VALUE, np.int32)
    kinds = tuple(WorkKind)
    label[graph.is_host] = kinds.index(WorkKind.HOST)
    label[is_compute(graph)] = kinds.index(WorkKind.COMPUTE)
    label[graph.kind == NodeKind.FINISH] = kinds.index(WorkKind.COMMUNICATION)
    label[graph.kind == NodeKind.GHOST] = kinds.index(WorkKind.UNRECORDED)
    return Attribute(tuple(map(str, kinds)), label)


def _numbered(texts: Iterable[str]) -> tuple[tuple[str, ...], Int32s]:
    """Distinct texts in order of appearance, and each one's position among them."""
    position: dict[str, int] = {}
    number = [position.setdefault(text, len(position)) for text in texts]
    return tuple(position), np.array(number, np.int32)


_OF_FIELD: dict[SelectionKey, Callable[[ExecutionGraph], Attribute]] = {
    SelectionKey.CLASS: _class,
    SelectionKey.FAMILY: _family,
    SelectionKey.KERNEL: _name_of(WorkKind.COMPUTE, WorkKind.COMMUNICATION),
    SelectionKey.CALL: _name_of(WorkKind.HOST),
    SelectionKey.OPERATOR: _operator,
    SelectionKey.PART: _enumerated(lambda graph: graph.part, Part),
    SelectionKey.PHASE: _enumerated(lambda graph: graph.phase, Phase),
    SelectionKey.LAYER: _number(lambda graph: graph.layer),
    SelectionKey.MICROBATCH: _number(lambda graph: graph.microbatch),
    SelectionKey.RANK: _number(lambda graph: graph.rank),
    SelectionKey.COLLECTIVE: _transfer(lambda one: one.name),
    SelectionKey.GROUP: _transfer(lambda one: one.group),
    SelectionKey.WORK: _work,
}
