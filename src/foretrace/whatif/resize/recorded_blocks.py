"""Recorded work in order, block by block, and the distinct blocks among them.

A job repeats itself: thousands of blocks are a few distinct sequences of operators, and each of
those is read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int32s, Int64s, Remembering
from foretrace.graph import DEVICE_KINDS, ExecutionGraph, NodeKind, Part, Phase
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.resize.rewriting import RecordedOperator


@dataclass(frozen=True)
class RecordedBlocks(Remembering):
    """All nodes that do work of operators, in order; block `i` is from `first[i]` on."""

    graph: ExecutionGraph
    nodes: Int64s  # int64[operators]
    first: Int64s  # int64[blocks + 1]
    distinct: Int32s  # int32[blocks], which blocks are alike
    example: tuple[int, ...]  # of each distinct one: a block
    total_ns: Int64s  # int64[distinct], measured, all blocks alike together

    def nodes_of(self, block: int) -> Int64s:
        """Nodes of one block, in order."""
        return self.nodes[self.first[block] : self.first[block + 1]]

    def place_of(self, block: int) -> tuple[Part, Phase]:
        """Part and phase of one block."""
        node = int(self.nodes[self.first[block]])
        return Part(int(self.graph.part[node])), Phase(int(self.graph.phase[node]))

    def ran(self, block: int) -> tuple[RecordedOperator, ...]:
        """The operators of one block."""
        return tuple(_ran(self.graph, self.nodes_of(block)))

    def of(self, *parts: Part) -> Iterator[int]:
        """Distinct blocks of some parts, by how much time they take, most first."""
        for one in np.argsort(-self.total_ns, kind="stable").tolist():
            if not parts or self.place_of(self.example[one])[0] in parts:
                yield one


def is_on_host(graph: ExecutionGraph) -> bool:
    """Whether a recording has no device: operators on the host are its kernels."""
    return not graph.is_device.any()


def operator_nodes(graph: ExecutionGraph) -> Int64s:
    """Nodes that are an operator's work: on the device, or on the host where there is none."""
    kinds = (NodeKind.OPERATOR,) if is_on_host(graph) else DEVICE_KINDS
    return graph.nodes_of(*kinds)


def recorded_blocks(program: Program) -> RecordedBlocks:
    """Blocks of each rank, in order of their first node's place in the graph's columns."""
    graph = program.graph
    nodes = operator_nodes(graph)
    place = np.stack(
        [
            graph.rank[nodes].astype(np.int64),
            graph.step[nodes].astype(np.int64),
            graph.part[nodes].astype(np.int64),
            graph.phase[nodes].astype(np.int64),
            graph.layer[nodes].astype(np.int64),
            graph.microbatch[nodes].astype(np.int64),
        ]
    )
    order = np.lexsort((nodes, *place[::-1]))
    nodes, place = nodes[order], place[:, order]
    is_new = np.ones(len(nodes), np.bool_)
    is_new[1:] = (place[:, 1:] != place[:, :-1]).any(axis=0)
    first = np.append(np.flatnonzero(is_new), len(nodes)).astype(np.int64)
    columns = np.stack(
        [
            graph.operator[nodes],
            graph.operator_signature[nodes],
            graph.name[nodes],
            graph.part[nodes].astype(np.int32),
            graph.phase[nodes].astype(np.int32),
        ],
        axis=1,
    )
    known: dict[bytes, int] = {}
    distinct = np.empty(len(first) - 1, np.int32)
    example: list[int] = []
    for block in range(len(first) - 1):
        key = columns[first[block] : first[block + 1]].tobytes()
        if key not in known:
            known[key] = len(example)
            example.append(block)
        distinct[block] = known[key]
    sums = np.add.reduceat(graph.measured_ns[nodes], first[:-1]) if len(nodes) else first[:-1]
    total_ns = np.zeros(len(example), np.int64)
    np.add.at(total_ns, distinct, sums)
    return RecordedBlocks(graph, nodes, first, distinct, tuple(example), total_ns)


def _ran(graph: ExecutionGraph, nodes: Int64s) -> Iterator[RecordedOperator]:
    names = graph.names
    columns = (graph.operator[nodes], graph.operator_signature[nodes], graph.name[nodes])
    for operator, signature, kernel in zip(*(one.tolist() for one in columns), strict=True):
        yield RecordedOperator(
            names[operator] if operator >= 0 else "",
            names[signature] if signature >= 0 else "",
            names[kernel],
        )
