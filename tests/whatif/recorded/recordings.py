"""Recordings whose plan is known: of generated jobs' files, and of laid-out models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from foretrace.base import Bools
from foretrace.graph import DEVICE_KINDS, ExecutionGraph, NodeKind, Part, Phase, Recording
from foretrace.simulate import simulate
from foretrace.workload import Plan, blocks_of_model, layout, load_model
from tests.acceptance.recovery import recording_of_job
from tests.truth import JobConfig, make_job

_WORKING = (*DEVICE_KINDS, NodeKind.FINISH)


@cache
def recording_of(config: JobConfig) -> Recording:
    """What the files of a generated job give."""
    return recording_of_job(make_job(config))


def recording_of_graph(graph: ExecutionGraph) -> Recording:
    """A graph as if its simulation had been recorded."""
    timeline = simulate(graph)
    return Recording(
        graph=graph,
        measured=replace(timeline, is_measured=True),
        recorded_ns=graph.measured_ns,
        clocks=(),
        findings=(),
        unprofiled_step_ns={},
    )


@cache
def laid_out(plan: Plan, model_name: str = "llama3.2-1b", num_layers: int = 4) -> Recording:
    """All ranks of a small model under a plan, every device operation of one microsecond."""
    model = replace(load_model(model_name), num_layers=num_layers)
    graph = layout(blocks_of_model(model, plan), plan, folded=False).graph
    is_working = np.isin(graph.kind, _WORKING)
    measured_ns = np.where(is_working, 1_000, graph.measured_ns)
    return recording_of_graph(replace(graph, measured_ns=measured_ns))


def of_layers(recording: Recording) -> Recording:
    """The same with what gathers parameters in the forward pass taken for part of the layers."""
    graph = recording.graph
    is_moved: Bools = (graph.part == Part.BUCKET) & (graph.phase == Phase.FORWARD)
    part = np.where(is_moved, Part.LAYER, graph.part).astype(graph.part.dtype)
    return replace(recording, graph=replace(graph, part=part))


