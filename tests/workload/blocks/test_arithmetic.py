"""Products of blocks are the FLOPs that a model's account counts, divided over ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.graph import Phase
from foretrace.workload import (
    ContextExchange,
    Convention,
    Implementation,
    Plan,
    Reach,
    ReachKind,
    Recompute,
    Transformer,
    blocks_of_model,
    flops,
)
from tests.models import transformer
from tests.workload.blocks.counting import distinct, first_layer, parts, product_flops
from tests.workload.models.strategies import transformers

DENSE = ("llama3-8b", "llama2-13b", "mpt-7b", "gpt3-6.7b", "bloom-176b", "gpt2-large")
SCORES = "attention scores"


def counted(name: str, plan: Plan, phase: Phase, *, of_attention: bool) -> int:
    blocks = blocks_of_model(transformer(name), plan)
    times = Counter(id(one) for one in parts(blocks))
    return sum(
        times[id(one)] * product_flops(block, phase, of_attention=of_attention)
        for one in distinct(blocks)
        for block in (one.forward, one.backward)
    )


def expected(name: str, plan: Plan, recompute: Recompute = Recompute.NONE) -> dict[str, float]:
    """FLOPs of one microbatch by the account: all products but scores, and scores, per rank."""
    found = flops(transformer(name), plan.sequence, convention=Convention.FULL, recompute=recompute)
    rows = plan.micro_batch * plan.sequence / (plan.tensor * plan.context)
    scores = next(part for part in found.parts if part.part == SCORES)
    return {
        "products": (found.forward - scores.forward) * rows,
        "scores": scores.forward * rows,
        "again": found.recompute * rows,
        "scores again": scores.recompute * rows,
    }


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize(
    "plan",
    [
        Plan(sequence=1024),
        Plan(sequence=2048, micro_batch=2),
        Plan(sequence=2048, context=2),
    ],
)
def test_products_of_both_passes_are_those_of_the_account(name: str, plan: Plan) -> None:
    want = expected(name, plan)

    forward = counted(name, plan, Phase.FORWARD, of_attention=False)
    backward = counted(name, plan, Phase.BACKWARD, of_attention=False)

    assert forward == want["products"]
    assert backward == 2 * want["products"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_tensor_ranks_divide_all_products(is_cut: bool) -> None:
    plan = Plan(sequence=4096, tensor=8, context=2, sequence_parallel=is_cut)
    want = expected("llama3-70b", plan)

    forward = counted("llama3-70b", plan, Phase.FORWARD, of_attention=False)
    backward = counted("llama3-70b", plan, Phase.BACKWARD, of_attention=False)

    assert (forward, backward) == (want["products"], 2 * want["products"])


@pytest.mark.parametrize("exchange", list(ContextExchange))
@pytest.mark.parametrize("context", [1, 2, 4])
def test_scores_are_half_of_all_with_the_diagonal_on_every_context_rank(
    exchange: ContextExchange, context: int
) -> None:
    plan = Plan(sequence=2048, context=context, context_exchange=exchange)
    want = expected("llama3-8b", plan)["scores"] * (plan.sequence + 1) / (2 * plan.sequence)

    forward = counted("llama3-8b", plan, Phase.FORWARD, of_attention=True)
    backward = counted("llama3-8b", plan, Phase.BACKWARD, of_attention=True)

    # A ring's later rounds have no diagonal, its first has that of all its queries.
    assert forward == want
    assert backward == 2.5 * want


def test_plain_attention_works_on_masked_scores_too() -> None:
    plan = Plan(sequence=1024, implementation=Implementation(attention="plain"))
    want = expected("llama3-8b", plan)

    forward = counted("llama3-8b", plan, Phase.FORWARD, of_attention=False)
    backward = counted("llama3-8b", plan, Phase.BACKWARD, of_attention=False)

    assert forward == want["products"] + want["scores"]
    assert backward == 2 * forward


def test_full_recompute_repeats_the_forward_pass_of_layers() -> None:
    plan = Plan(sequence=2048, tensor=2, recompute=Recompute.FULL)
    want = expected("llama3-8b", plan, Recompute.FULL)

    again = counted("llama3-8b", plan, Phase.RECOMPUTE, of_attention=False)
    scores = counted("llama3-8b", plan, Phase.RECOMPUTE, of_attention=True)

    assert again == want["again"] - want["scores again"]
    assert scores == want["scores again"] * 2049 / 4096


def test_selective_recompute_repeats_scores_alone() -> None:
    plan = Plan(sequence=2048, recompute=Recompute.SELECTIVE)
    want = expected("llama3-8b", plan, Recompute.SELECTIVE)

    again = counted("llama3-8b", plan, Phase.RECOMPUTE, of_attention=False)
    scores = counted("llama3-8b", plan, Phase.RECOMPUTE, of_attention=True)

    assert (again, scores) == (0, want["again"] * 2049 / 4096)


def test_recompute_that_stops_early_leaves_out_the_last_product() -> None:
    plan = Plan(sequence=2048, recompute=Recompute.FULL)
    early = replace(plan, implementation=Implementation(stops_recompute_early=True))
    model = transformer("llama3-8b")

    whole = first_layer(model, plan).backward
    short = first_layer(model, early).backward

    difference = product_flops(whole, Phase.RECOMPUTE, of_attention=False)
    difference -= product_flops(short, Phase.RECOMPUTE, of_attention=False)
    assert difference == 2 * 2048 * 14336 * 4096


def test_recompute_by_operators_saves_every_other_product_and_attention() -> None:
    """Counted from 1: keys, output, gate; saved: queries, values, up... as torchtitan does."""
    policy = Implementation(selective="operators", fuses_projections=False)
    plan = Plan(sequence=2048, recompute=Recompute.SELECTIVE, implementation=policy)

    again = first_layer(transformer("llama3-8b"), plan).backward

    labels = [item.label for item in again.items if item.phase is Phase.RECOMPUTE]
    products = [label for label in labels if "projection" in label or label.endswith("output")]
    assert products == ["key projection", "attention output", "up projection"]
    assert "attention" not in labels
    assert "feed-forward norm" in labels


def test_chunks_are_sequences_of_their_own() -> None:
    reach = Reach(ReachKind.CHUNK, num_tokens=512, full_every=0)
    model = replace(transformer("llama3-8b"), reach=reach)
    layer = first_layer(model, Plan(sequence=1280))

    found = product_flops(layer.forward, Phase.FORWARD, of_attention=True)

    pairs = 2 * 512 * 513 // 2 + 256 * 257 // 2
    assert found == 2 * 2 * 32 * 128 * pairs


def test_a_window_costs_the_mean_number_of_keys() -> None:
    reach = Reach(ReachKind.WINDOW, num_tokens=512, full_every=0)
    model = replace(transformer("llama3-8b"), reach=reach)
    blocks = blocks_of_model(model, Plan(sequence=2048))

    found = product_flops(blocks.layers[0].forward, Phase.FORWARD, of_attention=True)

    assert found == 2 * 2 * 32 * 128 * 2048 * (512 - 512 * 512 // 4096)
    assert any("512 tokens" in note for note in blocks.notes)


@given(model=transformers(), sequence=st.sampled_from([64, 128, 384]))
def test_any_dense_model_multiplies_what_its_account_says(
    model: Transformer, sequence: int
) -> None:
    attention = replace(model.attention, indexer=None)
    model = replace(model, attention=attention, experts=None, states=None, num_prediction_modules=0)
    plan = Plan(sequence=sequence)
    account = flops(model, sequence, convention=Convention.FULL)
    scores = sum(part.forward for part in account.parts if part.part == SCORES)

    found = sum(
        product_flops(one.forward, Phase.FORWARD, of_attention=False)
        for one in parts(blocks_of_model(model, plan))
    )

    # The account is per token and may be a fraction of a float's steps off a whole number.
    assert found == pytest.approx((account.forward - scores) * sequence, rel=1e-12)
