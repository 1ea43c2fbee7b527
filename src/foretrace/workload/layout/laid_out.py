"""`LaidOut`: the graph of one step under a plan."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.graph import ExecutionGraph
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.schedule import Schedule


@dataclass(frozen=True)
class Role:
    """Ranks that do the same with the same partners, one of which stands for all."""

    rank: int  # that is in the graph
    stage: int
    num_ranks: int  # that it stands for, itself among them


@dataclass(frozen=True)
class LaidOut:
    """A graph whose device nodes name operator, signature or collective, and are yet to be costed.

    `graph.measured_ns` holds what is known without a cost model: host time per launch by the
    stated rule, and durations of blocks that come from a trace. A device node or FINISH node
    with 0 there waits for `foretrace.cost.graph_costs`.
    """

    graph: ExecutionGraph
    plan: Plan
    schedule: Schedule
    roles: tuple[Role, ...]  # by rank; of an unfolded graph each stands for itself
    is_folded: bool
