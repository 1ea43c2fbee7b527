"""Generated jobs, their recordings, and what changes make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from foretrace.base import Int64s
from foretrace.cost import Costs, Source
from foretrace.graph import NO_LAYER, NO_MICROBATCH, ExecutionGraph, verify
from foretrace.simulate import simulate
from foretrace.whatif import WorkEdit
from foretrace.whatif.arrange.arranged import Arranged, unchanged
from foretrace.whatif.edits.changed import changed
from tests.acceptance.recovery import Recovered, recording_of_job
from tests.truth import (
    NO_OVERHEADS,
    Change,
    Job,
    JobConfig,
    Overheads,
    acceptance_config,
    make_job,
    quiet,
)
from tests.truth.small import Instruction, small_job


@dataclass(frozen=True)
class Made:
    """A job after changes."""

    arranged: Arranged
    costs: Costs
    step_ns: Int64s  # int64[ranks, steps]


def measured_costs(graph: ExecutionGraph) -> Costs:
    """Every node as it was recorded."""
    return Costs(
        duration_ns=graph.measured_ns,
        low_ns=graph.measured_ns,
        high_ns=graph.measured_ns,
        source=np.full(graph.num_nodes, Source.MEASURED, np.uint8),
        family=np.zeros(graph.num_nodes, np.int32),
        families=("recorded",),
    )


@cache
def recovered(config: JobConfig) -> Recovered:
    """A job and the recording that its files give."""
    job = make_job(config)
    return Recovered(job, recording_of_job(job))


def of_eight(*changes: Change) -> Job:
    """The job of the acceptance tests on eight ranks, or the same job changed."""
    return recovered(eight()).job.after(*changes) if changes else recovered(eight()).job


def eight() -> JobConfig:
    """Two steps of it."""
    return replace(acceptance_config(8), num_steps=2)


# Calls that take no time at all would begin together, and nothing would tell their order.
BRIEF = replace(
    NO_OVERHEADS,
    segment_ns=2_000,
    short_segment_ns=100,
    launch_call_ns=1_000,
    small_call_ns=100,
    sync_call_ns=100,
)


def small(
    program: Sequence[Instruction], *, overheads: Overheads = BRIEF, num_steps: int = 1
) -> ExecutionGraph:
    """The graph of one rank that runs these instructions, in one block each step.

    Kernels that repeat would be found to be layers.
    """
    config = replace(
        quiet(JobConfig(num_steps=num_steps, noise=False, host_ops_per_kernel=0)),
        overheads=overheads,
    )
    graph = recording_of_job(small_job([program], config)).graph
    return replace(
        graph,
        part=np.zeros_like(graph.part),
        phase=np.zeros_like(graph.phase),
        layer=np.full_like(graph.layer, NO_LAYER),
        microbatch=np.full_like(graph.microbatch, NO_MICROBATCH),
    )


def made(of: Recovered, *changes: WorkEdit) -> Made:
    """What changes make of a recording; the graph obeys its spec."""
    graph = of.graph
    arranged, costs = changed(unchanged(graph), measured_costs(graph), changes)
    verify(arranged.graph)
    return Made(arranged, costs, of.step_ns(simulate(arranged.graph, costs.duration_ns)))
