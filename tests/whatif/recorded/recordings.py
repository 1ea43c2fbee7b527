"""Recordings whose plan is known: of generated jobs' files, and of laid-out models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import DEVICE_KINDS, EdgeKind, ExecutionGraph, NodeKind, Part, Phase, Recording
from foretrace.simulate import simulate
from foretrace.whatif.recorded.program import RecordedPiece, pieces_of
from foretrace.workload import Plan, blocks_of_model, layout
from tests.acceptance.recovery import recording_of_job
from tests.models import transformer
from tests.truth import JobConfig, make_job

_LEFT_OUT = (NodeKind.HUB, NodeKind.GHOST)
# What the order has to keep. An inferred edge between streams may be wrong about it.
_KEPT = (
    EdgeKind.HOST_ORDER,
    EdgeKind.THREAD,
    EdgeKind.LAUNCH,
    EdgeKind.ISSUE,
    EdgeKind.QUEUE,
    EdgeKind.WAKE,
)
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
    model = transformer(model_name)
    model = replace(model, num_layers=num_layers)
    graph = layout(blocks_of_model(model, plan), plan, folded=False).graph
    is_working = graph.is_of(*_WORKING)
    measured_ns = np.where(is_working, 1_000, graph.measured_ns)
    return recording_of_graph(replace(graph, measured_ns=measured_ns))


def of_layers(recording: Recording) -> Recording:
    """The same with what gathers parameters in the forward pass taken for part of the layers."""
    graph = recording.graph
    is_moved: Bools = (graph.part == Part.BUCKET) & (graph.phase == Phase.FORWARD)
    part = np.where(is_moved, Part.LAYER, graph.part).astype(graph.part.dtype)
    return replace(recording, graph=replace(graph, part=part))


def places(recording: Recording, pieces: Sequence[RecordedPiece]) -> Int64s:
    """Place of each node in the order of all pieces; -1 of others."""
    nodes = np.concatenate([piece.nodes for piece in pieces])
    found = np.full(recording.graph.num_nodes, -1, np.int64)
    found[nodes] = np.arange(len(nodes))
    return found


def check_pieces(recording: Recording) -> None:
    """All that is true of the pieces of any recording."""
    graph = recording.graph
    by_rank = pieces_of(recording)
    pieces = [piece for own in by_rank.values() for piece in own]
    nodes = np.concatenate([piece.nodes for piece in pieces])
    assert sorted(nodes.tolist()) == np.flatnonzero(~graph.is_of(*_LEFT_OUT)).tolist()
    assert all((graph.rank[piece.nodes] == piece.rank).all() for piece in pieces)
    place, target = places(recording, pieces), graph.edge_target
    is_kept = np.isin(graph.edge_kind, _KEPT)
    assert (place[graph.predecessor[is_kept]] < place[target[is_kept]]).all()
    arrive, finish = nodes_of(graph, NodeKind.ARRIVE), nodes_of(graph, NodeKind.FINISH)
    assert (place[finish] == place[arrive] + 1).all()


def nodes_of(graph: ExecutionGraph, kind: NodeKind) -> Int64s:
    """Of that kind, in order of collective and rank."""
    nodes = graph.nodes_of(kind)
    return nodes[np.lexsort((graph.lane[nodes], graph.rank[nodes], graph.collective[nodes]))]
