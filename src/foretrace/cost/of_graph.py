"""`graph_costs`: every device node of a graph is costed from its operator or its collective."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from foretrace.base import LARGEST_COUNT, Bools, Int32s, Int64s
from foretrace.cost.model import (
    NO_TEXT,
    CollectiveRequests,
    CostModel,
    Costs,
    KernelRequests,
    Source,
)
from foretrace.cost.signatures import GEMM, UNKNOWN, Operation, operation_of
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.operators import OperatorClass, operator_class

_T = TypeVar("_T", bound=Hashable)
STATED = "stated"  # family of nodes whose duration the graph brings along


def graph_costs(
    graph: ExecutionGraph, model: CostModel, *, place_by_rank: Int64s | None = None
) -> Costs:
    """Duration of every node, its interval, its source and its family; one row per node.

    A node that the graph states a duration for keeps it: host work, and blocks from a trace.
    Kernels without one are asked for by operator and signature, a collective's FINISH nodes by
    its name, bytes, number format and the places of all its members.

    Args:
        graph: of any origin.
        model: what predicts.
        place_by_rank: int64[ranks], where each rank stands in the machine; rank r at place r if
            left out.

    Raises:
        MachineError: for a collective that the model does not know.
        ValueError: for a place outside the machine.
    """
    stated_ns = graph.measured_ns
    is_open = stated_ns == 0
    kernels = np.flatnonzero(is_open & graph.is_device)
    finishes = np.flatnonzero(is_open & (graph.kind == NodeKind.FINISH))
    duration_ns, low_ns, high_ns = stated_ns.copy(), stated_ns.copy(), stated_ns.copy()
    source = np.full(graph.num_nodes, Source.MEASURED, np.uint8)
    family = np.zeros(graph.num_nodes, np.int32)
    families = [STATED]
    for nodes, costs in (
        (kernels, _kernel_costs(graph, kernels, model)),
        (finishes, _collective_costs(graph, finishes, model, place_by_rank)),
    ):
        duration_ns[nodes], source[nodes] = costs.duration_ns, costs.source
        low_ns[nodes], high_ns[nodes] = costs.low_ns, costs.high_ns
        family[nodes] = costs.family + len(families)
        families.extend(costs.families)
    return Costs(duration_ns, low_ns, high_ns, source, family, tuple(families))


def transfer_ns(
    graph: ExecutionGraph,
    nodes: Int64s,
    model: CostModel,
    *,
    most_bytes: int = LARGEST_COUNT,
) -> Int64s:
    """What the collectives of FINISH nodes take, int64[nodes].

    Args:
        graph: of any origin; rank r stands at place r.
        nodes: int64[nodes], FINISH nodes.
        model: what predicts.
        most_bytes: that any of them has to move; 1: what passes before data does.
    """
    return _collective_costs(graph, nodes, model, None, most_bytes=most_bytes).duration_ns


def node_operations(graph: ExecutionGraph, nodes: Int64s) -> tuple[tuple[Operation, ...], Int64s]:
    """The distinct operations of some nodes, and which of them each node is, int64[nodes].

    Several kernels of one call each count as the whole operation, where their names are of its
    kind; what else the call does is of model UNKNOWN.
    """
    columns = (graph.operator[nodes], graph.operator_signature[nodes], graph.name[nodes])
    names = (*graph.names, "")  # NO_TEXT: the last
    code = np.zeros(len(nodes), np.int64)
    for column in columns:
        code = code * len(names) + column + 1
    _, first, rows = np.unique(code, return_index=True, return_inverse=True)
    operations = tuple(
        _operation(names[one], names[two], names[three])
        for one, two, three in zip(*(column[first].tolist() for column in columns), strict=True)
    )
    return operations, rows.reshape(-1)


def _operation(operator: str, signature: str, kernel: str) -> Operation:
    found = operation_of(operator, signature, kernel)
    is_other = found.model == GEMM and operator_class(kernel, operator) != OperatorClass.GEMM
    return Operation(UNKNOWN) if is_other else found


def _kernel_costs(graph: ExecutionGraph, nodes: Int64s, model: CostModel) -> Costs:
    operator, operators = _texts(graph.operator[nodes], graph.names)
    signature, signatures = _texts(graph.operator_signature[nodes], graph.names)
    kernel = np.full(len(nodes), NO_TEXT, np.int32)
    return model.kernel_costs(
        KernelRequests(operator, signature, kernel, operators, signatures, kernels=())
    )


def _collective_costs(
    graph: ExecutionGraph,
    nodes: Int64s,
    model: CostModel,
    place_by_rank: Int64s | None,
    *,
    most_bytes: int = LARGEST_COUNT,
) -> Costs:
    make = graph.collectives.make[graph.collective[nodes]]
    wanted, inverse = np.unique(make, return_inverse=True)
    chosen = [graph.collectives.makes[at] for at in wanted.tolist()]
    collective, collectives = _positions([one.name for one in chosen])
    dtype, dtypes = _positions([one.dtype for one in chosen])
    group, groups = _positions([one.ranks for one in chosen])
    if place_by_rank is not None:
        groups = tuple(tuple(place_by_rank[list(ranks)].tolist()) for ranks in groups)
    num_bytes = np.array([min(max(one.num_bytes, 0), most_bytes) for one in chosen], np.int64)
    costs = model.collective_costs(
        CollectiveRequests(collective, num_bytes, dtype, group, collectives, dtypes, groups)
    )
    rows = inverse.reshape(-1)
    return Costs(
        costs.duration_ns[rows],
        costs.low_ns[rows],
        costs.high_ns[rows],
        costs.source[rows],
        costs.family[rows],
        costs.families,
    )


def _texts(column: Int32s, names: tuple[str, ...]) -> tuple[Int32s, tuple[str, ...]]:
    """Positions among the distinct texts of a column, and these; NO_TEXT stays."""
    is_known: Bools = column >= 0
    distinct, inverse = np.unique(column[is_known], return_inverse=True)
    positions = np.full(len(column), NO_TEXT, np.int32)
    positions[is_known] = inverse.reshape(-1)
    return positions, tuple(names[at] for at in distinct.tolist())


def _positions(values: Sequence[_T]) -> tuple[Int32s, tuple[_T, ...]]:
    """Positions among the distinct values, and these, in order of appearance."""
    place = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return np.array([place[value] for value in values], np.int32), tuple(place)
