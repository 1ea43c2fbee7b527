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

    frame, said = found.to_frame(), found.as_json()

    assert json.loads(json.dumps(said)) == said
    assert frame.height == len(found.stages) == 16
    assert frame["total"].max() == found.peak.total
    assert said["margin"] == 80 * 2**30 - found.peak.total
