"""Attention of the other kind: which kernels it replaces, and by what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foretrace
from foretrace.analyze import Selection
from foretrace.base import ScenarioError
from foretrace.cost import (
    CollectiveRequests,
    Costs,
    KernelRequests,
    Source,
    operation_of,
    step_costs,
)
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase, verify
from foretrace.machine import load_machine
from foretrace.simulate import simulate
from foretrace.whatif import Attention
from foretrace.whatif.arrange.arranged import Arranged, unchanged
from foretrace.whatif.edits.changed import changed
from tests.graphs import Block, Edge, GraphBuilder
from tests.whatif.edits.jobs import measured_costs

HALF = "c10::Half"
BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 8, 256, 128, 64


def shapes(*dims: tuple[int, ...], values: tuple[str, ...] = ()) -> str:
    return json.dumps(
        {
            "dims": [*(list(one) for one in dims), *([] for _ in values)],
            "types": [*(HALF for _ in dims), *("Scalar" for _ in values)],
            "inputs": [*("" for _ in dims), *values],
        }
    )


def product(batch: int, m: int, n: int, k: int) -> tuple[str, str, str]:
    return "ampere_fp16_gemm", "aten::bmm", shapes((batch, m, k), (batch, k, n))


SCORES = (BATCH * HEADS, QUERIES, KEYS)
PLAIN_FORWARD = [
    product(BATCH * HEADS, QUERIES, KEYS, WIDTH),
    ("vectorized_elementwise_kernel", "aten::mul", shapes(SCORES)),
    ("softmax_warp_forward", "aten::_softmax", shapes((BATCH, HEADS, QUERIES, KEYS))),
    product(BATCH * HEADS, QUERIES, WIDTH, KEYS),
]
PLAIN_BACKWARD = [
    product(BATCH * HEADS, KEYS, WIDTH, QUERIES),
    product(BATCH * HEADS, QUERIES, KEYS, WIDTH),
    (
        "softmax_warp_backward",
        "aten::_softmax_backward_data",
        shapes((BATCH, HEADS, QUERIES, KEYS), (BATCH, HEADS, QUERIES, KEYS)),
    ),
    product(BATCH * HEADS, QUERIES, WIDTH, KEYS),
    product(BATCH * HEADS, KEYS, WIDTH, QUERIES),
]
QUERY, KEY = (BATCH, QUERIES, HEADS, WIDTH), (BATCH, KEYS, HEADS, WIDTH)
FUSED_FORWARD = [
    ("flash_fwd_kernel", "aten::_flash_attention_forward", shapes(QUERY, KEY, KEY)),
]
FUSED_BACKWARD = [
    ("flash_bwd_dot_do_o_kernel", "aten::copy_", ""),
    ("flash_bwd_dq_dk_dv_loop_kernel", "aten::copy_", ""),
]
OTHER = ("ampere_fp16_gemm", "aten::mm", shapes((512, 512), (512, 512)))


class AsManyAsRows:
    """Costs each kernel with 1 us for each of its kind's letters; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        rows = zip(requests.operator.tolist(), requests.signature.tolist(), strict=True)
        found = []
        for operator, signature in rows:
            name = requests.operators[operator]
            found.append(1_000 * len(name))
            operation = operation_of(name, requests.signatures[signature])
            self.asked.append((operation.model, operation.sizes))
        duration_ns = np.array(found, np.int64)
        return Costs(
            duration_ns=duration_ns,
            low_ns=duration_ns // 2,
            high_ns=duration_ns * 2,
            source=np.full(len(found), Source.FITTED, np.uint8),
            family=np.zeros(len(found), np.int32),
            families=("made up",),
        )

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        raise AssertionError(requests)


def a_layer(*rows: list[tuple[str, str, str]]) -> ExecutionGraph:
    """One layer's kernels on a stream, forward and backward, each launched and in order."""
    build = GraphBuilder()
    host = build.add(NodeKind.RANK_START)
    kernel = -1
    for phase, kernels in zip((Phase.FORWARD, Phase.BACKWARD), rows, strict=False):
        block = Block(Part.LAYER, phase, 0, 0)
        for name, operator, signature in [OTHER, *kernels, OTHER]:
            segment = build.add(NodeKind.HOST_SEGMENT, takes_ns=1, after=[host], block=block)
            host = build.add(NodeKind.LAUNCH, takes_ns=1, after=[segment], block=block)
            after = [Edge(host, EdgeKind.LAUNCH)]
            after += [Edge(kernel, EdgeKind.STREAM)] if kernel >= 0 else []
            kernel = build.add(
                NodeKind.KERNEL,
                lane="stream 7",
                name=name,
                operator=operator,
                shapes=signature,
                takes_ns=50_000,
                after=after,
                block=block,
            )
    graph = build.graph((EdgeKind.LAUNCH, 0), (EdgeKind.STREAM, 0))
    verify(graph)
    return graph


def replaced(
    graph: ExecutionGraph, change: Attention, model: AsManyAsRows
) -> tuple[Arranged, Costs]:
    arranged, costs = changed(unchanged(graph), measured_costs(graph), [change], model=model)
    verify(arranged.graph)
    return arranged, costs


def kernels_of(arranged: Arranged) -> list[str]:
    graph = arranged.graph
    return [graph.names[at] for at in graph.name[graph.kind == NodeKind.KERNEL].tolist()]


def test_products_around_a_softmax_become_one_kernel_each_way() -> None:
    graph, model = a_layer(PLAIN_FORWARD, PLAIN_BACKWARD), AsManyAsRows()

    arranged, costs = replaced(graph, Attention(flash=True), model)

    gemm = OTHER[0]
    assert kernels_of(arranged) == [gemm, "fused attention", gemm] * 2
    sizes = (BATCH * HEADS, 1, 1, WIDTH, QUERIES, KEYS, 0)
    assert sorted(model.asked) == [("attention", sizes), ("attention backward", sizes)]
    fused = np.flatnonzero(costs.source == Source.FITTED)
    assert costs.duration_ns[fused].tolist() == [30_000, 31_000]
    assert costs.low_ns[fused].tolist() == [15_000, 15_500]
    launches = int((arranged.graph.kind == NodeKind.LAUNCH).sum())
    assert launches == 6


def test_a_mask_that_shapes_do_not_tell_can_be_stated() -> None:
    model = AsManyAsRows()

    replaced(a_layer(PLAIN_FORWARD), Attention(flash=True, is_causal=True), model)

    assert [sizes[-1] for _, sizes in model.asked] == [1]


def test_fused_kernels_become_products_and_a_softmax() -> None:
    graph, model = a_layer(FUSED_FORWARD, FUSED_BACKWARD), AsManyAsRows()

    arranged, costs = replaced(graph, Attention(flash=False), model)

    batch = BATCH * HEADS
    assert sorted(each for model_of, each in model.asked if model_of == "gemm") == sorted(
        [
            (batch, QUERIES, KEYS, WIDTH),
            (batch, QUERIES, WIDTH, KEYS),
            (batch, KEYS, WIDTH, QUERIES),
            (batch, QUERIES, KEYS, WIDTH),
            (batch, QUERIES, WIDTH, KEYS),
            (batch, KEYS, WIDTH, QUERIES),
        ]
    )
    costed = np.flatnonzero(costs.source == Source.FITTED)
    forward_ns = 2 * 9_000 + 14_000
    backward_ns = 4 * 9_000 + 28_000
    assert costs.duration_ns[costed].tolist() == [forward_ns, backward_ns, 0]
    assert len(kernels_of(arranged)) == len(kernels_of(unchanged(graph)))


def test_at_other_sizes_the_other_kind_grows_as_the_recorded_one_did() -> None:
    graph = a_layer(PLAIN_FORWARD)
    costs = measured_costs(graph)
    grown = replace(costs, duration_ns=3 * costs.duration_ns)

    _, found = changed(unchanged(graph), grown, [Attention(flash=True)], model=AsManyAsRows())

    assert found.duration_ns[found.source == Source.FITTED].tolist() == [3 * 30_000]


def test_only_selected_attention_is_replaced() -> None:
    graph, model = a_layer(PLAIN_FORWARD, PLAIN_BACKWARD), AsManyAsRows()
    change = Attention(flash=True, of=Selection(phases=(Phase.FORWARD,)))

    arranged, _ = replaced(graph, change, model)

    assert kernels_of(arranged).count("fused attention") == 1
    assert "softmax_warp_backward" in kernels_of(arranged)


@pytest.mark.parametrize(
    ("graph", "change", "words"),
    [
        (a_layer(FUSED_FORWARD), Attention(flash=True), "it is fused already"),
        (a_layer(PLAIN_FORWARD), Attention(flash=False), "no fused attention was found"),
        (a_layer([], FUSED_BACKWARD), Attention(flash=False), "were not recorded"),
    ],
    ids=["fused already", "plain already", "no shapes"],
)
def test_what_is_not_there_is_refused(graph: ExecutionGraph, change: Attention, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        replaced(graph, change, AsManyAsRows())

    assert words in str(caught.value)


def test_without_a_model_the_machine_is_asked_for_what_products_would_take() -> None:
    graph = a_layer(FUSED_FORWARD)

    with pytest.raises(ScenarioError, match="state the machine"):
        changed(unchanged(graph), measured_costs(graph), [Attention(flash=False)])


def test_without_a_model_one_kernel_takes_what_products_did_and_part_of_the_softmax() -> None:
    graph = a_layer(PLAIN_FORWARD, PLAIN_BACKWARD)

    arranged, costs = changed(unchanged(graph), measured_costs(graph), [Attention(flash=True)])

    verify(arranged.graph)
    fused = np.flatnonzero(costs.source == Source.SCALED)
    assert kernels_of(arranged) == [OTHER[0], "fused attention", OTHER[0]] * 2
    for node, products_ns in zip(fused.tolist(), (2 * 50_000, 5 * 50_000), strict=True):
        whole_ns = products_ns + 50_000
        assert costs.low_ns[node] == products_ns // 2
        assert costs.duration_ns[node] == round((products_ns * whole_ns) ** 0.5)
        assert costs.high_ns[node] == whole_ns


def on_a_host(rows: list[tuple[str, str, str]]) -> ExecutionGraph:
    """One layer's operators on a thread that computes, with views and host time between."""
    build = GraphBuilder()
    node = build.add(NodeKind.RANK_START)
    block = Block(Part.LAYER, Phase.FORWARD, 0, 0)
    for _, operator, signature in rows:
        for view, takes_ns in (("aten::view", 10), (operator, 50_000)):
            node = build.add(NodeKind.HOST_SEGMENT, takes_ns=100, after=[node], block=block)
            node = build.add(
                NodeKind.OPERATOR,
                name=view,
                operator=view,
                shapes=signature,
                takes_ns=takes_ns,
                after=[node],
                block=block,
            )
    return build.graph()


def test_on_a_host_that_computes_operators_become_one() -> None:
    graph = on_a_host([OTHER, *PLAIN_FORWARD, OTHER])

    arranged, costs = changed(unchanged(graph), measured_costs(graph), [Attention(flash=True)])

    before_ns = simulate(graph, graph.measured_ns).end_ns.max()
    after_ns = simulate(arranged.graph, costs.duration_ns).end_ns.max()
    one_ns = round((100_000 * 150_000) ** 0.5)
    assert before_ns - after_ns == 4 * 50_000 + 3 * (2 * 100 + 10) - one_ns


def test_a_recorded_megatron_step_is_faster_with_fused_attention(data_dir: Path) -> None:
    graph = foretrace.load(data_dir / "traces" / "megatron-tp8").graph
    model = step_costs(load_machine("dgx-a100"))

    arranged, costs = changed(
        unchanged(graph), measured_costs(graph), [Attention(flash=True)], model=model
    )

    verify(arranged.graph)
    fused = np.flatnonzero(costs.source == Source.FITTED)
    # 40 layers on 8 ranks; scores of 32 heads in all, 2048 queries and keys, 64 wide, causal
    assert len(fused) == 8 * 40
    flops = 4 * 32 * 2048 * 2048 * 64 / 2
    rate = flops / costs.duration_ns[fused[0]]  # per ns, 1,000 are 1 TFLOP/s
    assert 60_000 < rate < 312_000
    assert simulate(arranged.graph, costs.duration_ns).end_ns.max() < simulate(graph).end_ns.max()
