"""Parameters, gradients and states of the optimizer, under every way to divide them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.workload import Plan, Precision, Sharding, Transformer, load_model
from foretrace.workload import parameters as parameters_of
from foretrace.workload.footprint.states import Held, ends_held, layer_held, states_of
from tests.models import transformer

_BILLIONS = Held(matrices=7_500_000_000)
_MIXED = Precision(gradients="bf16")  # the paper keeps 16-bit gradients


def total_gb(plan: Plan, held: Held = _BILLIONS) -> float:
    """Bytes of states in GB."""
    states = states_of(held, plan, keeps_transposes=False)
    return (states.parameters + states.gradients + states.optimizer) / 1e9


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        (Sharding.NONE, 120.0),
        (Sharding.ZERO1, 31.4),
        (Sharding.ZERO2, 16.6),
    ],
)
def test_zero_needs_what_figure_1_of_its_paper_says(sharding: Sharding, expected: float) -> None:
    plan = Plan(data=64, sharding=sharding, precision=_MIXED)

    assert total_gb(plan) == pytest.approx(expected, abs=0.05)


def test_zero_3_shards_16_bytes_a_parameter_however_they_are_called() -> None:
    # The paper: 2 + 2 + 12 = 16 bytes, 1.9 GB. FSDP: the shard is the fp32 copy, 4 + 2 + 8 = 14.
    plan = Plan(data=64, sharding=Sharding.ZERO3, precision=_MIXED)

    states = states_of(_BILLIONS, plan, keeps_transposes=False)

    shard = 7.5e9 / 64
    assert states.parameters == pytest.approx(4 * shard)
    assert states.gradients == pytest.approx(2 * shard)
    assert states.optimizer == pytest.approx(8 * shard)


def test_megatron_with_a_distributed_optimizer_needs_6_bytes_and_12_over_ranks() -> None:
    # docs/source/api-guide/dist_optimizer.md of Megatron-LM: bf16 parameters, fp32 gradients.
    plan = Plan(data=4, context=2, sharding=Sharding.ZERO1)

    assert total_gb(plan) == pytest.approx(7.5 * (6 + 12 / 8))


def test_shards_over_fewer_ranks_are_larger() -> None:
    plan = Plan(data=64, sharding=Sharding.ZERO3)

    hybrid = replace(plan, shard_ranks=8)

    assert total_gb(hybrid) == pytest.approx(8 * total_gb(plan))


def test_fp8_parameters_take_a_byte_and_another_where_they_are_kept_transposed() -> None:
    plan = Plan(precision=Precision(products="fp8", parameters="fp8"))
    held = Held(matrices=1000, rest=10)

    alone = states_of(held, plan, keeps_transposes=False).parameters
    twice = states_of(held, plan, keeps_transposes=True).parameters

    assert (alone, twice) == (1000 + 20, 2000 + 20)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt2", "bloom-176b"])
def test_a_rank_alone_holds_every_parameter(name: str) -> None:
    model, plan = load_model(name), Plan()
    assert isinstance(model, Transformer)

    held = [layer_held(model, layer, plan) for layer in model.layers]
    embedding, output = ends_held(model, plan)
    total = sum(each.dense + each.experts for each in (*held, embedding, output))

    copied = model.vocabulary * model.hidden if model.ties_embeddings else 0
    assert total - copied == parameters_of(model).total


def test_experts_are_divided_over_expert_ranks_and_the_rest_over_tensor_ranks() -> None:
    model = transformer("mixtral-8x7b")
    alone = layer_held(model, model.layers[0], Plan())

    held = layer_held(model, model.layers[0], Plan(tensor=2, data=4, expert=4, expert_tensor=1))

    assert held.experts == alone.experts // 4
    assert held.matrices == alone.matrices // 2
    assert held.rest == alone.rest


def test_states_of_experts_are_divided_over_ranks_that_hold_the_same_ones() -> None:
    # 2 x 4 = 8 ranks, 4 of which hold different experts: 2 hold the same.
    plan = Plan(tensor=2, data=4, expert=4, expert_tensor=1, sharding=Sharding.ZERO1)

    states = states_of(Held(experts=1000), plan, keeps_transposes=False)

    assert states.optimizer == 12 * 1000 / 2
