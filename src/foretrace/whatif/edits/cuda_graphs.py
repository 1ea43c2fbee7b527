"""`CudaGraphs`: the host does nothing between the first and the last launch of selected work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import Selection, fitting, selected, selection_of
from foretrace.base import Bools, ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.whatif.edits.costed import CostedJob, check_device, launches
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit
from foretrace.whatif.edits.host_runs import host_runs

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

# From one kernel to the next of a graph: the median of 1,059 on an H200 (CUDA 13.0), of which the
# middle 80 % are 383 to 576 ns (examples/h200, `small-graph`).
HAND_OVER_NS = 416
_PASSED = (NodeKind.HOST_SEGMENT, NodeKind.CALL)  # recorded into the graph, or not done at all


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
        lag_ns = np.where(handed, np.minimum(graph.lag_ns, HAND_OVER_NS), graph.lag_ns)
        graph = replace(graph, lag_ns=lag_ns.astype(graph.lag_ns.dtype))
        return replace(job, arranged=replace(job.arranged, graph=graph)).lasting(spared, 0.0)

    def _spared(self, graph: ExecutionGraph) -> Bools:
        launched = _graphed_launches(graph, fitting(graph, self.of))
        return host_runs(graph, launched, graph.is_of(*_PASSED)).is_between


def _graphed_launches(graph: ExecutionGraph, chosen: Bools) -> Bools:
    """Calls all of whose operations are chosen; bool[nodes]."""
    launch = launches(graph)
    launched = (launch >= 0) & (graph.kind != NodeKind.ARRIVE)
    num_operations = np.bincount(launch[launched], minlength=graph.num_nodes)
    num_chosen = np.bincount(launch[launched & chosen], minlength=graph.num_nodes)
    is_graphed: Bools = (graph.kind == NodeKind.LAUNCH) & (num_chosen > 0)
    is_graphed &= num_chosen == num_operations
    return is_graphed
