"""`TableSteps`: the simulated step of placements, and which of their resources it waits for.

The same graph, costs and simulation as an estimate's of a plan that states the placement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Bools, Float64s
from foretrace.cost import CostModel, Inflation, Remembered
from foretrace.estimate import SimulatedStep, simulated_step
from foretrace.graph import NodeKind, Phase
from foretrace.search.table_account import BACKWARD, FORWARD, IDS, NUM_TIMED, POOLED
from foretrace.simulate import way_back
from foretrace.workload import (
    PlacedTables,
    Plan,
    Recommender,
    TablePlace,
    TableScheme,
    TableSharding,
    access_laws,
    place_tables,
    recommender_layout,
)

_HIDDEN = 0.05  # weight of what a step does not wait for: it will once it is larger
_OF_IDS = ("splits", "lengths", "ids")


@dataclass(frozen=True)
class PlacedStep:
    """A placement with its simulated step."""

    placed: PlacedTables
    step_ns: int
    weights: Float64s  # float64[timed resources], share of each that the step waits for


class TableSteps:
    """Simulates placements of a model's tables; each distinct one once."""

    def __init__(
        self,
        model: Recommender,
        plan: Plan,
        *,
        ranks_per_host: int,
        costs: CostModel,
        inflation: Inflation,
    ) -> None:
        """Simulate nothing yet."""
        self._model, self._plan, self._inside = model, plan, ranks_per_host
        self._costs, self._inflation = Remembered(costs), inflation
        self._sharding = plan.tables or TableSharding()
        self._laws = access_laws(self._sharding.ids, model.rows)
        self._known: dict[tuple[TablePlace, ...], PlacedStep] = {}

    @property
    def num_simulated(self) -> int:
        """Distinct placements so far."""
        return len(self._known)

    def step(self, places: tuple[TablePlace, ...]) -> PlacedStep:
        """The step with every table in its place."""
        if places not in self._known:
            sharding = replace(self._sharding, places=places)
            self._known[places] = self._simulated(self.placed(sharding))
        return self._known[places]

    def placed(self, sharding: TableSharding) -> PlacedTables:
        """Where tables are by a sharding."""
        return place_tables(
            self._model,
            sharding,
            num_ranks=self._plan.data,
            batch=self._plan.micro_batch,
            ranks_per_host=self._inside,
            laws=self._laws,
        )

    def of_rule(self, sharding: TableSharding) -> PlacedStep:
        """The step with tables as a rule deals them."""
        return self._simulated(self.placed(sharding))

    def _simulated(self, placed: PlacedTables) -> PlacedStep:
        plan = plan_with(self._plan, placed)
        graph = recommender_layout(self._model, plan, placed).graph
        found = simulated_step(graph, self._costs, self._inflation)
        return PlacedStep(placed, int(windows(found.timeline).duration_ns[0]), _weights(found))


def plan_with(plan: Plan, placed: PlacedTables) -> Plan:
    """The plan that has tables where they are placed."""
    in_hosts = placed.sharding.divides_rows_in_hosts
    ranks = placed.ranks_per_host if in_hosts else None
    return replace(plan, tables=placed.sharding, shard_ranks=ranks)


def _weights(found: SimulatedStep) -> Float64s:
    """Share of each resource that lies on the critical path; at least a little of what there is."""
    graph = found.timeline.graph
    window = windows(found.timeline)
    way = way_back(found.timeline, int(window.end_node[0]), begin_ns=int(window.begin_ns[0]))
    is_critical = np.zeros(graph.num_nodes, np.bool_)
    is_critical[way.node] = True
    weights = np.full(NUM_TIMED, 1.0)
    for resource, own in _nodes_of(found).items():
        by_rank = np.bincount(graph.rank[own], found.duration_ns[own])
        most = float(by_rank.max(initial=0))
        if most > 0:
            waited = float(found.duration_ns[own & is_critical].sum())
            weights[resource] = max(_HIDDEN, min(1.0, waited / most))
    return weights


def _nodes_of(found: SimulatedStep) -> dict[int, Bools]:
    """Nodes that spend each resource."""
    graph = found.timeline.graph
    names = np.array([*graph.names, ""])[graph.name]
    is_kernel, is_exchange = graph.kind == NodeKind.KERNEL, graph.kind == NodeKind.FINISH
    nodes: dict[int, Bools] = {}
    on_tables = np.zeros(graph.num_nodes, np.bool_)
    for scheme in TableScheme:
        is_own = np.char.startswith(names, scheme.value)
        on_tables |= is_own
        if scheme is TableScheme.DATA:
            on_tables |= np.char.startswith(names, "replicated tables")
            continue
        of_ids = np.zeros(graph.num_nodes, np.bool_)
        for word in _OF_IDS:
            of_ids |= names == f"{scheme.value} {word}"
        nodes[POOLED[scheme]] = is_own & is_exchange & ~of_ids
        nodes[IDS[scheme]] = is_exchange & of_ids
    forward = graph.phase == Phase.FORWARD
    nodes[FORWARD] = on_tables & is_kernel & forward
    nodes[BACKWARD] = on_tables & is_kernel & ~forward
    return nodes
