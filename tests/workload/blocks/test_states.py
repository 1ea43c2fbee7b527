"""State spaces: products, exchanges and parameters of the ranks that divide their heads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from foretrace.base import CollectiveKind, WorkloadError
from foretrace.graph import Phase
from foretrace.workload import (
    Convention,
    Plan,
    blocks_of_model,
    check_plan,
    flops,
    parameters,
)
from tests.models import transformer
from tests.workload.blocks.counting import (
    distinct,
    exchanges,
    first_layer,
    operators,
    parts,
    product_flops,
)

NAMES = ("mamba2-2.7b", "nemotron-h-8b")
ATTENTION = "attention scores"


def multiplied(name: str, plan: Plan, phase: Phase) -> int:
    """FLOPs of products that are no fused attention's, of one microbatch."""
    blocks = blocks_of_model(transformer(name), plan)
    times = Counter(id(one) for one in parts(blocks))
    return sum(
        times[id(one)] * product_flops(block, phase, of_attention=False)
        for one in distinct(blocks)
        for block in (one.forward, one.backward)
    )


def accounted(name: str, plan: Plan) -> tuple[float, float]:
    """The same by the account, without convolutions, which are no products; of scans alone."""
    model = transformer(name)
    assert model.states is not None
    parts_of = flops(model, plan.sequence, convention=Convention.CAUSAL).parts
    found = {part.part: part.forward for part in parts_of}
    layers = sum(layer.has_states for layer in model.layers)
    convolutions = 2 * layers * model.states.convolution * model.states.convolved
    rows = plan.micro_batch * plan.sequence / (plan.tensor * plan.context)
    products = sum(found.values()) - found.get(ATTENTION, 0.0) - convolutions
    return products * rows, found["state scans"] * rows


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("micro_batch", [1, 3])
def test_products_of_a_forward_pass_are_those_of_the_account(name: str, micro_batch: int) -> None:
    plan = Plan(sequence=2048, micro_batch=micro_batch)

    assert multiplied(name, plan, Phase.FORWARD) == accounted(name, plan)[0]


def test_tensor_and_context_ranks_divide_all_products() -> None:
    plan = Plan(sequence=2048, tensor=4, context=2)

    assert multiplied("nemotron-h-8b", plan, Phase.FORWARD) == accounted("nemotron-h-8b", plan)[0]


def test_the_backward_pass_makes_states_and_scores_again_and_multiplies_decays_out() -> None:
    plan = Plan(sequence=2048)
    model = transformer("mamba2-2.7b")
    assert model.states is not None
    forward, _ = accounted("mamba2-2.7b", plan)
    inner, size, half = model.states.inner, model.states.state_size, model.states.chunk // 2

    again = 2 * inner * size + 2 * half * size  # states, scores; one group of heads
    decays = 2 * half * inner
    found = multiplied("mamba2-2.7b", plan, Phase.BACKWARD)

    assert found == 2 * forward + 2048 * model.num_layers * (again + decays)


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_tensor_ranks_divide_the_parameters_of_states(tensor: int) -> None:
    model = transformer("nemotron-h-8b")
    layer = model.layers[0]
    whole = parameters(replace(model, num_layers=1)).of("states").total
    output_and_norm = 4096

    found = first_layer(model, Plan(sequence=2048, tensor=tensor)).parameters

    assert layer.has_states
    assert found.dense == whole // tensor + output_and_norm


def test_context_ranks_exchange_heads_for_tokens_around_the_scan() -> None:
    layer = first_layer(transformer("nemotron-h-8b"), Plan(sequence=4096, context=4))

    sent = [one for one in exchanges(layer.forward) if one.collective == CollectiveKind.ALL_TO_ALL]

    # bf16, 1,024 tokens of a rank: 18,560 numbers that were projected; results and their gates.
    assert [one.num_bytes for one in sent] == [2 * 1024 * 18_560, 2 * 1024 * 2 * 8192]


def test_a_layer_of_both_adds_their_results_and_their_gradients() -> None:
    nemotron = transformer("nemotron-h-8b")
    assert nemotron.states is not None
    both = replace(
        nemotron,
        attention=replace(nemotron.attention, layers=None),
        states=replace(nemotron.states, layers=None),
        feed_forward=replace(nemotron.feed_forward, layers=None),
    )

    layer = first_layer(both, Plan(sequence=1024))

    forward = [one.label for one in operators(layer.forward)]
    backward = [one.label for one in operators(layer.backward)]
    assert forward.count("attention and states") == 1
    assert forward.index("attention") < forward.index("outputs of chunks")
    assert backward.index("sum of input gradients") > backward.index(
        "qkv projection input gradient"
    )


@pytest.mark.parametrize(
    ("name", "plan", "sentence"),
    [
        ("mamba2-2.7b", Plan(sequence=2048, tensor=2), "tp 2 does not divide 1 groups of heads"),
        ("nemotron-h-8b", Plan(sequence=2048, tensor=8, context=3), "2 x cp 3|cp 3 does not"),
        ("nemotron-h-8b", Plan(sequence=3072, context=3), "cp 3 does not divide 128 heads with"),
    ],
)
def test_ranks_that_cannot_divide_states_are_refused(name: str, plan: Plan, sentence: str) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        check_plan(plan, transformer(name))


def test_it_is_said_that_no_scan_was_measured() -> None:
    notes = blocks_of_model(transformer("mamba2-2.7b"), Plan(sequence=2048)).notes

    assert any("no kernel of theirs was measured" in note for note in notes)
