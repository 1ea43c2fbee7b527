"""Batches that workers load: what a step still spends on them."""

from __future__ import annotations

import json

import pytest

from foretrace.base import ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase
from foretrace.whatif import DataLoading
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.edits.changed import changed
from tests.graphs import Block, Edge, GraphBuilder
from tests.whatif.edits.jobs import measured_costs

LOADING = Block(Part.DATA, Phase.DATA)
LOADING_NS = 50_000_000
IMAGES = [32, 3, 224, 224]  # of fp32: 19.3 MB
NUM_BYTES = 32 * 3 * 224 * 224 * 4
COPY_NS = 2_000_000


def shapes(*dims: object) -> str:
    return json.dumps({"dims": dims, "types": ["float" for _ in dims]})


def job(*, copies: str = "") -> ExecutionGraph:
    """One step that loads images itself: on the host, or copied to a device too."""
    build = GraphBuilder()
    host = build.add(NodeKind.RANK_START)
    host = build.add(NodeKind.STEP_BEGIN, after=[host], step="1")
    host = build.add(
        NodeKind.OPERATOR if not copies else NodeKind.HOST_SEGMENT,
        name="aten::stack",
        operator="aten::stack",
        shapes=shapes([IMAGES[1:]] * IMAGES[0]),
        takes_ns=LOADING_NS,
        after=[host],
        step="1",
        block=LOADING,
    )
    if copies:
        host = build.add(NodeKind.LAUNCH, name="cudaMemcpyAsync", after=[host], step="1")
        build.add(
            NodeKind.MEMCPY,
            lane="stream 7",
            name=copies,
            operator="aten::copy_",
            shapes=shapes(IMAGES, IMAGES),
            takes_ns=COPY_NS,
            after=[Edge(host, EdgeKind.LAUNCH)],
            step="1",
        )
    build.add(NodeKind.STEP_END, after=[host], step="1")
    return build.graph()


def lengths(graph: ExecutionGraph, kind: NodeKind, **stated: object) -> list[int]:
    edit = DataLoading(by_workers=True, **stated)  # type: ignore[arg-type]
    _, costs = changed(unchanged(graph), measured_costs(graph), [edit])
    return sorted(int(ns) for ns in costs.duration_ns[graph.kind == kind])


def test_what_is_left_on_the_host_grows_with_the_batch() -> None:
    (left_ns,) = lengths(job(), NodeKind.OPERATOR)

    # Measured at this size: 6.22 ms to take it over, 1.80 to touch it first.
    assert left_ns == pytest.approx(8_020_000, rel=0.1)


@pytest.mark.parametrize(
    ("name", "host_ns", "copy_ns"),
    [
        ("Memcpy HtoD (Pageable -> Device)", 6_220_000, COPY_NS + 1_800_000),
        ("Memcpy HtoD (Pinned -> Device)", 8_020_000, COPY_NS),
    ],
)
def test_a_copy_of_pageable_memory_touches_the_batch_first(
    name: str, host_ns: int, copy_ns: int
) -> None:
    graph = job(copies=name)

    assert lengths(graph, NodeKind.HOST_SEGMENT)[-1] == pytest.approx(host_ns, rel=0.1)
    assert lengths(graph, NodeKind.MEMCPY) == pytest.approx([copy_ns], rel=0.1)


def test_workers_never_make_loading_longer() -> None:
    graph = job()
    short = DataLoading(duration_ns=1_000)

    _, costs = changed(
        unchanged(graph), measured_costs(graph), [short, DataLoading(by_workers=True)]
    )

    assert costs.duration_ns[graph.kind == NodeKind.OPERATOR].tolist() == [1_000]


def test_workers_and_a_length_are_refused_together() -> None:
    with pytest.raises(ScenarioError, match="state no length"):
        DataLoading(5, by_workers=True)
