"""Blocks as a whole: what waits for what, passes taken apart, parameters, and likeness."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.graph import Part, Phase
from foretrace.workload import (
    Block,
    ContextExchange,
    Exchange,
    Implementation,
    Operator,
    Overlap,
    Plan,
    Recompute,
    Transformer,
    blocks_of_model,
    load_model,
    model_names,
    parameters,
)
from tests.models import transformer
from tests.workload.blocks.counting import distinct, first_layer, parts

LLAMA = transformer("llama3-8b")

plans = st.builds(
    Plan,
    tensor=st.sampled_from([1, 2, 4]),
    context=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2]),
    data=st.just(2),
    sequence=st.just(1024),
    sequence_parallel=st.booleans(),
    context_exchange=st.sampled_from(ContextExchange),
    recompute=st.sampled_from(Recompute),
    overlap=st.builds(
        Overlap,
        tensor=st.booleans(),
        tensor_backward=st.booleans(),
        context=st.booleans(),
        expert=st.booleans(),
    ),
    implementation=st.builds(
        Implementation,
        fuses_norms=st.booleans(),
        fuses_residuals=st.booleans(),
        launch=st.sampled_from(["eager", "compiled"]),
        fuses_loss=st.booleans(),
        fuses_projections=st.booleans(),
        fuses_gradients=st.booleans(),
        selective=st.sampled_from(["scores", "operators"]),
        stops_recompute_early=st.booleans(),
    ),
)
models = st.sampled_from(["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt2-large", "llama4-scout"])


def awaited(block: Block) -> set[int]:
    return {at for item in block.items for at in item.after}


def is_in_order(block: Block) -> bool:
    return all(0 <= one < at for at, item in enumerate(block.items) for one in item.after)


@given(name=models, plan=plans)
def test_items_wait_for_earlier_ones_and_every_exchange_is_awaited_or_last(
    name: str, plan: Plan
) -> None:
    blocks = blocks_of_model(replace(transformer(name), num_layers=4), plan)

    for one in distinct(blocks):
        for block in (one.forward, one.backward, *one.halves):
            assert is_in_order(block)
            found = awaited(block)
            for at, item in enumerate(block.items):
                is_followed = any(isinstance(after, Operator) for after in block.items[at + 1 :])
                assert not isinstance(item, Exchange) or at in found or not is_followed


@given(name=models, plan=plans)
def test_both_halves_of_a_backward_pass_are_the_whole(name: str, plan: Plan) -> None:
    blocks = blocks_of_model(replace(transformer(name), num_layers=4), plan)

    for one in distinct(blocks):
        halves = Counter(item.label for half in one.halves for item in half.items)
        assert halves == Counter(item.label for item in one.backward.items)
        assert not any(item.is_weight_gradient for item in one.halves[0].items)
        assert all(item.is_weight_gradient for item in one.halves[1].items)


@given(name=models, plan=plans)
def test_exchanges_wait_for_the_operator_that_made_what_they_send(name: str, plan: Plan) -> None:
    blocks = blocks_of_model(replace(transformer(name), num_layers=4), plan)

    for one in distinct(blocks):
        for block in (one.forward, one.backward):
            has_operator = False
            for item in block.items:
                if isinstance(item, Exchange) and item.phase is not Phase.RECOMPUTE:
                    assert item.after or not has_operator
                has_operator |= isinstance(item, Operator)


def test_recomputed_work_comes_before_the_backward_pass() -> None:
    layer = first_layer(LLAMA, Plan(recompute=Recompute.FULL))

    phases = [item.phase for item in layer.backward.items]

    first = phases.index(Phase.BACKWARD)
    assert set(phases[:first]) == {Phase.RECOMPUTE}
    assert first == len(layer.forward.items)
    assert set(phases[first:]) == {Phase.BACKWARD}


def test_ends_are_not_recomputed() -> None:
    blocks = blocks_of_model(LLAMA, Plan(recompute=Recompute.FULL))
    assert blocks.head is not None
    assert blocks.embedding is not None

    for block in (blocks.head.backward, blocks.embedding.backward):
        assert {item.phase for item in block.items} == {Phase.BACKWARD}


def test_layers_alike_are_one_object() -> None:
    scout = transformer("llama4-scout")
    blocks = blocks_of_model(scout, Plan(sequence=16384))

    kinds = {(layer.has_experts, layer.reach) for layer in scout.layers}

    assert len({id(layer) for layer in blocks.layers}) == len(kinds) == 2
    assert len(blocks.layers) == scout.num_layers
    assert {layer.part for layer in blocks.layers} == {Part.LAYER}


@pytest.mark.parametrize("name", [name for name in model_names() if "behemoth" not in name])
def test_one_rank_holds_all_parameters(name: str) -> None:
    model = load_model(name)
    if not isinstance(model, Transformer):
        return

    held = sum(
        one.parameters.dense + one.parameters.expert
        for one in parts(blocks_of_model(model, Plan(sequence=128)))
    )

    assert held == parameters(model).total


def test_ranks_divide_matrices_and_keep_norms_whole() -> None:
    plan = Plan(tensor=8)
    whole, share = (first_layer(LLAMA, one).parameters.dense for one in (Plan(), plan))

    assert share == (whole - 2 * 4096) // 8 + 2 * 4096


def test_ranks_divide_experts_apart_from_the_rest() -> None:
    mixtral = transformer("mixtral-8x7b")
    plan = Plan(tensor=2, expert=4, expert_tensor=1, data=2, sequence_parallel=True)

    found = first_layer(mixtral, plan).parameters

    assert found.expert == 2 * 3 * 4096 * 14336
    assert found.dense == 4096 * (4096 + 2 * 1024) // 2 + 4096 * 4096 // 2 + 2 * 4096 + 4096 * 8


def test_a_tied_table_counts_twice_where_two_stages_hold_it() -> None:
    mpt = transformer("mpt-7b")
    one, two = (blocks_of_model(mpt, Plan(pipeline=stages)).head for stages in (1, 2))
    assert one is not None
    assert two is not None

    assert two.parameters.dense - one.parameters.dense == mpt.vocabulary * mpt.hidden


def test_a_vocabulary_that_ranks_cannot_divide_is_filled_up_and_noted() -> None:
    gpt2 = transformer("gpt2-large")
    blocks = blocks_of_model(gpt2, Plan(tensor=4, sequence=1024))
    assert blocks.embedding is not None

    rows = -(-gpt2.vocabulary // 4)

    assert any(f"{rows:,} rows" in note for note in blocks.notes)
    assert blocks.embedding.parameters.dense == (rows + gpt2.context) * gpt2.hidden


def test_heads_that_ranks_cannot_divide_are_refused_with_the_arithmetic() -> None:
    with pytest.raises(WorkloadError, match="tp 3 does not divide 32 heads: 32 / 3 leaves 2"):
        blocks_of_model(LLAMA, Plan(tensor=3))


def test_more_ranks_than_heads_of_keys_hold_one_each() -> None:
    layer = first_layer(LLAMA, Plan(tensor=16))

    projection = next(item for item in layer.forward.items if item.label == "qkv projection")

    assert isinstance(projection, Operator)
    assert f"[4096,{(2 + 2) * 128}]" in projection.signature
