"""What is left of fused work, against traffic that is worked out by hand."""

from __future__ import annotations

import json

import pytest

from foretrace.analyze import Selection, selection_of
from foretrace.graph import ExecutionGraph, NodeKind, Part, Phase
from foretrace.whatif.edits.fused_traffic import fused_share
from tests.graphs import Block, GraphBuilder

ELEMENTS = 1 << 20
NS_PER_TENSOR = 1_000_000  # that one tensor of fp32 takes to be read or written
ELEMENTWISE = selection_of("elementwise")


def shapes(num_tensors: int, scale: int = 1) -> str:
    dims, types = [[ELEMENTS * scale]] * num_tensors, ["float"] * num_tensors
    return json.dumps({"dims": dims, "types": types, "inputs": [""] * num_tensors})


def chain(
    *rows: tuple[str, int, int],
    block: Block | None = None,
    within: str = "",
    scales: tuple[int, ...] = (),
) -> ExecutionGraph:
    """Operators one after the other: name, tensors it reads, time in tensors moved."""
    build = GraphBuilder()
    node = build.add(NodeKind.RANK_START)
    place = block or Block(Part.LAYER, Phase.FORWARD, 0, 0)
    for at, (name, num_tensors, takes) in enumerate(rows):
        node = build.add(
            NodeKind.HOST_SEGMENT, operator=within, takes_ns=100, after=[node], block=place
        )
        node = build.add(
            NodeKind.OPERATOR,
            name=name,
            operator=name,
            shapes=shapes(num_tensors, scales[at] if scales else 1) if num_tensors else "",
            takes_ns=takes * NS_PER_TENSOR,
            after=[node],
            block=place,
        )
    return build.graph()


def test_a_chain_of_unary_operators_is_read_once_and_written_once() -> None:
    graph = chain(("aten::exp", 1, 2), ("aten::neg", 1, 2), ("aten::abs", 1, 2))

    assert fused_share(graph, ELEMENTWISE) == pytest.approx(2 / 6)


def test_arithmetic_that_memory_does_not_hide_stays() -> None:
    graph = chain(("aten::exp", 1, 8), ("aten::neg", 1, 2), ("aten::abs", 1, 2))

    # 12 in all: apart 2 of traffic and 6 of arithmetic, together 12 x 2 / 6.
    assert fused_share(graph, ELEMENTWISE) == pytest.approx((8 * 4) ** 0.5 / 12)


def test_memory_that_large_results_fetch_anew_is_no_arithmetic() -> None:
    rows = (("aten::sqrt", 1, 16), ("aten::neg", 1, 4), ("aten::abs", 1, 4))
    graph = chain(*rows, ("aten::sqrt", 1, 4), scales=(2, 2, 2, 2))
    odd = chain(*rows, ("aten::sqrt", 1, 2), scales=(2, 2, 2, 1))

    # Two calls of one size take what the quicker does, 16 in all. Of two sizes, what the larger
    # takes more for each byte is no arithmetic. Either way 4 are left: in and out once.
    assert fused_share(graph, ELEMENTWISE) == pytest.approx(4 / 16)
    assert fused_share(odd, ELEMENTWISE) == pytest.approx(4 / 26)


def test_further_operands_may_have_to_be_read() -> None:
    graph = chain(("aten::mul", 2, 3), ("aten::add", 2, 3))

    # 2 tensors at least, 4 at most, of 6.
    assert fused_share(graph, ELEMENTWISE) == pytest.approx((2 * 4) ** 0.5 / 6)


def test_an_update_moves_what_the_optimizer_keeps() -> None:
    block = Block(Part.OPTIMIZER, Phase.OPTIMIZER)
    rows = (
        ("aten::mul_", 1, 2),
        ("aten::lerp_", 2, 3),
        ("aten::mul_", 1, 2),
        ("aten::addcmul_", 3, 4),
        ("aten::sqrt", 1, 2),
        ("aten::div", 1, 2),
        ("aten::add_", 1, 2),
        ("aten::addcdiv_", 3, 4),
    )
    graph = chain(*rows, block=block, within="Optimizer.step#AdamW.step")

    share = fused_share(graph, selection_of("phase:optimizer"))

    assert share == pytest.approx(7 / 21)


@pytest.mark.parametrize("of", [ELEMENTWISE, Selection(named="gemm")], ids=["no shapes", "none"])
def test_where_shapes_tell_nothing_all_of_it_is_left(of: Selection) -> None:
    assert fused_share(chain(("aten::exp", 0, 2), ("aten::neg", 0, 2)), of) == 1
