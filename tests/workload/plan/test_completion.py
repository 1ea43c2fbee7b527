from __future__ import annotations

import json
from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    Plan,
    PlanDraft,
    Recompute,
    Sharding,
    check_plan,
    complete,
    completions,
    load_model,
    load_plan,
)

LLAMA = load_model("llama3-8b")  # 32 layers, 8,192 tokens
MIXTRAL = load_model("mixtral-8x7b")
STATED = {
    "tp": 2,
    "pp": 2,
    "global_batch": 64,
    "micro_batch": 1,
    "schedule": "1f1b",
    "recompute": "none",
    "sharding.level": "zero1",
    "sequence_parallel": True,
    "sequence": 4096,
}


def draft(**changes: object) -> PlanDraft:
    """A draft that leaves nothing open, but for what is changed to `None`."""
    keys = {**STATED, **changes}
    return PlanDraft().with_keys({key: value for key, value in keys.items() if value is not None})


def without(*keys: str) -> PlanDraft:
    return PlanDraft().with_keys({key: value for key, value in STATED.items() if key not in keys})


def test_a_draft_that_leaves_nothing_open_is_one_plan_without_assumptions() -> None:
    found = completions(draft(), LLAMA, 16)

    assert found.assumptions == ()
    assert found.plans == (replace(draft().plan(), data=4),)


def test_data_ranks_are_what_the_other_axes_leave() -> None:
    assert complete(draft(), LLAMA, 64).data == 16
    assert complete(draft(), LLAMA).data == 1
    assert complete(draft(dp=2), LLAMA, 64).data == 2


def test_ranks_that_the_other_axes_do_not_divide_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"tp 2 x cp 1 x pp 2 = 4 does not divide 30 ranks"):
        complete(draft(), LLAMA, 30)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("recompute", [Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL]),
        ("sharding.level", [Sharding.ZERO1, Sharding.NONE]),
        ("sequence_parallel", [True, False]),
        ("micro_batch", [1, 2, 4]),
        ("sequence", [8192]),
    ],
)
def test_what_is_open_takes_its_legal_values_and_is_said_to(key: str, values: list[object]) -> None:
    found = completions(without(key), LLAMA, 16)

    (assumption,) = found.assumptions
    assert assumption.key.endswith(key)
    assert list(assumption.values) == values
    assert len(found.plans) == len(values)
    for plan in found.plans:
        check_plan(plan, LLAMA, 16)


def test_an_open_schedule_is_1f1b_or_interleaved_with_chunks_that_split_evenly() -> None:
    found = completions(without("schedule"), LLAMA, 16)

    pairs = [(plan.schedule, plan.num_chunks) for plan in found.plans]
    assert pairs[0] == ("1f1b", 1)
    assert pairs[1:] == [("interleaved", chunks) for chunks in (2, 8, 16)]
    assert {each.key for each in found.assumptions} == {"pipeline.schedule", "pipeline.chunks"}


def test_chunks_without_a_schedule_are_interleaved() -> None:
    keys = {key: value for key, value in STATED.items() if key != "schedule"}

    plan = complete(PlanDraft().with_keys({**keys, "chunks": 4}), LLAMA, 16)

    assert plan.schedule == "interleaved"


def test_open_chunks_of_llama_3_include_those_with_an_end_of_their_own() -> None:
    model = load_model("llama3-405b")
    keys = {"tp": 8, "pp": 16, "global_batch": 2048, "schedule": "interleaved"}

    found = completions(PlanDraft().with_keys(keys), model, 16384)

    assert {plan.num_chunks for plan in found.plans} == {2, 4, 8}


def test_values_that_are_not_legal_are_left_out() -> None:
    """Four sequences at once would leave two microbatches, and two stages of dualpipe need four."""
    found = completions(draft(schedule="dualpipe", micro_batch=None, global_batch=8), LLAMA, 4)
    indivisible = completions(draft(micro_batch=None, global_batch=6), LLAMA, 4)

    assert [plan.micro_batch for plan in found.plans] == [1, 2]
    assert [plan.micro_batch for plan in indivisible.plans] == [1, 2]


def test_what_one_rank_or_one_stage_cannot_tell_apart_is_no_assumption() -> None:
    found = completions(PlanDraft().with_keys({"global_batch": 1, "sequence": 8}), LLAMA, 1)

    assert {each.key for each in found.assumptions} == {"memory.recompute", "batch.micro_batch"}


def test_experts_with_tensor_ranks_have_sequence_parallelism() -> None:
    found = completions(without("sequence_parallel").with_keys({"etp": 1}), MIXTRAL, 16)

    assert [plan.sequence_parallel for plan in found.plans] == [True]
    assert "Megatron-LM" in found.assumptions[0].reason


def test_experts_are_whole_or_divided_as_other_layers_are() -> None:
    found = completions(draft(ep=8), MIXTRAL, 16)
    too_many = completions(draft(ep=8), MIXTRAL, 32)

    # 16 ranks on two stages: 2 x 8 do not divide 8, so that only whole experts are legal.
    assert [plan.expert_tensor for plan in found.plans] == [1]
    assert [plan.expert_tensor for plan in too_many.plans] == [1, 2]


@pytest.mark.parametrize(
    ("domain", "num_ranks", "sizes"),
    [(8, 64, [8, 1]), (72, 64, [8, 1]), (8, 12, [4, 1]), (4, 64, [4, 1]), (8, 7, None)],
)
def test_experts_lie_over_a_fast_domain_where_nothing_is_said_of_a_division(
    domain: int, num_ranks: int, sizes: list[int] | None
) -> None:
    bare = PlanDraft().with_keys({"global_batch": 4 * num_ranks, "sequence": 4096})

    found = completions(bare, MIXTRAL, num_ranks, domain=domain)

    values = {one.key: list(one.shown) for one in found.assumptions}
    assert values.get("parallelism.ep") == sizes
    assert found.plan.expert == (1 if sizes is None else sizes[0])


@pytest.mark.parametrize("key", ["tp", "ep", "pp", "sharding.level"])
def test_a_division_that_is_said_is_left_as_it_is(key: str) -> None:
    stated = "zero1" if key == "sharding.level" else 1
    bare = PlanDraft().with_keys({"global_batch": 64, "sequence": 4096, key: stated})

    assert completions(bare, MIXTRAL, 16, domain=8).plan.expert == 1


def test_dense_models_and_machines_without_a_domain_divide_no_experts() -> None:
    bare = PlanDraft().with_keys({"global_batch": 64, "sequence": 4096})

    for model, domain in ((LLAMA, 8), (MIXTRAL, 1)):
        assert completions(bare, model, 16, domain=domain).plan.expert == 1


def test_one_axis_alone_is_taken_for_fsdp() -> None:
    plan = complete(PlanDraft().with_keys({"global_batch": 8, "sequence": 8}), LLAMA, 8)

    assert plan.sharding is Sharding.ZERO3


def test_a_diffusion_network_is_trained_whole_and_in_passes_of_four() -> None:
    found = completions(
        PlanDraft({"data": 8, "global_batch": 64}), load_model("stable-diffusion-1.5")
    )

    assert (found.plan.sharding, found.plan.micro_batch) == (Sharding.NONE, 4)
    assert {each.key: each.shown[0] for each in found.assumptions} == {
        "sharding.level": "none",
        "batch.micro_batch": 4,
    }


def test_few_open_keys_are_combined_and_many_are_varied_one_by_one() -> None:
    few = completions(without("recompute", "micro_batch"), LLAMA, 16)
    many = completions(PlanDraft().with_keys({"tp": 2, "pp": 2, "global_batch": 64}), LLAMA, 16)

    assert len(few.plans) == 3 * 3
    assert len(set(few.plans)) == 3 * 3
    base = many.plan
    # Sharding, sequence parallelism, two more of recompute and of batches, three more schedules.
    assert len(many.plans) == 1 + 1 + 1 + 2 + 2 + 3
    for plan in many.plans[1:]:
        undone = [
            replace(plan, sharding=base.sharding),
            replace(plan, recompute=base.recompute),
            replace(plan, sequence_parallel=base.sequence_parallel),
            replace(plan, micro_batch=base.micro_batch),
            replace(plan, schedule=base.schedule, num_chunks=base.num_chunks),
        ]
        assert undone.count(base) == 1


def test_no_more_plans_come_than_were_asked_for() -> None:
    found = completions(without("recompute", "micro_batch"), LLAMA, 16, at_most=2)

    assert len(found.plans) == 2


def test_plans_that_do_not_fit_are_left_out_unless_none_does() -> None:
    def is_full(plan: Plan) -> bool:
        return plan.recompute is Recompute.FULL

    fitting = completions(without("recompute"), LLAMA, 16, fits=is_full)
    hopeless = completions(without("recompute"), LLAMA, 16, fits=lambda _: False)

    assert [plan.recompute for plan in fitting.plans] == [Recompute.FULL]
    assert fitting.assumptions[0].values == (Recompute.FULL,)
    assert len(hopeless.plans) == 3


def test_a_batch_that_is_not_stated_is_asked_for() -> None:
    with pytest.raises(
        WorkloadError, match=r"state global_batch \(--global-batch 2048\), as in global_batch"
    ):
        complete(without("global_batch"), LLAMA, 16)


def test_a_draft_that_no_legal_plan_agrees_with_says_why() -> None:
    with pytest.raises(WorkloadError, match="tp 3 does not divide 32 heads"):
        completions(PlanDraft().with_keys({"tp": 3, "global_batch": 4}), LLAMA, 3)


def test_assumptions_become_a_table_and_plain_values() -> None:
    found = completions(without("recompute", "sequence"), LLAMA, 16)

    assert found.to_polars().select("key", "values").rows() == [
        ("batch.sequence", "8192"),
        ("memory.recompute", "none, selective, full"),
    ]
    plain = json.loads(json.dumps(found.as_json()))
    assert plain["assumptions"][1]["values"] == ["none", "selective", "full"]
    assert [plan["memory"]["recompute"] for plan in plain["plans"]] == [
        "none",
        "selective",
        "full",
    ]


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "tokens"),
    [
        ("llama3-405b-8k-8k-gpus", 8192, 32, 2**24),
        ("llama3-405b-8k-16k-gpus", 16384, 16, 2**24),
        ("llama3-405b-128k-16k-gpus", 16384, 16, 2**24),
    ],
)
def test_the_presets_of_llama_3_are_the_rows_of_its_table(
    name: str, ranks: int, microbatches: int, tokens: int
) -> None:
    found = completions(load_plan(name), load_model("llama3-405b"), ranks)

    assert found.assumptions == ()
    assert found.plan.num_ranks == ranks
    assert found.plan.num_microbatches == microbatches
    assert found.plan.global_batch * found.plan.sequence == tokens


def test_the_preset_of_deepseek_v3_leaves_nothing_open() -> None:
    found = completions(load_plan("deepseek-v3"), load_model("deepseek-v3"), 2048)

    assert found.assumptions == ()
    assert found.plan.num_ranks == 2048
    assert found.plan.num_microbatches == 120
