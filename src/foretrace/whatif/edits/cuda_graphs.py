"""`CudaGraphs`: the host does nothing between the first and the last launch of selected work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import Selection, fitting, selected, selection_of
from foretrace.base import Bools, ScenarioError
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.whatif.edits.costed import CostedJob, check_device, launches
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit
from foretrace.whatif.edits.host_runs import host_runs

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_PASSED = (NodeKind.HOST_SEGMENT, NodeKind.CALL)  # recorded into the graph, or not done at all


@dataclass(frozen=True)
class CudaGraphs(WorkEdit):
    """The launches of selected work cost the host nothing.

    Of each run of them without another launch or a wait between, the first stays: it launches
    the graph.
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
        """Host time from each run's first launch to its last is gone."""
        return job.lasting(self._spared(job.graph), 0.0)

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
