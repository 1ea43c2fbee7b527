from __future__ import annotations

import numpy as np
import pytest

from foretrace.analyze import Selection, WorkKind, nearest, selected, selection_of
from foretrace.base import ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, Part, Phase
from foretrace.graph import NodeKind as Kind
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
        (Selection(named="gemm"), [3, 7]),
        (Selection(named="GEMM", ranks=(1,)), [7]),
        (Selection(kernels="ampere_*"), [3, 7]),
        (Selection(operators="aten::m?"), [3, 7]),
        (Selection(layers=(1, 5)), [7]),
        (Selection(parts=(Part.LAYER,), phases=(Phase.FORWARD,)), [3, 7]),
        (Selection(named="allreduce"), [11, 12]),
        (Selection(works=(WorkKind.COMMUNICATION,), ranks=(0,)), [11]),
        (Selection(kernels="allreduce"), [11, 12]),
        (Selection(ranks=(0,), works=(WorkKind.COMPUTE, WorkKind.HOST)), [1, 2, 3]),
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
        (Selection(named="gemm"), [1]),
        (Selection(kernels="aten::mm"), [1]),
        (Selection(operators="aten::mm"), [1]),
        (Selection(works=(WorkKind.COMPUTE, WorkKind.HOST)), [1, 2]),
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
    selection = Selection(named="gemm", parts=(Part.LAYER,), layers=(3, 4), phases=(Phase.FORWARD,))

    assert str(selection) == "gemm layer layers 3,4 forward"
    assert str(Selection()) == "all work"


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("all", Selection()),
        ("gemm", Selection(named="gemm")),
        ("flash attention", Selection(named="flash attention")),
        ("class:launch", Selection(of_class="launch")),
        ('gemm|"flash attention"', Selection(named="gemm|flash attention")),
        ('"kernel of aten::mm"', Selection(named="kernel of aten::mm")),
        ('kernels:"void f<4, float>(int, T=3)"', Selection(kernels="void f<4, float>(int, T=3)")),
        ("host", Selection(works=(WorkKind.HOST,))),
        ("edges:wake", Selection(edges="wake")),
        ("phase:forward|backward", Selection(phases=(Phase.FORWARD, Phase.BACKWARD))),
        ("kernels:*flash*", Selection(kernels="*flash*")),
        ("operators:aten::addmm", Selection(operators="aten::addmm")),
        ("operator:aten::addmm rank:3", Selection(operators="aten::addmm", ranks=(3,))),
        (
            "gemm layers:0-2,7 phase:forward part:layer",
            Selection(
                named="gemm", layers=(0, 1, 2, 7), phases=(Phase.FORWARD,), parts=(Part.LAYER,)
            ),
        ),
        ("compute|host ranks:1", Selection(ranks=(1,), works=(WorkKind.COMPUTE, WorkKind.HOST))),
    ],
)
def test_work_is_named_in_words(text: str, selection: Selection) -> None:
    assert selection_of(text) == selection
    assert selection_of(selection.written) == selection


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no work"),
        ("aten::addmm", "an operator is 'operators:aten::addmm'"),
        ("layres:3", "did you mean 'layers'"),
        ("layers:3-1", "are no numbers"),
        ("layers:1-99999999", "are no numbers"),
        ("ranks:x", "write them as in 0,4-7"),
        ("phase:forwards", "did you mean 'forward'"),
        ("part:wheel", "expected one of data, embedding, layer"),
        ("kernels:", "a selection names nothing"),
        ("rank:1 ranks:2", "states ranks twice"),
        ("host compute", "states works twice"),
        ("gemm|", "names nothing in 'gemm|'"),
        ('kernels:"void f', "between double quotes"),
    ],
)
def test_words_that_mean_nothing_are_refused(text: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        selection_of(text)
