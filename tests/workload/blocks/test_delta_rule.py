"""Products by the delta rule and of lightning attention: those of the account, over ranks too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.graph import Phase
from foretrace.workload import (
    Convention,
    Exchange,
    Operator,
    Plan,
    Setting,
    StateRule,
    StateSpace,
    Transformer,
    blocks_of_model,
    check_plan,
    flops,
    from_hf_config,
    parameters,
    scan_step,
)
from tests.workload.blocks.counting import (
    distinct,
    first_layer,
    operators,
    parts,
    product_flops,
)
from tests.workload.models.configurations import COUNTED

NAMES = ("qwen3-next-80b-a3b", "qwen3.5-27b", "kimi-linear-48b-a3b", "minimax-text-01")


def model_of(name: str) -> Transformer:
    """Without experts, whose products are not in question, and without an output."""
    found = from_hf_config(COUNTED[name][0])
    width = replace(found.feed_forward, width=1024, layers=None)
    return replace(found, experts=None, feed_forward=width, vocabulary=128)


def states_of(model: Transformer) -> StateSpace:
    assert model.states is not None
    return model.states


def multiplied(model: Transformer, plan: Plan, phase: Phase) -> int:
    """FLOPs of products that are no fused attention's, of one microbatch."""
    blocks = blocks_of_model(model, plan)
    times = Counter(id(one) for one in parts(blocks))
    return sum(
        times[id(one)] * product_flops(block, phase, of_attention=False)
        for one in distinct(blocks)
        for block in (one.forward, one.backward)
    )


def accounted(model: Transformer, plan: Plan) -> float:
    """The same by the account with whole squares of chunks; convolutions are no products."""
    states = states_of(model)
    # Lightning attention's kernels leave masked halves out, as Mamba-2's do.
    of_scans = Convention.FULL if states.rule.is_delta else Convention.CAUSAL
    found = {one.part: one.forward for one in flops(model, plan.sequence).parts}
    scans = {
        one.part: one.forward for one in flops(model, plan.sequence, convention=of_scans).parts
    }
    layers = sum(layer.has_states for layer in model.layers)
    left_out = 2 * layers * states.convolution * states.convolved + found["attention scores"]
    total = sum(found.values()) - left_out - found["state scans"] + scans["state scans"]
    return total * plan.micro_batch * plan.sequence


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("micro_batch", [1, 2])
def test_products_of_a_forward_pass_are_those_of_the_account(name: str, micro_batch: int) -> None:
    plan = Plan(sequence=2048, micro_batch=micro_batch)
    model = model_of(name)

    assert multiplied(model, plan, Phase.FORWARD) == accounted(model, plan)


def test_tensor_and_context_ranks_divide_all_products() -> None:
    plan = Plan(sequence=2048, tensor=2, context=4)  # two heads of keys of attention
    model = model_of("qwen3-next-80b-a3b")
    alone = multiplied(model, Plan(sequence=2048), Phase.FORWARD)

    assert multiplied(model, plan, Phase.FORWARD) * 8 == alone


def test_the_backward_pass_makes_all_but_outputs_again_and_the_inverses_gradient() -> None:
    model = model_of("qwen3.5-27b")
    states, chunk = states_of(model), 64
    setting = Setting(model, Plan(sequence=chunk))

    step = scan_step(setting, states)

    def total(items: tuple[Operator | Exchange, ...]) -> int:
        layer = replace(first_layer(model, setting.plan).forward, items=items)
        return product_flops(layer, Phase.FORWARD, of_attention=False)

    heads, size, width = states.num_heads, states.state_size, states.head_size
    again = chunk * chunk * (3 * size + width) + 2 * chunk * size * width
    inverse = 2 * chunk**3
    forward = total(step.forward)
    assert forward == 2 * heads * (chunk**2 * (3 * size + 2 * width) + 3 * chunk * size * width)
    assert total(step.backward) == 2 * forward + 2 * heads * (again + inverse)


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("name", NAMES)
def test_tensor_ranks_divide_the_parameters_of_states(name: str, tensor: int) -> None:
    model = model_of(name)
    model = replace(model, num_layers=1, states=replace(states_of(model), layers=(0,)))
    model = replace(model, attention=replace(model.attention, layers=()))
    states = states_of(model)
    whole = parameters(model).of("states").total
    # Short vectors of gates, and scales that all heads share, are on every rank.
    shared = 2 * states.gate_rank * model.hidden
    shared += states.head_size if states.rule.is_delta else 0

    found = first_layer(model, Plan(sequence=2048, tensor=tensor)).parameters.dense

    rest = 2 * model.hidden + 3 * model.hidden * 1024 // tensor
    assert found == (whole - shared) // tensor + shared + rest


def test_decays_of_every_number_are_made_of_short_vectors() -> None:
    layer = first_layer(model_of("kimi-linear-48b-a3b"), Plan(sequence=1024))

    labels = [one.label for one in operators(layer.forward)]
    assert labels.index("state decays") < labels.index("keys with keys")
    assert "queries and keys by their decays" in labels


def test_attention_is_weighed_by_its_gate() -> None:
    model = from_hf_config(COUNTED["qwen3-next-80b-a3b"][0])
    only = replace(model, states=None, attention=replace(model.attention, layers=None))

    layer = first_layer(only, Plan(sequence=1024))

    labels = [one.label for one in operators(layer.forward)]
    assert labels.index("attention by its gate") == labels.index("attention") + 1
    assert "attention by its gate, gradient" in [one.label for one in operators(layer.backward)]


@pytest.mark.parametrize("tensor", [3, 32])
def test_ranks_that_cannot_divide_groups_are_refused(tensor: int) -> None:
    model = model_of("qwen3-next-80b-a3b")

    with pytest.raises(WorkloadError, match=f"tp {tensor} does not divide 16"):
        check_plan(Plan(sequence=2048, tensor=tensor), model)


def test_what_is_stated_twice_of_short_vectors_has_to_agree() -> None:
    states = states_of(from_hf_config(COUNTED["kimi-linear-48b-a3b"][0]))

    assert (states.rule, states.gate_rank, states.num_decays) == (
        StateRule.CHANNEL_DELTA,
        128,
        4096,
    )
