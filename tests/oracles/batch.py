"""Many samples of the static engine by its definition, and what led to an end."""

from __future__ import annotations

from fractions import Fraction

from foretrace.graph import ExecutionGraph
from foretrace.simulate import Scaling

Ends = list[Fraction]


def ends(graph: ExecutionGraph, scaling: Scaling, sample: int) -> Ends:
    """End of every node in one sample, without rounding."""
    found: Ends = []
    for node in range(graph.num_nodes):
        ready = [
            found[before] + lag for _, before, lag in predecessors(graph, scaling, sample, node)
        ]
        factor = Fraction(float(scaling.factor[sample, scaling.label[node]]))
        found.append(max([Fraction(0), *ready]) + int(graph.measured_ns[node]) * factor)
    return found


def slope(graph: ExecutionGraph, scaling: Scaling, sample: int, node: int) -> Fraction:
    """Weighted durations and lags on the way to a node's end."""
    assert scaling.weight is not None
    found = ends(graph, scaling, sample)
    total = Fraction(0)
    at: int | None = node
    while at is not None:
        weight = Fraction(float(scaling.weight[sample, scaling.label[at]]))
        total += int(graph.measured_ns[at]) * weight
        latest: tuple[Fraction, int, int] | None = None
        for edge, before, lag in predecessors(graph, scaling, sample, at):
            ready = found[before] + lag
            if ready >= 0 and (latest is None or ready > latest[0]):
                latest = ready, edge, before
        if latest is not None and scaling.lag_weight is not None:
            kind = int(graph.edge_kind[latest[1]])
            weight = Fraction(float(scaling.lag_weight[sample, kind]))
            total += int(graph.lag_ns[latest[1]]) * weight
        at = None if latest is None else latest[2]
    return total


def predecessors(
    graph: ExecutionGraph, scaling: Scaling, sample: int, node: int
) -> list[tuple[int, int, Fraction]]:
    """Edge, predecessor and scaled lag of the edges into a node that still hold."""
    found = []
    for edge in range(int(graph.first_edge[node]), int(graph.first_edge[node + 1])):
        kind = int(graph.edge_kind[edge])
        if scaling.is_removed is not None and scaling.is_removed[sample, kind]:
            continue
        factor = 1.0 if scaling.lag_factor is None else float(scaling.lag_factor[sample, kind])
        lag = int(graph.lag_ns[edge]) * Fraction(factor)
        found.append((edge, int(graph.predecessor[edge]), lag))
    return found
