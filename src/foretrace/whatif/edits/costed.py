"""`CostedJob`: a graph and what its nodes cost while edits are made; rounded once, at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Float64s, Int32s, Int64s, ScenarioError, UInt8s
from foretrace.cost import CostModel, Costs
from foretrace.graph import NO_NODE, NODE_COLUMNS, EdgeKind, ExecutionGraph, NodeKind
from foretrace.machine import Chip
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.recorded.program import Program
from foretrace.workload import Plan

if TYPE_CHECKING:  # what jobs whose model nobody stated need not load
    from foretrace.workload import Transformer

# What tells one block of one rank's step from another.
BLOCK_COLUMNS = ("rank", "step", "part", "phase", "layer", "microbatch")
_ENTRIES = (EdgeKind.LAUNCH, EdgeKind.ISSUE)


@dataclass(frozen=True)
class CostedJob:
    """One row per node; arrays are replaced, never written to."""

    arranged: Arranged
    duration_ns: Float64s  # float64[nodes]
    low_ns: Float64s  # float64[nodes], 10th percentile
    high_ns: Float64s  # float64[nodes], 90th
    source: UInt8s  # uint8[nodes], Source
    family: Int32s  # int32[nodes], position in `families`
    families: tuple[str, ...]
    factor: Float64s  # float64[nodes], of this turn's edits so far
    extra_ns: Float64s  # float64[nodes], likewise
    program: Program | None = None  # says which transfers belong to a group of the plan
    model: CostModel | None = None  # costs kernels of another kind than there are
    plan: Plan | None = None  # of the scenario
    transformer: Transformer | None = None  # what is trained, where that is stated
    chip: Chip | None = None  # what the kernels run on, where that is known
    is_replaced: Bools | None = None  # bool[nodes], by another kernel; `None`: nowhere

    @classmethod
    def of(
        cls,
        arranged: Arranged,
        costs: Costs,
        *,
        program: Program | None = None,
        model: CostModel | None = None,
        plan: Plan | None = None,
        transformer: Transformer | None = None,
        chip: Chip | None = None,
    ) -> CostedJob:
        """Costs as they are."""
        return cls(
            arranged=arranged,
            program=program,
            model=model,
            plan=plan,
            transformer=transformer,
            chip=chip,
            duration_ns=costs.duration_ns.astype(np.float64),
            low_ns=costs.low_ns.astype(np.float64),
            high_ns=costs.high_ns.astype(np.float64),
            source=costs.source,
            family=costs.family,
            families=costs.families,
            factor=np.ones(len(costs)),
            extra_ns=np.zeros(len(costs)),
        )

    @property
    def graph(self) -> ExecutionGraph:
        """Of the arranged job."""
        return self.arranged.graph

    def costs(self) -> Costs:
        """What every node takes, in whole nanoseconds."""
        return Costs(
            duration_ns=_rounded(self.duration_ns),
            low_ns=_rounded(self.low_ns),
            high_ns=_rounded(self.high_ns),
            source=self.source,
            family=self.family,
            families=self.families,
        )

    def times(self, factor: Float64s) -> CostedJob:
        """Every node takes so many times as long; float64[nodes]."""
        return replace(
            self,
            duration_ns=self.duration_ns * factor,
            low_ns=self.low_ns * factor,
            high_ns=self.high_ns * factor,
        )

    def with_factor(self, nodes: Bools, factor: float) -> CostedJob:
        """Chosen nodes take so many times as long, from the end of this turn on; bool[nodes]."""
        return replace(self, factor=np.where(nodes, self.factor * factor, self.factor))

    def with_delay(self, nodes: Int64s, extra_ns: float) -> CostedJob:
        """Nodes take so much longer, once for each time they are named; int64[named]."""
        extra = self.extra_ns.copy()
        np.add.at(extra, nodes, float(extra_ns))
        return replace(self, extra_ns=extra)

    def after_turn(self) -> CostedJob:
        """With the factors and delays of a turn, each of which acts on all at once."""
        found = self
        if (self.factor != 1).any():
            found = replace(found.times(self.factor), factor=np.ones_like(self.factor))
        if self.extra_ns.any():
            found = replace(found.plus(self.extra_ns), extra_ns=np.zeros_like(self.extra_ns))
        return found

    def lasting(self, nodes: Bools, length_ns: float) -> CostedJob:
        """Chosen nodes take so long, surely; bool[nodes]."""
        return replace(
            self,
            duration_ns=np.where(nodes, length_ns, self.duration_ns),
            low_ns=np.where(nodes, length_ns, self.low_ns),
            high_ns=np.where(nodes, length_ns, self.high_ns),
        )

    def plus(self, extra_ns: Float64s) -> CostedJob:
        """Every node takes so much longer, at least no time; float64[nodes]."""
        return replace(
            self,
            duration_ns=np.maximum(self.duration_ns + extra_ns, 0),
            low_ns=np.maximum(self.low_ns + extra_ns, 0),
            high_ns=np.maximum(self.high_ns + extra_ns, 0),
        )


def _rounded(duration_ns: Float64s) -> Int64s:
    rounded: Int64s = np.rint(duration_ns).astype(np.int64)
    return rounded


def check_device(graph: ExecutionGraph, what: str) -> None:
    """Refuse what is done to kernels where there are none.

    Raises:
        ScenarioError: if no lane is a device's.
    """
    if not any(lane.is_device for lane in graph.lanes):
        raise ScenarioError(
            f"no kernels can be {what} where the host computes: this recording has no device. "
            "State how much faster its operators become, as in Speed(1.2, Selection(...))."
        )


def with_edges(graph: ExecutionGraph, is_kept: Bools) -> ExecutionGraph:
    """The graph with some of its edges; bool[edges]."""
    return graph.rewired(
        graph.predecessor[is_kept],
        graph.edge_target[is_kept],
        kind=graph.edge_kind[is_kept],
        lag_ns=graph.lag_ns[is_kept],
    )


def arrivals(graph: ExecutionGraph) -> Int64s:
    """For each FINISH the ARRIVE of the same member, for every other node itself; int64[nodes]."""
    found = np.arange(graph.num_nodes, dtype=np.int64)
    arrive, finish = graph.members()
    found[finish] = arrive
    return found


def launches(graph: ExecutionGraph) -> Int64s:
    """The call that launches each device operation or issues each transfer; -1; int64[nodes]."""
    found = np.full(graph.num_nodes, -1, np.int64)
    call, entered = graph.edges_of(*_ENTRIES)
    found[entered] = call
    # A worker thread's time before an arrival was issued; the arrival follows it.
    before, node = graph.edges_of(EdgeKind.HOST_ORDER)
    follows = graph.kind[node] == NodeKind.ARRIVE
    found[node[follows]] = found[before[follows]]
    return found[arrivals(graph)]


def previous_on_host(graph: ExecutionGraph) -> Int64s:
    """What each host node follows on its thread; -1 of the others; int64[nodes]."""
    found = np.full(graph.num_nodes, -1, np.int64)
    before, node = graph.edges_of(EdgeKind.HOST_ORDER)
    found[node] = before
    return found


def without_nodes(job: CostedJob, into: Int64s) -> CostedJob:
    """The graph without nodes that others stand in for.

    Who waited for a removed node waits for its stand-in; what a removed node waited for, nobody
    does any more. A stand-in comes before the nodes it stands for, so the order of nodes stays
    topological.

    Args:
        job: the graph.
        into: int64[nodes], stand-in of each node; itself, if it stays.
    """
    graph, arranged = job.graph, job.arranged
    into = _resolved(into)
    kept = np.flatnonzero(into == np.arange(graph.num_nodes))
    place = np.full(graph.num_nodes, -1, np.int64)
    place[kept] = np.arange(len(kept))
    target = place[graph.edge_target]
    source = place[into[graph.predecessor]]
    edges = np.flatnonzero((target >= 0) & (source != target))
    smaller = graph.rewired(
        source[edges],
        target[edges],
        kind=graph.edge_kind[edges],
        lag_ns=graph.lag_ns[edges],
        kept=kept,
    )
    return replace(
        job,
        arranged=replace(
            arranged,
            graph=smaller,
            source=arranged.source[kept],
            scale=arranged.scale[kept],
        ),
        duration_ns=job.duration_ns[kept],
        low_ns=job.low_ns[kept],
        high_ns=job.high_ns[kept],
        source=job.source[kept],
        family=job.family[kept],
        factor=job.factor[kept],
        extra_ns=job.extra_ns[kept],
        is_replaced=None if job.is_replaced is None else job.is_replaced[kept],
    )


def _resolved(into: Int64s) -> Int64s:
    """The stand-in that stays, where stand-ins have one themselves."""
    while True:
        further = into[into]
        if np.array_equal(further, into):
            return into
        into = further


def with_followers(job: CostedJob, nodes: Bools, name: str, taken: CostedJob) -> CostedJob:
    """The graph with one more operation behind each of some, on its lane and in its block.

    Who waited for the operation waits for what follows it. On a device each has a launch of its
    own, behind that of the operation, which takes as long.

    Args:
        job: the graph.
        nodes: bool[nodes], kernels, or operators of the host.
        name: of the new ones.
        taken: the same graph, in which each node costs what its follower shall.
    """
    graph = job.graph
    launch = launches(graph)[nodes & graph.is_device]
    is_launch = np.zeros(graph.num_nodes, np.bool_)
    is_launch[launch[launch >= 0]] = True
    is_followed = nodes | is_launch
    kept = np.repeat(np.arange(graph.num_nodes), 1 + is_followed)
    place = np.arange(graph.num_nodes) + np.cumsum(is_followed) - is_followed
    is_new = np.zeros(len(kept), np.bool_)
    is_new[place[is_followed] + 1] = True
    larger = _with_links(graph, (nodes, is_launch), place, kept=kept)
    is_named = is_new & nodes[kept]
    columns = {
        "name": np.where(is_named, len(graph.names), larger.name),
        "measured_ns": np.where(is_new, 0, larger.measured_ns),
        "inflation": np.where(is_new, 1, larger.inflation),
        **{
            text: np.where(is_named, -1, getattr(larger, text))
            for text in ("signature", "operator", "operator_signature")
        },
    }
    typed: dict[str, Any] = {
        each: column.astype(NODE_COLUMNS[each].dtype) for each, column in columns.items()
    }
    arranged = replace(
        job.arranged,
        graph=replace(larger, names=(*graph.names, name), **typed),
        source=np.where(is_new, NO_NODE, job.arranged.source[kept]),
        scale=np.where(is_new, 1.0, job.arranged.scale[kept]),
    )

    def spread(column: NDArray[Any], of_new: NDArray[Any]) -> NDArray[Any]:
        return np.where(is_named, of_new[kept], column[kept])

    return replace(
        job,
        arranged=arranged,
        duration_ns=spread(job.duration_ns, taken.duration_ns),
        low_ns=spread(job.low_ns, taken.low_ns),
        high_ns=spread(job.high_ns, taken.high_ns),
        source=spread(job.source, taken.source),
        family=job.family[kept],
        factor=job.factor[kept],
        extra_ns=job.extra_ns[kept],
        is_replaced=None if job.is_replaced is None else job.is_replaced[kept],
    )


def _with_links(
    graph: ExecutionGraph, followed: tuple[Bools, Bools], place: Int64s, *, kept: Int64s
) -> ExecutionGraph:
    """Edges of a graph in which work and launches are followed by others of their kind."""
    nodes, is_launch = followed
    stays = graph.edge_kind == EdgeKind.QUEUE
    stays |= is_launch[graph.predecessor] & (graph.edge_kind == EdgeKind.LAUNCH)
    moved = (nodes | is_launch)[graph.predecessor] & ~stays
    source, target = [place[graph.predecessor] + moved], [place[graph.edge_target]]
    kinds, work = [graph.edge_kind], np.flatnonzero(nodes)
    chain = EdgeKind.STREAM if graph.has_device else EdgeKind.HOST_ORDER
    calls = np.flatnonzero(is_launch)
    launched = launches(graph)[work]
    has_launch = (launched >= 0) & graph.is_device[work]
    for before, after, of in (
        (place[work], place[work] + 1, chain),
        (place[calls], place[calls] + 1, EdgeKind.HOST_ORDER),
        (place[launched[has_launch]] + 1, place[work[has_launch]] + 1, EdgeKind.LAUNCH),
    ):
        source.append(before)
        target.append(after)
        kinds.append(np.full(len(before), of, np.uint8))
    kind = np.concatenate(kinds)
    lag_of_kind = np.zeros(len(EdgeKind), np.int32)
    for constant in graph.constants:
        lag_of_kind[constant.kind] = constant.lag_ns
    return graph.rewired(
        np.concatenate(source),
        np.concatenate(target),
        kind=kind,
        lag_ns=lag_of_kind[kind],
        kept=kept,
    )
