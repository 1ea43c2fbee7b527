from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, Part, Phase
from foretrace.graph import NodeKind as Kind
from foretrace.whatif import Selection
from foretrace.whatif.edits.selection import nearest, selected
from tests.graphs import Block, Edge, GraphBuilder


def two_ranks() -> ExecutionGraph:
    """Nodes 0 to 4 of each rank: start, time, launch, product; then an all-reduce."""
    build = GraphBuilder()
    kernels = {}
    for rank in (0, 1):
        block = Block(Part.LAYER, Phase.FORWARD, rank, 0)
        start = build.add(Kind.RANK_START, rank=rank)
        time = build.add(Kind.HOST_SEGMENT, rank=rank, takes_ns=5, after=[start], block=block)
        launch = build.add(Kind.LAUNCH, rank=rank, takes_ns=1, after=[time], block=block)
        kernels[rank] = build.add(
            Kind.KERNEL,
            rank=rank,
            lane="stream 7",
            name="Ampere_sgemm_nn",
            takes_ns=9,
            operator="aten::mm",
            after=[Edge(launch, EdgeKind.LAUNCH)],
            block=block,
        )
    build.collective(
        {rank: [Edge(node, EdgeKind.INTER_STREAM)] for rank, node in kernels.items()},
        transfer_ns=4,
        name="allreduce",
    )
    return build.graph((EdgeKind.LAUNCH, 0), (EdgeKind.INTER_STREAM, 0))


def on_the_host() -> ExecutionGraph:
    """One rank without a device: a product inside a linear layer, and time after it."""
    build = GraphBuilder()
    start = build.add(Kind.RANK_START)
    product = build.add(
        Kind.OPERATOR, name="aten::mm", operator="aten::linear", takes_ns=9, after=[start]
    )
    build.add(Kind.HOST_SEGMENT, takes_ns=3, after=[product])
    return build.graph()


@pytest.mark.parametrize(
    ("selection", "nodes"),
    [
        (Selection(), [3, 7]),
        (Selection(family="gemm"), [3, 7]),
        (Selection(family="GEMM", ranks=(1,)), [7]),
        (Selection(kernels="ampere_*"), [3, 7]),
        (Selection(operators="aten::m?"), [3, 7]),
        (Selection(layers=(1, 5)), [7]),
        (Selection(part=Part.LAYER, phase=Phase.FORWARD), [3, 7]),
        (Selection(family="allreduce"), [11, 12]),
        (Selection(family="collective", ranks=(0,)), [11]),
        (Selection(kernels="allreduce"), [11, 12]),
        (Selection(ranks=(0,), with_host=True), [1, 2, 3]),
    ],
    ids=str,
)
def test_a_selection_names_the_nodes_that_fit_all_it_states(
    selection: Selection, nodes: list[int]
) -> None:
    assert np.flatnonzero(selected(two_ranks(), selection)).tolist() == nodes


@pytest.mark.parametrize(
    ("selection", "nodes"),
    [
        (Selection(), [1]),
        (Selection(family="gemm"), [1]),
        (Selection(kernels="aten::mm"), [1]),
        (Selection(operators="aten::mm"), [1]),
        (Selection(with_host=True), [1, 2]),
    ],
    ids=str,
)
def test_operators_are_the_work_of_a_host_that_computes(
    selection: Selection, nodes: list[int]
) -> None:
    assert np.flatnonzero(selected(on_the_host(), selection)).tolist() == nodes


def test_a_recording_without_blocks_says_that_none_are_known() -> None:
    with pytest.raises(ScenarioError, match="no layer here is 3: none is known"):
        selected(on_the_host(), Selection(layers=(3,)))


def test_a_job_without_work_says_so() -> None:
    build = GraphBuilder()
    build.add(Kind.RANK_START)

    with pytest.raises(ScenarioError, match="selects nothing: the recording holds no kernels"):
        selected(build.graph(), Selection())


def test_what_is_near_stands_first_and_long_names_are_cut() -> None:
    have = ["copy", "elementwise", "gemm", "k" * 100, "norm", "softmax", "sort"]

    assert nearest("gem", have).startswith("there are 'gemm', ")
    assert nearest("gem", have).endswith("and 2 more")
    assert f"'{'k' * 57}...'" in nearest("kk", have)
    assert nearest("gem", []) == "none is known"


def test_a_selection_reads_as_words() -> None:
    selection = Selection(family="gemm", part=Part.LAYER, layers=(3, 4), phase=Phase.FORWARD)

    assert str(selection) == "gemm layer layers 3,4 forward"
    assert str(Selection()) == "all work"
