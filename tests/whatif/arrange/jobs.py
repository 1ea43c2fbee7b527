"""Generated jobs as programs, and graphs as what they hold, whatever their order."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import foretrace as ft
from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import simulate
from foretrace.whatif import Arranged, Program, program_of
from tests.truth import JobConfig, make_job, single_kernel_layer, write

FORWARD_NS, BACKWARD_NS = 1_000_000, 2_000_000


@cache
def program(config: JobConfig) -> Program:
    """A generated job's files, read."""
    with TemporaryDirectory() as folder:
        write(make_job(config), Path(folder))
        return program_of(ft.load(folder, cache=False).recording)


GAPS_NS = 20_000  # what few gaps between kernels may add up to


def plain(*, num_layers: int = 4, num_microbatches: int = 2, pp: int = 1) -> JobConfig:
    """A job bound by its kernels, whose layers are one forward and one backward, in one step."""
    return JobConfig(
        pp=pp,
        num_steps=1,
        num_layers=num_layers,
        num_microbatches=num_microbatches,
        layer=single_kernel_layer(FORWARD_NS, BACKWARD_NS),
        layer_marks="annotations",
        jitter_ns=0,
        start_skew_ns=0,
        data_loading_ns=0,
    )


def total_ns(graph: ExecutionGraph) -> int:
    """Simulated end of the whole job."""
    return int(simulate(graph).end_ns.max())


def recorded_nodes(program: Program, arranged: Arranged) -> Int64s:
    """The recorded node of each node, hubs among them."""
    graph = program.graph
    hubs = graph.nodes_of(NodeKind.HUB)
    hub_of = np.full(len(graph.collectives), -1, np.int64)
    hub_of[graph.collective[hubs]] = hubs
    source = arranged.source.copy()
    is_hub = arranged.graph.kind == NodeKind.HUB
    source[is_hub] = hub_of[arranged.source_collective[arranged.graph.collective[is_hub]]]
    return source


def edges(graph: ExecutionGraph, number: Int64s) -> Counter[tuple[int, int, int]]:
    """Source, target and kind of every edge, nodes called as `number` says."""
    target = graph.edge_target
    columns = number[graph.predecessor], number[target], graph.edge_kind
    return Counter(zip(*(column.tolist() for column in columns), strict=True))
