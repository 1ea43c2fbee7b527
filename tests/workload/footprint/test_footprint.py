"""The footprint of whole plans: what fits, what is said, and when it is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.machine import load_chip
from foretrace.workload import (
    MEGATRON,
    PYTORCH,
    Footprint,
    Plan,
    Recompute,
    Sharding,
    footprint,
    load_model,
    schedule_of,
    software_of,
)
from foretrace.workload.footprint.parts import layer_bytes
from tests.models import transformer

_PLAN = Plan(
    tensor=8, pipeline=16, data=128, global_batch=2048, sequence=8192, sequence_parallel=True
)


def of(plan: Plan, name: str = "llama3-405b", capacity: int | None = None) -> Footprint:
    """The footprint of a model of the catalogue."""
    return footprint(load_model(name), plan, schedule_of(plan), capacity=capacity)


def test_405b_fits_an_h100_when_states_are_sharded_and_not_else() -> None:
    chip = load_chip("h100-sxm")
    plan = replace(_PLAN, sequence=4096)
    sharded = replace(plan, sharding=Sharding.ZERO1)

    whole = footprint(load_model("llama3-405b"), plan, schedule_of(plan), chip=chip)
    fits = footprint(load_model("llama3-405b"), sharded, schedule_of(sharded), chip=chip)

    assert whole.fits is False
    assert fits.fits is True
    assert fits.margin == chip.memory_bytes - fits.peak.total


def test_nobody_says_whether_it_fits_without_a_capacity() -> None:
    found = of(_PLAN)

    assert (found.capacity, found.margin, found.fits) == (None, None, None)


def test_a_total_is_the_sum_of_its_parts() -> None:
    for stage in of(_PLAN).stages:
        parts = (
            stage.parameters,
            stage.gradients,
            stage.optimizer,
            stage.activations,
            stage.buffers,
        )
        assert min(parts) > 0
        assert stage.allocated == sum(parts)
        assert stage.total == stage.allocated + stage.context


def test_recompute_keeps_less_the_more_it_does() -> None:
    kept = [
        of(replace(_PLAN, recompute=each, sharding=Sharding.ZERO1)).stages[0].activations
        for each in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    ]

    assert kept[0] > kept[1] > kept[2] > 0


def test_zero_bubble_needs_no_less_than_1f1b() -> None:
    split = of(replace(_PLAN, schedule="zb-h1"))

    for stage, alike in zip(split.stages, of(_PLAN).stages, strict=True):
        assert stage.total >= alike.total


def test_dualpipe_holds_parameters_of_two_stages_on_each() -> None:
    one = of(replace(_PLAN, pipeline=14, global_batch=128 * 28))

    two = of(replace(_PLAN, pipeline=14, global_batch=128 * 28, schedule="dualpipe"))

    held = sum(stage.parameters for stage in one.stages)
    assert sum(stage.parameters for stage in two.stages) == 2 * held


def test_tied_embeddings_count_once_on_a_stage_that_holds_both_ends() -> None:
    plan = Plan(global_batch=1, sequence=1024)

    found = of(plan, "gpt2").peak

    # 124,439,808 parameters of 2 bytes: openai-community/gpt2.
    assert found.parameters == 2 * 124_439_808


def test_more_tokens_for_one_expert_need_more_on_its_rank() -> None:
    plan = Plan(data=8, expert=8, global_batch=8, sequence=4096)
    uneven = (0.3, *[0.1] * 7)

    balanced = of(plan, "mixtral-8x7b").peak.activations
    found = of(replace(plan, token_shares=uneven), "mixtral-8x7b").peak.activations

    assert found > balanced


def test_even_shares_are_as_no_shares() -> None:
    plan = Plan(data=8, expert=8, global_batch=8, sequence=4096)

    assert of(plan, "mixtral-8x7b") == of(replace(plan, token_shares=(0.125,) * 8), "mixtral-8x7b")


def test_8_bit_weights_are_kept_twice_on_hopper_alone() -> None:
    precision = replace(_PLAN.precision, products="fp8", parameters="fp8")
    plan = replace(_PLAN, precision=precision)
    model, schedule = load_model("llama3-405b"), schedule_of(_PLAN)

    hopper, blackwell = (
        footprint(model, plan, schedule, chip=load_chip(name)).stages[1].parameters
        for name in ("h100-sxm", "b200-sxm")
    )

    assert hopper / blackwell == pytest.approx(2, rel=1e-3)


def test_zero_3_is_taken_to_be_pytorch_and_the_rest_megatron() -> None:
    assert software_of(replace(_PLAN, sharding=Sharding.ZERO3)) is PYTORCH
    assert software_of(_PLAN) is MEGATRON


def test_memory_of_other_models_is_refused_in_words() -> None:
    plan = Plan()

    with pytest.raises(WorkloadError, match="only a transformer's"):
        of(plan, "dlrm-mlperf-v2")


def test_tables_and_json_say_the_same() -> None:
    found = of(_PLAN, capacity=80 * 2**30)

    frame, said = found.to_polars(), found.as_json()

    assert json.loads(json.dumps(said)) == said
    assert frame.height == len(found.stages) == 16
    assert frame["total"].max() == found.peak.total
    assert said["margin"] == 80 * 2**30 - found.peak.total


@pytest.mark.parametrize(
    ("context", "data", "batch", "sequence"),
    [(1, 64, 32, 8192), (1, 128, 16, 8192), (16, 8, 16, 131_072)],
)
def test_llama_3_405b_fits_its_gpus_without_recompute_as_it_was_trained(
    context: int, data: int, batch: int, sequence: int
) -> None:
    # Llama Team, arXiv 2407.21783, table 4 and section 3.3.2: "without activation checkpointing".
    plan = replace(
        _PLAN,
        context=context,
        data=data,
        global_batch=batch * data,
        sequence=sequence,
        sharding=Sharding.ZERO2,
        schedule="interleaved",
        num_chunks=8,
    )

    found = footprint(
        load_model("llama3-405b"), plan, schedule_of(plan), chip=load_chip("h100-sxm")
    )

    # On 8,192 GPUs 1.2% too much: the error on measured peaks is larger than that.
    assert found.margin is not None
    assert found.capacity is not None
    assert found.margin > -0.015 * found.capacity


def test_llama_3_405b_would_not_fit_without_sequence_parallel() -> None:
    plan = replace(_PLAN, sharding=Sharding.ZERO2, sequence_parallel=False)

    found = footprint(
        load_model("llama3-405b"), plan, schedule_of(plan), chip=load_chip("h100-sxm")
    )

    assert found.fits is False


def test_a_layer_of_deepseek_v3_keeps_what_its_sizes_add_up_to() -> None:
    # Sizes of deepseek-ai/DeepSeek-V3, config.json; bytes of one token.
    hidden, heads, experts = 7168, 128, 8
    norms = 2 * (2 * hidden + 4 + 2 * hidden)
    latent = 2 * 2 * (1536 + 512)
    attention = 2 * heads * (192 + 192 + 128 + 128) + 4 * heads
    routed = 2 * 4 * 256 + experts * (2 * hidden + 2 * 3 * 2048)
    shared = 2 * 3 * 2048
    plan = Plan(data=8, expert=8, global_batch=8, sequence=4096)
    model = transformer("deepseek-v3")

    kept = layer_bytes(model, plan, MEGATRON, layer=model.layers[-1]).kept_bytes

    assert kept == 4096 * (norms + latent + attention + routed + shared)


def test_tokens_are_kept_once_more_where_weights_are_applied_to_them() -> None:
    plan = Plan(data=8, expert=8, global_batch=8, sequence=4096)
    model = transformer("mixtral-8x7b")

    within, apart = (
        layer_bytes(
            model, plan, replace(MEGATRON, weighs_in_activation=each), layer=model.layers[0]
        )
        for each in (True, False)
    )

    assert apart.kept_bytes - within.kept_bytes == 4096 * 2 * 4096 * 2


def test_pytorch_keeps_whole_gradients_until_the_end_of_a_pipeline() -> None:
    implementation = replace(_PLAN.implementation, copies_shards=True)
    plan = replace(_PLAN, sharding=Sharding.ZERO3, implementation=implementation)
    plan = replace(plan, reshard_after_forward=False)

    waits = of(plan).stages[1].buffers
    alone = replace(plan, implementation=replace(implementation, copies_shards=False))

    # 8 layers of 3,187,703,808 parameters on 8 tensor ranks, in fp32, norms not divided.
    assert waits - of(alone).stages[1].buffers > 8 * 3.18e9 / 8 * 4
