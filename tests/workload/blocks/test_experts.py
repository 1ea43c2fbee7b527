"""Experts: messages, loads, and what runs beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import CollectiveKind, WorkloadError
from foretrace.graph import Phase
from foretrace.operators import parsed_shapes
from foretrace.workload import (
    Convention,
    Copies,
    Dispatch,
    Group,
    Implementation,
    Overlap,
    Passes,
    Plan,
    Precision,
    blocks_of_model,
    flops,
)
from tests.models import transformer
from tests.workload.blocks.counting import (
    exchanges,
    operators,
    parts,
    product_flops,
    volumes,
)

MIXTRAL = transformer("mixtral-8x7b")
DEEPSEEK = transformer("deepseek-v3")
MAVERICK = transformer("llama4-maverick")
PLAN = Plan(sequence=4096)
ALL_TO_ALL = (Group.EXPERT, CollectiveKind.ALL_TO_ALL)


def with_experts(name: str, plan: Plan) -> Passes:
    model = transformer(name)
    blocks = blocks_of_model(model, plan)
    at = next(one.index for one in model.layers if one.has_experts)
    return blocks.layers[at]


@pytest.mark.parametrize("expert", [2, 4, 8])
def test_tokens_go_to_their_experts_and_back_each_way(expert: int) -> None:
    layer = with_experts("mixtral-8x7b", replace(PLAN, expert=expert, data=8))
    one = 4096 * 2 * 4096 * 2  # tokens, experts of each, hidden size, bytes

    assert volumes(layer.forward) == {ALL_TO_ALL: 2 * one}
    assert volumes(layer.backward) == {ALL_TO_ALL: 2 * one}
    assert [item.num_bytes for item in exchanges(layer.forward)] == [one, one]


@pytest.mark.parametrize(
    ("dispatch", "name"),
    [
        (Dispatch(copies=Copies.BY_RANK), "alltoall by Hybrid-EP, top 8"),
        (Dispatch(copies=Copies.BY_HOST), "alltoall by DeepEP, top 8, hosts of 8"),
        (
            Dispatch(copies=Copies.BY_HOST, most_hosts=4),
            "alltoall by DeepEP, top 8, hosts of 8, at most 4",
        ),
    ],
)
def test_a_library_sends_a_token_once_to_a_rank(dispatch: Dispatch, name: str) -> None:
    plan = replace(PLAN, expert=64, data=64, dispatch=dispatch)
    layer = with_experts("deepseek-v3", plan)

    sent = exchanges(layer.forward)
    copies = 64 * (1 - (63 / 64) ** 8)
    volumes_sent = [item.num_bytes for item in sent]
    assert volumes_sent == pytest.approx([4096 * copies * 7168 * 2] * 2, rel=1e-4)
    assert {item.name for item in sent} == {name}
    labels = {item.label for item in operators(layer.forward)}
    assert {"tokens by expert", "tokens by rank"} <= labels
    assert not {"tokens in order of experts", "weighted sum of experts"} & labels


def test_experts_of_few_ranks_are_sent_to_no_more() -> None:
    dispatch = Dispatch(copies=Copies.BY_HOST, most_ranks=2)
    plan = replace(PLAN, expert=64, data=64, dispatch=dispatch)

    sent = exchanges(with_experts("deepseek-v3", plan).forward)

    assert [item.num_bytes for item in sent] == [4096 * 2 * 7168 * 2] * 2
    assert {item.name for item in sent} == {"alltoall by DeepEP, top 8, hosts of 8, on 2 ranks"}


def test_tokens_are_quantised_on_their_way_there_alone() -> None:
    precision = Precision(products="fp8")
    plan = replace(PLAN, expert=8, data=8, precision=precision, dispatch=Dispatch(quantised=True))

    there, home = exchanges(with_experts("mixtral-8x7b", plan).forward)

    assert (there.dtype, home.dtype) == ("fp8", "bf16")
    assert home.num_bytes == 2 * there.num_bytes


def test_rows_are_weighed_by_a_kernel_of_their_own_unless_that_is_fused() -> None:
    plan = replace(PLAN, expert=8, data=8, dispatch=Dispatch(fuses_permutation=False))

    found = [item.label for item in operators(with_experts("mixtral-8x7b", plan).forward)]

    assert "rows by their weights" in found
    fused = operators(with_experts("mixtral-8x7b", replace(PLAN, expert=8, data=8)).forward)
    assert len(found) == len(fused) + 1


def test_tensor_ranks_send_their_share_of_the_tokens() -> None:
    plan = replace(PLAN, tensor=4, expert=4, expert_tensor=1, sequence_parallel=True, data=2)

    found = volumes(with_experts("mixtral-8x7b", plan).forward)

    assert found[ALL_TO_ALL] == 2 * (4096 // 4) * 2 * 4096 * 2


def test_ranks_that_divide_an_expert_gather_its_tokens() -> None:
    plan = replace(PLAN, tensor=2, expert=4, expert_tensor=2, sequence_parallel=True, data=4)

    found = volumes(with_experts("mixtral-8x7b", plan).forward)

    gathered = 2 * (4096 // 2) * 2 * 4096 * 2
    assert found[Group.EXPERT_TENSOR, CollectiveKind.ALL_GATHER] == gathered
    assert found[Group.EXPERT_TENSOR, CollectiveKind.REDUCE_SCATTER] == gathered


def test_one_rank_holds_all_experts_and_sends_nothing() -> None:
    layer = with_experts("mixtral-8x7b", PLAN)

    assert not exchanges(layer.forward)
    assert _first_shapes(layer).count((4096 * 2 // 8, 4096)) == 8


def test_experts_are_multiplied_as_one_in_captured_graphs() -> None:
    captured = replace(PLAN, implementation=Implementation(launch="graph"))

    assert (8, 4096 * 2 // 8, 4096) in _first_shapes(with_experts("mixtral-8x7b", captured))


def _first_shapes(layer: Passes) -> list[tuple[int, ...]]:
    """Of the first operands of a layer's products, forward."""
    found = []
    for one in operators(layer.forward):
        shapes = parsed_shapes(one.signature)
        first = shapes.tensor(0) if shapes is not None else None
        if first is not None and one.name in {"aten::mm", "aten::bmm"}:
            found.append(first.shape)
    return found


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "llama4-maverick"])
def test_products_of_an_even_load_are_those_of_the_account(name: str) -> None:
    model = replace(transformer(name), num_prediction_modules=0)
    account = flops(model, 4096, convention=Convention.FULL)
    scores = next(part.forward for part in account.parts if part.part == "attention scores")

    found = sum(
        product_flops(one.forward, Phase.FORWARD, of_attention=False)
        for one in parts(blocks_of_model(model, PLAN))
    )

    assert found == pytest.approx((account.forward - scores) * 4096, rel=1e-12)


def test_the_most_loaded_rank_decides_shapes_and_messages() -> None:
    shares = (0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05)
    plan = replace(PLAN, expert=4, data=4, token_shares=shares)

    layer = with_experts("mixtral-8x7b", plan)

    received = [round(4096 * 4 * 2 * share) for share in (0.3, 0.2)]
    rows = [
        tensor.shape[0]
        for one in operators(layer.forward)
        if one.label == "experts' up projection"
        if (shapes := parsed_shapes(one.signature)) is not None
        if (tensor := shapes.tensor(0)) is not None
    ]
    assert rows == received
    assert exchanges(layer.forward)[0].num_bytes == sum(received) * 4096 * 2


def test_shares_of_another_number_of_experts_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"2 numbers, .* has 8 experts"):
        blocks_of_model(MIXTRAL, replace(PLAN, token_shares=(0.5, 0.5)))


def test_experts_that_ranks_cannot_divide_are_refused() -> None:
    with pytest.raises(WorkloadError, match="ep 3 does not divide 8 experts"):
        blocks_of_model(MIXTRAL, replace(PLAN, expert=3, data=3))


def test_shared_experts_run_beside_messages_where_they_overlap() -> None:
    plan = replace(PLAN, expert=8, data=8, overlap=Overlap(expert=True))
    block = with_experts("deepseek-v3", plan).forward
    labels = [item.label for item in block.items]
    sent = labels.index("tokens to experts")

    waiting = next(at for at, item in enumerate(block.items) if sent in item.after)

    assert labels[sent + 1] == "shared expert up projection"
    assert labels[waiting] == "tokens by expert"
    assert waiting > labels.index("shared expert down projection")


def test_exposed_messages_are_waited_for_at_once() -> None:
    block = with_experts("deepseek-v3", replace(PLAN, expert=8, data=8)).forward
    labels = [item.label for item in block.items]
    sent = labels.index("tokens to experts")

    assert block.items[sent + 1].after == (sent,)
    assert labels[sent + 1] == "tokens by expert"


def test_layers_alternate_between_dense_and_experts() -> None:
    blocks = blocks_of_model(MAVERICK, PLAN)

    is_routed = [any(item.label == "router" for item in one.forward.items) for one in blocks.layers]

    assert is_routed == [layer.has_experts for layer in MAVERICK.layers]


def test_prediction_modules_follow_the_loss() -> None:
    mtp = transformer("deepseek-v3-mtp")
    head = blocks_of_model(mtp, replace(PLAN, expert=8, data=8)).head
    assert head is not None

    labels = [item.label for item in head.forward.items]

    assert labels.index("cross entropy") < labels.index("module projection")
    assert "router" in labels
    assert head.parameters.expert == mtp.experts.count // 8 * 3 * 7168 * 2048  # type: ignore[union-attr]
