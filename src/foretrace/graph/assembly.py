"""Collected nodes and edges become an `ExecutionGraph` in topological order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretrace.base import NS_PER_S, CircleError, GraphError, Int32s, Int64s, row_starts
from foretrace.graph._compiled import counted_order, topological_order
from foretrace.graph.collective import Collective, Collectives
from foretrace.graph.draft import DraftNodes, Edges
from foretrace.graph.graph import EdgeConstant, ExecutionGraph, Lane
from foretrace.graph.nodes import NODE_COLUMNS, EdgeKind

_LETTERS = 60  # of a name in a message
_MOST_LAG_NS = (1 << 31) - 1  # what `ExecutionGraph.lag_ns` holds


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
        shown = ", ".join(repr(_shortened(names[name[node]])) for node in first)
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


def _shortened(name: str) -> str:
    """Kernels of C++ have names of kilobytes."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 3]}..."


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
