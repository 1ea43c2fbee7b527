"""Durations of a laid-out graph: a cost model's answers, and what communication adds to them.

A cost model answers for a kernel alone. Kernels that communication runs beside are slower, and
only a simulation says which those are; so the graph is simulated with the durations alone, they
grow, and it is simulated again.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import Int64s
from foretrace.cost import CostModel, Costs, Inflation, graph_costs, inflated
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.simulate import simulate


@dataclass(frozen=True)
class Run:
    """A simulation, and the durations it was made with."""

    timeline: Timeline
    costs: Costs  # of every node alone
    duration_ns: Int64s  # int64[nodes], with what communication adds


def run(graph: ExecutionGraph, model: CostModel, inflation: Inflation | None) -> Run:
    """Simulate a graph with predicted durations.

    Args:
        graph: laid out.
        model: what predicts durations.
        inflation: how much slower kernels are beside communication; `None`: no slower.

    Raises:
        MachineError: for a collective that the model does not know.
    """
    costs = graph_costs(graph, model)
    alone = simulate(graph, costs.duration_ns)
    if inflation is None:
        return Run(alone, costs, costs.duration_ns)
    duration_ns = inflated(alone, costs.duration_ns, inflation)
    return Run(simulate(graph, duration_ns), costs, duration_ns)
