"""Nodes and edges are collected, and become an `ExecutionGraph` in topological order.

A rule names the ends of its edges in *places*: items first, then device operations, as
`Places` counts them. An edge *into* an operation that is a communication ends at its arrival;
an edge *out of* one begins at its finish. `assembly` knows which node that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrace.base import (
    NS_PER_S,
    CircleError,
    GraphError,
    Int32s,
    Int64s,
    Integers,
    UInt8s,
    cut_short,
    row_starts,
)
from foretrace.graph._compiled import counted_order, topological_order
from foretrace.graph.graph import EdgeConstant, ExecutionGraph, Lane
from foretrace.graph.nodes import (
    NO_LANE,
    NODE_COLUMNS,
    Collective,
    Collectives,
    EdgeKind,
    NodeColumn,
    NodeKind,
)

_COLUMNS: Mapping[str, NodeColumn] = {
    **NODE_COLUMNS,
    "recorded_ns": NodeColumn(np.int64, 0),
    "end_ns": NodeColumn(np.int64, 0),
    # Where on the host the work is done or asked for, on the raw clock; lane -1: nowhere.
    "host_lane": NodeColumn(np.int32, NO_LANE),
    "host_ns": NodeColumn(np.int64, 0),
}

_LETTERS = 60  # of a name in a message: kernels of C++ have some of kilobytes
_MOST_LAG_NS = (1 << 31) - 1  # what `ExecutionGraph.lag_ns` holds


@dataclass(frozen=True)
class DraftNodes:
    """Columns of all nodes, in the order they were added."""

    columns: Mapping[str, NDArray[np.generic]]

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.columns["kind"])


class NodeCollector:
    """Takes nodes in chunks; says which numbers they got."""

    def __init__(self) -> None:
        self._chunks: list[dict[str, NDArray[np.generic]]] = []
        self._count = 0

    def add(self, kind: NodeKind | NDArray[np.uint8], size: int, **columns: ArrayLike) -> Int64s:
        """Add `size` nodes; columns left out take their neutral value. Returns node numbers.

        `end_ns` is the measured end on the common clock, `measured_ns` the work before it;
        `recorded_ns` is taken from `measured_ns` if left out.
        """
        columns = {"kind": kind, **columns}
        columns.setdefault("recorded_ns", columns.get("measured_ns", 0))
        self._chunks.append(
            {
                name: np.broadcast_to(
                    np.asarray(columns.get(name, column.neutral), column.dtype), (size,)
                )
                for name, column in _COLUMNS.items()
            }
        )
        self._count += size
        return np.arange(self._count - size, self._count, dtype=np.int64)

    def collected(self) -> DraftNodes:
        """All nodes added so far."""
        return DraftNodes(
            {key: np.concatenate([chunk[key] for chunk in self._chunks]) for key in _COLUMNS}
        )


@dataclass(frozen=True)
class Edges:
    """Edges of any kinds; places of their two ends."""

    source: Int64s  # int64[edges]
    target: Int64s  # int64[edges]
    kind: UInt8s  # uint8[edges], EdgeKind

    def __len__(self) -> int:
        """Number of edges."""
        return len(self.source)

    @staticmethod
    def of(kind: EdgeKind, source: Integers, target: Integers) -> Edges:
        """Edges of one kind."""
        return Edges(
            np.asarray(source, np.int64),
            np.asarray(target, np.int64),
            np.full(len(source), kind, np.uint8),
        )

    @staticmethod
    def joined(parts: Sequence[Edges]) -> Edges:
        """All edges of some lists, in order."""
        return Edges(
            np.concatenate([np.zeros(0, np.int64), *(part.source for part in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(part.target for part in parts)]),
            np.concatenate([np.zeros(0, np.uint8), *(part.kind for part in parts)]),
        )


@dataclass(frozen=True)
class Places:
    """How places are numbered: items, then operations, then what rules add."""

    num_items: int
    num_ops: int

    def op(self, index: Integers) -> Int64s:
        """Places of device operations."""
        return np.asarray(index, np.int64) + self.num_items


def node_order(num_nodes: int, edges: Edges, names: Sequence[str], name: Int32s) -> Int32s:
    """Nodes in an order in which every edge points forward, int32[nodes].

    Raises:
        CircleError: if the edges close a circle.
    """
    first_edge, by_source = _grouped(edges.source, num_nodes)
    successor = edges.target[by_source].astype(np.int32)
    num_waits = np.bincount(edges.target, minlength=num_nodes).astype(np.int32)
    order = np.empty(num_nodes, np.int32)
    num_placed = topological_order(first_edge, successor, num_waits, order)
    if num_placed < num_nodes:
        first = np.flatnonzero(num_waits)[:5].tolist()
        shown = ", ".join(repr(cut_short(names[name[node]], _LETTERS)) for node in first)
        stuck = (
            f"{num_nodes - num_placed} of {num_nodes} nodes wait for each other, first of them "
            f"{shown}"
        )
        raise CircleError(
            f"the traces' dependencies close a circle: {stuck}. Ranks of different runs or "
            "unaligned clocks do that: replay fewer files to find which.",
            stuck=stuck,
        )
    return order


def _grouped(node: Int64s, num_nodes: int) -> tuple[Int64s, Int64s]:
    """Edges in the order of one of their ends, equal ends in their own order.

    Returns:
        Where each node's edges begin, int64[nodes + 1], and the order, int64[edges].
    """
    first = row_starts(node, num_nodes)
    order = np.empty(len(node), np.int64)
    counted_order(node, first.copy(), order)
    return first, order


def assembled(
    nodes: DraftNodes,
    edges: Edges,
    *,
    constants: Mapping[EdgeKind, EdgeConstant],
    names: tuple[str, ...],
    lanes: tuple[Lane, ...],
    step_names: tuple[str, ...],
    collectives: Sequence[Collective],
) -> tuple[ExecutionGraph, Int64s]:
    """The graph, and for each of its nodes the number it had while collected, int64[nodes]."""
    columns = nodes.columns
    order = node_order(len(nodes), edges, names, columns["name"].astype(np.int32))
    place = np.empty(len(nodes), np.int64)
    place[order] = np.arange(len(nodes))
    source, target = place[edges.source], place[edges.target]
    _, by_source = _grouped(source, len(nodes))
    first_edge, by_target = _grouped(target[by_source], len(nodes))
    by_target = by_source[by_target]
    lag_of_kind = np.zeros(len(EdgeKind), np.int32)
    for kind, constant in constants.items():
        if abs(constant.lag_ns) > _MOST_LAG_NS:
            raise GraphError(
                f"the lag of {kind.name.lower()} edges is {constant.lag_ns / NS_PER_S:,.1f} s, "
                f"where at most {_MOST_LAG_NS / NS_PER_S:.1f} s are expected: the clocks of host "
                "and device differ; record it again"
            )
        lag_of_kind[kind] = constant.lag_ns
    edge_kind = edges.kind[by_target]
    graph = ExecutionGraph(
        **{
            name: columns[name][order].astype(column.dtype) for name, column in NODE_COLUMNS.items()
        },
        first_edge=first_edge,
        predecessor=source[by_target].astype(np.int32),
        edge_kind=edge_kind,
        lag_ns=lag_of_kind[edge_kind],
        names=names,
        lanes=lanes,
        step_names=step_names,
        collectives=Collectives.of(collectives),
        constants=tuple(constants[kind] for kind in sorted(constants)),
    )
    return graph, order.astype(np.int64)


def renumbered_graph_of(
    columns: Mapping[str, NDArray[np.generic]],
    edges: Edges,
    *,
    constants: Sequence[EdgeConstant],
    names: tuple[str, ...],
    lanes: tuple[Lane, ...],
    step_names: tuple[str, ...],
    collectives: Sequence[Collective],
) -> tuple[ExecutionGraph, Int64s]:
    """The graph of nodes and edges that somebody else has laid out, in any order.

    Args:
        columns: those of `NODE_COLUMNS`.
        edges: between nodes.
        constants: the lag of every kind of edge that has one.
        names: what columns of names refer to.
        lanes: what `lane` refers to.
        step_names: what `step` refers to.
        collectives: what `collective` refers to.

    Returns:
        The graph, and the place that each of its nodes had in `columns`; int64[nodes].

    Raises:
        CircleError: if the edges close a circle.
    """
    return assembled(
        DraftNodes(columns),
        edges,
        constants={constant.kind: constant for constant in constants},
        names=names,
        lanes=lanes,
        step_names=step_names,
        collectives=collectives,
    )
