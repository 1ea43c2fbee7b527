"""`CudaGraphs`: the host does nothing between the first and the last launch of selected work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import Selection, fitting, selected, selection_of
from foretrace.base import Bools, Int64s, ScenarioError
from foretrace.graph import HOST_KINDS, ExecutionGraph, NodeKind
from foretrace.whatif.edits.costed import CostedJob, check_device, launches
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_PASSED = (NodeKind.HOST_SEGMENT, NodeKind.CALL)  # recorded into the graph, or not done at all
_ON_HOST = (*HOST_KINDS, NodeKind.STEP_BEGIN, NodeKind.STEP_END)


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
        return _between(graph, _graphed_launches(graph, fitting(graph, self.of)))


def _graphed_launches(graph: ExecutionGraph, chosen: Bools) -> Bools:
    """Calls all of whose operations are chosen; bool[nodes]."""
    launch = launches(graph)
    launched = (launch >= 0) & (graph.kind != NodeKind.ARRIVE)
    num_operations = np.bincount(launch[launched], minlength=graph.num_nodes)
    num_chosen = np.bincount(launch[launched & chosen], minlength=graph.num_nodes)
    is_graphed: Bools = (graph.kind == NodeKind.LAUNCH) & (num_chosen > 0)
    is_graphed &= num_chosen == num_operations
    return is_graphed


def _between(graph: ExecutionGraph, is_graphed: Bools) -> Bools:
    """Host nodes after the first and up to the last launch of each run; bool[nodes].

    A run ends at whatever else a thread does: other launches, waits, operators, marks of steps.
    """
    host = graph.nodes_of(*_ON_HOST)
    host = graph.in_lanes(host)
    lane, launched = graph.lane[host], is_graphed[host]
    is_end = ~(graph.is_of(*_PASSED)[host] | launched)
    is_end |= np.append(True, lane[1:] != lane[:-1])[: len(host)]
    run = np.cumsum(is_end) - 1
    seen = _counted(launched, run)
    total = np.bincount(run, launched).astype(np.int64)[run] if len(run) else seen
    gone = np.zeros(graph.num_nodes, np.bool_)
    is_after_first = np.where(launched, seen > 1, seen > 0)
    is_before_last = np.where(launched, True, seen < total)  # noqa: FBT003  a column of flags
    gone[host] = is_after_first & is_before_last
    return gone


def _counted(flags: Bools, run: Int64s) -> Int64s:
    """How many flags of its run stand up to each row, itself included; int64[rows]."""
    number: Int64s = flags.astype(np.int64)
    count: Int64s = np.cumsum(number)
    first = np.searchsorted(run, run)  # first row of each row's run
    counted: Int64s = count - count[first] + number[first]
    return counted
