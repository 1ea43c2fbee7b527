"""An indexer: what it scores and picks, what attention then sees, and what of it is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import CollectiveKind, WorkloadError
from foretrace.graph import Phase
from foretrace.operators import work_of
from foretrace.workload import (
    PYTORCH,
    ContextExchange,
    Convention,
    Operator,
    Plan,
    Recompute,
    Transformer,
    blocks_of_model,
    cache_bytes_per_token,
    check_plan,
    flops,
    from_hf_config,
    layer_bytes,
)
from foretrace.workload.models.flops import mean_keys
from tests.workload.blocks.counting import exchanges, first_layer, operators
from tests.workload.models.configurations import COUNTED

HEADS, SIZE, CHOSEN = 64, 128, 2048
LATENT, WIDE = 512, 576


def model_of(num_layers: int = 4) -> Transformer:
    return replace(from_hf_config(COUNTED["deepseek-v3.2-exp"][0]), num_layers=num_layers)


def labelled(operations: list[Operator], label: str) -> list[int]:
    found = [work_of(one.name, one.signature) for one in operations if one.label == label]
    return [one.flops for one in found if one is not None]


@pytest.mark.parametrize("sequence", [4096, 32768])
def test_all_earlier_tokens_are_scored_and_gradients_are_of_those_that_are_picked(
    sequence: int,
) -> None:
    layer = first_layer(model_of(), Plan(sequence=sequence))

    picked = mean_keys(sequence, None, Convention.CAUSAL)
    trained = CHOSEN - CHOSEN**2 / (2 * sequence)
    each = 2 * HEADS * SIZE * sequence
    assert labelled(operators(layer.forward), "index scores") == [each * picked]
    for label in ("index query gradient", "index key gradient"):
        assert labelled(operators(layer.backward), label) == [each * round(trained)]


def test_short_sequences_are_masked_and_long_ones_see_picked_latents() -> None:
    heads = 128
    short, long = (
        first_layer(model_of(), Plan(sequence=sequence)).forward for sequence in (4096, 32768)
    )

    masked = 2 * heads * (192 + 128) * 4096 * 4097 // 2
    picked = 2 * heads * (WIDE + LATENT) * 32768 * (CHOSEN - CHOSEN**2 // (2 * 32768))
    assert labelled(operators(short), "attention") == [masked]
    assert labelled(operators(long), "attention") == [picked]
    whole = 2 * heads * (192 + 128) * 32768 * 32769 // 2
    assert picked < whole / 2


def test_nothing_goes_on_to_what_an_indexer_reads() -> None:
    layer = first_layer(model_of(), Plan(sequence=4096))
    labels = [one.label for one in operators(layer.backward) if one.label.startswith("index")]

    assert not [one for one in labels if "input gradient" in one]
    assert "index queries weight gradient" in labels


def test_the_account_trains_it_by_what_it_picked() -> None:
    sequence, model = 32768, model_of(1)
    part = next(one for one in flops(model, sequence).parts if one.part == "indexer")
    weights = 1536 * HEADS * SIZE + 7168 * (SIZE + HEADS)

    scores = 2 * HEADS * SIZE * mean_keys(sequence, None, Convention.CAUSAL)
    picked = 2 * HEADS * SIZE * (CHOSEN - CHOSEN**2 / (2 * sequence))
    assert part.forward == 2 * weights + scores
    assert part.backward == 2 * weights + 2 * picked


def test_every_tensor_rank_has_the_whole_of_it() -> None:
    plain = replace(model_of(1), attention=replace(model_of(1).attention, indexer=None))

    def more(tensor: int) -> int:
        plan = Plan(sequence=4096, tensor=tensor)
        found = [first_layer(model, plan).parameters.dense for model in (model_of(1), plain)]
        return found[0] - found[1]

    assert more(1) == more(8) == 1536 * HEADS * SIZE + 7168 * (SIZE + HEADS) + 2 * SIZE


def test_context_ranks_gather_its_keys_and_cannot_pass_them_on() -> None:
    plan = Plan(sequence=32768, context=4)
    layer = first_layer(model_of(), plan)

    gathered = [
        one.num_bytes
        for one in exchanges(layer.forward)
        if one.collective == CollectiveKind.ALL_GATHER
    ]
    # bf16: keys of the indexer, then latents with what positions turn, and what values of them are.
    assert gathered == [2 * 32768 * SIZE, 2 * 32768 * (WIDE + LATENT)]
    with pytest.raises(WorkloadError, match=r"index_heads.*'all-gather', not 'ring'"):
        check_plan(replace(plan, context_exchange=ContextExchange.RING), model_of())


def test_picked_tokens_and_its_queries_are_kept() -> None:
    model, plan = model_of(1), Plan(sequence=32768)

    kept = layer_bytes(model, plan, PYTORCH, layer=model.layers[0]).kept

    found = {one.label: one.num_bytes for one in kept}
    assert found["indexer's queries and keys"] == 32768 * 2 * (HEADS * (SIZE + 1) + SIZE)
    assert found["picked tokens"] == 32768 * 4 * CHOSEN
    assert found["queries"] == 32768 * 2 * 128 * WIDE
    assert found["attention in latents"] == 32768 * 2 * 128 * LATENT


def test_serving_keeps_its_key_in_eight_bits_beside_the_latent() -> None:
    plain = replace(model_of(), attention=replace(model_of().attention, indexer=None))

    for dtype in ("bf16", "fp8"):
        more = cache_bytes_per_token(model_of(), dtype) - cache_bytes_per_token(plain, dtype)
        assert more == 4 * (SIZE + 4)


def test_it_is_said_that_no_kernel_of_it_was_measured() -> None:
    notes = blocks_of_model(model_of(), Plan(sequence=4096)).notes

    assert any("an indexer's scores" in note and "was measured" in note for note in notes)


def test_it_is_recomputed_with_its_layer() -> None:
    plan = Plan(sequence=4096)
    whole = first_layer(model_of(), replace(plan, recompute=Recompute.FULL)).backward

    again = [one.label for one in operators(whole) if one.phase is Phase.RECOMPUTE]
    assert again.count("index scores") == 1
