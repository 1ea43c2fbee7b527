"""Launches of work in a row go: `Fuse` makes it one, `CudaGraphs` launches it at once.

Where the host computes, its operators are what is fused, and the host's time between them goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import Selection, fitting, selected, selection_of
from foretrace.base import Bools, Float64s, Int64s, ScenarioError, begins_run
from foretrace.graph import (
    DEFAULT_NS,
    DEVICE_KINDS,
    HOST_KINDS,
    EdgeConstant,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
)
from foretrace.operators import moves_nothing
from foretrace.whatif.edits.costed import (
    BLOCK_COLUMNS,
    CostedJob,
    check_device,
    launches,
    previous_on_host,
    without_nodes,
)
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit, check_factor

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_ON_HOST = (*HOST_KINDS, NodeKind.STEP_BEGIN, NodeKind.STEP_END)

_IN_ORDER = (EdgeKind.STREAM, EdgeKind.PROGRAMMATIC, EdgeKind.GRAPH)
_OF_LAUNCH = (*_IN_ORDER, EdgeKind.LAUNCH)  # what a later kernel of a run may wait for
_OF_QUEUE = (*_IN_ORDER, EdgeKind.QUEUE)  # and who may wait for an earlier one

_PASSED = (NodeKind.HOST_SEGMENT, NodeKind.CALL)  # recorded into the graph, or not done at all


@dataclass(frozen=True)
class HostRuns:
    """Which host nodes stand in a run of two chosen ones or more."""

    first: Int64s  # int64[nodes], of chosen nodes the first of their run, of others themselves
    is_between: Bools  # bool[nodes], after a run's first chosen node and up to its last


def host_runs(
    graph: ExecutionGraph, chosen: Bools, passed: Bools, *, within: tuple[str, ...] = ()
) -> HostRuns:
    """Runs of chosen nodes. One ends at whatever else a thread does, marks of steps too.

    Args:
        graph: of any origin.
        chosen: bool[nodes].
        passed: bool[nodes], what may stand between chosen nodes.
        within: columns of the graph in which all of a run are alike.
    """
    host = graph.in_lanes(graph.nodes_of(*_ON_HOST))
    is_chosen = chosen[host]
    is_end = ~(passed[host] | is_chosen)
    is_end |= begins_run(*(getattr(graph, name)[host] for name in ("lane", *within)))
    run = np.cumsum(is_end) - 1
    seen = _counted(is_chosen, run)
    total = np.bincount(run, is_chosen).astype(np.int64)[run] if len(run) else seen
    gone = np.zeros(graph.num_nodes, np.bool_)
    is_after_first = np.where(is_chosen, seen > 1, seen > 0)
    is_before_last = np.where(is_chosen, True, seen < total)  # noqa: FBT003  a column of flags
    gone[host] = is_after_first & is_before_last
    first = np.arange(graph.num_nodes, dtype=np.int64)
    opens = np.flatnonzero(is_chosen & (seen == 1))
    members = np.flatnonzero(is_chosen)
    first[host[members]] = host[opens[np.searchsorted(run[opens], run[members])]]
    return HostRuns(first, gone)


def _counted(flags: Bools, run: Int64s) -> Int64s:
    """How many flags of its run stand up to each row, itself included; int64[rows]."""
    number: Int64s = flags.astype(np.int64)
    count: Int64s = np.cumsum(number)
    first = np.searchsorted(run, run)  # first row of each row's run
    counted: Int64s = count - count[first] + number[first]
    return counted


@dataclass(frozen=True)
class Fuse(WorkEdit):
    """Runs of selected kernels that follow each other on a stream, or of operators, become one.

    It takes `factor` times their summed time; launches and gaps between them go. A run ends with
    its block, and where another stream or the host waits for it, or it for them.
    """

    of: Selection
    factor: float = 1.0

    FUSE = Key(
        "fuse",
        Holds.FACTORS,
        "Work that becomes one kernel, and what is left.",
        "a table of work and the share of its time that is left, as in { elementwise = 0.5 }",
        "WORK=SHARE",
    )
    KEYS = (FUSE,)
    TURNS = (EditTurn.FUSION,)

    def __post_init__(self) -> None:
        """Refuse what is no share of a time."""
        check_factor(self.factor)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Fuse]:
        """One for each work."""
        for work, factor in stated.factors(cls.FUSE):
            yield cls(selection_of(work), factor)

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`*elementwise* fused, x 0.5 of their time`; what it cannot know."""
        known = "" if self.factor != 1 else " (memory traffic that fusing saves is not known)"
        return f"{self.of} fused, x {self.factor:g} of their time{known}"

    def check(self, job: CostedJob) -> None:
        """Some selected kernel must follow another."""
        graph = job.graph
        selected(graph, self.of)
        if np.array_equal(first_of_fused(graph, self.of), np.arange(graph.num_nodes)):
            raise ScenarioError(
                f"{str(self.of)!r} selects no two kernels that follow each other on a stream, nor "
                "operators on a thread that computes, in one block, with nothing else waiting "
                "between them: there is nothing to fuse. Select what is between them too, or state "
                "how much faster they become."
            )

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Every run of two or more as one, with the first one's place and name."""
        if job.graph.has_device:
            return merged(job, first_of_fused(job.graph, self.of), self.factor)
        chosen = fitting(job.graph, self.of) & job.graph.is_of(NodeKind.OPERATOR)
        return merged_on_host(job, operator_runs(job.graph, chosen), self.factor)


def first_of_fused(graph: ExecutionGraph, of: Selection) -> Int64s:
    """First of the run that each selected node would be fused into, else itself; int64[nodes]."""
    chosen = fitting(graph, of)
    if graph.has_device:
        return first_of_runs(graph, chosen & graph.is_device)
    return operator_runs(graph, chosen & graph.is_of(NodeKind.OPERATOR)).first


def operator_runs(graph: ExecutionGraph, chosen: Bools) -> HostRuns:
    """Runs of chosen operators in one block, with the host's time and bookkeeping between."""
    is_free = np.array([moves_nothing(name) for name in graph.names], np.bool_)
    passed = graph.is_of(NodeKind.HOST_SEGMENT)
    passed |= graph.is_of(NodeKind.OPERATOR) & is_free[graph.name]
    return host_runs(graph, chosen & ~is_free[graph.name], passed, within=BLOCK_COLUMNS)


def merged_on_host(job: CostedJob, runs: HostRuns, factor: float) -> CostedJob:
    """Runs as one operator each, which takes `factor` times what they took; nothing between."""
    num_nodes = job.graph.num_nodes
    has_run = np.bincount(runs.first, minlength=num_nodes) > 1

    def summed(column: Float64s) -> Float64s:
        total = np.bincount(runs.first, column, num_nodes) * factor
        return np.where(has_run, total, np.where(runs.is_between, 0.0, column))

    return replace(
        job,
        duration_ns=summed(job.duration_ns),
        low_ns=summed(job.low_ns),
        high_ns=summed(job.high_ns),
    )


def first_of_runs(graph: ExecutionGraph, chosen: Bools) -> Int64s:
    """First kernel of the run of chosen ones that each node is in, itself of others; int64[nodes].

    Kernels of one run follow each other on their stream, in one block. Only the first waits for
    more than its launch and the one before, and only the last is waited for by more than the next
    and the launch queue.
    """
    device = graph.nodes_of(*DEVICE_KINDS, NodeKind.ARRIVE, NodeKind.FINISH)
    device = graph.in_lanes(device)
    before, after = device[:-1], device[1:]
    follows = chosen[before] & chosen[after] & (graph.lane[before] == graph.lane[after])
    for name in BLOCK_COLUMNS:
        column = getattr(graph, name)
        follows &= column[before] == column[after]
    waits, is_awaited = _ties(graph)
    follows &= ~waits[after] & ~is_awaited[before]
    starts = np.append(True, ~follows)[: len(device)]
    first = np.arange(graph.num_nodes, dtype=np.int64)
    first[device] = device[np.flatnonzero(starts)[np.cumsum(starts) - 1]]
    return first


def merged(job: CostedJob, first: Int64s, factor: float | Float64s) -> CostedJob:
    """Runs as one kernel each; those of one kernel stay as they are.

    Args:
        job: the graph.
        first: int64[nodes], as `first_of_runs` gives them.
        factor: of the summed durations, for all runs or float64[nodes] by first kernel.
    """
    graph = job.graph
    is_gone = first != np.arange(graph.num_nodes)
    has_run = np.zeros(graph.num_nodes, np.bool_)
    has_run[first[is_gone]] = True
    share: Float64s = np.where(has_run, factor, 1.0)

    def summed(column: Float64s) -> Float64s:
        total = np.bincount(first, column, graph.num_nodes).astype(np.float64)
        return total * share

    source = job.source.copy()
    np.maximum.at(source, first, job.source)  # a run is as sure as what is least sure in it
    taken_ns = np.bincount(first, job.duration_ns, graph.num_nodes)
    alone_ns = np.bincount(first, job.duration_ns / graph.inflation, graph.num_nodes)
    inflation = np.where(has_run & (alone_ns > 0), taken_ns / np.maximum(alone_ns, 1e-9), 1.0)
    measured_ns = np.bincount(first, graph.measured_ns, graph.num_nodes)
    larger = replace(
        graph,
        measured_ns=np.rint(measured_ns).astype(np.int64),
        inflation=np.where(has_run, inflation, graph.inflation).astype(np.float32),
    )
    job = replace(
        job,
        arranged=replace(job.arranged, graph=larger),
        duration_ns=summed(job.duration_ns),
        low_ns=summed(job.low_ns),
        high_ns=summed(job.high_ns),
        source=source,
    )
    return without_nodes(job, _without_launches(graph, first, is_gone))


def _ties(graph: ExecutionGraph) -> tuple[Bools, Bools]:
    """Nodes that wait for more than launch and stream; nodes that more waits for than these."""
    waits, is_awaited = np.zeros((2, graph.num_nodes), np.bool_)
    waits[graph.edge_target[~np.isin(graph.edge_kind, _OF_LAUNCH)]] = True
    is_awaited[graph.predecessor[~np.isin(graph.edge_kind, _OF_QUEUE)]] = True
    return waits, is_awaited


def _without_launches(graph: ExecutionGraph, first: Int64s, is_gone: Bools) -> Int64s:
    """Stand-ins for kernels that went and, on the host, for calls that launched only these.

    The time right before such a call, in which its operator was dispatched, goes too.
    """
    into = first.copy()
    launch = launches(graph)
    launched = launch >= 0
    num_kernels = np.bincount(launch[launched], minlength=graph.num_nodes)
    num_gone = np.bincount(launch[launched & is_gone], minlength=graph.num_nodes)
    before = previous_on_host(graph)
    calls = np.flatnonzero((num_gone > 0) & (num_gone == num_kernels) & (before >= 0))
    segment = before[calls]
    has_segment = (graph.kind[segment] == NodeKind.HOST_SEGMENT) & (before[segment] >= 0)
    ahead = np.where(has_segment, before[segment], segment)
    is_inside = graph.kind[ahead] != NodeKind.RANK_START
    into[calls[is_inside]] = segment[is_inside]
    segments = has_segment & is_inside
    into[segment[segments]] = ahead[segments]
    return into


@dataclass(frozen=True)
class CudaGraphs(WorkEdit):
    """The launches of selected work cost the host nothing.

    Of each run of them without another launch or a wait between, the first stays: it launches
    the graph, in which a kernel follows the next in less time than on a stream.
    """

    of: Selection = field(default=Selection())

    CUDA_GRAPHS = Key(
        "cuda_graphs",
        Holds.NAMES,
        "Work whose launches cost nothing: all.",
        "true, or the work that is launched so",
        "WORK",
    )
    KEYS = (CUDA_GRAPHS,)
    TURNS = (EditTurn.GRAPHS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[CudaGraphs]:
        """One for each work."""
        for work in stated.names(cls.CUDA_GRAPHS):
            yield cls(selection_of(work))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`all work launched as CUDA graphs`; what it cannot know."""
        return f"{self.of} launched as CUDA graphs (if it can be captured: shapes stay the same)"

    def check(self, job: CostedJob) -> None:
        """Some selected launch must follow another."""
        check_device(job.graph, "launched as graphs")
        selected(job.graph, self.of)
        if not self._spared(job.graph).any():
            raise ScenarioError(
                f"{str(self.of)!r} selects no two launches that follow each other: between them a "
                "thread launches other work, waits, or ends its step, so that no graph saves any. "
                "Select what is launched between them too."
            )

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Host time from each run's first launch to its last is gone; hand-overs are a graph's."""
        spared, graph = self._spared(job.graph), job.graph
        launch = launches(graph)
        is_inside = (launch >= 0) & spared[np.maximum(launch, 0)]
        handed = (graph.edge_kind == EdgeKind.STREAM) & is_inside[graph.edge_target]
        graph = _handed_over(graph, handed)
        return replace(job, arranged=replace(job.arranged, graph=graph)).lasting(spared, 0.0)

    def _spared(self, graph: ExecutionGraph) -> Bools:
        launched = _graphed_launches(graph, fitting(graph, self.of))
        return host_runs(graph, launched, graph.is_of(*_PASSED)).is_between


def _handed_over(graph: ExecutionGraph, handed: Bools) -> ExecutionGraph:
    """Chosen edges as those within a CUDA graph, whose lag is the recorded one's, else known."""
    known = {one.kind: one for one in graph.constants}
    stream_ns = known[EdgeKind.STREAM].lag_ns if EdgeKind.STREAM in known else 0
    lag_ns = min(stream_ns, DEFAULT_NS[EdgeKind.GRAPH])
    constant = known.get(EdgeKind.GRAPH)
    if constant is None or not constant.num_samples:
        constant = EdgeConstant(EdgeKind.GRAPH, lag_ns, 0, lag_ns, lag_ns)
    was_graph = graph.edge_kind == EdgeKind.GRAPH
    return replace(
        graph,
        edge_kind=np.where(handed, np.uint8(EdgeKind.GRAPH), graph.edge_kind),
        lag_ns=np.where(handed | was_graph, np.int32(constant.lag_ns), graph.lag_ns),
        constants=tuple((known | {EdgeKind.GRAPH: constant}).values()),
    )


def _graphed_launches(graph: ExecutionGraph, chosen: Bools) -> Bools:
    """Calls all of whose operations are chosen; bool[nodes]."""
    launch = launches(graph)
    launched = (launch >= 0) & (graph.kind != NodeKind.ARRIVE)
    num_operations = np.bincount(launch[launched], minlength=graph.num_nodes)
    num_chosen = np.bincount(launch[launched & chosen], minlength=graph.num_nodes)
    is_graphed: Bools = (graph.kind == NodeKind.LAUNCH) & (num_chosen > 0)
    is_graphed &= num_chosen == num_operations
    return is_graphed
