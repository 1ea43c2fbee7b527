"""Volumes of what ranks send each other, against their closed forms, and what waits for what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import CollectiveKind
from foretrace.graph import Phase
from foretrace.workload import (
    Block,
    ContextExchange,
    Exchange,
    Group,
    Operator,
    Overlap,
    Plan,
    Precision,
    Recompute,
    blocks_of_model,
)
from tests.models import transformer
from tests.workload.blocks.counting import (
    exchanges,
    first_layer,
    operators,
    volumes,
)

LLAMA = transformer("llama3-8b")
HIDDEN, KEYS, SIZE = 4096, 8, 128
TOKENS = 2 * 4096
PLAN = Plan(micro_batch=2, sequence=4096)
ALL_REDUCE = (Group.TENSOR, CollectiveKind.ALL_REDUCE)
ALL_GATHER = (Group.TENSOR, CollectiveKind.ALL_GATHER)
REDUCE_SCATTER = (Group.TENSOR, CollectiveKind.REDUCE_SCATTER)


def awaiting(block: Block, label: str) -> list[str]:
    """Labels of items that wait for the exchange of that name."""
    places = {at for at, item in enumerate(block.items) if item.label == label}
    return [item.label for item in block.items if places & set(item.after)]


def test_one_rank_exchanges_nothing() -> None:
    blocks = blocks_of_model(LLAMA, PLAN)

    for one in (blocks.embedding, blocks.head, *blocks.layers):
        assert one is not None
        assert not exchanges(one.forward)
        assert not exchanges(one.backward)


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_tensor_ranks_sum_two_activations_a_layer_each_way(tensor: int) -> None:
    layer = first_layer(LLAMA, replace(PLAN, tensor=tensor))

    assert volumes(layer.forward) == {ALL_REDUCE: 2 * TOKENS * HIDDEN * 2}
    assert volumes(layer.backward) == {ALL_REDUCE: 2 * TOKENS * HIDDEN * 2}
    assert len(exchanges(layer.forward)) == len(exchanges(layer.backward)) == 2


def test_sequence_parallel_gathers_and_scatters_as_much_and_gathers_inputs_again() -> None:
    layer = first_layer(LLAMA, replace(PLAN, tensor=4, sequence_parallel=True))
    one = TOKENS * HIDDEN * 2

    assert volumes(layer.forward) == {ALL_GATHER: 2 * one, REDUCE_SCATTER: 2 * one}
    assert volumes(layer.backward) == {ALL_GATHER: 4 * one, REDUCE_SCATTER: 2 * one}


def test_full_recompute_exchanges_the_forward_pass_again() -> None:
    plan = replace(PLAN, tensor=4, sequence_parallel=True, recompute=Recompute.FULL)
    layer = first_layer(LLAMA, plan)

    assert volumes(layer.backward, Phase.RECOMPUTE) == volumes(layer.forward)


def test_embedding_and_loss_are_summed_over_tensor_ranks() -> None:
    blocks = blocks_of_model(LLAMA, replace(PLAN, tensor=4))
    assert blocks.embedding is not None
    assert blocks.head is not None

    assert volumes(blocks.embedding.forward) == {ALL_REDUCE: TOKENS * HIDDEN * 2}
    # The largest logit, then the right one with the sum of exponentials: fp32, one a token.
    assert volumes(blocks.head.forward) == {ALL_REDUCE: 3 * TOKENS * 4}
    assert volumes(blocks.head.backward) == {ALL_REDUCE: TOKENS * HIDDEN * 2}


@pytest.mark.parametrize("context", [2, 4])
def test_gathered_keys_and_values_are_those_of_the_whole_sequence(context: int) -> None:
    layer = first_layer(LLAMA, replace(PLAN, context=context))
    size = 2 * TOKENS * KEYS * SIZE * 2

    assert volumes(layer.forward) == {(Group.CONTEXT, CollectiveKind.ALL_GATHER): size}
    assert volumes(layer.backward) == {
        (Group.CONTEXT, CollectiveKind.ALL_GATHER): size,
        (Group.CONTEXT, CollectiveKind.REDUCE_SCATTER): size,
    }


@pytest.mark.parametrize("context", [2, 4])
def test_a_ring_passes_keys_on_once_less_than_ranks_and_gradients_as_often(context: int) -> None:
    plan = replace(PLAN, context=context, context_exchange=ContextExchange.RING)
    layer = first_layer(LLAMA, plan)
    own = 2 * TOKENS // context * KEYS * SIZE * 2

    assert volumes(layer.forward) == {
        (Group.CONTEXT, CollectiveKind.SEND_RECV): (context - 1) * own
    }
    assert volumes(layer.backward) == {
        (Group.CONTEXT, CollectiveKind.SEND_RECV): (context - 1) * own + context * own
    }
    assert all(one.num_bytes == own for one in exchanges(layer.forward))


@pytest.mark.parametrize("context", [2, 4])
def test_ranks_give_tokens_of_all_heads_for_heads_of_all_tokens(context: int) -> None:
    plan = replace(PLAN, context=context, context_exchange=ContextExchange.ALL_TO_ALL)
    layer = first_layer(LLAMA, plan)
    heads = 32
    given, results = (heads + 2 * KEYS) * SIZE, heads * SIZE
    sent = {(Group.CONTEXT, CollectiveKind.ALL_TO_ALL): TOKENS // context * (given + results) * 2}

    assert volumes(layer.forward) == volumes(layer.backward) == sent
    assert [one.num_bytes for one in exchanges(layer.forward)] == [
        TOKENS // context * given * 2,
        TOKENS // context * results * 2,
    ]
    assert awaiting(layer.forward, "heads of all tokens") == ["attention"]
    assert awaiting(layer.forward, "tokens of all heads") == ["attention output"]
    (attention,) = (one for one in operators(layer.forward) if one.label == "attention")
    assert f"[2,4096,{heads // context},{SIZE}]" in attention.signature


def test_tensor_ranks_hold_a_share_of_keys_each() -> None:
    layer = first_layer(LLAMA, replace(PLAN, tensor=4, context=2))

    gathered = volumes(layer.forward)[Group.CONTEXT, CollectiveKind.ALL_GATHER]

    assert gathered == 2 * TOKENS * KEYS // 4 * SIZE * 2


def test_exposed_sums_are_waited_for_by_the_next_operator() -> None:
    plan = replace(PLAN, tensor=4, overlap=Overlap(tensor_backward=False))
    layer = first_layer(LLAMA, plan)

    assert awaiting(layer.forward, "sum of down projection") == ["residual sum"]
    assert awaiting(layer.backward, "sum of up projection input gradients") == [
        "up projection weight gradient"
    ]


def test_sums_of_the_backward_pass_run_beside_weight_gradients() -> None:
    layer = first_layer(LLAMA, replace(PLAN, tensor=4, sequence_parallel=True))

    scattered = awaiting(layer.backward, "sum of up projection input gradients")
    gathered = awaiting(layer.backward, "gathered input of up projection")

    assert scattered == ["feed-forward norm gradient"]
    assert gathered == ["up projection weight gradient"]


def test_without_weight_gradients_the_next_operator_waits_for_sums() -> None:
    plan = replace(PLAN, tensor=4, overlap=Overlap(tensor_backward=False))
    inputs, _ = first_layer(LLAMA, plan).halves

    found = awaiting(inputs, "sum of up projection input gradients")

    assert found == ["feed-forward norm gradient"]


def test_overlapped_products_are_cut_and_each_piece_waits_for_its_own() -> None:
    plan = replace(PLAN, tensor=4, sequence_parallel=True, overlap=Overlap(tensor=True))
    whole = first_layer(LLAMA, replace(plan, overlap=Overlap()))
    layer = first_layer(LLAMA, plan)

    products = [one for one in operators(layer.forward) if one.label == "up projection"]
    items = layer.forward.items
    gathers = [at for at, one in enumerate(items) if one.label == "gathered input of up projection"]
    norm = next(at for at, one in enumerate(items) if one.label == "feed-forward norm")

    assert volumes(layer.forward) == volumes(whole.forward)
    assert len(products) == len(gathers) == 4
    assert [items[at].after for at in gathers] == [(norm,)] * 4
    assert [one.after for one in products] == [(at,) for at in gathers]


def test_a_ring_sends_the_next_keys_while_it_works_on_these() -> None:
    plan = replace(PLAN, context=4, context_exchange=ContextExchange.RING)
    block = first_layer(LLAMA, plan).forward
    sent = [at for at, one in enumerate(block.items) if isinstance(one, Exchange)]
    rounds = [at for at, one in enumerate(block.items) if one.label == "attention"]

    assert [block.items[at].after for at in rounds] == [(), *((at,) for at in sent)]
    assert all(one < at for one, at in zip(sent, rounds, strict=False))


def test_a_ring_without_overlap_waits_for_every_round() -> None:
    plan = replace(
        PLAN,
        context=4,
        context_exchange=ContextExchange.RING,
        overlap=Overlap(context=False),
    )
    block = first_layer(LLAMA, plan).forward
    sent = [at for at, one in enumerate(block.items) if isinstance(one, Exchange)]

    for at in sent:
        assert any(isinstance(block.items[one], Operator) for one in block.items[at].after)
        assert awaiting(block, block.items[at].label).count("attention") == 3


def test_messages_have_the_format_of_activations() -> None:
    plan = replace(PLAN, tensor=2, precision=Precision(activations="fp16", products="fp16"))

    found = {one.dtype for one in exchanges(first_layer(LLAMA, plan).forward)}

    assert found == {"fp16"}


def test_eight_bit_operands_are_gathered_as_such_and_sums_stay_wide() -> None:
    plan = replace(PLAN, tensor=4, sequence_parallel=True, precision=Precision(products="fp8"))
    blocks = blocks_of_model(LLAMA, plan)
    assert blocks.head is not None
    one = TOKENS * HIDDEN

    assert volumes(blocks.layers[0].forward) == {ALL_GATHER: 2 * one, REDUCE_SCATTER: 2 * one * 2}
    assert volumes(blocks.layers[0].backward) == {ALL_GATHER: 4 * one, REDUCE_SCATTER: 2 * one * 2}
    assert volumes(blocks.head.forward)[ALL_GATHER] == one * 2


@pytest.mark.parametrize(("is_cut", "share"), [(False, 1), (True, 4)])
def test_a_stage_sends_its_share_of_the_activations(is_cut: bool, share: int) -> None:
    plan = replace(PLAN, tensor=4, context=2, pipeline=2, sequence_parallel=is_cut)

    blocks = blocks_of_model(LLAMA, plan)

    assert blocks.transfer_bytes == TOKENS // 2 // share * HIDDEN * 2
    assert blocks.transfer_dtype == "bf16"
