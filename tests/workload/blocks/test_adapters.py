"""Low-rank adapters: products of their own, no gradients of frozen weights, memory and FLOPs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.operators import work_of
from foretrace.workload import (
    AdaptedModule,
    Adapters,
    Exchange,
    Plan,
    Sharding,
    blocks_of_model,
    check_plan,
    footprint,
    load_model,
    plan_flops,
    schedule_of,
)
from foretrace.workload.blocks.adapters import adapter_weights
from foretrace.workload.exchanges.gradients import total_parameters
from tests.models import transformer

LLAMA = transformer("llama3-8b")
ALL = Plan(data=2, global_batch=4, sequence=1024)
ADAPTED = replace(ALL, adapters=Adapters(rank=16))


def product_flops(plan: Plan) -> int:
    """Of one microbatch's passes through the first layer, scores left out."""
    layer = blocks_of_model(LLAMA, plan).layers[0]
    items = (*layer.forward.items, *layer.backward.items)
    operators = [one for one in items if not isinstance(one, Exchange)]
    work = [work_of(one.name, one.signature) for one in operators if "attention" not in one.name]
    return sum(one.flops for one in work if one is not None and one.is_product)


def test_an_adapter_of_rank_16_has_as_many_weights_as_its_matrices() -> None:
    hidden, keys, width = 4096, 1024, 14336
    qkv, output = hidden + hidden + 2 * keys, 2 * hidden
    layer = 16 * (qkv + output + hidden + 2 * width + width + hidden)

    assert adapter_weights(LLAMA, ADAPTED) == 32 * layer


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("modules", [tuple(AdaptedModule), (AdaptedModule.QKV,)])
def test_products_are_two_of_each_frozen_weight_and_three_of_each_adapter(
    tensor: int, modules: tuple[AdaptedModule, ...]
) -> None:
    plan = replace(ADAPTED, tensor=tensor, adapters=Adapters(rank=16, modules=modules))
    all_trained = product_flops(replace(plan, adapters=None))

    own = blocks_of_model(LLAMA, plan).layers[0].parameters.dense

    assert product_flops(plan) == all_trained * 2 // 3 + 6 * own * plan.sequence


def test_the_blocks_train_what_the_plan_counts() -> None:
    blocks = blocks_of_model(LLAMA, ADAPTED)
    ends = [one for one in (blocks.embedding, blocks.head) if one is not None]

    assert total_parameters(blocks.layers).dense == adapter_weights(LLAMA, ADAPTED)
    assert total_parameters(ends).dense == 0


def test_flops_of_a_token_are_four_for_a_frozen_weight_and_six_for_an_adapters() -> None:
    whole, found = plan_flops(LLAMA, ALL), plan_flops(LLAMA, ADAPTED)
    scores = sum(part.forward for part in whole.parts if part.part == "attention scores")

    weights = (whole.forward - scores) / 2
    assert found.training == pytest.approx(
        4 * weights + 3 * scores + 6 * adapter_weights(LLAMA, ADAPTED), rel=1e-12
    )


def test_gradients_and_optimizer_are_of_adapters_alone() -> None:
    own = adapter_weights(LLAMA, ADAPTED)
    stage = footprint(LLAMA, ADAPTED, schedule_of(ADAPTED)).stages[0]
    whole = footprint(LLAMA, ALL, schedule_of(ALL)).stages[0]

    assert stage.gradients == 4 * own
    assert stage.optimizer == 12 * own
    assert stage.parameters == whole.parameters + 2 * own


@pytest.mark.parametrize(
    ("model", "plan", "said"),
    [
        ("llama3-8b", replace(ADAPTED, sharding=Sharding.ZERO3), "choose none, zero1 or zero2"),
        ("mixtral-8x7b", ADAPTED, "has experts there"),
        ("deepseek-v3", ADAPTED, "vectors of latent attention"),
        ("dlrm-mlperf-v2", replace(ADAPTED, sequence=1, global_batch=2), "leave them out"),
    ],
)
def test_what_is_not_known_is_refused(model: str, plan: Plan, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        check_plan(plan, load_model(model))
